"""For whoever reads records: which of them the disk could not give."""

from libc.stdint cimport int64_t, uint8_t

cdef bint is_lost(const uint8_t* record, int64_t size) noexcept nogil
