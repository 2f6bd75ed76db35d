"""Rows that were staged together: looked at when they come, placed from the log into their queue later.

A chunk is a record whose body is a batch (docs/formats/staging.md). Publishing it copies its rows from
where it lies in the log to the end of the log, with everything a message of a batch gets; nothing of
it passes through Python. `position` is a byte of the chunk's body where a row begins.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from ariane.kernel.batches cimport next_entry
from ariane.kernel.index cimport Index
from ariane.kernel.layout cimport CRC_AT, QUEUE_OFFSET_AT, Draft, Fields, Text, bytes_of, load32, load64, text_of
from ariane.kernel.log cimport Log, draft_again, next_store_ms, record_size, relocate, walk_from
from ariane.kernel.properties cimport Properties, find_properties, key_count
from ariane.kernel.queue cimport Queue
from ariane.kernel.records cimport Walk, next_record, read_fields, readable_size


def look(bytes body not None, *, int64_t row_bytes_max, int properties_bytes_max) -> tuple[int, int]:
    """(rows, how many of them ask to come later) of a chunk's body; ValueError says which row is wrong."""
    cdef Text rest = text_of(body)
    cdef Draft draft
    cdef Properties found
    cdef int64_t count = 0, late_count = 0
    while rest.size:
        if not next_entry(&rest, &draft):
            raise ValueError(f"the sizes of row {count} do not add up")
        find_properties(draft.properties, &found)
        if draft.body.size == 0:
            raise ValueError(f"row {count} has no body")
        if found.is_special:
            raise ValueError(f"row {count} has a property that is the broker's to set")
        if draft.body.size + draft.properties.size > row_bytes_max or draft.properties.size > properties_bytes_max:
            raise ValueError(
                f"row {count} has {draft.body.size} bytes and {draft.properties.size} of properties;"
                f" {row_bytes_max} and {properties_bytes_max} are allowed")
        count += 1
        late_count += found.is_late
    return count, late_count


def head(Log log not None, int64_t log_offset) -> tuple[int, int, bytes] | None:
    """(queue offset, CRC of the body, properties) of the record at a log offset, without its body."""
    cdef Fields fields
    cdef const uint8_t* record
    if readable_size(log, log_offset, log.end) == 0:
        return None
    record = log.at(log_offset)
    if read_fields(record, &fields) == 0:
        return None
    return (<int64_t> load64(record + QUEUE_OFFSET_AT), <int32_t> load32(record + CRC_AT),
            bytes_of(fields.properties))


def row(Log log not None, int64_t chunk_offset, int64_t position) -> tuple[int, bytes, bytes, int]:
    """(flag, body, properties, position of the next row) of one row; LookupError when it is not there."""
    cdef Draft draft
    cdef Text rest
    cdef const uint8_t* start
    if not open_chunk(log, chunk_offset, position, &draft, &rest):
        raise LookupError("the chunk is not in the log")
    start = rest.at
    if not next_entry(&rest, &draft):
        raise LookupError("the chunk has no such row")
    return draft.flag, bytes_of(draft.body), bytes_of(draft.properties), position + (rest.at - start)


def birth(Log log not None, int64_t chunk_offset) -> tuple[int, bytes]:
    """(born time, born host) of a chunk, which its rows share; LookupError when it is not there."""
    cdef Draft draft
    cdef Text rest
    if not open_chunk(log, chunk_offset, 0, &draft, &rest):
        raise LookupError("the chunk is not in the log")
    return draft.born_ms, bytes_of(draft.born_host)


def measure(Log log not None, Queue queue not None, int64_t chunk_offset, int64_t position, *,
            int64_t rows_max, int64_t bytes_max, int64_t keys_max) -> tuple[int, int, int]:
    """How many rows from a position on stay within the limits, at least one: (rows, record bytes, keys).

    LookupError when the chunk is not in the log or ends before that.
    """
    cdef Draft draft
    cdef Text rest
    cdef Properties found
    cdef int64_t rows = 0, total = 0, keys = 0, size, row_keys
    if not open_chunk(log, chunk_offset, position, &draft, &rest):
        raise LookupError("the chunk is not in the log")
    draft.topic = text_of(queue.topic)
    while rest.size and rows < rows_max:
        if not next_entry(&rest, &draft):
            raise LookupError("the chunk is damaged")
        find_properties(draft.properties, &found)
        draft.keys = found.keys
        draft.unique_key = found.unique_key
        size = record_size(log, &draft)
        row_keys = key_count(&draft)
        if rows and (total + size > bytes_max or keys + row_keys > keys_max):
            break
        rows += 1
        total += size
        keys += row_keys
    if rows == 0:
        raise LookupError("the chunk has no such row")
    return rows, total, keys


def place_rows(Log log not None, Queue queue not None, Index index, int64_t chunk_offset, int64_t position,
               int64_t rows, *, int64_t now_ms) -> int:
    """Place rows of a chunk that were measured and have room; the position behind the last."""
    cdef Draft draft
    cdef Text rest
    cdef const uint8_t* start
    cdef int64_t store_ms = next_store_ms(log, now_ms), done
    if not open_chunk(log, chunk_offset, position, &draft, &rest):
        raise LookupError("the chunk is not in the log")
    start = rest.at
    for done in range(rows):
        if not next_entry(&rest, &draft):
            raise LookupError("the chunk is damaged")
        if relocate(log, queue, index, &draft, store_ms) < 0:
            raise AssertionError("rows that fitted do not fit any more")
    return position + (rest.at - start)


def rows_behind(Log log not None, int64_t log_offset, int64_t chunk_offset, int64_t position,
                int64_t rows) -> tuple[int, int]:
    """How many of a chunk's rows follow each other in the log from an offset on: (rows, next position).

    Each record is compared with the row it should be, for others may have written after the last one.
    A row that waits for its time has more properties behind its own.
    """
    cdef Draft draft
    cdef Text rest
    cdef Walk walk = walk_from(log, log_offset)
    cdef const uint8_t* start
    cdef int64_t done = 0
    if not open_chunk(log, chunk_offset, position, &draft, &rest):
        raise LookupError("the chunk is not in the log")
    start = rest.at
    while done < rows and next_record(log, &walk, log.end, False) and is_next(&rest, &draft, &walk.fields):
        done += 1
    return done, position + (rest.at - start)


cdef bint is_next(Text* rest, Draft* draft, Fields* fields) noexcept nogil:
    """Whether a record is the next row; if it is, the row has been taken off `rest`."""
    cdef Text ahead = rest[0]
    if not next_entry(&ahead, draft):
        return False
    if fields.body.size != draft.body.size or fields.properties.size < draft.properties.size:
        return False
    if memcmp(fields.body.at, draft.body.at, draft.body.size) != 0:
        return False
    if memcmp(fields.properties.at, draft.properties.at, draft.properties.size) != 0:
        return False
    rest[0] = ahead
    return True


cdef bint open_chunk(Log log, int64_t chunk_offset, int64_t position, Draft* draft, Text* rest) noexcept:
    """What all rows of a chunk share, and its body from a position on; False when it is not there."""
    cdef Fields fields
    cdef const uint8_t* record
    if readable_size(log, chunk_offset, log.end) == 0:
        return False
    record = log.at(chunk_offset)
    if read_fields(record, &fields) == 0 or position < 0 or position > fields.body.size:
        return False
    rest[0] = Text(fields.body.at + position, fields.body.size - position)
    draft_again(record, &fields, draft)
    draft.system_flag = draft.reconsume_times = 0
    return True
