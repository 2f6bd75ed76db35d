from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t, uint32_t

cdef extern from "crc32.h" nogil:
    void crc_prepare()
    uint32_t crc_of(const uint8_t* data, size_t size)
    uint32_t crc_whole(const uint8_t* data, size_t size)

cdef extern from "texts.h" nogil:
    size_t hash_letters(uint32_t* hash, const uint8_t* text, size_t size)

cdef int32_t java_hash_from(int32_t start, const uint8_t* text, Py_ssize_t size) noexcept nogil
cdef uint32_t body_crc(const uint8_t* data, size_t size) noexcept nogil
cdef uint32_t whole_crc(const uint8_t* data, size_t size) noexcept nogil
