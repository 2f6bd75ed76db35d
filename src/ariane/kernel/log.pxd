"""The commit log as the kernel sees it, and what is placed in it."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from ariane.kernel.index cimport Index
from ariane.kernel.layout cimport Draft, Fields, Text
from ariane.kernel.maps cimport Maps
from ariane.kernel.properties cimport Properties
from ariane.kernel.queue cimport Queue
from ariane.kernel.records cimport EntryHead, Walk

# What `place` answers when it has written nothing, and why.
cdef enum Refusal:
    NEEDS_SEGMENT = -1
    NEEDS_QUEUE_ROOM = -2
    NEEDS_INDEX_ROOM = -3
    TOO_LARGE = -4
    NOT_STORED = -5
    NEEDS_MEMORY = -6

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
    cdef readonly int head_bytes    # in front of each record: 0 or ENTRY_HEAD_BYTES
    cdef EntryHead head             # of the next entry
    cdef public int32_t channel     # its kind
    cdef public bint dispatches_apart
    cdef readonly int64_t dispatched    # queues and index have all below it
    cdef uint8_t* staging
    cdef object staging_buffer
    cdef uint8_t* desk              # records from `stored` to `end`, on their way to the file
    cdef int64_t desk_bytes
    cdef readonly int64_t stored    # every record below it is in its file
    cdef int descriptor             # the newest segment's; -1: nothing can be written
    cdef readonly int fault         # errno of the write that failed

cdef Walk walk_from(Log log, int64_t first) noexcept nogil
cdef int64_t tags_code_of(Log log, Queue queue, Properties* found, int64_t store_ms) noexcept nogil
cdef int64_t record_size(Log log, Draft* draft) noexcept nogil
cdef int64_t next_store_ms(Log log, int64_t now_ms) noexcept nogil
cdef bint store_records(Log log) noexcept nogil
cdef int64_t place(Log log, Queue queue, Index index, Draft* draft, int64_t store_ms) noexcept nogil
cdef void put_keys(Index index, Queue queue, Draft* draft, int64_t log_offset, int64_t store_ms) noexcept nogil
cdef void draft_again(const uint8_t* record, const Fields* fields, Draft* draft) noexcept nogil
cdef int64_t relocate(Log log, Queue queue, Index index, Draft* draft, int64_t store_ms) noexcept nogil
cdef int64_t visible_end(Log log, Queue queue) noexcept nogil
