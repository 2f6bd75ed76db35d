/*
 * CRC-32 with zlib's polynomial, as RocketMQ stores it for each body.
 *
 * Long runs are folded 64 bytes at a time with carry-less multiplication where the processor has it
 * (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ"); the 16 bytes that
 * remain of the folding, and everything shorter, go through eight tables of 256 words.
 */
#ifndef ARIANE_CRC32_H
#define ARIANE_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define ARIANE_CRC_FOLDS 1
#include <immintrin.h>
#endif

static uint32_t crc_tables[8][256];
static int crc_can_fold;

static void crc_prepare(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = (c & 1) ? 0xEDB88320u ^ (c >> 1) : c >> 1;
        crc_tables[0][i] = c;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++) {
            uint32_t below = crc_tables[t - 1][i];
            crc_tables[t][i] = crc_tables[0][below & 255] ^ (below >> 8);
        }
#ifdef ARIANE_CRC_FOLDS
    __builtin_cpu_init();
    crc_can_fold = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

/* The register after `n` more bytes; neither initial nor final inversion. */
static uint32_t crc_by_tables(uint32_t crc, const uint8_t *p, size_t n)
{
    for (; n >= 8; p += 8, n -= 8) {
        uint32_t low, high;
        memcpy(&low, p, 4);
        memcpy(&high, p + 4, 4);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        low = __builtin_bswap32(low);
        high = __builtin_bswap32(high);
#endif
        low ^= crc;
        crc = crc_tables[7][low & 255] ^ crc_tables[6][(low >> 8) & 255]
            ^ crc_tables[5][(low >> 16) & 255] ^ crc_tables[4][low >> 24]
            ^ crc_tables[3][high & 255] ^ crc_tables[2][(high >> 8) & 255]
            ^ crc_tables[1][(high >> 16) & 255] ^ crc_tables[0][high >> 24];
    }
    while (n--)
        crc = crc_tables[0][(crc ^ *p++) & 255] ^ (crc >> 8);
    return crc;
}

#ifdef ARIANE_CRC_FOLDS
__attribute__((target("pclmul,sse4.1")))
static inline __m128i crc_fold(__m128i lane, __m128i constants, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(lane, constants, 0x00);
    __m128i high = _mm_clmulepi64_si128(lane, constants, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

__attribute__((target("pclmul,sse4.1")))
static uint32_t crc_by_folding(uint32_t crc, const uint8_t *p, size_t n)
{
    const __m128i by_64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i by_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    __m128i lane[4];
    uint8_t rest[16];

    for (int i = 0; i < 4; i++)
        lane[i] = _mm_loadu_si128((const __m128i *)p + i);
    lane[0] = _mm_xor_si128(lane[0], _mm_cvtsi32_si128((int)crc));
    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64)
        for (int i = 0; i < 4; i++)
            lane[i] = crc_fold(lane[i], by_64, _mm_loadu_si128((const __m128i *)p + i));
    for (int i = 1; i < 4; i++)
        lane[0] = crc_fold(lane[0], by_16, lane[i]);
    for (; n >= 16; p += 16, n -= 16)
        lane[0] = crc_fold(lane[0], by_16, _mm_loadu_si128((const __m128i *)p));
    _mm_storeu_si128((__m128i *)rest, lane[0]);
    return crc_by_tables(crc_by_tables(0, rest, 16), p, n);
}
#endif

/* zlib's crc32 of the bytes. */
static uint32_t crc_whole(const uint8_t *p, size_t n)
{
    uint32_t crc = ~0u;
#ifdef ARIANE_CRC_FOLDS
    if (crc_can_fold && n >= 64)
        crc = crc_by_folding(crc, p, n);
    else
#endif
        crc = crc_by_tables(crc, p, n);
    return ~crc;
}

/* The same with the sign bit cleared: what field 3 of a record holds. */
static uint32_t crc_of(const uint8_t *p, size_t n)
{
    return crc_whole(p, n) & 0x7fffffffu;
}

#endif
