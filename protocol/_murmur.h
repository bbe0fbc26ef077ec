/* Murmur3 x86 32 bit with seed 0 over pieces, its sign bit cleared. */
#ifndef MAGNETAR_MURMUR_H
#define MAGNETAR_MURMUR_H

#include <stddef.h>
#include <stdint.h>

typedef struct { uint32_t h, k; size_t size; } murmur;

static inline uint32_t murmur_rotl(uint32_t x, int r) { return x << r | x >> (32 - r); }

static inline void murmur_block(murmur *m, uint32_t k) {
    m->h = murmur_rotl(m->h ^ murmur_rotl(k * 0xcc9e2d51u, 15) * 0x1b873593u, 13) * 5 + 0xe6546b64u;
}

static inline void murmur_add(murmur *m, const uint8_t *p, size_t n) {
    const uint8_t *end = p + n;
    while (p < end) {
        if (!(m->size & 3) && end - p >= 4) {
            murmur_block(m, (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
            p += 4;
            m->size += 4;
            continue;
        }
        m->k |= (uint32_t)*p++ << 8 * (m->size++ & 3);
        if (!(m->size & 3)) {
            murmur_block(m, m->k);
            m->k = 0;
        }
    }
}

static inline uint32_t murmur_end(const murmur *m) {
    uint32_t h = m->h;
    if (m->size & 3)
        h ^= murmur_rotl(m->k * 0xcc9e2d51u, 15) * 0x1b873593u;
    h ^= (uint32_t)m->size;
    h = (h ^ h >> 16) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    return (h ^ h >> 16) & 0x7fffffffu;
}

#endif
