"""What is read from the log."""

cimport cython
from libc.stdint cimport int32_t, int64_t

from ariane.kernel.layout cimport Text
from ariane.kernel.log cimport Log
from ariane.kernel.queue cimport Queue

cdef enum:
    MESSAGES_PER_READ_MAX = 1024

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
cdef class Tags:
    cdef int64_t* codes
    cdef Py_ssize_t count
    cdef bint match(self, int64_t code) noexcept nogil

cdef bint is_enough(Log log, const ReadLimits* limits, const ReadResult* result, int64_t log_offset,
                    int64_t size) noexcept nogil
cdef bytes joined(const Text* slices, const ReadResult* result)
cdef void read_entries(Log log, Queue queue, int64_t first, Tags tags, const ReadLimits* limits,
                       Text* slices, ReadResult* result) noexcept nogil
