/* CRC-32C (Castagnoli, reflected). With the processor's instruction three streams at once, so that its latency is hidden;
 * else slicing by eight. `crc32c_init` once, then `crc32c_update(crc, data, size)` with the finished checksum of the bytes before.
 * `crc32c_append` is the same for data whose own checksum is known: it does not read long data. */
#ifndef MAGNETAR_CRC32C_H
#define MAGNETAR_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CRC_POLY 0x82f63b78u
#define CRC_LONG 1024 /* bytes of each of the three streams */
#define CRC_SHORT 64
#define CRC_KNOWN_FROM 512 /* fewer bytes are read as fast, where the power has to be found first */
#define CRC_TABLED 2048 /* sizes below have their power in a table: a multiplication is less than to read so many bytes */
#define CRC_TABLED_FROM 48

static uint32_t crc_table[8][256];
static uint32_t crc_long_shift[4][256], crc_short_shift[4][256];

static uint32_t crc_soft(uint32_t crc, const uint8_t *p, size_t n) {
    while (n >= 8) {
        uint64_t v;
        memcpy(&v, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        v = __builtin_bswap64(v);
#endif
        v ^= crc;
        crc = crc_table[7][v & 255] ^ crc_table[6][v >> 8 & 255] ^ crc_table[5][v >> 16 & 255] ^ crc_table[4][v >> 24 & 255] ^
              crc_table[3][v >> 32 & 255] ^ crc_table[2][v >> 40 & 255] ^ crc_table[1][v >> 48 & 255] ^ crc_table[0][v >> 56];
        p += 8;
        n -= 8;
    }
    while (n--)
        crc = crc_table[0][(crc ^ *p++) & 255] ^ crc >> 8;
    return crc;
}

/* The effect of `size` zero bytes on a raw crc, as tables over its four bytes. */
static void crc_shift_table(uint32_t table[4][256], size_t size) {
    uint32_t column[32];
    for (int bit = 0; bit < 32; bit++) {
        uint32_t crc = 1u << bit;
        for (size_t i = 0; i < size; i++)
            crc = crc_table[0][crc & 255] ^ crc >> 8;
        column[bit] = crc;
    }
    for (int byte = 0; byte < 4; byte++)
        for (int value = 0; value < 256; value++) {
            uint32_t crc = 0;
            for (int bit = 0; bit < 8; bit++)
                if (value >> bit & 1)
                    crc ^= column[8 * byte + bit];
            table[byte][value] = crc;
        }
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <nmmintrin.h>
#include <wmmintrin.h>
static int crc_hardware, crc_multiplies;

static inline uint32_t crc_shift(uint32_t table[4][256], uint32_t crc) {
    return table[0][crc & 255] ^ table[1][crc >> 8 & 255] ^ table[2][crc >> 16 & 255] ^ table[3][crc >> 24];
}

__attribute__((target("sse4.2"))) static const uint8_t *crc_three(uint64_t *crc, const uint8_t *p, size_t stride, uint32_t table[4][256]) {
    uint64_t a = *crc, b = 0, c = 0, x, y, z;
    for (const uint8_t *end = p + stride; p < end; p += 8) {
        memcpy(&x, p, 8);
        memcpy(&y, p + stride, 8);
        memcpy(&z, p + 2 * stride, 8);
        a = _mm_crc32_u64(a, x);
        b = _mm_crc32_u64(b, y);
        c = _mm_crc32_u64(c, z);
    }
    a = crc_shift(table, (uint32_t)a) ^ b;
    *crc = crc_shift(table, (uint32_t)a) ^ c;
    return p + 2 * stride;
}

__attribute__((target("sse4.2"))) static uint32_t crc_hard(uint32_t start, const uint8_t *p, size_t n) {
    uint64_t crc = start, v;
    while (n >= 3 * CRC_LONG) {
        p = crc_three(&crc, p, CRC_LONG, crc_long_shift);
        n -= 3 * CRC_LONG;
    }
    while (n >= 3 * CRC_SHORT) {
        p = crc_three(&crc, p, CRC_SHORT, crc_short_shift);
        n -= 3 * CRC_SHORT;
    }
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&v, p, 8);
        crc = _mm_crc32_u64(crc, v);
    }
    if (n & 4) {
        uint32_t four;
        memcpy(&four, p, 4);
        crc = _mm_crc32_u32((uint32_t)crc, four);
        p += 4;
    }
    if (n & 2) {
        uint16_t two;
        memcpy(&two, p, 2);
        crc = _mm_crc32_u16((uint32_t)crc, two);
        p += 2;
    }
    if (n & 1)
        crc = _mm_crc32_u8((uint32_t)crc, *p);
    return (uint32_t)crc;
}

/* Polynomials modulo that of the checksum, reflected: bit 31 is x^0. All here are kept as p * x^-33, since the product that the
 * instructions give is a * b * x^33: `crc_times` of two such values gives such a value, of such a value and a plain value a
 * plain value. */
static uint32_t crc_powers[48]; /* x^(8 * 2^k) */
static struct { size_t size; uint32_t power; } crc_known[64]; /* x^(8 * size) */
static uint32_t crc_tabled[CRC_TABLED]; /* the same for each size but 0 */

__attribute__((target("sse4.2,pclmul"))) static uint32_t crc_times(uint32_t a, uint32_t b) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)a), _mm_cvtsi32_si128((int)b), 0);
    return (uint32_t)_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

static void crc_powers_init(void) {
    uint32_t power = 1u << 31;
    for (int i = 0; i < 33 - 8; i++) /* divided by x */
        power = power >> 31 ? (power ^ CRC_POLY) << 1 | 1 : power << 1;
    for (int k = 0; k < 48; k++) {
        crc_powers[k] = power;
        power = crc_times(power, power);
    }
}

/* x^(8 * size), size > 0. */
static uint32_t crc_power(size_t size) {
    uint32_t power = 0;
    int found = 0;
    for (int k = 0; size >> k; k++)
        if (size >> k & 1) {
            power = found ? crc_times(power, crc_powers[k]) : crc_powers[k];
            found = 1;
        }
    return power;
}

/* The same, remembered. */
static inline uint32_t crc_power_known(size_t size) {
    if (size < CRC_TABLED)
        return crc_tabled[size];
    size_t at = size & 63;
    if (crc_known[at].size != size) {
        crc_known[at].power = crc_power(size);
        crc_known[at].size = size;
    }
    return crc_known[at].power;
}
#endif

static void crc32c_init(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ CRC_POLY : crc >> 1;
        crc_table[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++)
            crc_table[k][i] = crc_table[0][crc_table[k - 1][i] & 255] ^ crc_table[k - 1][i] >> 8;
    crc_shift_table(crc_long_shift, CRC_LONG);
    crc_shift_table(crc_short_shift, CRC_SHORT);
#if defined(__x86_64__) && defined(__GNUC__)
    crc_hardware = __builtin_cpu_supports("sse4.2");
    if ((crc_multiplies = crc_hardware && __builtin_cpu_supports("pclmul")))
        crc_powers_init();
#endif
}

/* After `crc32c_init`; needed before `crc32c_append_often`. */
static inline void crc32c_often_init(void) {
#if defined(__x86_64__) && defined(__GNUC__)
    if (!crc_multiplies)
        return;
    crc_tabled[1] = crc_powers[0];
    for (int size = 2; size < CRC_TABLED; size++)
        crc_tabled[size] = crc_times(crc_tabled[size - 1], crc_powers[0]);
#endif
}

static inline uint32_t crc32c_update(uint32_t crc, const uint8_t *p, size_t n) {
#if defined(__x86_64__) && defined(__GNUC__)
    if (crc_hardware)
        return ~crc_hard(~crc, p, n);
#endif
    return ~crc_soft(~crc, p, n);
}

/* The checksum of the bytes that `crc` covers and then these bytes, whose own checksum is `known`. */
static inline uint32_t crc32c_append(uint32_t crc, const uint8_t *p, size_t n, uint32_t known) {
#if defined(__x86_64__) && defined(__GNUC__)
    if (crc_multiplies && n >= CRC_KNOWN_FROM)
        return crc_times(crc, crc_power(n)) ^ known;
#endif
    (void)known;
    return crc32c_update(crc, p, n);
}

/* The same, quicker for sizes that come often; after `crc32c_often_init`, and not for two threads at once. */
static inline uint32_t crc32c_append_often(uint32_t crc, const uint8_t *p, size_t n, uint32_t known) {
#if defined(__x86_64__) && defined(__GNUC__)
    if (crc_multiplies && n >= CRC_TABLED_FROM)
        return crc_times(crc, crc_power_known(n)) ^ known;
#endif
    (void)known;
    return crc32c_update(crc, p, n);
}

#endif
