/* Short texts: found by their marks, hashed, copied, and checked for UTF-8, many bytes at a time. */
#ifndef ARIANE_TEXTS_H
#define ARIANE_TEXTS_H

#include <stdint.h>
#include <string.h>

#include "bytes.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define EACH_BYTE(v) ((v) * 0x0101010101010101ull)

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

/* Which of up to 64 bytes are `mark`: bit i stands for at[i]. Reads nothing outside [at, at + size): the last
   bytes are read together with some that have been seen. */
static inline uint64_t places_of(const uint8_t *at, size_t size, uint8_t mark)
{
    uint64_t found = 0;
    size_t i = 0;
#ifdef __SSE2__
    const __m128i wanted = _mm_set1_epi8((char) mark);
#define PLACES(bytes) ((uint64_t) (uint32_t) _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, wanted)))
    if (size >= 16) {
        for (; i + 16 <= size; i += 16)
            found |= PLACES(_mm_loadu_si128((const __m128i *) (at + i))) << i;
        if (i < size)
            found |= PLACES(_mm_loadu_si128((const __m128i *) (at + size - 16))) << (size - 16);
        return found;
    }
    if (size >= 8) {
        found = PLACES(_mm_loadl_epi64((const __m128i *) at)) & 255;
        return found | (PLACES(_mm_loadl_epi64((const __m128i *) (at + size - 8))) & 255) << (size - 8);
    }
#undef PLACES
#endif
    for (; i < size; i++)
        found |= (uint64_t) (at[i] == mark) << i;
    return found;
}

/* The first `mark` of [at, end), or `end`. */
static inline const uint8_t *find_byte(const uint8_t *at, const uint8_t *end, uint8_t mark)
{
    while (at < end) {
        size_t size = end - at < 64 ? (size_t) (end - at) : 64;
        uint64_t found = places_of(at, size, mark);
        if (found)
            return at + __builtin_ctzll(found);
        at += size;
    }
    return end;
}

/* A properties text that is read pair by pair: 1 ends a name, 2 a value. Where these are is looked up 64 bytes at
   a time. */
typedef struct {
    const uint8_t *text;
    size_t size, at, window;    /* `at`: where the next pair begins */
    uint64_t any, closing;
} Pairs;

static __attribute__((noinline)) void look_for_marks(Pairs *pairs, size_t window)
{
    const uint8_t *at = pairs->text + window;
    size_t size = pairs->size - window < 64 ? pairs->size - window : 64;
    pairs->window = window;
#ifdef __SSE2__
    if (size >= 16) {
        pairs->any = pairs->closing = 0;
        for (size_t i = 0; i < size; i += 16) {
            size_t from = i + 16 <= size ? i : size - 16;   /* the last together with some that have been seen */
            __m128i bytes = _mm_loadu_si128((const __m128i *) (at + from));
            __m128i closing = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(2));
            __m128i any = _mm_or_si128(closing, _mm_cmpeq_epi8(bytes, _mm_set1_epi8(1)));
            pairs->closing |= (uint64_t) (uint32_t) _mm_movemask_epi8(closing) << from;
            pairs->any |= (uint64_t) (uint32_t) _mm_movemask_epi8(any) << from;
        }
        return;
    }
#endif
    pairs->closing = places_of(at, size, 2);
    pairs->any = pairs->closing | places_of(at, size, 1);
}

static inline Pairs pairs_of(Text text)
{
    Pairs pairs = {text.at, (size_t) text.size, 0, 0, 0, 0};
    look_for_marks(&pairs, 0);
    return pairs;
}

/* The first mark from `at` on, or the text's size. */
static inline size_t mark_from(Pairs *pairs, size_t at, int must_close)
{
    while (at < pairs->size) {
        size_t window = at & ~(size_t) 63;
        if (window != pairs->window)
            look_for_marks(pairs, window);
        uint64_t left = (must_close ? pairs->closing : pairs->any) >> (at & 63);
        if (left)
            return at + (size_t) __builtin_ctzll(left);
        at = window + 64;
    }
    return pairs->size;
}

/* Cut the next pair off; 0 when there is none. What lacks its name or its value is no pair, as in Java. */
static inline __attribute__((always_inline)) int next_pair(Pairs *rest, Text *name, Text *value)
{
    while (rest->at < rest->size) {
        size_t first = rest->at, name_end = mark_from(rest, first, 0), end = mark_from(rest, name_end, 1);
        rest->at = end + 1;
        if (name_end > first && end > name_end + 1) {
            *name = (Text) {rest->text + first, (ssize_t) (name_end - first)};
            *value = (Text) {rest->text + name_end + 1, (ssize_t) (end - name_end - 1)};
            return 1;
        }
    }
    return 0;
}

/* The shape of a properties text: its names and marks, and the values that decide something. The messages of a
   batch mostly share one; that a text has it is seen eight bytes at a time, and then everything is where it was. */
enum { SHAPE_BYTES_MAX = 256 };
typedef struct {
    size_t size;                    /* of every text of this shape; 0: there is none */
    uint8_t text[SHAPE_BYTES_MAX];  /* the one it was taken from */
    uint8_t fixed[SHAPE_BYTES_MAX]; /* 255 where texts are equal; elsewhere they have anything but 0, 1 and 2 */
} Shape;

static inline uint64_t misfit_at(const Shape *shape, const uint8_t *text, size_t at)
{
    uint64_t word, wanted, fixed;
    memcpy(&word, text + at, 8);
    memcpy(&wanted, shape->text + at, 8);
    memcpy(&fixed, shape->fixed + at, 8);
    uint64_t free = word | fixed;
    return ((word ^ wanted) & fixed) | ((free - EACH_BYTE(3)) & ~free & EACH_BYTE(0x80));
}

static inline int has_shape(const Shape *shape, const uint8_t *text, size_t size)
{
    uint64_t misfit = 0;
    if (size != shape->size || size < 8)
        return 0;
    for (size_t at = 0; at + 8 <= size; at += 8)
        misfit |= misfit_at(shape, text, at);
    return (misfit | misfit_at(shape, text, size - 8)) == 0;
}

/* Go on with Java's hash over the plain letters a text begins with, 16 or 4 at a time: each step waits for
   the one before, so fewer steps are quicker. Returns how many letters were taken. */
static inline size_t hash_letters(uint32_t *hash, const uint8_t *text, size_t size)
{
    enum { P2 = 31 * 31, P3 = 31 * 31 * 31 };
    const uint32_t P4 = 31u * P3, P8 = P4 * P4, P12 = P8 * P4, P16 = P8 * P8;
    uint32_t h = *hash;
    size_t at = 0;
#ifdef __SSE2__
    const __m128i zero = _mm_setzero_si128();
    const __m128i powers = _mm_setr_epi16(P3, P2, 31, 1, P3, P2, 31, 1);
    for (; at + 16 <= size; at += 16) {
        __m128i letters = _mm_loadu_si128((const __m128i *) (text + at));
        if (_mm_movemask_epi8(letters))
            break;
        __m128 low = _mm_castsi128_ps(_mm_madd_epi16(_mm_unpacklo_epi8(letters, zero), powers));
        __m128 high = _mm_castsi128_ps(_mm_madd_epi16(_mm_unpackhi_epi8(letters, zero), powers));
        __m128i fours = _mm_add_epi32(_mm_castps_si128(_mm_shuffle_ps(low, high, _MM_SHUFFLE(2, 0, 2, 0))),
                                      _mm_castps_si128(_mm_shuffle_ps(low, high, _MM_SHUFFLE(3, 1, 3, 1))));
        __m128i even = _mm_mul_epu32(fours, _mm_setr_epi32((int) P12, 0, (int) P4, 0));
        __m128i odd = _mm_mul_epu32(_mm_srli_epi64(fours, 32), _mm_setr_epi32((int) P8, 0, 1, 0));
        __m128i both = _mm_add_epi64(even, odd);
        both = _mm_add_epi64(both, _mm_unpackhi_epi64(both, both));
        h = h * P16 + (uint32_t) _mm_cvtsi128_si32(both);
    }
#endif
    for (; at + 4 <= size && (text[at] | text[at + 1] | text[at + 2] | text[at + 3]) < 0x80; at += 4)
        h = h * P4 + text[at] * (uint32_t) P3 + text[at + 1] * (uint32_t) P2 + text[at + 2] * 31u + text[at + 3];
    *hash = h;
    return at;
}

/* Upper-case hexadecimal digits, two for each byte. */
static inline void put_hex(uint8_t *to, const uint8_t *from, size_t size)
{
    size_t i = 0;
#ifdef __SSE2__
    const __m128i low = _mm_set1_epi8(15), nine = _mm_set1_epi8(9);
    for (; i + 8 <= size; i += 8) {
        __m128i bytes = _mm_loadl_epi64((const __m128i *) (from + i));
        __m128i halves = _mm_unpacklo_epi8(_mm_and_si128(_mm_srli_epi16(bytes, 4), low), _mm_and_si128(bytes, low));
        __m128i letters = _mm_and_si128(_mm_cmpgt_epi8(halves, nine), _mm_set1_epi8('A' - '0' - 10));
        __m128i digits = _mm_add_epi8(_mm_add_epi8(halves, _mm_set1_epi8('0')), letters);
        _mm_storeu_si128((__m128i *) (to + 2 * i), digits);
    }
#endif
    for (; i < size; i++) {
        to[2 * i] = (uint8_t) "0123456789ABCDEF"[from[i] >> 4];
        to[2 * i + 1] = (uint8_t) "0123456789ABCDEF"[from[i] & 15];
    }
}

/* Whether [at, end) is UTF-8 as Unicode defines it: no long forms, no surrogates, nothing cut. */
static inline int is_utf8(const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        if (end - at >= 8) {
            uint64_t word;
            memcpy(&word, at, 8);
            if ((word & EACH_BYTE(0x80)) == 0) {
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
