from libc.stdint cimport int64_t, uint8_t, uint16_t

from ariane.kernel.layout cimport Text

cdef enum:
    KEY_HEAD_BYTES_MAX = 22         # with an IPv6 host; 10 with an IPv4 one
    KEY_TAIL_BYTES = 6


cdef class KeyMaker:
    cdef uint8_t[2 * KEY_HEAD_BYTES_MAX + 2 * KEY_TAIL_BYTES] key
    cdef Py_ssize_t head_size
    cdef object month_of
    cdef int64_t month_first
    cdef int64_t month_end
    cdef uint16_t counter

    cdef Text make(self, int64_t wall_ms) except *
