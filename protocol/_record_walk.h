/* The records of a log (storage/slab.py states their layout), one after the other, with the checks of storage/records.py. */
#ifndef MAGNETAR_RECORD_WALK_H
#define MAGNETAR_RECORD_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "_crc32c.h"

#define RECORD_HEADER 32

static inline uint32_t le32(const uint8_t *p) { return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24; }
static inline uint64_t le64(const uint8_t *p) { return le32(p) | (uint64_t)le32(p + 4) << 32; }

typedef struct {
    uint64_t ledger, proof, expected; /* proof 0: records are valid without one */
    bool any_ledger;                  /* the ledger is that of the first record */
    bool known;                       /* `expected` is the id of the next entry */
    bool last;                        /* nothing follows entry 2^64 - 1 */
} RecordWalk;

static inline RecordWalk record_walk(int64_t ledger, int64_t proof) {
    return (RecordWalk){.ledger = (uint64_t)ledger, .proof = (uint64_t)proof, .any_ledger = ledger < 0};
}

/* Checks the next record, which lies within `left` bytes: NULL and its size, or why it is not intact. */
static inline const char *next_record(RecordWalk *w, const uint8_t *p, size_t left, size_t *size) {
    if (left < RECORD_HEADER || le32(p) > left - RECORD_HEADER)
        return "short";
    *size = RECORD_HEADER + (size_t)le32(p);
    if (crc32c_update(crc32c_update(0, p, 4), p + 8, *size - 8) != le32(p + 4))
        return "crc";
    if (w->any_ledger)
        w->ledger = le64(p + 8);
    else if (le64(p + 8) != w->ledger)
        return "ledger";
    w->any_ledger = false;
    if (w->proof && le64(p + 24) != w->proof)
        return "proof";
    if (w->known && (w->last || le64(p + 16) != w->expected))
        return "order";
    w->known = true;
    w->expected = le64(p + 16) + 1;
    w->last = w->expected == 0;
    return NULL;
}

#endif
