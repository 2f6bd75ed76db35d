/* Short texts: found by their marks, copied, and checked for UTF-8, a word at a time. */
#ifndef ARIANE_TEXTS_H
#define ARIANE_TEXTS_H

#include <stdint.h>
#include <string.h>

#define EACH_BYTE(v) ((v) * 0x0101010101010101ull)

/* The first byte of [at, end) that is 0, 1 or 2, or `end`; `seen` gathers all bits on the way, so
   that its top bits tell whether a byte was not ASCII. Reads nothing outside [at, end). */
static inline const uint8_t *next_mark(const uint8_t *at, const uint8_t *end, uint64_t *seen)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    while (end - at >= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        uint64_t low = (word - EACH_BYTE(3)) & ~word & EACH_BYTE(0x80);
        if (low) {
            int count = __builtin_ctzll(low) >> 3;  /* the lowest hit is always a true one */
            *seen |= word & ((1ull << (count * 8)) - 1);
            return at + count;
        }
        *seen |= word;
        at += 8;
    }
#endif
    while (at < end && *at > 2) {
        *seen |= (uint64_t) *at & 0x80;
        at++;
    }
    return at;
}

static inline int is_ascii_only(uint64_t seen) { return (seen & EACH_BYTE(0x80)) == 0; }

/* memcpy for texts that are mostly a few bytes long. */
static inline void copy_short(uint8_t *to, const uint8_t *from, size_t size)
{
    if (size > 32) {
        memcpy(to, from, size);
    } else if (size >= 16) {
        uint64_t a, b, c, d;
        memcpy(&a, from, 8);
        memcpy(&b, from + 8, 8);
        memcpy(&c, from + size - 16, 8);
        memcpy(&d, from + size - 8, 8);
        memcpy(to, &a, 8);
        memcpy(to + 8, &b, 8);
        memcpy(to + size - 16, &c, 8);
        memcpy(to + size - 8, &d, 8);
    } else if (size >= 8) {
        uint64_t a, b;
        memcpy(&a, from, 8);
        memcpy(&b, from + size - 8, 8);
        memcpy(to, &a, 8);
        memcpy(to + size - 8, &b, 8);
    } else if (size >= 4) {
        uint32_t a, b;
        memcpy(&a, from, 4);
        memcpy(&b, from + size - 4, 4);
        memcpy(to, &a, 4);
        memcpy(to + size - 4, &b, 4);
    } else {
        while (size--)
            *to++ = *from++;
    }
}

/* Whether [at, end) is UTF-8 as Unicode defines it: no long forms, no surrogates, nothing cut. */
static int is_utf8(const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        if (end - at >= 8) {
            uint64_t word;
            memcpy(&word, at, 8);
            if (is_ascii_only(word)) {
                at += 8;
                continue;
            }
        }
        uint8_t lead = *at++;
        uint8_t low = 0x80, high = 0xBF;
        int more;
        if (lead < 0x80)
            continue;
        if (lead < 0xC2)
            return 0;
        if (lead < 0xE0) {
            more = 1;
        } else if (lead < 0xF0) {
            more = 2;
            if (lead == 0xE0)
                low = 0xA0;
            else if (lead == 0xED)
                high = 0x9F;
        } else if (lead < 0xF5) {
            more = 3;
            if (lead == 0xF0)
                low = 0x90;
            else if (lead == 0xF4)
                high = 0x8F;
        } else {
            return 0;
        }
        if (end - at < more || *at < low || *at > high)
            return 0;
        at++;
        while (--more)
            if ((*at++ & 0xC0) != 0x80)
                return 0;
    }
    return 1;
}

#endif
