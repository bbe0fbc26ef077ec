/* Copies of long pieces. The processor's string instruction (`rep movsb`), with which a C library may copy everything above
 * some KiB, takes up to twice the time on processors of the family Zen when source and target lie differently in their pages, as
 * entries behind headers do. A loop over registers copies all long pieces equally fast. */
#ifndef MAGNETAR_LONG_COPY_H
#define MAGNETAR_LONG_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define COPY_LONG_FROM 2048 /* shorter pieces: the C library uses registers too */

#if defined(__x86_64__) && defined(__GNUC__)
#include <emmintrin.h>

/* As memcpy. */
static inline void copy_long(uint8_t *to, const uint8_t *from, size_t size) {
    if (size < COPY_LONG_FROM) {
        memcpy(to, from, size);
        return;
    }
    size_t first = -(uintptr_t)to & 63; /* whole cache lines from there on */
    memcpy(to, from, 64);
    to += first;
    from += first;
    size -= first;
    for (; size >= 64; to += 64, from += 64, size -= 64) {
        __m128i a = _mm_loadu_si128((const __m128i *)from), b = _mm_loadu_si128((const __m128i *)from + 1);
        __m128i c = _mm_loadu_si128((const __m128i *)from + 2), d = _mm_loadu_si128((const __m128i *)from + 3);
        _mm_store_si128((__m128i *)to, a);
        _mm_store_si128((__m128i *)to + 1, b);
        _mm_store_si128((__m128i *)to + 2, c);
        _mm_store_si128((__m128i *)to + 3, d);
    }
    memcpy(to, from, size);
}
#else
static inline void copy_long(uint8_t *to, const uint8_t *from, size_t size) { memcpy(to, from, size); }
#endif

#endif
