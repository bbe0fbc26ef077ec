/* The hot path of the protocol, compiled. `speed.py` describes each function; `_pure.py` is the reference in Python. An entry in
 * an unusual form (unknown fields, odd wire types, repeated fields, groups) goes to that twin, so both agree on any bytes
 * (tests/protocol/test_speed_twins.py) and the usual form is fast here.
 * Each length that a peer sends is checked against the available bytes before its use. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "_crc32c.h"
#include "_long_copy.h"
#include "_murmur.h"
#include "_record_walk.h"

enum {
    HAS_CHECKSUM = 1, BAD_CHECKSUM = 2, CHUNK = 4, NOT_LAST_CHUNK = 8, MARKER = 16, TXN = 32, UNREADABLE = 64, ENCRYPTED = 128,
    HAS_HIGHEST = 256, BATCHED = 512, NAMES_FORMAT = 1024, HAS_DELIVER_AT = 2048, NO_ENTRY = 4096
};
enum { TYPE_SEND = 6, RUN_START = 16384, LEAST_MESSAGE = 6, MOST_COMPRESSION = 32768, MOST_GAP = 1024, PROPERTIES_LOOKED_AT = 4096, KNOWN_GROUPS = 8, MOST_CODEC = 4, MOST_PREFIX = 6 + 22, STAMP_STEP = 32, SHARED_PART = 16, SENT_TOGETHER = 32 };
typedef struct { const uint8_t *p, *end; } span;
#ifdef MSG_NOSIGNAL
enum { SEND_NOW = MSG_DONTWAIT | MSG_NOSIGNAL };
#else /* the interpreter ignores the signal */
enum { SEND_NOW = MSG_DONTWAIT };
#endif
typedef enum { FINE, UNUSUAL, INCOMPLETE } look; /* INCOMPLETE: valid, without a required field */

static PyObject *pure;        /* the module _pure, for entries in an unusual form */
static PyObject *facts_class; /* _pure.Facts */

/* --- bytes ------------------------------------------------------------------------------------------------------------------ */

static inline uint32_t be32(const uint8_t *p) { return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]; }
static inline void put_be32(uint8_t *p, uint32_t v) { p[0] = v >> 24; p[1] = v >> 16; p[2] = v >> 8; p[3] = v; }
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
static inline void put_le32(uint8_t *p, uint32_t v) { memcpy(p, &v, 4); }
static inline void put_le64(uint8_t *p, uint64_t v) { memcpy(p, &v, 8); }
#else
static inline void put_le32(uint8_t *p, uint32_t v) { p[0] = v; p[1] = v >> 8; p[2] = v >> 16; p[3] = v >> 24; }
static inline void put_le64(uint8_t *p, uint64_t v) { put_le32(p, (uint32_t)v); put_le32(p + 4, (uint32_t)(v >> 32)); }
#endif

static inline size_t put_varint(uint8_t *p, uint64_t v) {
    size_t n = 0;
    while (v > 127) {
        p[n++] = (uint8_t)v | 128;
        v >>= 7;
    }
    p[n++] = (uint8_t)v;
    return n;
}

static inline size_t varint_size(uint64_t v) { return (size_t)(70 - __builtin_clzll(v | 1)) / 7; }

/* A varint of at most ten bytes, whole; UNUSUAL otherwise. */
static inline look get_varint(span *s, uint64_t *out) {
    uint64_t v = 0;
    for (int shift = 0; shift < 70 && s->p < s->end; shift += 7) {
        uint8_t b = *s->p++;
        if (shift == 63 && b > 1)
            return UNUSUAL;
        v |= (uint64_t)(b & 127) << shift;
        if (b < 128) {
            *out = v;
            return FINE;
        }
    }
    return UNUSUAL;
}

static inline look get_bytes(span *s, span *out) {
    uint64_t n;
    const uint8_t *start = s->p;
    if (get_varint(s, &n) != FINE || s->p - start > 5 || n > (uint64_t)(s->end - s->p))
        return UNUSUAL;
    out->p = s->p;
    out->end = s->p += n;
    return FINE;
}

/* --- growing buffers --------------------------------------------------------------------------------------------------------- */

typedef struct { uint8_t *data; size_t size, room; } buffer;

static int reserve(buffer *b, size_t more) {
    if (b->size + more <= b->room)
        return 0;
    size_t room = b->room ? b->room * 2 : 4096;
    while (room < b->size + more)
        room *= 2;
    uint8_t *data = PyMem_Realloc(b->data, room);
    if (!data) {
        PyErr_NoMemory();
        return -1;
    }
    b->data = data;
    b->room = room;
    return 0;
}

static int push_i64(buffer *b, int64_t v) {
    if (reserve(b, 8))
        return -1;
    memcpy(b->data + b->size, &v, 8);
    b->size += 8;
    return 0;
}

static int push_u32(buffer *b, uint32_t v) {
    if (reserve(b, 4))
        return -1;
    memcpy(b->data + b->size, &v, 4);
    b->size += 4;
    return 0;
}

static PyObject *as_bytes(const buffer *b) { return PyBytes_FromStringAndSize((const char *)b->data, (Py_ssize_t)b->size); }

/* --- shapes ------------------------------------------------------------------------------------------------------------------ */

/* A message of protobuf that was parsed: another of the same size that differs in the marked values alone, and there in no bit that
 * ends a varint, parses the same way. Consecutive SENDs of a producer differ so, and comparing words is quicker than parsing. */
enum { SHAPE_WORDS = 16, MOST_MARKED_VARINT = 9, MOST_MISSES = 8 };
typedef struct {
    size_t size;
    uint64_t words[SHAPE_WORDS], same[SHAPE_WORDS]; /* `same`: the bits that have to be equal */
    int misses;                                     /* in a row: a form that never comes twice is not learnt */
} shape;

static int shape_fits(shape *s, const uint8_t *p, size_t n, const uint8_t *readable_to) {
    size_t words = (n + 7) / 8;
    if (n == 0 || n != s->size || (size_t)(readable_to - p) < 8 * words)
        return 0;
    uint64_t other = 0, v;
    for (size_t i = 0; i < words; i++) {
        memcpy(&v, p + 8 * i, 8);
        other |= (v ^ s->words[i]) & s->same[i];
    }
    if (other)
        return 0;
    s->misses = 0;
    return 1;
}

/* Take the shape of n bytes; 0 when they are too many, or too many before them were no use. */
static int shape_learn(shape *s, const uint8_t *p, size_t n) {
    s->size = 0;
    if (n == 0 || n > 8 * SHAPE_WORDS || s->misses >= MOST_MISSES)
        return 0;
    s->misses++;
    s->size = n;
    s->words[(n - 1) / 8] = s->same[(n - 1) / 8] = 0;
    memcpy(s->words, p, n);
    memset(s->same, 0xff, n);
    return 1;
}

/* Bytes `mask` of the value (a varint of the learnt bytes that begin at p, or a string in them) may differ. */
static void shape_mark(shape *s, const uint8_t *p, const span *value, int mask) {
    if (value->p == value->end)
        return;
    if (mask && value->end - value->p > MOST_MARKED_VARINT)
        s->size = 0; /* the last byte of a longer varint is limited */
    else
        memset((uint8_t *)s->same + (value->p - p), mask, (size_t)(value->end - value->p));
}

enum { MARK_VARINT = 0x80, MARK_STRING = 0 };

/* The varint that ends at `end`, known to be well formed. */
static inline uint64_t known_varint(const uint8_t *p, size_t size) {
    uint64_t v = 0;
    for (size_t i = 0; i < size; i++)
        v |= (uint64_t)(p[i] & 127) << 7 * i;
    return v;
}

/* --- commands and metadata --------------------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t producer_id, sequence_id, highest;
    int32_t num_messages;
    uint32_t flags;
    span sequence_bytes, highest_bytes; /* where these values were found */
} send_command;

/* BaseCommand of a SEND in the form every client writes: type, then the command, nothing else. */
static look parse_send(const uint8_t *p, size_t n, send_command *out) {
    span s = {p, p + n}, body, value;
    uint64_t v;
    unsigned seen = 0;
    if (n < 2 || p[0] != 8 || p[1] != TYPE_SEND)
        return UNUSUAL;
    s.p += 2;
    if (s.p >= s.end || *s.p++ != 0x32 || get_bytes(&s, &body) != FINE || s.p != s.end)
        return UNUSUAL;
    memset(out, 0, sizeof *out);
    out->num_messages = 1;
    while (body.p < body.end) {
        uint8_t tag = *body.p++;
        value.p = body.p;
        if (tag & 7 || tag > 8 << 3 || tag < 1 << 3 || get_varint(&body, &v) != FINE || seen >> (tag >> 3) & 1)
            return UNUSUAL;
        value.end = body.p;
        seen |= 1u << (tag >> 3);
        switch (tag >> 3) {
        case 1: out->producer_id = v; break;
        case 2: out->sequence_id = v; out->sequence_bytes = value; break;
        case 3: out->num_messages = (int32_t)v; break;
        case 4: case 5: if ((seen & 0x30) == 0x30) out->flags |= TXN; break;
        case 6: out->highest = v; out->highest_bytes = value; out->flags |= HAS_HIGHEST; break;
        case 7: if (v) out->flags |= CHUNK; break;
        default: if (v) out->flags |= MARKER;
        }
    }
    return (seen & 6) == 6 ? FINE : UNUSUAL;
}

typedef struct {
    uint32_t flags;
    int32_t batch_size;
    int64_t deliver_at, publish_time;
    uint64_t sequence_id;
    span producer_name, partition_key, ordering_key;
    span sequence_bytes, publish_bytes; /* where these values were found */
    int key_is_base64, compressed;
} metadata;

/* The next tag of at most five bytes and, but for groups, its value. */
static inline look next_value(span *s, uint64_t *tag, uint64_t *v, span *bytes) {
    const uint8_t *start = s->p;
    if (get_varint(s, tag) != FINE || s->p - start > 5 || *tag > UINT32_MAX || !(*tag >> 3))
        return UNUSUAL;
    switch (*tag & 7) {
    case 0: return get_varint(s, v);
    case 1: case 5: {
        ptrdiff_t size = (*tag & 7) == 1 ? 8 : 4;
        if (s->end - s->p < size)
            return UNUSUAL;
        s->p += size;
        return FINE;
    }
    case 2: return get_bytes(s, bytes);
    case 3: case 4: return FINE;
    default: return UNUSUAL;
    }
}

/* KeyValue, or EncryptionKeys with their pairs: of repeated fields the last counts, unknown fields have no meaning. Looks for the
 * key of foreign entries. */
static look check_pair(span s, uint32_t *flags, int has_pairs) {
    static const char format_key[] = "entry.format";
    unsigned seen = 0, depth = 0;
    uint64_t tag, v, groups[KNOWN_GROUPS];
    span field = {s.p, s.p};
    uint32_t unused = 0;
    int names = 0, complete = 1;
    while (s.p < s.end) {
        if (next_value(&s, &tag, &v, &field) != FINE)
            return UNUSUAL;
        unsigned wire = tag & 7;
        if (wire == 3) {
            if (depth == KNOWN_GROUPS)
                return UNUSUAL;
            groups[depth++] = tag >> 3;
        } else if (wire == 4) {
            if (!depth || groups[--depth] != tag >> 3)
                return UNUSUAL;
        } else if (!depth && tag == 0x0a) {
            seen |= 1;
            names = field.end - field.p == sizeof format_key - 1 && !memcmp(field.p, format_key, sizeof format_key - 1);
        } else if (!depth && tag == 0x12)
            seen |= 2;
        else if (!depth && tag == 0x1a && has_pairs) {
            look inner = check_pair(field, &unused, 0);
            if (inner == UNUSUAL)
                return UNUSUAL;
            complete &= inner == FINE;
        }
    }
    if (depth)
        return UNUSUAL;
    if (!complete || seen != 3)
        return INCOMPLETE;
    if (names)
        *flags |= NAMES_FORMAT;
    return FINE;
}

/* A packed list of numbers. */
static look check_packed(span s) {
    uint64_t v;
    while (s.p < s.end)
        if (get_varint(&s, &v) != FINE)
            return UNUSUAL;
    return FINE;
}

/* MessageMetadata with the fields of the protocol, each in its wire type and (but for lists) once. */
static look parse_metadata(const uint8_t *p, size_t n, metadata *out) {
    span s = {p, p + n}, bytes = {p, p};
    uint64_t tag, v = 0, seen = 0;
    int32_t chunk_id = 0, chunks = 0;
    uint32_t properties = 0, unused = 0;
    memset(out, 0, sizeof *out);
    out->batch_size = 1;
    while (s.p < s.end) {
        const uint8_t *start = s.p;
        if (get_varint(&s, &tag) != FINE || s.p - start > 2 || tag >> 3 > 34 || tag >> 3 == 0)
            return UNUSUAL;
        unsigned field = (unsigned)(tag >> 3), wire = tag & 7;
        span value = {s.p, s.p};
        if (wire == 0 ? get_varint(&s, &v) != FINE : wire != 2 || get_bytes(&s, &bytes) != FINE)
            return UNUSUAL;
        value.end = s.p;
        int list = field == 4 || field == 7 || field == 13 || field == 31;
        if (!list && seen >> field & 1)
            return UNUSUAL;
        seen |= 1ull << field;
        switch (field) {
        case 1: out->producer_name = bytes; if (wire != 2) return UNUSUAL; break;
        case 2: out->sequence_id = v; out->sequence_bytes = value; if (wire) return UNUSUAL; break;
        case 3: out->publish_time = (int64_t)v; out->publish_bytes = value; if (wire) return UNUSUAL; break;
        case 4:
            if (wire != 2 || check_pair(bytes, properties++ < PROPERTIES_LOOKED_AT ? &out->flags : &unused, 0) != FINE)
                return UNUSUAL;
            break;
        case 6: out->partition_key = bytes; if (wire != 2) return UNUSUAL; break;
        case 5: case 7: case 14: case 15: case 16: case 26: case 32: if (wire != 2) return UNUSUAL; break;
        case 8: out->compressed = (uint32_t)v >= 1 && (uint32_t)v <= MOST_CODEC; if (wire) return UNUSUAL; break; /* the parser drops others */
        case 9: case 12: case 22: case 23: case 24: case 25: case 28: case 30: case 33: case 34: if (wire) return UNUSUAL; break;
        case 11: out->batch_size = (int32_t)v; out->flags |= BATCHED; if (wire) return UNUSUAL; break;
        case 13: out->flags |= ENCRYPTED; if (wire != 2 || check_pair(bytes, &unused, 1) != FINE) return UNUSUAL; break;
        case 31: if (wire && check_packed(bytes) != FINE) return UNUSUAL; break;
        case 17: out->key_is_base64 = v != 0; if (wire) return UNUSUAL; break;
        case 18: out->ordering_key = bytes; if (wire != 2) return UNUSUAL; break;
        case 19: out->deliver_at = (int64_t)v; out->flags |= HAS_DELIVER_AT; if (wire) return UNUSUAL; break;
        case 20: out->flags |= MARKER; if (wire) return UNUSUAL; break;
        case 27: chunks = (int32_t)v; if (wire) return UNUSUAL; break;
        case 29: chunk_id = (int32_t)v; if (wire) return UNUSUAL; break;
        default: return UNUSUAL; /* 10 and 21 belong to no field */
        }
    }
    if ((seen & 0xe) != 0xe)
        return UNUSUAL;
    if (seen >> 29 & 1 && chunk_id != -1 && (int64_t)chunk_id != (int64_t)chunks - 1)
        out->flags |= NOT_LAST_CHUNK;
    return FINE;
}

/* Metadata in an unusual form for the twin, without long lists that change none of its findings: an object for each of a million
 * elements takes long. A field that is valid may go, whatever the other fields are: all of the replaced clusters and indexes of a
 * compaction, encryption keys but for the first, properties behind those that the twin looks at, and of elements without a required
 * field, which make the entry unreadable, all but the first. */
static PyObject *without_lists(const uint8_t *p, size_t n) {
    PyObject *kept = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n);
    if (!kept)
        return NULL;
    uint8_t *out = (uint8_t *)PyBytes_AS_STRING(kept);
    span s = {p, p + n}, bytes = {p, p};
    uint64_t tag, v;
    uint32_t properties = 0, unused = 0, depth = 0;
    int has_key = 0, has_incomplete = 0;
    while (s.p < s.end) {
        const uint8_t *start = s.p;
        if (next_value(&s, &tag, &v, &bytes) != FINE || ((tag & 7) == 4 && !depth)) {
            memcpy(out, start, (size_t)(s.end - start)); /* invalid from here on */
            out += s.end - start;
            break;
        }
        int goes = 0;
        look pair;
        if ((tag & 7) == 3)
            depth++;
        else if ((tag & 7) == 4)
            depth--;
        else if (!depth)
            switch (tag) {
            case 4 << 3 | 2:
                pair = check_pair(bytes, &unused, 0);
                goes = pair == FINE ? properties >= PROPERTIES_LOOKED_AT : pair == INCOMPLETE && has_incomplete;
                properties++;
                has_incomplete |= pair == INCOMPLETE;
                break;
            case 7 << 3 | 2: case 31 << 3: goes = 1; break;
            case 31 << 3 | 2: goes = check_packed(bytes) == FINE; break;
            case 13 << 3 | 2:
                pair = check_pair(bytes, &unused, 1);
                goes = pair == FINE ? has_key : pair == INCOMPLETE && has_incomplete;
                has_key |= pair == FINE;
                has_incomplete |= pair == INCOMPLETE;
            }
        if (!goes) {
            memcpy(out, start, (size_t)(s.p - start));
            out += s.p - start;
        }
    }
    _PyBytes_Resize(&kept, (Py_ssize_t)(out - (uint8_t *)PyBytes_AS_STRING(kept)));
    return kept;
}

/* Where metadata begins and ends in headers-and-payload that start at p; 0 when it does not fit. */
static int find_metadata(const uint8_t *p, size_t n, const uint8_t **meta, size_t *size) {
    if (n < 4)
        return 0;
    *size = be32(p);
    *meta = p + 4;
    return *size <= n - 4;
}

typedef struct { shape form; uint32_t flags; int64_t deliver_at; } known_metadata;

static void learn_metadata(known_metadata *known, const metadata *m, const uint8_t *p, size_t n) {
    if (!shape_learn(&known->form, p, n))
        return;
    shape_mark(&known->form, p, &m->sequence_bytes, MARK_VARINT);
    shape_mark(&known->form, p, &m->publish_bytes, MARK_VARINT);
    shape_mark(&known->form, p, &m->partition_key, MARK_STRING);
    shape_mark(&known->form, p, &m->ordering_key, MARK_STRING);
    known->flags = m->flags;
    known->deliver_at = m->deliver_at;
}

/* Flags and deliver_at of an entry, as _pure._look_at. */
static int look_at_entry(uint32_t *flags, int64_t *deliver_at, const uint8_t *p, size_t n, known_metadata *known) {
    const uint8_t *meta, *end = p + n;
    size_t size;
    metadata m;
    *deliver_at = 0;
    if (n >= 2 && p[0] == 0x0e && p[1] == 0x01) {
        if (n < 6) {
            *flags |= NO_ENTRY;
            return 0;
        }
        *flags |= HAS_CHECKSUM;
        if (crc32c_update(0, p + 6, n - 6) != be32(p + 2)) {
            *flags |= BAD_CHECKSUM;
            return 0;
        }
        p += 6;
        n -= 6;
    } else if (n < 2) { /* not even room for a magic number */
        *flags |= NO_ENTRY;
        return 0;
    }
    if (!find_metadata(p, n, &meta, &size)) {
        *flags |= UNREADABLE;
        return 0;
    }
    if (shape_fits(&known->form, meta, size, end)) {
        *flags |= known->flags;
        *deliver_at = known->deliver_at;
        return 0;
    }
    if (parse_metadata(meta, size, &m) == FINE) {
        *flags |= m.flags;
        *deliver_at = m.deliver_at;
        learn_metadata(known, &m, meta, size);
        return 0;
    }
    PyObject *kept = without_lists(meta, size), *seen = kept ? PyObject_CallMethod(pure, "look_at_metadata", "O", kept) : NULL;
    Py_XDECREF(kept);
    unsigned more;
    long long due;
    int ok = seen && PyArg_ParseTuple(seen, "IL", &more, &due);
    Py_XDECREF(seen);
    if (!ok)
        return -1;
    *flags |= more;
    *deliver_at = due;
    return 0;
}

/* --- cut --------------------------------------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t producer_id;
    size_t count;
    PyObject *data; /* bytes, written in place and cut to `used` in the end */
    size_t used, gap, looked_to; /* looked_to: how far `bytes_ahead` has come in this read */
    size_t room; /* entries that fit into the arrays */
    int64_t *offsets, *sequences, *highest, *counts, *deliver_at;
    uint32_t *flags;
    known_metadata metadata;
    shape command;
    send_command first; /* that the shape was taken from */
    size_t sequence_at, sequence_size, highest_at, highest_size; /* in a command of this shape */
    uint32_t any_flags, all_flags;
    int64_t total, last_sequence;
    int ascending;
} run;

static void run_free(run *r) {
    PyMem_Free(r->offsets);
    PyMem_Free(r->sequences);
    PyMem_Free(r->highest);
    PyMem_Free(r->counts);
    PyMem_Free(r->deliver_at);
    PyMem_Free(r->flags);
    Py_XDECREF(r->data);
}

static int grow(void *array, size_t count, size_t width) {
    void **at = array, *data = PyMem_Realloc(*at, count * width);
    if (!data) {
        PyErr_NoMemory();
        return -1;
    }
    *at = data;
    return 0;
}

/* Room for as many entries again. */
static int run_grow(run *r) {
    size_t room = r->room ? 2 * r->room : 128;
    if (grow(&r->offsets, room + 1, 8) || grow(&r->sequences, room, 8) || grow(&r->highest, room, 8) || grow(&r->counts, room, 8) ||
        grow(&r->deliver_at, room, 8) || grow(&r->flags, room, 4))
        return -1;
    r->room = room;
    return 0;
}

static int run_start(run *r, uint64_t producer_id) {
    Py_CLEAR(r->data);
    r->used = 0;
    r->producer_id = producer_id;
    r->count = 0;
    r->any_flags = 0;
    r->all_flags = 0xffffffffu;
    r->total = 0;
    r->ascending = 1;
    if (!r->room && run_grow(r))
        return -1;
    r->offsets[0] = 0;
    return 0;
}

/* The frame being added: it begins at `at` of a read that ends at `stop`. */
typedef struct { const uint8_t *read; size_t at, stop; } place;

/* Bytes of the frames from here on that look like more of the same run, gaps included; moves `looked_to` behind them. The
 * allocation then has the size of the kept data: memory that is given back in part is new to the allocator each time. */
static size_t bytes_ahead(run *r, const place *here) {
    size_t at = here->at, sum = 0;
    const uint8_t *first = here->read + at + 8;
    while (here->stop - at >= 24) {
        const uint8_t *frame = here->read + at;
        uint64_t total = be32(frame), size = be32(frame + 4);
        /* type SEND, a short command, the same producer id in its first bytes */
        if (4 + total > here->stop - at || size < 8 || size > 127 || size + 4 > total || memcmp(frame + 8, first, 3) || memcmp(frame + 12, first + 4, 2))
            break;
        sum += r->gap + (size_t)(total - 4 - size);
        at += 4 + (size_t)total;
    }
    r->looked_to = at;
    return sum;
}

/* Room for n more bytes. */
static int run_room(run *r, size_t n, const place *here) {
    size_t have = r->data ? (size_t)PyBytes_GET_SIZE(r->data) : 0, need = r->used + n;
    if (r->data && need <= have)
        return 0;
    size_t room = need < RUN_START ? RUN_START : 2 * need;
    if (here->at >= r->looked_to) { /* each frame is looked at once, however often runs end */
        size_t ahead = bytes_ahead(r, here);
        room = ahead >= n ? r->used + ahead : room;
    }
    if (!r->data)
        return (r->data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)room)) ? 0 : -1;
    return _PyBytes_Resize(&r->data, (Py_ssize_t)room);
}

static int run_add(run *r, const send_command *c, const uint8_t *entry, size_t n, uint32_t flags, int64_t deliver_at, const place *here) {
    if (run_room(r, r->gap + n, here) || (r->count == r->room && run_grow(r)))
        return -1;
    uint8_t *to = (uint8_t *)PyBytes_AS_STRING(r->data) + r->used;
    memset(to, 0, r->gap);
    if (n)
        copy_long(to + r->gap, entry, n);
    r->used += r->gap + n;
    int64_t sequence = (int64_t)c->sequence_id;
    if (r->count && sequence <= r->last_sequence)
        r->ascending = 0;
    size_t k = r->count++;
    r->last_sequence = sequence;
    r->any_flags |= flags;
    r->all_flags &= flags;
    r->total += c->num_messages > 0 ? c->num_messages : 0;
    r->offsets[k + 1] = (int64_t)r->used;
    r->sequences[k] = sequence;
    r->highest[k] = (int64_t)c->highest >= (int64_t)c->sequence_id ? (int64_t)c->highest : 0;
    r->counts[k] = c->num_messages;
    r->deliver_at[k] = deliver_at;
    r->flags[k] = flags;
    return 0;
}

static PyObject *bytes_of(const void *array, size_t count, size_t width) {
    return PyBytes_FromStringAndSize(array, (Py_ssize_t)(count * width));
}

static int run_done(run *r, PyObject *items) {
    if (!r->count)
        return 0;
    if (_PyBytes_Resize(&r->data, (Py_ssize_t)r->used))
        return -1;
    PyObject *data = r->data;
    r->data = NULL;
    size_t n = r->count;
    PyObject *due = r->any_flags & HAS_DELIVER_AT ? bytes_of(r->deliver_at, n, 8) : Py_NewRef(Py_None);
    PyObject *item = Py_BuildValue("(KnNNNNNNNIILNnn)", (unsigned long long)r->producer_id, (Py_ssize_t)n, data,
        bytes_of(r->offsets, n + 1, 8), bytes_of(r->sequences, n, 8), bytes_of(r->highest, n, 8), bytes_of(r->counts, n, 8), due,
        bytes_of(r->flags, n, 4),
        (unsigned)r->any_flags, (unsigned)r->all_flags, (long long)r->total, PyBool_FromLong(r->ascending),
        (Py_ssize_t)(r->used - n * r->gap), (Py_ssize_t)r->gap);
    r->count = 0;
    if (!item)
        return -1;
    int failed = PyList_Append(items, item);
    Py_DECREF(item);
    return failed;
}

/* Type of a command in the usual form, -1 for none, -2 when Python raised. */
static int command_type(const uint8_t *p, size_t n) {
    if (n >= 2 && p[0] == 8 && p[1] < 128)
        return p[1];
    PyObject *kind = PyObject_CallMethod(pure, "_command_type", "y#", p, (Py_ssize_t)n);
    long value = kind ? PyLong_AsLong(kind) : -1;
    Py_XDECREF(kind);
    return PyErr_Occurred() ? -2 : (int)value;
}

static void learn_send(run *r, const send_command *c, const uint8_t *p, size_t n) {
    if (!shape_learn(&r->command, p, n))
        return;
    shape_mark(&r->command, p, &c->sequence_bytes, MARK_VARINT);
    shape_mark(&r->command, p, &c->highest_bytes, MARK_VARINT);
    r->first = *c;
    r->sequence_at = (size_t)(c->sequence_bytes.p - p);
    r->sequence_size = (size_t)(c->sequence_bytes.end - c->sequence_bytes.p);
    r->highest_size = (size_t)(c->highest_bytes.end - c->highest_bytes.p);
    r->highest_at = r->highest_size ? (size_t)(c->highest_bytes.p - p) : 0;
}

/* 1 when the command was parsed, 0 when it does not parse, -1 when Python raised. */
static int send_of(run *r, const uint8_t *p, size_t n, const uint8_t *readable_to, send_command *out) {
    if (shape_fits(&r->command, p, n, readable_to)) {
        *out = r->first;
        out->sequence_id = known_varint(p + r->sequence_at, r->sequence_size);
        if (r->highest_size)
            out->highest = known_varint(p + r->highest_at, r->highest_size);
        return 1;
    }
    if (parse_send(p, n, out) == FINE) {
        learn_send(r, out, p, n);
        return 1;
    }
    PyObject *fields = PyObject_CallMethod(pure, "send_fields", "y#", p, (Py_ssize_t)n);
    if (!fields)
        return -1;
    int ok = 0;
    if (fields != Py_None) {
        unsigned long long producer, sequence, highest;
        int count;
        unsigned flags;
        ok = PyArg_ParseTuple(fields, "KKKiI", &producer, &sequence, &highest, &count, &flags) ? 1 : -1;
        *out = (send_command){.producer_id = producer, .sequence_id = sequence, .highest = highest, .num_messages = count, .flags = flags};
    }
    Py_DECREF(fields);
    return ok;
}

static PyObject *cut(PyObject *self, PyObject *args) {
    Py_buffer view;
    Py_ssize_t start, end, limit, gap = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*nnn|n", &view, &start, &end, &limit, &gap))
        return NULL;
    const uint8_t *p = view.buf;
    PyObject *error = NULL, *items = NULL, *result = NULL;
    run r;
    memset(&r, 0, sizeof r);
    r.gap = (size_t)gap;
    if (start < 0 || end < start || end > view.len || gap < 0 || gap > MOST_GAP) {
        PyErr_SetString(PyExc_ValueError, "range outside the buffer");
        goto out;
    }
    if (!(items = PyList_New(0)))
        goto out;
    size_t at = (size_t)start, stop = (size_t)end;
    while (stop - at >= 4) {
        uint64_t total = be32(p + at);
        if (total + 4 > (uint64_t)limit) {
            error = PyUnicode_FromFormat("frame of %lu bytes is larger than the limit", (unsigned long)total);
            break;
        }
        if (total < 4) {
            error = PyUnicode_FromFormat("frame of %lu bytes holds no command", (unsigned long)total);
            break;
        }
        if (stop - at < 4 + total)
            break;
        uint64_t size = be32(p + at + 4);
        if (size == 0 || size > total - 4) {
            error = PyUnicode_FromFormat("command of %lu bytes in a frame of %lu", (unsigned long)size, (unsigned long)total);
            break;
        }
        const uint8_t *command = p + at + 8;
        int kind = command_type(command, size);
        if (kind == -2)
            goto out;
        if (kind < 0) {
            error = PyUnicode_FromString("command without a known type");
            break;
        }
        if (kind == TYPE_SEND) {
            send_command c;
            int parsed = send_of(&r, command, size, p + stop, &c);
            if (parsed < 0)
                goto out;
            if (!parsed) {
                error = PyUnicode_FromString("SEND does not parse");
                break;
            }
            if (!r.count || r.producer_id != c.producer_id)
                if (run_done(&r, items) || run_start(&r, c.producer_id))
                    goto out;
            const uint8_t *entry = command + size;
            size_t n = total - 4 - size;
            uint32_t flags = c.flags;
            int64_t due;
            place here = {p, at, stop};
            if (look_at_entry(&flags, &due, entry, n, &r.metadata) || run_add(&r, &c, entry, n, flags, due, &here))
                goto out;
        } else {
            if (run_done(&r, items))
                goto out;
            PyObject *item = Py_BuildValue("(iy#)", kind, command, (Py_ssize_t)size);
            if (!item)
                goto out;
            int failed = PyList_Append(items, item);
            Py_DECREF(item);
            if (failed)
                goto out;
        }
        at += 4 + total;
    }
    if (PyErr_Occurred() || run_done(&r, items))
        goto out;
    result = Py_BuildValue("(nOO)", (Py_ssize_t)at, items, error ? error : Py_None);
out:
    Py_XDECREF(error);
    Py_XDECREF(items);
    run_free(&r);
    PyBuffer_Release(&view);
    return result;
}

/* --- records ----------------------------------------------------------------------------------------------------------------- */

/* `count` native int64 at a buffer, or an exception. */
static int check_array(const Py_buffer *b, Py_ssize_t count, const char *name) {
    if (count < 0 || b->len / 8 < count) {
        PyErr_Format(PyExc_ValueError, "%s holds %zd numbers, not %zd", name, b->len / 8, count);
        return -1;
    }
    return 0;
}

static inline int64_t at_i64(const Py_buffer *b, Py_ssize_t i) {
    int64_t v;
    memcpy(&v, (const uint8_t *)b->buf + 8 * i, 8);
    return v;
}

/* offsets[i..j] ascend within `size` bytes and leave `least` bytes for each element. */
static int check_offsets(const Py_buffer *b, Py_ssize_t i, Py_ssize_t j, Py_ssize_t size, Py_ssize_t least) {
    if (i < 0 || j < i || check_array(b, j + 1, "offsets"))
        goto bad;
    for (Py_ssize_t k = i; k < j; k++) {
        int64_t begin = at_i64(b, k), end = at_i64(b, k + 1);
        if (begin < 0 || end < begin || end > size || end - begin < least)
            goto bad;
    }
    return 0;
bad:
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "offsets do not fit the data");
    return -1;
}

/* The parts of the next record. `known`: the checksums that the entries bring were verified. */
typedef struct { int64_t ledger, id, confirmed, now, index; int known; } stamping;

/* Write the 0x0e02 part of an entry of so many messages; returns its size. Moves the index. */
static inline size_t put_prefix(stamping *s, uint8_t *p, int64_t messages) {
    int indexed = s->index != -2;
    if ((s->now < 0 && !indexed) || messages <= 0)
        return 0;
    if (indexed)
        s->index += messages;
    size_t size = 0;
    if (s->now >= 0) {
        p[6] = 0x08;
        size = 1 + put_varint(p + 7, (uint64_t)s->now);
    }
    if (indexed && s->index >= 0) {
        p[6 + size] = 0x10;
        size += 1 + put_varint(p + 7 + size, (uint64_t)s->index);
    }
    p[0] = 0x0e;
    p[1] = 0x02;
    put_be32(p + 2, (uint32_t)size);
    return 6 + size;
}

/* The header of a record of `prefix` and then n bytes, but for its checksum. Moves the entry id. */
static inline void put_header(stamping *s, uint8_t *head, size_t prefix, size_t n) {
    put_le32(head, (uint32_t)(prefix + n));
    put_le64(head + 8, (uint64_t)s->ledger);
    put_le64(head + 16, (uint64_t)s->id++);
    put_le64(head + 24, (uint64_t)s->confirmed);
}

/* The checksum of a record of which all else is in place. */
static inline void put_checksum(const stamping *s, uint8_t *head, size_t prefix, size_t n) {
    const uint8_t *entry = head + RECORD_HEADER + prefix;
    uint32_t crc = crc32c_update(0, head, 4);
    if (s->known && n >= 6) { /* magic, checksum, and the bytes that the checksum covers */
        crc = crc32c_update(crc, head + 8, RECORD_HEADER - 8 + prefix + 6);
        crc = crc32c_append_often(crc, entry + 6, n - 6, be32(entry + 2));
    } else
        crc = crc32c_update(crc, head + 8, RECORD_HEADER - 8 + prefix + n);
    put_le32(head + 4, crc);
}

static PyObject *stamp(PyObject *self, PyObject *args) {
    Py_buffer data, offsets, counts;
    Py_ssize_t i, j, gap = 0;
    long long ledger, first, confirmed, now, index;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*nnLLLLL|n", &data, &offsets, &counts, &i, &j, &ledger, &first, &confirmed, &now, &index, &gap))
        return NULL;
    PyObject *slab = NULL, *where = NULL, *result = NULL;
    stamping s = {ledger, first, confirmed, now, index, 0};
    if (gap < 0 || gap > MOST_GAP) {
        PyErr_SetString(PyExc_ValueError, "no such gap");
        goto out;
    }
    if (check_offsets(&offsets, i, j, data.len, gap) || check_array(&counts, j, "num_messages"))
        goto out;
    Py_ssize_t room = at_i64(&offsets, j) - at_i64(&offsets, i) + (j - i) * (RECORD_HEADER + MOST_PREFIX - gap);
    if (!(slab = PyBytes_FromStringAndSize(NULL, room)) || !(where = PyBytes_FromStringAndSize(NULL, 8 * (j - i + 1))))
        goto out;
    uint8_t *out = (uint8_t *)PyBytes_AS_STRING(slab), *marks = (uint8_t *)PyBytes_AS_STRING(where);
    size_t at = 0;
    int64_t zero = 0;
    memcpy(marks, &zero, 8);
    for (Py_ssize_t k = i; k < j; k++) {
        const uint8_t *entry = (const uint8_t *)data.buf + at_i64(&offsets, k) + gap;
        size_t n = (size_t)(at_i64(&offsets, k + 1) - at_i64(&offsets, k) - gap);
        uint8_t *head = out + at;
        size_t prefix = put_prefix(&s, head + RECORD_HEADER, at_i64(&counts, k));
        copy_long(head + RECORD_HEADER + prefix, entry, n);
        put_header(&s, head, prefix, n);
        put_checksum(&s, head, prefix, n);
        at += RECORD_HEADER + prefix + n;
        int64_t mark = (int64_t)at;
        memcpy(marks + 8 * (k - i + 1), &mark, 8);
    }
    if (_PyBytes_Resize(&slab, (Py_ssize_t)at))
        goto out;
    result = Py_BuildValue("(OO)", slab, where);
out:
    Py_XDECREF(slab);
    Py_XDECREF(where);
    PyBuffer_Release(&data);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&counts);
    return result;
}

/* The 0x0e02 parts of a run whose entries differ in the value of their index alone; none (`size` 0) of other runs. */
typedef struct { uint8_t bytes[MOST_PREFIX]; size_t size, index_at; } prefixes;

static void alike(const stamping *s, const Py_buffer *counts, Py_ssize_t count, prefixes *out) {
    stamping first = *s;
    uint64_t odd = 0, sum = 0;
    out->size = out->index_at = 0;
    if (s->index < -2)
        return;
    for (Py_ssize_t k = 0; k < count; k++) {
        uint64_t messages = (uint64_t)at_i64(counts, k);
        odd |= (messages - 1) >> 31;
        sum += messages;
    }
    if (odd)
        return; /* an entry without messages gets none */
    size_t size = put_prefix(&first, out->bytes, at_i64(counts, 0));
    if (s->index != -2) {
        int64_t last = (int64_t)((uint64_t)s->index + sum);
        if (last < 0 || varint_size((uint64_t)last) != varint_size((uint64_t)first.index))
            return;
        out->index_at = size - varint_size((uint64_t)first.index);
    }
    out->size = size;
}

/* As put_prefix. */
static inline void put_alike(stamping *s, uint8_t *p, const prefixes *given, int64_t messages) {
    memcpy(p, given->bytes, given->size);
    if (given->index_at) {
        uint64_t v = (uint64_t)(s->index += messages);
        size_t at = given->index_at;
        for (; at < given->size - 1; at++, v >>= 7)
            p[at] = (uint8_t)v | 128;
        p[at] = (uint8_t)v;
    }
}

/* Whether the parts before each entry take exactly `gap` bytes. */
static int fills_gap(const stamping *s, const Py_buffer *counts, Py_ssize_t count, Py_ssize_t gap) {
    int indexed = s->index != -2, any = s->now >= 0 || indexed;
    int64_t index = s->index;
    size_t whole = RECORD_HEADER + 6 + (s->now >= 0 ? 1 + varint_size((uint64_t)s->now) : 0);
    for (Py_ssize_t k = 0; k < count; k++) {
        int64_t messages = at_i64(counts, k);
        size_t size = RECORD_HEADER;
        if (any && messages > 0) {
            index += indexed ? messages : 0;
            size = whole + (indexed && index >= 0 ? 1 + varint_size((uint64_t)index) : 0);
        }
        if (size != (size_t)gap)
            return 0;
    }
    return 1;
}

static PyObject *stamp_in_place(PyObject *self, PyObject *args) {
    Py_buffer offsets, counts;
    PyObject *data, *result = NULL;
    Py_ssize_t gap, count;
    int known;
    long long ledger, first, confirmed, now, index;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!y*y*npLLLLL", &PyBytes_Type, &data, &offsets, &counts, &gap, &known, &ledger, &first, &confirmed, &now, &index))
        return NULL;
    stamping s = {ledger, first, confirmed, now, index, known};
    count = offsets.len / 8 - 1;
    if (gap < 0 || gap > MOST_GAP || count < 1 || PyBytes_GET_SIZE(data) < 2) {
        PyErr_SetString(PyExc_ValueError, "no such gap, or no entries");
        goto out;
    }
    if (check_offsets(&offsets, 0, count, PyBytes_GET_SIZE(data), gap) || check_array(&counts, count, "num_messages"))
        goto out;
    prefixes given;
    alike(&s, &counts, count, &given);
    if (gap < RECORD_HEADER || (given.size ? given.size != (size_t)gap - RECORD_HEADER : !fills_gap(&s, &counts, count, gap))) {
        result = Py_NewRef(Py_None);
        goto out;
    }
    uint32_t all = 0;
    int follows = known; /* the checksum of all records, as long as none of them has to be read for it */
    uint8_t *base = (uint8_t *)PyBytes_AS_STRING(data);
    for (Py_ssize_t from = 0, to; from < count; from = to) {
        /* Some records at a time: a checksum over bytes that were written a moment ago would wait for them. */
        to = count - from < STAMP_STEP ? count : from + STAMP_STEP;
        for (Py_ssize_t k = from; k < to; k++) {
            uint8_t *head = base + at_i64(&offsets, k);
            if (given.size)
                put_alike(&s, head + RECORD_HEADER, &given, at_i64(&counts, k));
            else
                put_prefix(&s, head + RECORD_HEADER, at_i64(&counts, k));
            put_header(&s, head, (size_t)gap - RECORD_HEADER, (size_t)(at_i64(&offsets, k + 1) - at_i64(&offsets, k) - gap));
        }
        for (Py_ssize_t k = from; k < to; k++) {
            uint8_t *head = base + at_i64(&offsets, k);
            size_t n = (size_t)(at_i64(&offsets, k + 1) - at_i64(&offsets, k) - gap);
            put_checksum(&s, head, (size_t)gap - RECORD_HEADER, n);
            follows = follows && n >= 6 + CRC_KNOWN_FROM;
        }
        for (Py_ssize_t k = from; follows && k < to; k++) {
            uint8_t *head = base + at_i64(&offsets, k), *entry = head + gap;
            size_t n = (size_t)(at_i64(&offsets, k + 1) - at_i64(&offsets, k) - gap);
            all = crc32c_append_often(crc32c_update(all, head, (size_t)gap + 6), entry + 6, n - 6, be32(entry + 2));
        }
    }
    result = PyLong_FromLongLong(follows ? (long long)all : -1);
out:
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&counts);
    return result;
}

static PyObject *scan_records(PyObject *self, PyObject *args) {
    Py_buffer view;
    Py_ssize_t start, end;
    long long ledger, proof = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*nnL|L", &view, &start, &end, &ledger, &proof))
        return NULL;
    PyObject *result = NULL;
    buffer marks = {0};
    const char *reason = NULL;
    if (start < 0 || end < start || end > view.len) {
        PyErr_SetString(PyExc_ValueError, "range outside the buffer");
        goto out;
    }
    size_t at = (size_t)start, size;
    RecordWalk walk = record_walk(ledger, proof);
    if (push_i64(&marks, start))
        goto out;
    while (at < (size_t)end) {
        reason = next_record(&walk, (const uint8_t *)view.buf + at, (size_t)end - at, &size);
        if (reason != NULL)
            break;
        at += size;
        if (push_i64(&marks, (int64_t)at))
            goto out;
    }
    result = Py_BuildValue("(Nnz)", as_bytes(&marks), (Py_ssize_t)at, reason);
out:
    PyMem_Free(marks.data);
    PyBuffer_Release(&view);
    return result;
}

/* --- replies ----------------------------------------------------------------------------------------------------------------- */

static PyObject *encode_receipts(PyObject *self, PyObject *args) {
    Py_buffer sequences, highest;
    Py_ssize_t i, j;
    long long ledger, first, step = 1;
    unsigned long long producer; /* a u64 the peer chose */
    (void)self;
    if (!PyArg_ParseTuple(args, "Ky*y*nnLL|L", &producer, &sequences, &highest, &i, &j, &ledger, &first, &step))
        return NULL;
    PyObject *result = NULL;
    if (i < 0 || j < i || check_array(&sequences, j, "sequence_ids") || check_array(&highest, j, "highest_sequence_ids")) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "no such range");
        goto out;
    }
    if (!(result = PyBytes_FromStringAndSize(NULL, (j - i) * 72)))
        goto out;
    /* Both parts that all receipts share are copied whole, whatever their size: the next bytes are written over the rest. */
    uint8_t *out = (uint8_t *)PyBytes_AS_STRING(result), body[SHARED_PART] = {0}, id[SHARED_PART] = {0};
    size_t head, prefix;
    body[0] = 0x08;
    head = 1 + put_varint(body + 1, (uint64_t)producer);
    body[head++] = 0x10;
    id[0] = 0x08;
    prefix = 1 + put_varint(id + 1, (uint64_t)ledger);
    id[prefix++] = 0x10;
    uint8_t *p = out;
    for (Py_ssize_t k = i; k < j; k++) {
        uint64_t entry = (uint64_t)(first + (k - i) * step), high = (uint64_t)at_i64(&highest, k);
        uint8_t *frame = p;
        memcpy(p + 12, body, sizeof body);
        p += 12 + head;
        p += put_varint(p, (uint64_t)at_i64(&sequences, k));
        *p++ = 0x1a;
        uint8_t *ids = p++;
        memcpy(p, id, sizeof id);
        p += prefix;
        p += put_varint(p, entry);
        *ids = (uint8_t)(p - ids - 1);
        *p++ = 0x20;
        p += put_varint(p, high);
        size_t n = (size_t)(p - frame) - 12;
        put_be32(frame, (uint32_t)(8 + n));
        put_be32(frame + 4, (uint32_t)(4 + n));
        frame[8] = 0x08;
        frame[9] = 0x07;
        frame[10] = 0x3a;
        frame[11] = (uint8_t)n; /* n is at most 57: one byte */
    }
    size_t at = (size_t)(p - out);
    _PyBytes_Resize(&result, (Py_ssize_t)at);
out:
    PyBuffer_Release(&sequences);
    PyBuffer_Release(&highest);
    return result;
}

/* Behind the 0x0e02 part of an entry, if it has such a part and the part fits. */
static size_t after_prefix(const uint8_t *p, size_t n) {
    if (n >= 6 && p[0] == 0x0e && p[1] == 0x02 && be32(p + 2) <= n - 6)
        return 6 + (size_t)be32(p + 2);
    return 0;
}

/* The receiver of MESSAGE frames, and the fields of each frame beside its entry. */
typedef struct { uint64_t consumer, partition, epoch; int mode, with_epoch; } receiver;
enum { MOST_MESSAGE = 96 }; /* of a frame without its entry, the header of its record counted */

static void set_epoch(receiver *to, PyObject *given) {
    int overflow;
    to->with_epoch = PyLong_AsLongLongAndOverflow(given, &overflow) >= 0 || overflow > 0;
    to->epoch = PyLong_AsUnsignedLongLongMask(given);
}

/* The head of the MESSAGE frame of a record of so many bytes, which goes before the entry; returns its size, and the part of the
 * entry that the frame has. */
static size_t put_message_head(uint8_t *head, const uint8_t *record, size_t size, const receiver *to, int64_t redeliveries, span *rest) {
    const uint8_t *entry = record + RECORD_HEADER;
    uint8_t body[MOST_MESSAGE];
    size_t left = size - RECORD_HEADER, n = 0;
    uint64_t ledger = le64(record + 8), id = le64(record + 16);
    if (to->mode != 1) {
        size_t skip = after_prefix(entry, left);
        entry += skip;
        left -= skip;
    }
    if (to->mode == 2 && left >= 2 && entry[0] == 0x0e && entry[1] == 0x01) {
        size_t skip = left < 6 ? left : 6;
        entry += skip;
        left -= skip;
    }
    body[n++] = 0x08;
    n += put_varint(body + n, to->consumer);
    body[n++] = 0x12;
    body[n++] = (uint8_t)(3 + varint_size(ledger) + varint_size(id) + varint_size(to->partition));
    body[n++] = 0x08;
    n += put_varint(body + n, ledger);
    body[n++] = 0x10;
    n += put_varint(body + n, id);
    body[n++] = 0x18;
    n += put_varint(body + n, to->partition);
    if (redeliveries > 0) {
        body[n++] = 0x18;
        n += put_varint(body + n, (uint64_t)redeliveries);
    }
    if (to->with_epoch) {
        body[n++] = 0x28;
        n += put_varint(body + n, to->epoch);
    }
    put_be32(head, (uint32_t)(8 + n + left)); /* n is at most 71: one byte of length */
    put_be32(head + 4, (uint32_t)(4 + n));
    head[8] = 0x08;
    head[9] = 0x09;
    head[10] = 0x4a;
    head[11] = (uint8_t)n;
    memcpy(head + 12, body, n);
    *rest = (span){entry, entry + left};
    return 12 + n;
}

/* The MESSAGE frame of a record of so many bytes; returns its size. */
static size_t put_message(uint8_t *head, const uint8_t *record, size_t size, const receiver *to, int64_t redeliveries) {
    span entry;
    size_t n = put_message_head(head, record, size, to, redeliveries, &entry), left = (size_t)(entry.end - entry.p);
    copy_long(head + n, entry.p, left);
    return n + left;
}

static PyObject *encode_messages(PyObject *self, PyObject *args) {
    Py_buffer slab, offsets;
    Py_ssize_t i, j;
    long long partition;
    unsigned long long consumer; /* a u64 the peer chose */
    int mode;
    PyObject *epoch, *counts, *result = NULL, *listed = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "Ky*y*nnLiO!O", &consumer, &slab, &offsets, &i, &j, &partition, &mode, &PyLong_Type, &epoch, &counts))
        return NULL;
    receiver to = {.consumer = consumer, .partition = (uint64_t)partition, .mode = mode};
    set_epoch(&to, epoch);
    if (check_offsets(&offsets, i, j, slab.len, RECORD_HEADER))
        goto out;
    if (counts != Py_None) {
        if (!(listed = PySequence_Fast(counts, "redelivery_counts is no sequence")))
            goto out;
        if (PySequence_Fast_GET_SIZE(listed) < j - i) {
            PyErr_SetString(PyExc_ValueError, "too few redelivery counts");
            goto out;
        }
    }
    if (!(result = PyBytes_FromStringAndSize(NULL, at_i64(&offsets, j) - at_i64(&offsets, i) + (j - i) * MOST_MESSAGE)))
        goto out;
    uint8_t *out = (uint8_t *)PyBytes_AS_STRING(result);
    size_t at = 0;
    for (Py_ssize_t k = i; k < j; k++) {
        long long count = 0;
        if (listed) {
            count = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(listed, k - i));
            if (count == -1 && PyErr_Occurred()) {
                Py_CLEAR(result);
                goto out;
            }
        }
        at += put_message(out + at, (const uint8_t *)slab.buf + at_i64(&offsets, k), (size_t)(at_i64(&offsets, k + 1) - at_i64(&offsets, k)), &to, count);
    }
    _PyBytes_Resize(&result, (Py_ssize_t)at);
out:
    Py_XDECREF(listed);
    PyBuffer_Release(&slab);
    PyBuffer_Release(&offsets);
    return result;
}

/* Bytes of the MESSAGE frames of the records i .. j-1 that the socket takes now, from where they lie. Without an effect on errors: the
 * next write meets them again. */
static size_t send_from_slab(int fd, const uint8_t *slab, const Py_buffer *offsets, Py_ssize_t i, Py_ssize_t j, const receiver *to) {
    uint8_t heads[SENT_TOGETHER][MOST_MESSAGE];
    struct iovec pieces[2 * SENT_TOGETHER];
    size_t sent = 0;
    while (i < j) {
        size_t count = 0, size = 0;
        for (; i < j && count < 2 * SENT_TOGETHER; i++) {
            span entry;
            uint8_t *head = heads[count / 2];
            size_t n = put_message_head(head, slab + at_i64(offsets, i), (size_t)(at_i64(offsets, i + 1) - at_i64(offsets, i)), to, 0, &entry);
            pieces[count++] = (struct iovec){head, n};
            pieces[count++] = (struct iovec){(void *)(uintptr_t)entry.p, (size_t)(entry.end - entry.p)};
            size += n + (size_t)(entry.end - entry.p);
        }
        struct msghdr message = {.msg_iov = pieces, .msg_iovlen = count};
        ssize_t step = sendmsg(fd, &message, SEND_NOW);
        sent += step > 0 ? (size_t)step : 0;
        if (step < 0 || (size_t)step < size)
            break;
    }
    return sent;
}

static PyObject *send_messages(PyObject *self, PyObject *args) {
    Py_buffer slab, offsets;
    Py_ssize_t i, j;
    int fd, mode;
    long long partition;
    unsigned long long consumer;
    PyObject *epoch, *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "iKy*y*nnLiO!", &fd, &consumer, &slab, &offsets, &i, &j, &partition, &mode, &PyLong_Type, &epoch))
        return NULL;
    receiver to = {.consumer = consumer, .partition = (uint64_t)partition, .mode = mode};
    set_epoch(&to, epoch);
    if (check_offsets(&offsets, i, j, slab.len, RECORD_HEADER))
        goto out;
    /* Room for all frames before the first byte goes: without memory behind a part of a frame the next frames are misread. */
    if (!(result = PyBytes_FromStringAndSize(NULL, at_i64(&offsets, j) - at_i64(&offsets, i) + (j - i) * MOST_MESSAGE)))
        goto out;
    size_t sent = send_from_slab(fd, slab.buf, &offsets, i, j, &to), left = 0;
    uint8_t *rest = (uint8_t *)PyBytes_AS_STRING(result), head[MOST_MESSAGE];
    for (Py_ssize_t k = i; k < j; k++) {
        const uint8_t *record = (const uint8_t *)slab.buf + at_i64(&offsets, k);
        size_t size = (size_t)(at_i64(&offsets, k + 1) - at_i64(&offsets, k));
        span entry;
        size_t frame = put_message_head(head, record, size, &to, 0, &entry);
        frame += (size_t)(entry.end - entry.p);
        if (sent >= frame) {
            sent -= frame;
            continue;
        }
        left += put_message(rest + left, record, size, &to, 0);
        if (sent) { /* of this frame, the first of the rest */
            left -= sent;
            memmove(rest, rest + sent, left);
            sent = 0;
        }
    }
    _PyBytes_Resize(&result, (Py_ssize_t)left);
out:
    PyBuffer_Release(&slab);
    PyBuffer_Release(&offsets);
    return result;
}

static PyObject *encode_picked(PyObject *self, PyObject *args) {
    Py_buffer slab, offsets, picks;
    long long partition;
    unsigned long long consumer;
    int mode;
    PyObject *epoch, *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "Ky*y*y*LiO!", &consumer, &slab, &offsets, &picks, &partition, &mode, &PyLong_Type, &epoch))
        return NULL;
    receiver to = {.consumer = consumer, .partition = (uint64_t)partition, .mode = mode};
    set_epoch(&to, epoch);
    Py_ssize_t count = picks.len / 8;
    int64_t size = 0;
    for (Py_ssize_t n = 0; n < count; n++) {
        int64_t k = at_i64(&picks, n);
        if (k < 0 || k >= offsets.len / 8) {
            PyErr_SetString(PyExc_ValueError, "no such entry");
            goto out;
        }
        if (check_offsets(&offsets, (Py_ssize_t)k, (Py_ssize_t)k + 1, slab.len, RECORD_HEADER))
            goto out;
        size += at_i64(&offsets, k + 1) - at_i64(&offsets, k);
    }
    if (size > PY_SSIZE_T_MAX / 2 || !(result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size + count * MOST_MESSAGE)))
        goto out;
    uint8_t *out = (uint8_t *)PyBytes_AS_STRING(result);
    size_t at = 0;
    for (Py_ssize_t n = 0; n < count; n++) {
        int64_t k = at_i64(&picks, n);
        at += put_message(out + at, (const uint8_t *)slab.buf + at_i64(&offsets, k), (size_t)(at_i64(&offsets, k + 1) - at_i64(&offsets, k)), &to, 0);
    }
    _PyBytes_Resize(&result, (Py_ssize_t)at);
    if (result != NULL)
        result = Py_BuildValue("(NL)", result, (long long)size);
out:
    PyBuffer_Release(&slab);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&picks);
    return result;
}

/* --- facts ------------------------------------------------------------------------------------------------------------------- */

/* Murmur3 of a message's sticky key, 31 bits: each selector reduces it to its own range. Base64 keys are the twin's. */
static int64_t key_hash(const metadata *m) {
    murmur state = {0};
    if (m->ordering_key.p)
        murmur_add(&state, m->ordering_key.p, (size_t)(m->ordering_key.end - m->ordering_key.p));
    else if (m->partition_key.p)
        murmur_add(&state, m->partition_key.p, (size_t)(m->partition_key.end - m->partition_key.p));
    else {
        char number[24];
        int n = PyOS_snprintf(number, sizeof number, "-%llu", (unsigned long long)m->sequence_id);
        murmur_add(&state, m->producer_name.p, (size_t)(m->producer_name.end - m->producer_name.p));
        murmur_add(&state, (const uint8_t *)number, (size_t)n);
    }
    return murmur_end(&state);
}

/* broker_timestamp of a 0x0e02 part; -1 when it has none, -2 when it is not in the usual form. */
static int64_t broker_timestamp(const uint8_t *p, size_t n) {
    span s = {p, p + n};
    uint64_t v, found = (uint64_t)-1;
    unsigned seen = 0;
    while (s.p < s.end) {
        uint8_t tag = *s.p++;
        unsigned bit = tag == 0x08 ? 1 : tag == 0x10 ? 2 : 4;
        if (bit == 4 || seen & bit || get_varint(&s, &v) != FINE)
            return -2;
        seen |= bit;
        if (bit == 1)
            found = v;
    }
    return seen & 1 ? (int64_t)found : -1;
}

/* Messages of an entry, as _pure.messages_claimed. */
static int64_t messages_claimed(const metadata *m, size_t payload) {
    int packed = m->compressed || m->flags & NAMES_FORMAT;
    int64_t room = (int64_t)payload * (packed ? MOST_COMPRESSION : 1);
    return m->batch_size > 1 && (int64_t)m->batch_size * LEAST_MESSAGE <= room ? m->batch_size : 1;
}

typedef struct { buffer sizes, deliver_at, published, stamped, hashes, flags; uint32_t any_flags; int64_t total; } facts;

/* An entry with other metadata. */
static PyObject *with_metadata(const uint8_t *body, size_t n, const uint8_t *meta, size_t size, PyObject *other) {
    size_t other_size = (size_t)PyBytes_GET_SIZE(other), before = (size_t)(meta - body), payload = n - before - size;
    PyObject *entry = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(before + other_size + payload));
    if (!entry)
        return NULL;
    uint8_t *out = (uint8_t *)PyBytes_AS_STRING(entry);
    memcpy(out, body, before - 4);
    for (unsigned k = 0; k < 4; k++)
        out[before - 4 + k] = (uint8_t)(other_size >> (24 - 8 * k));
    memcpy(out + before, PyBytes_AS_STRING(other), other_size);
    memcpy(out + before + other_size, meta + size, payload);
    return entry;
}

/* meta: NULL where the entry has no metadata. */
static int add_unusual(facts *f, const uint8_t *body, size_t n, const uint8_t *meta, size_t meta_size, int want_hash) {
    PyObject *kept = meta ? without_lists(meta, meta_size) : NULL, *entry = NULL, *seen = NULL;
    if (kept)
        entry = with_metadata(body, n, meta, meta_size, kept);
    else if (!meta)
        entry = PyBytes_FromStringAndSize((const char *)body, (Py_ssize_t)n);
    Py_XDECREF(kept);
    if (entry)
        seen = PyObject_CallMethod(pure, "entry_fact", "Oi", entry, want_hash);
    Py_XDECREF(entry);
    long long size, due, published, stamped, hash;
    unsigned flags;
    int ok = seen && PyArg_ParseTuple(seen, "LLLLLI", &size, &due, &published, &stamped, &hash, &flags);
    Py_XDECREF(seen);
    if (!ok)
        return -1;
    f->any_flags |= flags;
    f->total += size;
    return push_i64(&f->sizes, size) || push_i64(&f->deliver_at, due) || push_i64(&f->published, published) || push_i64(&f->stamped, stamped) ||
           push_i64(&f->hashes, hash) || push_u32(&f->flags, flags);
}

static int add_fact(facts *f, const uint8_t *body, size_t n, int want_hash) {
    const uint8_t *p = body, *meta;
    size_t left = n, size, prefix = after_prefix(body, n);
    int64_t stamped = prefix ? broker_timestamp(body + 6, prefix - 6) : -1;
    uint32_t flags = 0;
    metadata m;
    p += prefix;
    left -= prefix;
    if (left >= 2 && p[0] == 0x0e && p[1] == 0x01) {
        if (left < 6)
            return add_unusual(f, body, n, NULL, 0, want_hash);
        flags = HAS_CHECKSUM;
        p += 6;
        left -= 6;
    }
    if (!find_metadata(p, left, &meta, &size))
        return add_unusual(f, body, n, NULL, 0, want_hash);
    if (stamped == -2 || parse_metadata(meta, size, &m) != FINE ||
        (want_hash && m.key_is_base64 && m.partition_key.p && !m.ordering_key.p))
        return add_unusual(f, body, n, meta, size, want_hash);
    flags |= m.flags;
    f->any_flags |= flags;
    int64_t messages = messages_claimed(&m, left - 4 - size);
    f->total += messages;
    return push_i64(&f->sizes, messages) || push_i64(&f->deliver_at, m.deliver_at) || push_i64(&f->published, m.publish_time) ||
           push_i64(&f->stamped, stamped) || push_i64(&f->hashes, want_hash ? key_hash(&m) : 0) || push_u32(&f->flags, flags);
}

static PyObject *entry_facts(PyObject *self, PyObject *args) {
    Py_buffer slab, offsets;
    Py_ssize_t i, j;
    int want_hash;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*nnp", &slab, &offsets, &i, &j, &want_hash))
        return NULL;
    PyObject *result = NULL;
    facts f;
    memset(&f, 0, sizeof f);
    if (check_offsets(&offsets, i, j, slab.len, RECORD_HEADER))
        goto out;
    for (Py_ssize_t k = i; k < j; k++) {
        const uint8_t *body = (const uint8_t *)slab.buf + at_i64(&offsets, k) + RECORD_HEADER;
        if (add_fact(&f, body, (size_t)(at_i64(&offsets, k + 1) - at_i64(&offsets, k)) - RECORD_HEADER, want_hash))
            goto out;
    }
    result = PyObject_CallFunction(facts_class, "NNNNNNIL", as_bytes(&f.sizes),
        f.any_flags & HAS_DELIVER_AT ? as_bytes(&f.deliver_at) : Py_NewRef(Py_None), as_bytes(&f.published), as_bytes(&f.stamped),
        want_hash ? as_bytes(&f.hashes) : Py_NewRef(Py_None), as_bytes(&f.flags), (unsigned)f.any_flags, (long long)f.total);
out:
    PyMem_Free(f.sizes.data);
    PyMem_Free(f.deliver_at.data);
    PyMem_Free(f.published.data);
    PyMem_Free(f.stamped.data);
    PyMem_Free(f.hashes.data);
    PyMem_Free(f.flags.data);
    PyBuffer_Release(&slab);
    PyBuffer_Release(&offsets);
    return result;
}

static PyObject *crc32c(PyObject *self, PyObject *args) {
    Py_buffer view;
    unsigned value = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*|I", &view, &value))
        return NULL;
    uint32_t crc;
    if (view.len > 1 << 16) {
        Py_BEGIN_ALLOW_THREADS
        crc = crc32c_update(value, view.buf, (size_t)view.len);
        Py_END_ALLOW_THREADS
    } else
        crc = crc32c_update(value, view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}

static PyMethodDef methods[] = {
    {"cut", cut, METH_VARARGS, NULL},
    {"stamp", stamp, METH_VARARGS, NULL},
    {"stamp_in_place", stamp_in_place, METH_VARARGS, NULL},
    {"scan_records", scan_records, METH_VARARGS, NULL},
    {"encode_receipts", encode_receipts, METH_VARARGS, NULL},
    {"encode_messages", encode_messages, METH_VARARGS, NULL},
    {"send_messages", send_messages, METH_VARARGS, NULL},
    {"encode_picked", encode_picked, METH_VARARGS, NULL},
    {"entry_facts", entry_facts, METH_VARARGS, NULL},
    {"crc32c", crc32c, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_speedups", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__speedups(void) {
    crc32c_init();
    crc32c_often_init();
    if (!(pure = PyImport_ImportModule("magnetar.protocol._pure")) || !(facts_class = PyObject_GetAttrString(pure, "Facts")))
        return NULL;
    return PyModule_Create(&module);
}
