"""The commit log as the kernel sees it, what is placed in it and what is read from it."""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from ariane.kernel.index cimport Index
from ariane.kernel.layout cimport Draft, Fields, Text
from ariane.kernel.maps cimport Maps
from ariane.kernel.properties cimport (
    Alike, Properties, find_alike, find_properties, key_count, take_shape,
)
from ariane.kernel.queue cimport Queue

cdef enum:
    MESSAGES_PER_READ_MAX = 1024

# What `place` answers when it has written nothing, and why.
cdef enum Refusal:
    NEEDS_SEGMENT = -1
    NEEDS_QUEUE_ROOM = -2
    NEEDS_INDEX_ROOM = -3
    TOO_LARGE = -4
    NOT_STORED = -5
    NEEDS_MEMORY = -6

# Where a pull may stop.
cdef struct ReadLimits:
    int32_t count_max
    int64_t bytes_max
    int32_t memory_count_max
    int64_t memory_bytes_max
    int32_t disk_count_max
    int64_t disk_bytes_max
    int64_t memory_window
    int64_t scan_count_max

cdef struct ReadResult:
    int32_t count
    int32_t scanned
    int64_t bytes
    int64_t next_offset

@cython.final
cdef class Log(Maps):
    cdef readonly int64_t end       # behind the last record that was placed
    cdef public int64_t visible
    cdef public int64_t last_store_ms
    cdef public int64_t record_bytes_max
    cdef uint8_t[20] store_host
    cdef int store_host_size
    cdef int64_t[64] delays_ms
    cdef int delay_count
    cdef uint8_t* staging
    cdef object staging_buffer
    cdef uint8_t* desk              # records from `stored` to `end`, on their way to the file
    cdef int64_t desk_bytes
    cdef readonly int64_t stored    # every record below it is in its file
    cdef int descriptor             # the newest segment's; -1: nothing can be written
    cdef readonly int fault         # errno of the write that failed

@cython.final
cdef class Tags:
    cdef int64_t* codes
    cdef Py_ssize_t count
    cdef bint match(self, int64_t code) noexcept nogil

cdef int64_t tags_code_of(Log log, Queue queue, Properties* found, int64_t store_ms) noexcept nogil
cdef int64_t record_size(Log log, Draft* draft) noexcept nogil
cdef bint next_entry(Text* rest, Draft* draft) noexcept nogil
cdef int64_t next_store_ms(Log log, int64_t now_ms) noexcept nogil
cdef bint store_records(Log log) noexcept nogil
cdef int64_t place(Log log, Queue queue, Index index, Draft* draft, int64_t store_ms) noexcept nogil
cdef void draft_again(const uint8_t* record, const Fields* fields, Draft* draft) noexcept nogil
cdef int64_t relocate(Log log, Queue queue, Index index, Draft* draft, int64_t store_ms) noexcept nogil
cdef bint is_enough(Log log, const ReadLimits* limits, const ReadResult* result, int64_t log_offset,
                    int64_t size) noexcept nogil
cdef bytes joined(const Text* slices, const ReadResult* result)
cdef void read_entries(Log log, Queue queue, int64_t first, Tags tags, const ReadLimits* limits,
                       Text* slices, ReadResult* result) noexcept nogil
cdef int64_t visible_end(Log log, Queue queue) noexcept nogil
cdef int64_t read_fields(const uint8_t* record, Fields* fields) noexcept nogil
cdef int64_t readable_size(Log log, int64_t log_offset, int64_t end) noexcept nogil
