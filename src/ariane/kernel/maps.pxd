"""Mapped files in a row."""

from libc.stdint cimport int64_t, uint8_t

cdef class Maps:
    cdef list buffers
    cdef uint8_t** pointers
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef readonly int64_t file_bytes
    cdef readonly int64_t first_position
    cdef uint8_t* at(self, int64_t position) noexcept nogil
