"""The store from its front door: what is appended can be read, found by time, by key and by id."""

from __future__ import annotations

import errno
import struct
from dataclasses import replace

import pytest

from ariane.clock import ManualClock
from ariane.disk import SimulatedDisk
from ariane.errors import MessageTooLarge, StoreError, StoreLocked, UnsupportedStore
from ariane.protocol.message import decode_records
from ariane.store.check import check
from ariane.store.checkpoint import CheckpointFile
from ariane.store.messages import Boundary, FoundStatus
from ariane.store.store import Store

from .shelf import (
    BORN,
    FOREVER_MS,
    HOST,
    SMALL,
    append,
    batch,
    bodies,
    config_with,
    keys_found,
    message,
    open_store,
    read_all,
)


class TestAppend:
    def test_a_message_comes_back_as_it_was(self) -> None:
        clock = ManualClock()
        store = open_store(clock=clock)
        sent = replace(
            message(b"body", "Topic-1", 3, TAGS="TagA", KEYS="a b", own="x y"),
            flag=5,
            system_flag=0x100,
            reconsume_times=2,
            prepared_offset=9,
        )
        placed = store.append(sent)
        (found,) = read_all(store, "Topic-1", 3)
        assert (found.body, found.topic, found.queue_id) == (b"body", "Topic-1", 3)
        assert found.properties == {"TAGS": "TagA", "KEYS": "a b", "own": "x y"}
        assert (found.flag, found.system_flag, found.reconsume_times) == (5, 0x100, 2)
        assert (found.born_host, found.store_host) == (BORN, HOST)
        assert (found.born_at_ms, found.stored_at_ms) == (sent.born_at_ms, clock.wall_ms())
        assert (found.prepared_offset, found.queue_offset, found.log_offset) == (9, 0, 0)
        assert placed.size == found.size == placed.end_offset == store.written
        assert (placed.log_offset, placed.queue_offset) == (0, 0)
        assert placed.store_ms == clock.wall_ms()
        assert placed.message_id == "7F00000100002A9F" + "0" * 16

    def test_queues_count_by_themselves(self) -> None:
        store = open_store()
        places = [append(store, b"%d" % i, "AB"[i % 2], i % 3) for i in range(12)]
        assert [place.queue_offset for place in places] == [0] * 6 + [1] * 6
        assert bodies(store, "A", 0) == [b"0", b"6"]
        assert store.topics() == {"A": [0, 1, 2], "B": [0, 1, 2]}

    def test_a_segment_ends_in_a_blank_record(self) -> None:
        disk = SimulatedDisk()
        store = open_store(disk)
        sent = [b"%d" % i + b"x" * 1000 for i in range(10)]
        placed = [append(store, body) for body in sent]
        assert placed[7].log_offset == 8192
        rest = 8192 - placed[6].end_offset
        blank = disk.read(f"commitlog/{0:020d}")[placed[6].end_offset :][:8]
        assert blank == struct.pack(">iI", rest, 0xCBD43194)
        assert bodies(store) == sent
        assert [name for name, _ in disk.names("commitlog")] == [f"{0:020d}", f"{8192:020d}"]

    def test_a_record_never_ends_closer_than_eight_bytes_to_the_end(self) -> None:
        for spare in range(10):
            store = open_store(config=config_with(message_bytes_max=8192))
            overhead = append(store, b"").size
            append(store, b"x" * (8192 - overhead - overhead - spare - 12), UNIQ_KEY="")
            assert append(store, b"z").log_offset in (8192, store.written - overhead - 1)
            assert len(bodies(store)) == 3

    def test_queue_files_follow_each_other(self) -> None:
        disk = SimulatedDisk()
        store = open_store(disk)
        for i in range(65):
            append(store, b"%d" % i)
        assert [name for name, _ in disk.names("consumequeue/T/0")] == [
            f"{at:020d}" for at in (0, 600, 1200)
        ]
        assert bodies(store) == [b"%d" % i for i in range(65)]

    def test_what_is_too_large_is_refused_whole(self) -> None:
        store = open_store(config=config_with(message_bytes_max=100_000))
        with pytest.raises(MessageTooLarge, match="8184 are allowed"):
            append(store, b"x" * 8192)
        with pytest.raises(MessageTooLarge):
            store.append(message(b"", own="v" * 40_000))
        with pytest.raises(MessageTooLarge, match="does not fit into a segment"):
            store.append_batch(batch([b"%d" % i + b"x" * 900 for i in range(9)]))
        assert store.written == 0
        assert store.max_offset("T", 0) == 0

    def test_names_that_are_paths_are_refused(self) -> None:
        store = open_store()
        for topic in ("../../etc", "a/b", "", ".."):
            with pytest.raises(StoreError):
                append(store, b"", topic)
        with pytest.raises(StoreError):
            append(store, b"", "T", -1)

    def test_long_topics_and_ipv6_hosts_keep_their_bytes(self) -> None:
        topic = "%RETRY%" + "g" * 150
        disk = SimulatedDisk()
        store = Store.open(SMALL, disk, ManualClock(), store_host=("::1", 10911))
        store.start()
        placed = store.append(replace(message(b"six", topic), born_host=("2001:db8::7", 80)))
        append(store, b"four", "T")
        (long,) = read_all(store, topic)
        (short,) = read_all(store)
        magic, flag = struct.unpack_from(">4xI28xi", store.record_at(placed.log_offset) or b"")
        assert (magic, flag) == (0xDAA320AB, 0x30)
        assert (long.born_host, long.store_host) == (("2001:db8::7", 80), ("::1", 10911))
        assert long.topic == topic and long.body == b"six"
        assert (short.system_flag, short.born_host, short.body) == (0x20, BORN, b"four")
        assert len(placed.message_id) == 56
        store.stop()
        assert check(disk, SMALL).is_sound

    def test_store_times_never_go_back(self) -> None:
        clock = ManualClock()
        store = open_store(clock=clock)
        first = append(store, b"1").store_ms
        clock.step_wall(-60_000)
        assert append(store, b"2").store_ms == first


class TestBatch:
    def test_a_batch_is_split_into_messages(self) -> None:
        store = open_store()
        append(store, b"before")
        placed = store.append_batch(batch([b"a", b"b", b"c"]))
        found = read_all(store)
        assert [m.body for m in found] == [b"before", b"a", b"b", b"c"]
        assert [m.queue_offset for m in found] == [0, 1, 2, 3]
        assert placed.queue_offset == 1
        assert placed.end_offset == store.written == placed.log_offset + placed.size
        ids = [int(message_id[16:], 16) for message_id in placed.message_ids]
        assert ids == [m.log_offset for m in found[1:]]
        assert [keys_found(store, "T", key) for key in "abc"] == [[offset] for offset in ids]

    def test_a_batch_is_never_torn_by_a_segments_end(self) -> None:
        store = open_store()
        append(store, b"x" * 2000)
        append(store, b"x" * 3900)
        placed = store.append_batch(batch([b"%d" % i + b"y" * 600 for i in range(5)]))
        assert placed.log_offset == 8192
        assert len(bodies(store)) == 7


class TestRead:
    def statuses(self) -> Store:
        store = open_store()
        for i in range(10):
            append(store, b"%d" % i, TAGS="odd" if i % 2 else "even")
        return store

    @pytest.mark.parametrize(
        ("topic", "first", "status", "next_offset"),
        [
            ("T", 0, FoundStatus.FOUND, 10),
            ("T", 9, FoundStatus.FOUND, 10),
            ("T", 10, FoundStatus.OFFSET_OVERFLOW_ONE, 10),
            ("T", 11, FoundStatus.OFFSET_OVERFLOW_BADLY, 10),
            ("T", -1, FoundStatus.OFFSET_TOO_SMALL, 0),
            ("unknown", 5, FoundStatus.NO_MATCHED_LOGIC_QUEUE, 0),
        ],
    )
    def test_outcomes(self, topic: str, first: int, status: FoundStatus, next_offset: int) -> None:
        found = self.statuses().read(topic, 0, first, count_max=32)
        assert (found.status, found.next_offset) == (status, next_offset)
        assert (found.max_offset, found.min_offset) == ((10, 0) if topic == "T" else (0, 0))

    def test_a_queue_that_is_only_waited_for_is_no_queue_yet(self) -> None:
        store = open_store()
        store.queue("T", 0).is_waiting = True
        assert store.read("T", 0, 0, count_max=1).status is FoundStatus.NO_MATCHED_LOGIC_QUEUE
        assert store.topics() == {}
        append(store, b"first")
        assert store.queue("T", 0).is_waiting
        assert bodies(store) == [b"first"]

    def test_tags_are_chosen_by_hash(self) -> None:
        store = self.statuses()
        odd = store.queue("T", 0).entry(1)
        assert odd is not None
        found = store.read("T", 0, 0, count_max=3, tag_codes=frozenset({odd[2]}))
        assert [m.body for m in decode_records(found.body)] == [b"1", b"3", b"5"]
        assert found.next_offset == 7  # past what was looked at and did not match
        found = store.read("T", 0, 0, count_max=3, tag_codes=frozenset({12345}))
        assert (found.status, found.next_offset) == (FoundStatus.NO_MATCHED_MESSAGE, 10)

    def test_limits_hold_but_for_the_first_message(self) -> None:
        store = open_store(config=config_with(transfer_count_memory_max=4))
        for i in range(10):
            append(store, b"%d" % i + b"x" * 500)
        assert store.read("T", 0, 0, count_max=2).message_count == 2
        assert store.read("T", 0, 0, count_max=32).message_count == 4
        assert store.read("T", 0, 0, count_max=32, bytes_max=1500).message_count == 2
        assert store.read("T", 0, 0, count_max=32, bytes_max=1).message_count == 1


class TestLookups:
    def timed(self) -> tuple[Store, int]:
        clock = ManualClock()
        store = open_store(clock=clock)
        start = clock.wall_ms()
        for step_ms in (0, 0, 100, 0, 0, 200):
            clock.advance(step_ms / 1000)
            append(store, b"m")
        return store, start

    @pytest.mark.parametrize(
        ("after_ms", "lower", "upper"),
        [
            (-1, 0, 0),  # earlier than all
            (0, 0, 1),
            (1, 2, 1),
            (100, 2, 4),
            (299, 5, 4),
            (300, 5, 5),
            (301, 6, 5),  # later than all
        ],
    )
    def test_offsets_by_time(self, after_ms: int, lower: int, upper: int) -> None:
        store, start = self.timed()
        assert store.offset_at("T", 0, start + after_ms) == lower
        assert store.offset_at("T", 0, start + after_ms, Boundary.UPPER) == upper

    def test_times_by_offset(self) -> None:
        store, start = self.timed()
        assert store.store_ms_at("T", 0, 2) == start + 100
        assert store.store_ms_at("T", 0, 6) == -1
        assert store.earliest_store_ms("T", 0) == start == store.earliest_log_ms
        assert store.earliest_store_ms("U", 0) == -1
        assert open_store().earliest_log_ms == -1
        assert store.offset_at("U", 0, start) == 0 == store.offset_at("U", 0, 0, Boundary.UPPER)
        assert (store.min_offset("U", 0), store.max_offset("U", 0)) == (0, 0)

    def test_keys_find_their_messages_over_many_files(self) -> None:
        disk = SimulatedDisk()
        store = open_store(disk)
        placed = [append(store, b"%d" % i, KEYS=f"all k{i}", UNIQ_KEY=f"ID{i}") for i in range(100)]
        assert len(disk.names("index")) == 7
        for i, place in enumerate(placed):
            assert keys_found(store, "T", f"k{i}") == [place.log_offset]
            assert keys_found(store, "T", f"ID{i}") == [place.log_offset]
        assert keys_found(store, "T", "all") == [p.log_offset for p in reversed(placed)][:64]
        assert keys_found(store, "U", "k1") == [] == keys_found(store, "T", "k")
        found = store.query("T", "all", count_max=5, begin_ms=0, end_ms=FOREVER_MS)
        assert found.message_count == 5
        assert (found.updated_ms, found.log_offset) == (placed[-1].store_ms, placed[-1].log_offset)

    def test_key_queries_keep_to_their_time(self) -> None:
        clock = ManualClock()
        store = open_store(clock=clock)
        times = []
        for i in range(60):
            times.append(append(store, b"%d" % i, KEYS="k").store_ms)
            clock.advance(10)
        begin, end = times[20], times[30]
        found = store.query("T", "k", count_max=64, begin_ms=begin, end_ms=end)
        assert [int(m.body) for m in decode_records(found.body)] == list(range(30, 19, -1))

    def test_a_message_with_more_keys_than_a_file_is_stored_without(self) -> None:
        store = open_store()
        append(store, b"1", KEYS=" ".join(f"k{i}" for i in range(60)))
        append(store, b"2", KEYS="k1")
        assert bodies(store) == [b"1", b"2"]
        assert len(keys_found(store, "T", "k1")) == 1

    def test_records_by_log_offset(self) -> None:
        store = open_store()
        append(store, b"1")
        placed = append(store, b"2")
        record = store.record_at(placed.log_offset)
        assert record is not None and decode_records(record)[0].body == b"2"
        for other in (placed.log_offset + 1, placed.end_offset, -1, 1 << 40):
            assert store.record_at(other) is None

    def test_delayed_messages_carry_their_time_in_the_queue(self) -> None:
        clock = ManualClock()
        store = open_store(clock=clock)
        append(store, b"later", "SCHEDULE_TOPIC_XXXX", 2, DELAY="3", TAGS="TagA")
        entry = store.queue("SCHEDULE_TOPIC_XXXX", 2).entry(0)
        assert entry is not None and entry[2] == clock.wall_ms() + 10_000


class TestDeleteTopic:
    def test_a_deleted_topic_stays_away_and_starts_anew(self) -> None:
        disk, clock = SimulatedDisk(), ManualClock()
        store = open_store(disk, clock)
        for i in range(40):
            append(store, b"old%d" % i)
            append(store, b"other", "U")
        held = store.queue("T", 0)
        store.delete_topic("T")
        assert held.file_count == 0
        assert not disk.exists("consumequeue/T")
        assert store.topics() == {"U": [0]}
        store.stop()
        store = open_store(disk, clock)
        assert store.topics() == {"U": [0]}
        assert append(store, b"new").queue_offset == 0
        assert bodies(store) == [b"new"]
        store.stop()
        report = check(disk, SMALL)
        assert report.is_sound and report.warnings == []

    @pytest.mark.parametrize(("kind", "after"), [("open", 0), ("sync", 0), ("sync", 1)])
    def test_a_lack_of_descriptors_puts_a_deletion_off_and_ends_nothing(
        self, kind: str, after: int
    ) -> None:
        disk = SimulatedDisk()
        store = open_store(disk)
        append(store, b"kept")
        store.checkpoint()
        disk.plant(kind, OSError(errno.EMFILE, "too many open files"), after=after)
        with pytest.raises(StoreError, match="cannot be deleted at present"):
            store.delete_topic("T")
        assert store.read_only_reason is None
        append(store, b"more")
        assert bodies(store) == [b"kept", b"more"]
        store.delete_topic("T")
        assert store.topics() == {}
        store.stop()
        assert check(disk, SMALL).is_sound

    def test_a_deletion_that_cannot_be_noted_is_carried_out(self) -> None:
        disk = SimulatedDisk()
        store = open_store(disk)
        append(store, b"old")
        store.checkpoint()
        disk.plant("rename", OSError(errno.EMFILE, "too many open files"))
        store.delete_topic("T")
        assert store.read_only_reason is None and store.topics() == {}
        store.stop()


class TestOpening:
    def test_one_store_at_a_time(self) -> None:
        disk = SimulatedDisk()
        store = open_store(disk)
        with pytest.raises(StoreLocked):
            open_store(disk)
        store.stop()
        open_store(disk)

    def test_a_failed_opening_lets_go_of_the_lock(self) -> None:
        disk = SimulatedDisk()
        open_store(disk).stop()
        disk.write("commitlog/stray", b"")
        for _ in range(2):
            with pytest.raises(StoreError, match="commitlog/stray does not belong there"):
                open_store(disk)

    def test_the_abort_mark_is_there_while_in_use(self) -> None:
        disk = SimulatedDisk()
        store = open_store(disk)
        assert disk.read("abort").isdigit()
        assert disk.read("lock") == b"lock"
        store.stop()
        assert not disk.exists("abort")

    @pytest.mark.parametrize(
        ("path", "says"),
        [
            ("dledger-n0/data/x", "dledger-n0"),
            ("batchconsumequeue/T/x", "batchconsumequeue"),
            ("consumequeue/CURRENT", "RocksDB"),
        ],
    )
    def test_other_kinds_of_stores_are_refused(self, path: str, says: str) -> None:
        disk = SimulatedDisk()
        disk.make_directory(path.rpartition("/")[0])
        disk.write(path, b"1")
        with pytest.raises(UnsupportedStore, match=says):
            open_store(disk)

    def test_a_clean_stop_leaves_what_apache_can_start_from(self) -> None:
        disk = SimulatedDisk()
        store = open_store(disk)
        for i in range(30):  # exactly one queue file
            append(store, b"%d" % i)
        store.queue("U", 0)
        store.prepare()
        store.stop()
        assert [name for name, _ in disk.names("consumequeue/T/0")] == [f"{0:020d}"]
        assert disk.directories("consumequeue") == ["T"]
        assert all(size == 8192 for _, size in disk.names("commitlog"))
        last = int(disk.names("commitlog")[-1][0])
        assert last <= 30 * 180  # nothing made ahead is left


def test_a_query_gives_what_fits_into_a_frame_the_newest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = open_store(SimulatedDisk())
    placed = [append(store, b"%d" % i * 1000, KEYS="same").log_offset for i in range(6)]
    monkeypatch.setattr("ariane.store.lookups.QUERY_BYTES_MAX", 3500)
    assert keys_found(store, "T", "same") == placed[:-4:-1]
    monkeypatch.setattr("ariane.store.lookups.QUERY_BYTES_MAX", 10)
    assert keys_found(store, "T", "same") == placed[-1:]


def test_much_that_no_checkpoint_covers_is_covered_before_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A start after a kill walks the rest, and takes seconds for each few gigabytes."""
    monkeypatch.setattr("ariane.store.store.CHECKPOINT_BYTES", 5000)
    disk = SimulatedDisk()
    store = open_store(disk)

    def claimed() -> int:
        claim = CheckpointFile(disk).load().claim
        assert claim is not None
        return claim.log_offset

    begun = claimed()
    append(store, bytes(4000))
    store.tick()
    assert claimed() == begun
    append(store, bytes(1000))
    store.tick()
    assert claimed() == store.written
