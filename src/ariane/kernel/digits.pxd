"""Numbers as text."""

from libc.stdint cimport uint8_t, uint64_t


cdef inline uint8_t* put_digits(uint8_t* to, uint64_t number) noexcept nogil:
    """Write a number in decimal, at most 20 bytes; where it ends."""
    cdef uint8_t[20] digits
    cdef int count = 0
    while True:
        digits[count] = <uint8_t> (c'0' + number % 10)
        count += 1
        number //= 10
        if number == 0:
            break
    while count:
        count -= 1
        to[0] = digits[count]
        to += 1
    return to
