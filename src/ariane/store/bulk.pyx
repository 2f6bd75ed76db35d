"""Long stretches of a queue, gathered from the log on any thread while the loop goes on.

A `BulkRead` is made on the loop, where it notes which files it may look into and how far consumers may see,
and holds on to both. `find` and `frame` then leave the interpreter: pages that are not in memory are waited
for there, and nobody else has to.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from ariane.kernel.bad_pages cimport is_lost
from ariane.kernel.layout cimport (
    ENTRY_SIZE_AT, ENTRY_TAGS_AT, LOG_OFFSET_AT, MAGIC_AT, QUEUE_ENTRY_BYTES, RECORD_BYTES_MIN, SIZE_AT, Text,
    expect_read, is_record_magic, load32, load64,
)
from ariane.kernel.log cimport Log, visible_end
from ariane.kernel.queue cimport Queue
from ariane.kernel.reading cimport Tags

cdef enum:
    SEGMENTS_MAX = 64       # that one read looks into; what lies further on is for the next
    QUEUE_FILES_MAX = 4
    ENTRIES_MAX = 1 << 20   # that one read looks at
    ENTRIES_AHEAD = 8

# A few of the files of a log or of a queue, which follow each other.
cdef struct Stretch:
    const uint8_t* pointers[SEGMENTS_MAX]
    int64_t first_position
    int64_t file_bytes
    int64_t count


cdef inline const uint8_t* address(const Stretch* stretch, int64_t position) noexcept nogil:
    cdef int64_t relative = position - stretch.first_position
    if relative < 0 or relative >= stretch.count * stretch.file_bytes:
        return NULL
    return stretch.pointers[relative // stretch.file_bytes] + relative % stretch.file_bytes


cdef class BulkRead:
    """Records of a queue from `first` to `end` that consumers may see, up to `bytes_max` bytes of them.

    One record is found however large it is. `next_offset` is past the last entry looked at.
    """

    cdef list kept
    cdef Stretch log
    cdef Stretch queue
    cdef Tags tags
    cdef int64_t log_first
    cdef int64_t visible
    cdef int64_t first
    cdef int64_t end
    cdef int64_t bytes_max
    cdef Text* slices
    cdef int64_t slice_capacity
    cdef readonly int64_t next_offset
    cdef readonly int64_t count
    cdef readonly int64_t byte_count

    def __cinit__(self, *arguments, **keywords):
        self.slices = NULL

    def __init__(self, Log log not None, Queue queue not None, int64_t first, int64_t end, *, int64_t bytes_max,
                 Tags tags=None):
        cdef const uint8_t* entry
        self.kept = []
        self.tags = tags
        self.log_first = log.first_position
        self.visible = log.visible
        self.first = self.next_offset = first
        self.end = min(end, visible_end(log, queue), first + ENTRIES_MAX)
        self.bytes_max = bytes_max
        self.count = self.byte_count = self.slice_capacity = 0
        hold(&self.queue, queue.pointers, queue.buffers, self.kept, queue.first_position, queue.file_bytes,
             first * QUEUE_ENTRY_BYTES, QUEUE_FILES_MAX)
        entry = address(&self.queue, first * QUEUE_ENTRY_BYTES)
        hold(&self.log, log.pointers, log.buffers, self.kept, log.first_position, log.file_bytes,
             log.first_position if entry == NULL else max(<int64_t> load64(entry), log.first_position), SEGMENTS_MAX)

    def __dealloc__(self):
        free(self.slices)

    def find(self) -> None:
        """Look at the entries and their records; any thread may call this."""
        cdef bint is_found
        with nogil:
            is_found = self.gather()
        if not is_found:
            raise MemoryError

    def frame(self, bytes head not None) -> bytes:
        """`head` and then the records, back to back; any thread may call this."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(head)
        cdef bytes made = PyBytes_FromStringAndSize(NULL, size + self.byte_count)
        cdef uint8_t* to = <uint8_t*> PyBytes_AS_STRING(made)
        cdef int64_t i
        memcpy(to, PyBytes_AS_STRING(head), size)
        to += size
        with nogil:
            for i in range(self.count):
                memcpy(to, self.slices[i].at, self.slices[i].size)
                to += self.slices[i].size
        return made

    cdef bint gather(self) noexcept nogil:
        cdef const uint8_t* entry
        cdef const uint8_t* ahead
        cdef const uint8_t* record
        cdef int64_t where, size
        while self.next_offset < self.end:
            entry = address(&self.queue, self.next_offset * QUEUE_ENTRY_BYTES)
            if entry == NULL:
                break
            ahead = address(&self.queue, (self.next_offset + ENTRIES_AHEAD) * QUEUE_ENTRY_BYTES)
            if ahead != NULL and self.tags is None:
                expect_read(address(&self.log, <int64_t> load64(ahead)))
            where = <int64_t> load64(entry)
            size = <int32_t> load32(entry + ENTRY_SIZE_AT)
            if self.tags is not None and not self.tags.match(<int64_t> load64(entry + ENTRY_TAGS_AT)):
                self.next_offset += 1
                continue
            record = address(&self.log, where)
            if record == NULL and self.log_first <= where < self.visible and self.next_offset > self.first:
                break       # in a segment that is not held: the next read begins there
            if record == NULL or not self.is_whole(record, where, size):
                self.next_offset += 1       # padding, or a segment that retention has taken
                continue
            if self.count and self.byte_count + size > self.bytes_max:
                break
            if self.count == self.slice_capacity and not self.make_room():
                return False
            self.slices[self.count] = Text(record, size)
            self.count += 1
            self.byte_count += size
            self.next_offset += 1
        return True

    cdef bint is_whole(self, const uint8_t* record, int64_t where, int64_t size) noexcept nogil:
        cdef int64_t left = self.log.file_bytes - (where - self.log.first_position) % self.log.file_bytes
        if size < RECORD_BYTES_MIN or size > left or where + size > self.visible:
            return False
        return (is_record_magic(load32(record + MAGIC_AT)) and <int32_t> load32(record + SIZE_AT) == size
                and <int64_t> load64(record + LOG_OFFSET_AT) == where and not is_lost(record, size))

    cdef bint make_room(self) noexcept nogil:
        cdef int64_t capacity = self.slice_capacity * 2 if self.slice_capacity else 1024
        cdef void* grown = realloc(self.slices, capacity * sizeof(Text))
        if grown == NULL:
            return False
        self.slices = <Text*> grown
        self.slice_capacity = capacity
        return True


cdef int hold(Stretch* stretch, uint8_t** pointers, list buffers, list kept, int64_t first_position,
              int64_t file_bytes, int64_t position, int64_t count_max) except -1:
    """Note the files from the one that holds `position` on, and keep them mapped."""
    cdef int64_t i, first = (position - first_position) // file_bytes
    stretch.file_bytes = file_bytes
    stretch.count = 0
    if position < first_position or first >= len(buffers):
        stretch.first_position = position
        return 0
    stretch.first_position = first_position + first * file_bytes
    stretch.count = min(count_max, len(buffers) - first)
    for i in range(stretch.count):
        stretch.pointers[i] = pointers[first + i]
        kept.append(memoryview(buffers[first + i]))    # a view of our own: theirs may be released
    return 0
