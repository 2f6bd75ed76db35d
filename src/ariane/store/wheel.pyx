"""The timer wheel and its log, as they lie in mapped files.

A slot holds the ends of a chain of units, one unit for each message that waits for its time; a unit says which one
is before it. What is written is written so that a kill leaves it as it was before or as it is after.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from ariane.kernel.layout cimport MAGIC_BLANK, load32, load64, publish, save32, save64
from ariane.kernel.maps cimport Maps

wheel_chunk_bytes = CHUNK_BYTES


cdef class Wheel:
    """The slots, in a mapped file: one for each unit of time, coming round again."""

    def __cinit__(self, buffer, int64_t slot_count, int64_t precision_ms):
        cdef Py_buffer view
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        cdef Py_ssize_t size = view.len
        self.base = <uint8_t*> view.buf
        PyBuffer_Release(&view)
        if size != slot_count * SLOT_BYTES or slot_count < 2 or precision_ms < 1:
            raise ValueError(f"a wheel of {slot_count} slots has {slot_count * SLOT_BYTES} bytes, not {size}")
        self.buffer = memoryview(buffer)
        self.slot_count = slot_count
        self.precision_ms = precision_ms
        self.reserved = <uint8_t*> PyMem_Malloc(size // CHUNK_BYTES + 1)
        if self.reserved == NULL:
            raise MemoryError
        memset(self.reserved, 0, size // CHUNK_BYTES + 1)

    def __dealloc__(self):
        PyMem_Free(self.reserved)

    def release(self) -> None:
        """Let go of the map; the wheel must not be used any more."""
        self.base = NULL
        self.buffer.release()

    def chunk_reserved(self, Py_ssize_t chunk) -> None:
        """The chunk has been given blocks: it may be written to."""
        if not 0 <= chunk <= self.slot_count * SLOT_BYTES // CHUNK_BYTES:
            raise IndexError(f"chunk {chunk}")
        self.reserved[chunk] = 1

    def slot(self, int64_t time_ms) -> tuple[int, int, int] | None:
        """(first unit, last unit, messages) of a moment; None when nothing waits for it."""
        cdef uint8_t* at = self.at(time_ms)
        if <int64_t> load64(at) != time_ms // self.precision_ms:
            return None
        return <int64_t> load64(at + FIRST_AT), <int64_t> load64(at + LAST_AT), <int32_t> load32(at + COUNT_AT)

    def set_slot(self, Py_ssize_t number, int64_t last, int32_t count, bint is_marked) -> None:
        """Change a slot's last unit and messages. One that is marked has to be put together from its units."""
        cdef uint8_t* slot = self.numbered(number)
        save32(slot + MARK_AT, is_marked)
        publish()
        save64(slot + LAST_AT, <uint64_t> last)
        save32(slot + COUNT_AT, <uint32_t> count)

    def clear_slot(self, Py_ssize_t number) -> None:
        """Nothing waits for it any more."""
        cdef uint8_t* slot = self.numbered(number)
        save64(slot, 0)
        publish()
        memset(slot, 0, SLOT_BYTES)

    cdef uint8_t* numbered(self, Py_ssize_t number) except NULL:
        if self.base == NULL or not 0 <= number < self.slot_count:
            raise IndexError(f"slot {number} of {self.slot_count}")
        return self.base + number * SLOT_BYTES

    cdef uint8_t* at(self, int64_t time_ms) noexcept nogil:
        return self.base + (time_ms // self.precision_ms % self.slot_count) * SLOT_BYTES

    cdef bint is_reserved(self, uint8_t* slot) noexcept nogil:
        return self.reserved[(slot - self.base) // CHUNK_BYTES]


cdef class TimerLog(Maps):
    """The units in the order they were taken; `end` is where the next one goes."""

    def __init__(self, int64_t file_bytes):
        if file_bytes < UNIT_BYTES + UNIT_BLANK_BYTES:
            raise ValueError(f"a timer log file of {file_bytes} bytes holds no unit")
        self.file_bytes = file_bytes
        self.end = self.reserved_end = 0

    def unit(self, int64_t position) -> tuple[int, int, int, int, int, int] | None:
        """(previous, kind, time, written at, log offset, record size) of a sound unit, else None."""
        cdef uint8_t* at = self.sound(position)
        if at == NULL:
            return None
        return (<int64_t> load64(at + PREVIOUS_AT), <int32_t> load32(at + KIND_AT), unit_ms(at),
                <int64_t> load64(at + WRITTEN_AT), <int64_t> load64(at + RECORD_AT),
                <int32_t> load32(at + RECORD_SIZE_AT))

    @property
    def last_in_file(self) -> int:
        """Where the last unit of a full file begins, within the file."""
        return ((self.file_bytes - UNIT_BLANK_BYTES) // UNIT_BYTES - 1) * UNIT_BYTES

    def before(self, int64_t position) -> int:
        """Where the unit in front of a position begins; -1 when no file holds one."""
        cdef int64_t inside = (position - self.first_position) % self.file_bytes
        cdef int64_t found = position - UNIT_BYTES
        if inside == 0:
            found = position - self.file_bytes + self.last_in_file
        elif inside > self.last_in_file + UNIT_BYTES:
            found = position - inside + self.last_in_file
        return found if found >= self.first_position else NOWHERE

    def after(self, int64_t position) -> int:
        """Where the unit behind the one at a position begins, or would."""
        cdef int64_t inside = (position - self.first_position) % self.file_bytes
        return position + (self.file_bytes - inside if inside >= self.last_in_file else UNIT_BYTES)

    def place_of(self, int64_t position) -> int:
        """Where a unit may begin, at or behind a position: not in the rest of a file that is too short."""
        cdef int64_t inside = (position - self.first_position) % self.file_bytes
        return position + self.file_bytes - inside if inside > self.last_in_file else position

    def seal(self) -> None:
        """Mark the rest of the newest file as unused; the next unit needs a new file."""
        cdef int64_t rest = self.first_position + self.count * self.file_bytes - self.end
        cdef uint8_t* at = self.at(self.end)
        if rest >= UNIT_BLANK_BYTES and at != NULL:
            save64(at + PREVIOUS_AT, 0)
            save32(at + KIND_AT, MAGIC_BLANK)
            publish()
            save32(at, <uint32_t> rest)
        self.end += rest

    cdef uint8_t* sound(self, int64_t position) noexcept nogil:
        """The unit at a position, or NULL when there is none or it is damaged."""
        cdef int64_t relative = position - self.first_position
        if relative < 0 or relative % self.file_bytes > self.file_bytes - UNIT_BYTES:
            return NULL
        cdef uint8_t* at = self.at(position)
        if at == NULL or load32(at) != UNIT_BYTES:
            return NULL
        cdef uint32_t kind = load32(at + KIND_AT)
        # The previous unit's position lies between size and kind: these being there, no sector of it is lost.
        if kind > KINDS or not kind & PLAIN or <int64_t> load64(at + PREVIOUS_AT) >= position:
            return NULL
        return at
