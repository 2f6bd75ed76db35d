"""The key that a client gives each message: where it is from, when it was made, and a number."""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport int64_t, uint8_t, uint32_t

from ariane.kernel.frames cimport write_hex
from ariane.kernel.layout cimport Text, save16, save32


cdef class KeyMaker:
    """Unique keys with one head; see `protocol.identifiers.UniqueKeys`.

    `month_of(wall_ms)` gives the month of a moment as milliseconds, [first, end).
    """

    def __init__(self, bytes head not None, month_of):
        if len(head) > KEY_HEAD_BYTES_MAX:
            raise ValueError(f"the head of a unique key has at most {KEY_HEAD_BYTES_MAX} bytes")
        self.head_size = write_hex(self.key, <const uint8_t*> PyBytes_AS_STRING(head), len(head)) - self.key
        self.month_of = month_of
        self.month_first = self.month_end = 0
        self.counter = 0

    def next(self, int64_t wall_ms) -> str:
        """A new key."""
        cdef Text key = self.make(wall_ms)
        return PyUnicode_DecodeASCII(<char*> key.at, key.size, NULL)

    cdef Text make(self, int64_t wall_ms) except *:
        """A new key, good until the next is made."""
        cdef uint8_t[KEY_TAIL_BYTES] tail
        cdef Text key
        if not self.month_first <= wall_ms < self.month_end:
            self.month_first, self.month_end = self.month_of(wall_ms)
        self.counter += 1
        save32(tail, <uint32_t> (wall_ms - self.month_first))
        save16(tail + 4, self.counter)
        write_hex(self.key + self.head_size, tail, KEY_TAIL_BYTES)
        key.at = self.key
        key.size = self.head_size + 2 * KEY_TAIL_BYTES
        return key
