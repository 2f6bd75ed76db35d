"""What is read from the log: messages of a queue, where a queue's entries end, and what came from half messages."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from ariane.kernel.layout cimport (
    PADDING_SIZE, PREPARED_OFFSET_BEFORE_BODY, QUEUE_ENTRY_BYTES, QUEUE_ID_AT, QUEUE_OFFSET_AT, SYSTEM_FLAG_AT,
    TRANSACTION_BITS, TRANSACTION_COMMIT, Text, expect_read, load32, load64,
)
from ariane.kernel.log cimport Log, visible_end, walk_from
from ariane.kernel.queue cimport Queue, points_below
from ariane.kernel.records cimport Walk, next_record, readable_size

cdef enum:
    ENTRIES_AHEAD = 8   # records this far on are fetched from memory while one is looked at


@cython.final
cdef class Tags:
    """The tag codes a pull asks for."""

    def __cinit__(self, codes):
        self.count = len(codes)
        self.codes = <int64_t*> PyMem_Malloc((self.count or 1) * sizeof(int64_t))
        if self.codes == NULL:
            raise MemoryError
        for i, code in enumerate(codes):
            self.codes[i] = code

    def __dealloc__(self):
        PyMem_Free(self.codes)

    cdef bint match(self, int64_t code) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(self.count):
            if self.codes[i] == code:
                return True
        return False


def read(Log log not None, Queue queue not None, int64_t first, Tags tags, *, int32_t count_max,
         int64_t bytes_max, int32_t memory_count_max, int64_t memory_bytes_max, int32_t disk_count_max,
         int64_t disk_bytes_max, int64_t memory_window, int64_t scan_count_max) -> tuple[bytes, int, int]:
    """Messages of a queue from `first` on that match: (their records back to back, count, next offset)."""
    cdef ReadLimits limits = ReadLimits(count_max, bytes_max, memory_count_max, memory_bytes_max,
                                        disk_count_max, disk_bytes_max, memory_window, scan_count_max)
    cdef ReadResult result
    cdef Text[MESSAGES_PER_READ_MAX] slices
    read_entries(log, queue, first, tags, &limits, slices, &result)
    return joined(slices, &result), result.count, result.next_offset


cdef bytes joined(const Text* slices, const ReadResult* result):
    """The records that a read found, back to back."""
    cdef bytes body = PyBytes_FromStringAndSize(NULL, result.bytes)
    cdef char* to = PyBytes_AS_STRING(body)
    cdef int i
    for i in range(result.count):
        memcpy(to, slices[i].at, slices[i].size)
        to += slices[i].size
    return body


def commits_between(Log log not None, int64_t first, int64_t end) -> list[tuple[int, int]]:
    """(log offset, half message's log offset) of each record in [first, end) that came from one.

    `first` is where a record begins. The half message at log offset 0 is told from none at all by
    the mark of a commit, which a caller must not take for proof.
    """
    cdef Walk walk = walk_from(log, max(first, log.first_position))
    cdef int64_t prepared
    cdef uint32_t flags
    end = min(end, log.end)
    found = []
    while next_record(log, &walk, end, False):
        prepared = <int64_t> load64(walk.fields.body.at - PREPARED_OFFSET_BEFORE_BODY)
        flags = load32(walk.record + SYSTEM_FLAG_AT)
        if prepared != 0 or flags & TRANSACTION_BITS == TRANSACTION_COMMIT:
            found.append((walk.log_offset, prepared))
    return found


def end_below(Log log not None, Queue queue not None, int64_t log_offset) -> int:
    """How many entries of a queue point below `log_offset`, each checked against its record near the end.

    Entries below were synced and are in order; those after may be torn or missing, so the result
    of the binary search is confirmed by the record itself and walked back if it is not.
    """
    cdef int64_t low = queue.first_position // QUEUE_ENTRY_BYTES
    cdef int64_t floor = low
    cdef int64_t high = (queue.first_position + queue.count * queue.file_bytes) // QUEUE_ENTRY_BYTES
    cdef int64_t middle, step = 1
    # Most queues are short: look near the start first, and leave the pages behind the end alone.
    while low + step < high and points_below(queue, low + step - 1, log_offset):
        low += step
        step *= 2
    high = min(high, low + step)
    while low < high:
        middle = (low + high) // 2
        if points_below(queue, middle, log_offset):
            low = middle + 1
        else:
            high = middle
    while low > floor and not points_at_its_record(log, queue, low - 1, log_offset):
        low -= 1
    return low


cdef bint points_at_its_record(Log log, Queue queue, int64_t queue_offset, int64_t log_offset) noexcept nogil:
    """Whether an entry below `log_offset` is true: padding, a record already removed, or its own record."""
    cdef uint8_t* at = queue.at(queue_offset * QUEUE_ENTRY_BYTES)
    if not points_below(queue, queue_offset, log_offset):
        return False
    cdef int64_t where = <int64_t> load64(at)
    cdef int32_t size = <int32_t> load32(at + 8)
    if where < log.first_position:
        return True
    cdef uint8_t* record = log.at(where)
    if readable_size(log, where, log_offset) != size:
        return False
    return (<int64_t> load64(record + QUEUE_OFFSET_AT) == queue_offset
            and <int32_t> load32(record + QUEUE_ID_AT) == queue.queue_id)


cdef inline bint is_enough(Log log, const ReadLimits* limits, const ReadResult* result, int64_t log_offset,
                           int64_t size) noexcept nogil:
    """Whether a read stops before this record. One is given out however large it is."""
    cdef bint in_memory = log.end - log_offset <= limits.memory_window
    return result.count and (
        result.count >= min(limits.count_max, MESSAGES_PER_READ_MAX)
        or result.bytes + size > limits.bytes_max
        or result.bytes + size > (limits.memory_bytes_max if in_memory else limits.disk_bytes_max)
        or result.count >= (limits.memory_count_max if in_memory else limits.disk_count_max))


cdef void read_entries(Log log, Queue queue, int64_t first, Tags tags, const ReadLimits* limits,
                       Text* slices, ReadResult* result) noexcept nogil:
    """Collect matching records from `first` on as slices of the log, within the limits.

    `slices` has room for MESSAGES_PER_READ_MAX; `next_offset` is past the last entry looked at.
    """
    cdef int64_t end = visible_end(log, queue)
    cdef int64_t offset = first, where, size
    cdef uint8_t* at
    cdef uint8_t* ahead
    result.count = result.scanned = 0
    result.bytes = 0
    while offset < end and result.scanned < limits.scan_count_max:
        at = queue.at(offset * QUEUE_ENTRY_BYTES)
        if at == NULL:
            break
        if tags is None and offset + ENTRIES_AHEAD < end:
            ahead = queue.at((offset + ENTRIES_AHEAD) * QUEUE_ENTRY_BYTES)
            if ahead != NULL:
                expect_read(log.at(<int64_t> load64(ahead)))
        if tags is not None and not tags.match(<int64_t> load64(at + 12)):
            offset += 1
            result.scanned += 1
            continue
        where = <int64_t> load64(at)
        size = readable_size(log, where, log.visible)   # the entry's may be damaged
        if size == 0 or load32(at + 8) == PADDING_SIZE:     # or in a segment that retention has taken
            offset += 1
            result.scanned += 1
            continue
        if is_enough(log, limits, result, where, size):
            break
        offset += 1
        result.scanned += 1
        slices[result.count] = Text(log.at(where), size)
        result.count += 1
        result.bytes += size
    result.next_offset = offset
