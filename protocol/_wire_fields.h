/* Reading protobuf fields one by one: for helpers that want some fields of many messages and build no objects. */
#ifndef MAGNETAR_WIRE_FIELDS_H
#define MAGNETAR_WIRE_FIELDS_H

#include <stdint.h>

typedef struct { const uint8_t *p, *end; } span;
typedef enum { NO_MORE, FIELD, BROKEN } step;
typedef struct { uint32_t number; unsigned wire; uint64_t value; span bytes; } field;

static inline uint32_t be32(const uint8_t *p) { return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]; }
static inline int64_t left(const span *s) { return s->end - s->p; }

/* A varint of at most ten bytes, whole. */
static inline int get_varint(span *s, uint64_t *out) {
    uint64_t v = 0;
    if (s->p < s->end && *s->p < 128) {
        *out = *s->p++;
        return 1;
    }
    for (int shift = 0; shift < 70 && s->p < s->end; shift += 7) {
        uint8_t b = *s->p++;
        if (shift == 63 && b > 1)
            return 0;
        v |= (uint64_t)(b & 127) << shift;
        if (b < 128) {
            *out = v;
            return 1;
        }
    }
    return 0;
}

/* The next field; groups are BROKEN here: no client writes them. */
static inline step next_field(span *s, field *f) {
    uint64_t tag;
    if (s->p >= s->end)
        return NO_MORE;
    if (!get_varint(s, &tag) || tag > UINT32_MAX || !(f->number = (uint32_t)(tag >> 3)))
        return BROKEN;
    f->wire = tag & 7;
    switch (f->wire) {
    case 0: return get_varint(s, &f->value) ? FIELD : BROKEN;
    case 2:
        if (!get_varint(s, &f->value) || f->value > (uint64_t)left(s))
            return BROKEN;
        f->bytes.p = s->p;
        f->bytes.end = s->p += f->value;
        return FIELD;
    case 1: case 5: {
        int64_t n = f->wire == 1 ? 8 : 4;
        if (left(s) < n)
            return BROKEN;
        s->p += n;
        return FIELD;
    }
    default: return BROKEN;
    }
}

#endif
