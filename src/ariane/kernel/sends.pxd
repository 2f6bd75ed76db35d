"""Plain sends: see sends.pyx."""

from ariane.kernel.frames cimport Head
from ariane.kernel.lane cimport Lane
from ariane.kernel.layout cimport Text

cdef enum:
    SEND = 10
    SEND_V2 = 310
    SEND_BATCH = 320

cdef bint send_message(Lane lane, bytes born_host, Head* head, Text body) except -1
