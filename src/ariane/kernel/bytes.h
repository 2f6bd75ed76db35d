/* Texts where they lie, and big-endian words at any address, as everything RocketMQ writes is laid out. */
#ifndef ARIANE_BYTES_H
#define ARIANE_BYTES_H

#include <stdint.h>
#include <string.h>
#include <sys/types.h>

typedef struct {
    const uint8_t *at;
    ssize_t size;
} Text;

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define BE16(v) (v)
#define BE32(v) (v)
#define BE64(v) (v)
#else
#define BE16(v) __builtin_bswap16(v)
#define BE32(v) __builtin_bswap32(v)
#define BE64(v) __builtin_bswap64(v)
#endif

static inline uint16_t load16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return BE16(v); }
static inline uint32_t load32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return BE32(v); }
static inline uint64_t load64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return BE64(v); }
static inline void save16(uint8_t *p, uint16_t v) { v = BE16(v); memcpy(p, &v, 2); }
static inline void save32(uint8_t *p, uint32_t v) { v = BE32(v); memcpy(p, &v, 4); }
static inline void save64(uint8_t *p, uint64_t v) { v = BE64(v); memcpy(p, &v, 8); }

/* What a record says it is; a blank one fills the rest of a segment. */
#define MAGIC_V1 0xDAA320A7u
#define MAGIC_V2 0xDAA320ABu
#define MAGIC_BLANK 0xCBD43194u

/* Names are short: two words that overlap beat a loop that has to be set up. */
static inline void copy_name(uint8_t *to, const uint8_t *from, size_t size) {
    if (size < 8 || size > 32) { memcpy(to, from, size); return; }
    if (size >= 16) {
        memcpy(to, from, 16);
        memcpy(to + size - 16, from + size - 16, 16);
    } else {
        memcpy(to, from, 8);
        memcpy(to + size - 8, from + size - 8, 8);
    }
}

/* Ask for a cache line that will be written soon, while there is other work to do. */
static inline void expect_write(const void *p) { __builtin_prefetch(p, 1); }
static inline void expect_read(const void *p) { __builtin_prefetch(p, 0); }

/* number % divisor by two multiplications (Lemire, Kaser, Kurz: "Faster Remainder by Direct Computation");
   `inverse` is inverse_of(divisor). Exact for all 32-bit numbers. */
static inline uint64_t inverse_of(uint32_t divisor) { return UINT64_MAX / divisor + 1; }
static inline uint32_t remainder_of(uint32_t number, uint32_t divisor, uint64_t inverse) {
    return (uint32_t) (((unsigned __int128) (inverse * number) * divisor) >> 64);
}

/* Everything written so far is in memory before anything written later: a killed process leaves
   a record either whole or without its size. */
static inline void publish(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }

#endif
