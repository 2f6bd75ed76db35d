"""The checksum of messages in a lake (docs/formats/lake.md): of offsets and bodies, in any order.

It is what Spark computes as `bit_xor(xxhash64(queueOffset, crc32(body)))`, so that files written here and
files written there can be compared.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from ariane.kernel.hashing cimport whole_crc

# XXH64's numbers, and Spark's seed.
cdef uint64_t PRIME_1 = 0x9E3779B185EBCA87
cdef uint64_t PRIME_2 = 0xC2B2AE3D27D4EB4F
cdef uint64_t PRIME_3 = 0x165667B19E3779F9
cdef uint64_t PRIME_4 = 0x85EBCA77C2B2AE63
cdef uint64_t PRIME_5 = 0x27D4EB2F165667C5
cdef uint64_t SEED = 42


def checksum(offsets, bounds, bodies, Py_ssize_t first, Py_ssize_t count) -> int:
    """Of `count` rows from `first` on: buffers of an int64 array and of a binary one with 32-bit bounds."""
    cdef Py_buffer[3] views
    cdef int held = 0
    cdef uint64_t found = 0
    try:
        for buffer in (offsets, bounds, b"" if bodies is None else bodies):
            PyObject_GetBuffer(buffer, &views[held], PyBUF_SIMPLE)
            held += 1
        if (first < 0 or count < 0 or views[0].len < (first + count) * 8
                or views[1].len < (first + count + 1) * 4):
            raise ValueError(f"rows {first} to {first + count} are not all in the buffers")
        if not total(<const int64_t*> views[0].buf + first, <const int32_t*> views[1].buf + first,
                     <const uint8_t*> views[2].buf, views[2].len, count, &found):
            raise ValueError("a body that does not lie in its buffer")
    finally:
        while held:
            held -= 1
            PyBuffer_Release(&views[held])
    return <int64_t> found


cdef bint total(const int64_t* offsets, const int32_t* bounds, const uint8_t* bodies, Py_ssize_t size,
                Py_ssize_t count, uint64_t* found) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(count):
        if bounds[i] < 0 or bounds[i + 1] < bounds[i] or bounds[i + 1] > size:
            return False
        found[0] ^= hash_of(whole_crc(bodies + bounds[i], bounds[i + 1] - bounds[i]),
                            hash_of(<uint64_t> offsets[i], SEED))
    return True


cdef inline uint64_t hash_of(uint64_t number, uint64_t seed) noexcept nogil:
    """XXH64 of eight bytes."""
    cdef uint64_t hash = seed + PRIME_5 + 8
    hash ^= turned(number * PRIME_2, 31) * PRIME_1
    hash = turned(hash, 27) * PRIME_1 + PRIME_4
    hash = (hash ^ hash >> 33) * PRIME_2
    hash = (hash ^ hash >> 29) * PRIME_3
    return hash ^ hash >> 32


cdef inline uint64_t turned(uint64_t number, int bits) noexcept nogil:
    return number << bits | number >> (64 - bits)
