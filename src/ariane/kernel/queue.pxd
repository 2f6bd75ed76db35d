"""A consume queue as the kernel sees it."""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t

from ariane.kernel.layout cimport QUEUE_ENTRY_BYTES
from ariane.kernel.maps cimport Maps

cdef enum:
    KEPT_ENTRIES_MAX = 32

@cython.final
cdef class Tally:
    cdef readonly int64_t queue_count
    cdef readonly int64_t entry_count
    cdef PyObject** grown           # queues that grew since somebody took note, each once
    cdef Py_ssize_t grown_count
    cdef Py_ssize_t capacity        # never fewer than there are queues
    cdef Py_ssize_t member_count
    cdef int join(self) except -1
    cdef void count_end(self, int64_t before, int64_t end) noexcept nogil

@cython.final
cdef class Queue(Maps):
    cdef uint8_t* tail              # the newest file, and the entries it holds
    cdef int64_t tail_first
    cdef int64_t tail_end
    cdef int64_t end_offset         # the next one to be written
    cdef readonly int64_t assigned  # the next number to give: further on where a log dispatches apart
    cdef public int64_t reserved_end
    cdef readonly int32_t queue_id
    cdef int32_t index_prefix_hash
    cdef public bint is_waiting
    cdef bint is_schedule
    cdef public int64_t min_offset
    cdef int kept_count
    cdef int kept_max
    cdef int64_t kept_first         # the number of the first of the kept entries
    cdef uint8_t* kept              # where they lie until then: near or on the desk
    cdef uint8_t* desk
    cdef int descriptor             # of the newest file; -1: entries are written through the map
    cdef bint has_mapped            # entries were written through the map since somebody asked
    cdef readonly bint is_fresh     # it has no file yet: entries stay here until it does
    cdef bint is_grown              # the tally has it among those that grew
    cdef Tally tally                # None for a queue that stands alone
    cdef uint8_t[KEPT_ENTRIES_MAX * QUEUE_ENTRY_BYTES] near
    cdef readonly bytes topic
    cdef void end_at(self, int64_t queue_offset) noexcept nogil
    cdef void find_tail(self) noexcept
    cdef void write_kept(self) noexcept nogil
    cdef void write_entries(self, const uint8_t* kept, uint8_t* to, int64_t count) noexcept nogil

cdef bint has_entry_room(Queue queue, int64_t count) noexcept nogil
cdef void keep_entry(Queue queue, int64_t log_offset, int64_t size, int64_t tags) noexcept nogil
cdef void save_entry(uint8_t* at, int64_t log_offset, int64_t size, int64_t tags) noexcept nogil
cdef bint points_below(Queue queue, int64_t queue_offset, int64_t log_offset) noexcept nogil
