"""Messages that ask to come later: where each waits, and the marks it is given there.

Only the plain spellings are met here: a level from 1 to the highest, or one number of milliseconds or
seconds that lies ahead and within bounds. Everything else is for `broker.placing.route`, which is also the
specification of what is written (tests/property/test_lane.py).
"""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from ariane.kernel.frames cimport write_number, write_text
from ariane.kernel.layout cimport Text
from ariane.kernel.layout cimport Draft
from ariane.kernel.properties cimport Properties
from ariane.kernel.queue cimport Queue

cdef enum:
    MARKS_BYTES_MAX = 256           # a topic of 127 bytes, a queue, a slot, and their names
    NUMBER_BYTES_MAX = 20

cdef const char* BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


cdef class Shelf:
    """A topic whose messages wait, and how many the lane has put there."""

    def __init__(self, bytes name not None, Py_ssize_t queue_count, queue_of):
        self.name = name
        self.queue_of = queue_of
        self.queues = [None] * queue_count

    def take(self) -> tuple[int, int]:
        """How many messages and bytes were put here since this was asked last."""
        taken = (self.message_count, self.byte_count)
        self.message_count = self.byte_count = 0
        return taken

    def forget(self) -> None:
        """Ask for every queue again."""
        self.queues = [None] * len(self.queues)

    cdef Queue queue(self, Py_ssize_t queue_id):
        found = self.queues[queue_id]
        if found is None:
            found = self.queues[queue_id] = self.queue_of(queue_id)
        return <Queue?> found


cdef class Waiting:
    """Sets messages aside for the lane, one at a time.

    `levels` has a queue for each delay level, `times` one for all that wait for a time;
    `count_at(slot)` says how many wait for a slot of the timer's wheel.
    """

    def __init__(self, Shelf levels not None, Shelf times not None, count_at):
        if len(levels.queues) > LEVELS_MAX:
            raise ValueError(f"{len(levels.queues)} delay levels; there may be {LEVELS_MAX}")
        self.levels = levels
        self.times = times
        self.count_at = count_at
        self.level_count = len(levels.queues)
        self.broker_name = b""
        self.counted_ms = self.slot_ms = -1

    def __dealloc__(self):
        PyMem_Free(self.suffix)

    def configure(self, *, bytes suffix not None, bytes broker_name not None, bint is_timer_on, int64_t delay_ms_max,
                  int64_t precision_ms, int64_t slot_messages_max) -> None:
        """Take over settings: what every message gets, and which times may be asked for."""
        cdef uint8_t* grown = <uint8_t*> PyMem_Realloc(self.suffix, len(suffix) + MARKS_BYTES_MAX)
        if grown == NULL:
            raise MemoryError
        self.suffix = grown
        self.own_size = len(suffix)
        memcpy(grown, PyBytes_AS_STRING(suffix), self.own_size)
        self.broker_name = broker_name
        self.is_timer_on = is_timer_on
        self.delay_ms_max = delay_ms_max
        self.precision_ms = precision_ms
        self.slot_messages_max = slot_messages_max

    def forget(self) -> None:
        """Something has changed: ask for every queue again."""
        self.levels.forget()
        self.times.forget()

    cdef void begin(self) noexcept:
        """Time has passed: the wheel may have turned."""
        self.counted_ms = -1

    cdef Queue set_aside(self, Properties* found, Draft* draft, int64_t now_ms):
        """The queue the message waits in, and its draft made to match; None, and no change, if it is not plain."""
        cdef int64_t level
        if found.has_real or (found.delay.size and found.timer.size):
            return None
        if found.delay.size:
            level = plain_number(found.delay)
            if not 1 <= level <= self.level_count:
                return None
            self.slot_ms = -1
            queue = self.levels.queue(level - 1)
        else:
            if (len(self.broker_name) + draft.topic.size + found.unique_key.size + NUMBER_BYTES_MAX + 6
                    > HANDLE_WORDS_MAX or not self.find_slot(found, now_ms)):
                return None
            queue = self.times.queue(0)
        self.mark(draft)
        draft.topic.at = <const uint8_t*> PyBytes_AS_STRING((<Queue> queue).topic)
        draft.topic.size = len((<Queue> queue).topic)
        draft.queue_id = (<Queue> queue).queue_id
        return <Queue> queue

    cdef bint find_slot(self, Properties* found, int64_t now_ms) except -1:
        """Which slot of the wheel a message belongs to; False when it is not for the lane."""
        cdef int64_t deliver_ms = plain_number(found.timer)
        if deliver_ms < 0 or not self.is_timer_on:
            return False
        if found.timer_unit_ms:
            deliver_ms = now_ms + deliver_ms * found.timer_unit_ms
        if deliver_ms <= now_ms or deliver_ms - now_ms > self.delay_ms_max:
            return False
        self.slot_ms = (deliver_ms - 1) // self.precision_ms * self.precision_ms
        if self.counted_ms != self.slot_ms:
            self.counted = self.count_at(self.slot_ms)
            self.counted_ms = self.slot_ms
        return self.counted < self.slot_messages_max

    cdef void mark(self, Draft* draft) noexcept:
        """Note where the message is meant for, after what every message gets."""
        cdef uint8_t* to = self.suffix + self.own_size
        if self.slot_ms >= 0:
            to = write_number(write_text(to, "TIMER_OUT_MS\x01", 13), self.slot_ms)
            to = write_text(to, "\x02", 1)
        to = write_text(write_text(to, "REAL_TOPIC\x01", 11), <const char*> draft.topic.at, draft.topic.size)
        to = write_number(write_text(to, "\x02REAL_QID\x01", 10), draft.queue_id)
        to = write_text(to, "\x02", 1)
        draft.suffix.at = self.suffix
        draft.suffix.size = to - self.suffix

    cdef Text handle(self, Text topic, Text unique_key) noexcept:
        """What recalls the message at hand (`protocol.recall_handle`); good until the next one."""
        cdef uint8_t* to = write_text(self.words, "v1 ", 3)
        cdef Text text
        to = write_text(to, <const char*> topic.at, topic.size)
        to = write_text(to, " ", 1)
        to = write_text(to, PyBytes_AS_STRING(self.broker_name), len(self.broker_name))
        to = write_number(write_text(to, " ", 1), self.slot_ms + 1)
        to = write_text(to, " ", 1)
        to = write_text(to, <const char*> unique_key.at, unique_key.size)
        text.at = self.handle_text
        text.size = write_base64(self.handle_text, self.words, to - self.words) - self.handle_text
        return text


cdef int64_t plain_number(Text text) noexcept nogil:
    """A number above zero in its shortest spelling; -1 for anything else."""
    cdef int64_t number = 0
    cdef Py_ssize_t i
    if text.size == 0 or text.size > WISH_DIGITS_MAX or text.at[0] == c'0':
        return -1
    for i in range(text.size):
        if not c'0' <= text.at[i] <= c'9':
            return -1
        number = number * 10 + (text.at[i] - c'0')
    return number


cdef uint8_t* write_base64(uint8_t* to, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """URL-safe, padded."""
    cdef Py_ssize_t i = 0
    cdef uint32_t group
    cdef int left, k
    while i < size:
        left = <int> min(size - i, 3)
        group = data[i] << 16
        if left > 1:
            group |= data[i + 1] << 8
        if left > 2:
            group |= data[i + 2]
        for k in range(4):
            to[k] = BASE64[(group >> (18 - 6 * k)) & 63] if k <= left else c'='
        to += 4
        i += 3
    return to
