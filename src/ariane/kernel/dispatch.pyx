"""From log bytes to queues, index and waiting readers: all of a store that the log alone tells.

A start walks what no checkpoint covers, and a log whose records come from elsewhere, or may yet be taken back, is
followed as far as they are there to stay. Entries are the ones that `place` writes.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t

from ariane.kernel.index cimport Index
from ariane.kernel.layout cimport (
    PADDING_SIZE, QUEUE_ENTRY_BYTES, QUEUE_OFFSET_AT, SYSTEM_FLAG_AT, TRANSACTION_BITS, TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK, Draft, bytes_of, load32, load64, same, text_in,
)
from ariane.kernel.log cimport Log, put_keys, store_records, tags_code_of, walk_from
from ariane.kernel.properties cimport Properties, find_properties, key_count
from ariane.kernel.queue cimport Queue, has_entry_room, keep_entry
from ariane.kernel.records cimport Walk, next_record


cdef inline bint has_entry(uint32_t kind) noexcept nogil:
    """Whether a record of this kind of transaction, or none, is in a queue: half messages and their ends are not."""
    return kind != TRANSACTION_PREPARED and kind != TRANSACTION_ROLLBACK


def dispatch(Log log not None, int64_t first, int64_t end=INT64_MAX, *, queue_of, make_room, index_of,
             int64_t index_from=0, bint check_crc=False, list arrivals=None) -> tuple[int, int, int]:
    """Walk the log from `first` to its end, putting every record into its queue and the index.

    Stops in front of the first record that begins at or behind `end`, or is not sound.

    `queue_of(topic, queue_id)` gives the Queue for a record seen there for the first time, or None when
    there can be none; `make_room(queue, queue_offset)` is called when the queue has no room for that entry,
    and says False when it cannot have it. Only bodies have a checksum: such records are damaged, and left out;
    `index_of(key_count)` gives an Index with room for so many, or None for no index. Records below
    `index_from` are indexed already. Queues that somebody waits for are put into `arrivals`.
    Returns (end, last store time, records); what `dispatch` has been past is never cut.
    """
    cdef Walk walk = walk_from(log, first)
    cdef int64_t records = 0, last_ms = 0
    cdef Properties found
    cdef Queue queue = None
    cdef Index index = None
    cdef Draft draft
    cdef dict queues = {}
    cdef uint32_t kind
    if not store_records(log):
        raise OSError(log.fault, "cannot write the commit log")
    log.dispatched = min(log.dispatched, first)
    while walk.at < end and next_record(log, &walk, log.end, check_crc):
        if walk.log_offset - log.head_bytes >= end:     # behind a blank
            walk.at = walk.log_offset - log.head_bytes
            break
        kind = load32(walk.record + SYSTEM_FLAG_AT) & TRANSACTION_BITS
        find_properties(walk.fields.properties, &found)
        if queue is None or not same(walk.fields.topic, text_in(queue.topic)) or queue.queue_id != walk.fields.queue_id:
            key = (bytes_of(walk.fields.topic), walk.fields.queue_id)
            if key not in queues:
                queues[key] = queue_of(*key)
            queue = queues[key]
            if queue is None:
                continue
        if has_entry(kind):
            enter(log, queue, &walk, tags_code_of(log, queue, &found, walk.fields.store_ms), make_room)
            if arrivals is not None and queue.is_waiting and (not arrivals or arrivals[-1] is not queue):
                arrivals.append(queue)
        if walk.log_offset >= index_from and kind != TRANSACTION_ROLLBACK:
            draft.keys = found.keys
            draft.unique_key = found.unique_key
            if key_count(&draft):
                if index is None or index.room() < key_count(&draft):
                    index = index_of(key_count(&draft))
                if index is not None:
                    put_keys(index, queue, &draft, walk.log_offset, walk.fields.store_ms)
        last_ms = max(last_ms, walk.fields.store_ms)
        records += 1
    log.dispatched = walk.at
    return walk.at, last_ms, records


cdef enter(Log log, Queue queue, const Walk* walk, int64_t tags, make_room):
    """Give a record found in the log its queue entry.

    Numbers that start again at zero belong to a topic made anew under an old name: what the queue holds
    is of its former life. Numbers that jump leave a hole, which `make_room` pads, unless it takes them for
    damaged; those that belong into the hole may still come, if it was the jump that was wrong.
    """
    cdef int64_t queue_offset = <int64_t> load64(walk.record + QUEUE_OFFSET_AT)
    cdef uint8_t* at
    if queue_offset != queue.end_offset:
        at = queue.at(queue_offset * QUEUE_ENTRY_BYTES) if 0 <= queue_offset < queue.end_offset else NULL
        if at != NULL and (queue_offset == 0 or load32(at + 8) == PADDING_SIZE):
            queue.clear(queue_offset, queue.end_offset)
            queue.end_at(queue_offset)
        elif make_room(queue, queue_offset) is False:
            return
    if not has_entry_room(queue, 1):
        make_room(queue, queue_offset)
    if queue.end_offset != queue_offset or not has_entry_room(queue, 1):
        raise RuntimeError(
            f"queue entry {queue_offset} has no room after make_room; the queue ends at {queue.end_offset}")
    keep_entry(queue, walk.log_offset, walk.size, tags)
    if not log.dispatches_apart:
        queue.assigned = queue.end_offset


def number_tail(Log log not None, queues, queue_of) -> None:
    """Let every queue give its next number behind what is in the log and not dispatched yet.

    For a log that begins to give numbers itself, and after a cut. `queues` are all there are.
    """
    cdef Queue queue
    cdef Walk walk = walk_from(log, log.dispatched)
    if not store_records(log):
        raise OSError(log.fault, "cannot write the commit log")
    for queue in queues:
        queue.assigned = queue.end_offset
    while next_record(log, &walk, log.end, False):
        if has_entry(load32(walk.record + SYSTEM_FLAG_AT) & TRANSACTION_BITS):
            queue = queue_of(bytes_of(walk.fields.topic), walk.fields.queue_id)
            if queue is not None:
                queue.assigned = <int64_t> load64(walk.record + QUEUE_OFFSET_AT) + 1
