"""Bugs to be planted in what is compiled; `mutants.py` does it."""

from .mutants import Mutant

KERNEL = {
    "the last byte of a body is not in its checksum": Mutant(
        "    return crc_of(&data[0], data.shape[0])",
        "    return crc_of(&data[0], data.shape[0] - 1)",
        ("tests/unit/kernel/test_hashing.py",),
        "test_crc_is_zlibs_without_the_sign_bit",
    ),
    "a checksum of rows leaves their last bytes out": Mutant(
        "bounds[i + 1] - bounds[i]),",
        "bounds[i + 1] - bounds[i] - (bounds[i + 1] > bounds[i])),",
        ("tests/property/test_checksums.py",),
        "test_checksums - AssertionError",
    ),
    "a delayed message comes too early": Mutant(
        "        if deliver_ms > due_ms:",
        "        if deliver_ms > due_ms + 1000:",
        ("tests/unit/store/test_deliveries.py", "tests/unit/broker/test_schedule.py"),
        "comes_when_its_delay_is_over_and_not_before",
    ),
    "a delivery is not noted": Mutant(
        "        note(noted, offset, end, log.end)\n",
        "",
        ("tests/unit/store/test_deliveries.py", "tests/unit/broker/test_schedule.py"),
        "a_kill_is_followed_by_no_second_delivery",
    ),
    "a note overwrites the newer copy": Mutant(
        "    if load64(slot + 16) <= load64(slot + COPY_BYTES + 16):",
        "    if load64(slot + 16) > load64(slot + COPY_BYTES + 16):",
        ("tests/unit/store/test_deliveries.py", "tests/property/test_delays.py"),
        "test_a_note_of_a_log_that_was_longer_does_not_count",
    ),
    "staged rows name another queue": Mutant(
        "    draft.queue_id = queue.queue_id\n    draft.keys",
        "    draft.queue_id = queue.queue_id + 1\n    draft.keys",
        ("tests/unit/broker/staging", "tests/property/test_staging_model.py"),
        "test_staging.py::|test_staging_model.py::",
    ),
    "a bulk read skips what did not fit": Mutant(
        "            if self.count and self.byte_count + size > self.bytes_max:\n",
        "            if self.count and self.byte_count + size > self.bytes_max:\n"
        "                self.next_offset += 1\n",
        ("tests/property/test_bulk_read.py", "tests/unit/broker/test_bulk.py"),
        "test_bulk_reads_bring_what_reads_do",
    ),
    "a bulk read passes over segments it does not hold": Mutant(
        "self.log_first <= where < self.visible and self.next_offset > self.first:",
        "self.log_first <= where < self.visible and self.count:",
        ("tests/property/test_bulk_read.py",),
        "test_what_matches_is_found_however_many_segments_lie_before_it",
    ),
    "the commit of the first half message is not found": Mutant(
        "if prepared != 0 or flags & TRANSACTION_BITS == TRANSACTION_COMMIT:",
        "if prepared != 0:",
        ("tests/unit/store/test_commits.py",),
        "test_every_record_that_names_one_is_found",
    ),
    "a record's retries are read from the next field": Mutant(
        "load32(at + end - RECONSUME_TIMES_BEFORE_BODY)",
        "load32(at + end - PREPARED_OFFSET_BEFORE_BODY)",
        ("tests/property/test_records.py", "tests/unit/protocol"),
        "test_records_are_what_the_slow_reader_reads",
    ),
    "the last operand of a filter is left out": Mutant(
        "range(node.first, node.first + node.second)",
        "range(node.first, node.first + node.second - 1)",
        ("tests/property/test_filters.py",),
        "test_the_kernel_and_the_twin_agree",
    ),
    "a pop is settled before its last message": Mutant(
        "(<uint64_t> 1 << count) - 1",
        "(<uint64_t> 1 << (count - (count > 1))) - 1",
        ("tests/unit/broker/pop", "tests/property/test_pop_lane.py"),
        "test_the_bits_of_a_checkpoint",
    ),
    "a record is written with the checksum of a part": Mutant(
        "body_crc(draft.body.at, draft.body.size)",
        "body_crc(draft.body.at, draft.body.size - 1)",
        ("tests/unit/kernel/test_log.py", "tests/unit/store/test_store.py"),
        "test_record_bytes",
    ),
    "a record is shown before it is stored": Mutant(
        "<int64_t> load64(at) < log.visible:",
        "<int64_t> load64(at) <= log.visible:",
        ("tests/unit/kernel/test_log.py", "tests/unit/store/test_store.py"),
        "test_reading_stops_at_what_is_visible",
    ),
    "a read passes over the next message": Mutant(
        "    result.next_offset = offset\n",
        "    result.next_offset = offset + 1\n",
        ("tests/unit/kernel/test_log.py", "tests/unit/store/test_store.py"),
        "test_reading_stops_at_what_is_visible",
    ),
    "the lane tells a wrong next offset": Mutant(
        '"nextBeginOffset", 15, result.next_offset)',
        '"nextBeginOffset", 15, result.next_offset + 1)',
        ("tests/property/test_lane.py",),
        "test_pulls_that_waited_are_answered_alike|nextBeginOffset",
    ),
}
