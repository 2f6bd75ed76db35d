"""Messages that ask to come later, as the lane sets them aside."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from ariane.kernel.layout cimport Text
from ariane.kernel.layout cimport Draft
from ariane.kernel.properties cimport Properties
from ariane.kernel.queue cimport Queue

cdef enum:
    LEVELS_MAX = 64
    WISH_DIGITS_MAX = 15            # a time in milliseconds has 13, until the year 2286
    HANDLE_WORDS_MAX = 768          # bytes; a handle of longer words is for the handlers
    HANDLE_BYTES_MAX = HANDLE_WORDS_MAX // 3 * 4

cdef class Shelf:
    cdef readonly bytes name
    cdef int64_t message_count
    cdef int64_t byte_count
    cdef list queues
    cdef object queue_of
    cdef Queue queue(self, Py_ssize_t queue_id)

cdef class Waiting:
    cdef readonly Shelf levels
    cdef readonly Shelf times
    cdef object count_at
    cdef int64_t level_count
    cdef bint is_timer_on
    cdef int64_t delay_ms_max
    cdef int64_t precision_ms
    cdef int64_t slot_messages_max
    cdef bytes broker_name
    cdef uint8_t* suffix            # what every message gets, then the marks of the one at hand
    cdef Py_ssize_t own_size
    cdef uint8_t[HANDLE_WORDS_MAX] words
    cdef uint8_t[HANDLE_BYTES_MAX] handle_text
    cdef int64_t counted_ms         # the slot whose messages were counted last, and how many they were
    cdef int64_t counted
    cdef int64_t slot_ms            # of the message at hand; negative when it waits by level
    cdef void begin(self) noexcept
    cdef Queue set_aside(self, Properties* found, Draft* draft, int64_t now_ms)
    cdef bint find_slot(self, Properties* found, int64_t now_ms) except -1
    cdef void mark(self, Draft* draft) noexcept
    cdef Text handle(self, Text topic, Text unique_key) noexcept
