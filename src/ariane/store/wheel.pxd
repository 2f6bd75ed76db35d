"""The slots of the timer wheel and the units of its log. Formats: docs/formats/timer.md."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from ariane.kernel.layout cimport load32, load64
from ariane.kernel.maps cimport Maps

# A slot: time in units of the precision, first unit, last unit, messages, and a word that is zero.
cdef enum:
    SLOT_BYTES = 32
    FIRST_AT = 8
    LAST_AT = 16
    COUNT_AT = 24
    MARK_AT = 28

# A unit: size, the unit before it in its slot, kind, written at, delay, log offset, record size, topic hash, zero.
cdef enum:
    UNIT_BYTES = 52
    PREVIOUS_AT = 4
    KIND_AT = 12
    WRITTEN_AT = 16
    DELAY_AT = 24
    RECORD_AT = 28
    RECORD_SIZE_AT = 36
    TOPIC_HASH_AT = 40
    SPARE_AT = 44
    UNIT_BLANK_BYTES = 16

# Kinds of units.
cdef enum:
    PLAIN = 1
    ROLLS = 2
    DELETES = 4
    KINDS = 15

cdef enum:
    CHUNK_BYTES = 1 << 16         # of the wheel, given blocks at once
    NOWHERE = -1                  # the unit before the first of a slot

cdef class Wheel:
    cdef readonly object buffer
    cdef uint8_t* base
    cdef uint8_t* reserved          # by chunk, whether it has blocks of its own
    cdef readonly int64_t slot_count
    cdef readonly int64_t precision_ms
    cdef uint8_t* numbered(self, Py_ssize_t number) except NULL
    cdef uint8_t* at(self, int64_t time_ms) noexcept nogil
    cdef bint is_reserved(self, uint8_t* slot) noexcept nogil

cdef class TimerLog(Maps):
    cdef public int64_t end
    cdef public int64_t reserved_end
    cdef uint8_t* sound(self, int64_t position) noexcept nogil


cdef inline int64_t unit_ms(const uint8_t* unit) noexcept nogil:
    return <int64_t> load64(unit + WRITTEN_AT) + <int32_t> load32(unit + DELAY_AT)
