"""The two hashes RocketMQ writes to disk: Java's string hash and CRC-32 without its sign bit."""

from libc.stdint cimport int32_t, uint8_t, uint32_t

crc_prepare()


cdef uint32_t body_crc(const uint8_t* data, size_t size) noexcept nogil:
    """CRC-32 (zlib's polynomial) with the sign bit cleared. Other modules call it here, where the tables are."""
    return crc_of(data, size)


cdef uint32_t whole_crc(const uint8_t* data, size_t size) noexcept nogil:
    """CRC-32 as everybody else has it, sign bit and all."""
    return crc_whole(data, size)


cdef int32_t java_hash_from(int32_t start, const uint8_t* text, Py_ssize_t size) noexcept nogil:
    """Continue `String.hashCode` over UTF-8 text, counting UTF-16 units as Java does.

    A byte that is not UTF-8 counts as U+FFFD, which is what Java's decoder would have put there.
    """
    cdef uint32_t hash = <uint32_t> start
    cdef uint32_t point
    cdef uint8_t lead
    cdef int more, k
    cdef Py_ssize_t at = hash_letters(&hash, text, size)
    while at < size:
        lead = text[at]
        at += 1
        if lead < 0x80:
            hash = hash * 31 + lead
            continue
        more = 1 if 0xC2 <= lead <= 0xDF else 2 if 0xE0 <= lead <= 0xEF else 3 if 0xF0 <= lead <= 0xF4 else 0
        point = 0xFFFD
        if more and at + more <= size:
            point = lead & (0x3F >> more)
            for k in range(more):
                if text[at + k] & 0xC0 != 0x80:
                    more = 0
                    point = 0xFFFD
                    break
                point = point << 6 | (text[at + k] & 0x3F)
            at += more
        if point > 0xFFFF:
            point -= 0x10000
            hash = hash * 31 + (0xD800 + (point >> 10))
            hash = hash * 31 + (0xDC00 + (point & 0x3FF))
        else:
            hash = hash * 31 + point
    return <int32_t> hash


def java_hash(text: str | bytes) -> int:
    """`String.hashCode` of the text: a signed 32-bit number."""
    cdef bytes encoded = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return java_hash_from(0, encoded, len(encoded))


def crc32(const uint8_t[::1] data not None) -> int:
    """CRC-32 of the bytes with the sign bit cleared, as records and registrations carry it."""
    if data.shape[0] == 0:
        return 0
    return crc_of(&data[0], data.shape[0])
