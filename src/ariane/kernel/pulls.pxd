"""Plain pulls: see pulls.pyx."""

from libc.stdint cimport uint8_t

from ariane.kernel.frames cimport Head
from ariane.kernel.lane cimport Lane

cdef enum:
    PULL = 11
    LITE_PULL = 361

cdef bint pull(Lane lane, peer, Head* head, const uint8_t* frame, Py_ssize_t frame_size) except -1
