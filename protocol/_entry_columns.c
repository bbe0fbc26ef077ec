/* Entries as columns, compiled. `entry_columns.py` describes the result of each function; `_pure_columns.py` is the reference in
 * Python (tests/protocol/test_entry_columns.py compares both). Each length is checked against the available bytes before its
 * use; rows are bounded by the caller's max_rows, never by a count that a peer wrote. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "_crc32c.h"
#include "_wire_fields.h"

/* --- columns of an entry: the order is that of EntryColumn in entry_columns.py ------------------------------------------------ */
enum {
    STATUS, FLAGS, BROKER_TIMESTAMP, INDEX, METADATA_START, METADATA_END, PRODUCER_START, PRODUCER_LENGTH, SEQUENCE_ID, PUBLISH_TIME,
    PROPERTIES, REPLICATED_START, REPLICATED_LENGTH, KEY_START, KEY_LENGTH, COMPRESSION, UNCOMPRESSED_SIZE, MESSAGES, EVENT_TIME,
    SCHEMA_START, SCHEMA_LENGTH, ORDERING_START, ORDERING_LENGTH, TXN_LEAST, TXN_MOST, UUID_START, UUID_LENGTH, CHUNKS,
    CHUNKED_SIZE, CHUNK_ID, HIGHEST_SEQUENCE_ID, ENTRY_COLUMNS
};
enum { FINE, SHORT, CHECKSUM, METADATA, REQUIRED, BROKER_METADATA };
enum {
    HAS_INDEX = 1, HAS_BROKER_TIMESTAMP = 2, KEY_IS_BASE64 = 4, NULL_KEY = 8, NULL_VALUE = 16, ENCRYPTED = 32, BATCHED = 64, MARKER = 128,
    HAS_TXN = 256, IS_CHUNK = 512, NAMES_FORMAT = 1024, HAS_EVENT_TIME = 2048, COMPACTED_OUT = 4096, HAS_SEQUENCE_ID = 8192
};
/* --- and of a message in a batch: MessageColumn -------------------------------------------------------------------------------- */
enum {
    M_ENTRY, M_BATCH_INDEX, M_FLAGS, M_METADATA_START, M_METADATA_END, M_PAYLOAD_LENGTH, M_PROPERTIES, M_KEY_START, M_KEY_LENGTH,
    M_EVENT_TIME, M_ORDERING_START, M_ORDERING_LENGTH, M_SEQUENCE_ID, MESSAGE_COLUMNS
};

/* One row under construction, and the table it goes to: column c of row r is at c * room + r. */
typedef struct { const uint8_t *base; int64_t *table; Py_ssize_t room, row; } row;

static inline void put(const row *r, int column, int64_t v) { r->table[column * r->room + r->row] = v; }
static inline void put_bytes(const row *r, int column, const span *bytes) { /* start and length stand side by side */
    put(r, column, bytes->p - r->base);
    put(r, column + 1, left(bytes));
}
static inline void flag(unsigned *flags, unsigned bit, uint64_t value) { *flags = value ? *flags | bit : *flags & ~bit; }

/* KeyValue: whether it has both parts; `named` is set when its key is entry.format. */
static int look_at_pair(span pair, int *named) {
    field f = {0};
    step state;
    unsigned seen = 0;
    *named = 0;
    while ((state = next_field(&pair, &f)) == FIELD)
        if (f.wire == 2 && (f.number == 1 || f.number == 2)) {
            seen |= f.number;
            if (f.number == 1)
                *named = left(&f.bytes) == 12 && !memcmp(f.bytes.p, "entry.format", 12);
        }
    return state == NO_MORE && seen == 3;
}

/* EncryptionKeys: whether it has a key's name and value, and its metadata are pairs. */
static int look_at_encryption(span keys) {
    field f = {0};
    step state;
    unsigned seen = 0;
    int pairs = 1, named;
    while ((state = next_field(&keys, &f)) == FIELD)
        if (f.wire == 2 && f.number <= 2)
            seen |= f.number;
        else if (f.wire == 2 && f.number == 3)
            pairs &= look_at_pair(f.bytes, &named);
    return state == NO_MORE && seen == 3 && pairs;
}

/* MessageMetadata of one entry. */
static int read_metadata(const row *r, span s, unsigned *flags) {
    field f = {0};
    step state;
    int64_t properties = 0;
    unsigned required = 0, txn = 0;
    int pairs = 1, named;
    while ((state = next_field(&s, &f)) == FIELD) {
        if (f.wire == 2)
            switch (f.number) {
            case 1: put_bytes(r, PRODUCER_START, &f.bytes); required |= 1; break;
            case 4:
                properties++;
                pairs &= look_at_pair(f.bytes, &named);
                if (named)
                    *flags |= NAMES_FORMAT;
                break;
            case 5: put_bytes(r, REPLICATED_START, &f.bytes); break;
            case 6: put_bytes(r, KEY_START, &f.bytes); break;
            case 13: *flags |= ENCRYPTED; pairs &= look_at_encryption(f.bytes); break;
            case 16: put_bytes(r, SCHEMA_START, &f.bytes); break;
            case 18: put_bytes(r, ORDERING_START, &f.bytes); break;
            case 26: put_bytes(r, UUID_START, &f.bytes); break;
            }
        else if (f.wire == 0)
            switch (f.number) {
            case 2: put(r, SEQUENCE_ID, (int64_t)f.value); required |= 2; break;
            case 3: put(r, PUBLISH_TIME, (int64_t)f.value); required |= 4; break;
            case 8: put(r, COMPRESSION, (int32_t)f.value); break;
            case 9: put(r, UNCOMPRESSED_SIZE, (uint32_t)f.value); break;
            case 11: put(r, MESSAGES, (int32_t)f.value); *flags |= BATCHED; break;
            case 12: put(r, EVENT_TIME, (int64_t)f.value); break;
            case 17: flag(flags, KEY_IS_BASE64, f.value); break;
            case 20: *flags |= MARKER; break;
            case 22: put(r, TXN_LEAST, (int64_t)f.value); txn |= 1; break;
            case 23: put(r, TXN_MOST, (int64_t)f.value); txn |= 2; break;
            case 24: put(r, HIGHEST_SEQUENCE_ID, (int64_t)f.value); break;
            case 25: flag(flags, NULL_VALUE, f.value); break;
            case 27: put(r, CHUNKS, (int32_t)f.value); break;
            case 28: put(r, CHUNKED_SIZE, (int32_t)f.value); break;
            case 29: put(r, CHUNK_ID, (int32_t)f.value); *flags |= IS_CHUNK; break;
            case 30: flag(flags, NULL_KEY, f.value); break;
            }
    }
    put(r, PROPERTIES, properties);
    if (txn == 3)
        *flags |= HAS_TXN;
    return state == BROKEN ? METADATA : required == 7 && pairs ? FINE : REQUIRED;
}

static int read_broker_metadata(const row *r, span s, unsigned *flags) {
    field f = {0};
    step state;
    while ((state = next_field(&s, &f)) == FIELD) {
        if (f.wire || f.number > 2)
            continue;
        put(r, f.number == 1 ? BROKER_TIMESTAMP : INDEX, (int64_t)f.value);
        *flags |= f.number == 1 ? HAS_BROKER_TIMESTAMP : HAS_INDEX;
    }
    return state == BROKEN ? BROKER_METADATA : FINE;
}

static const int ABSENT_LENGTHS[] = {PRODUCER_LENGTH, REPLICATED_LENGTH, KEY_LENGTH, SCHEMA_LENGTH, ORDERING_LENGTH, UUID_LENGTH};

static int read_entry(const row *r, span s, int verify, unsigned *flags) {
    int status = FINE;
    for (size_t k = 0; k < sizeof ABSENT_LENGTHS / sizeof *ABSENT_LENGTHS; k++)
        put(r, ABSENT_LENGTHS[k], -1);
    put(r, MESSAGES, 1);
    if (left(&s) >= 6 && s.p[0] == 0x0e && s.p[1] == 0x02 && be32(s.p + 2) <= left(&s) - 6) {
        span broker = {s.p + 6, s.p + 6 + be32(s.p + 2)};
        status = read_broker_metadata(r, broker, flags);
        s.p = broker.end;
    }
    if (left(&s) >= 2 && s.p[0] == 0x0e && s.p[1] == 0x01) {
        if (left(&s) < 6)
            return SHORT;
        if (verify && crc32c_update(0, s.p + 6, (size_t)left(&s) - 6) != be32(s.p + 2))
            return CHECKSUM;
        s.p += 6;
    }
    if (left(&s) < 4 || be32(s.p) > left(&s) - 4)
        return SHORT;
    span metadata = {s.p + 4, s.p + 4 + be32(s.p)};
    put(r, METADATA_START, metadata.p - r->base);
    put(r, METADATA_END, metadata.end - r->base);
    return status != FINE ? status : read_metadata(r, metadata, flags);
}

/* --- arguments ---------------------------------------------------------------------------------------------------------------- */

typedef struct { Py_buffer data, starts, ends; Py_ssize_t n; } ranges;

static inline int64_t at(const Py_buffer *b, Py_ssize_t i) {
    int64_t v;
    memcpy(&v, (const char *)b->buf + 8 * i, 8);
    return v;
}

/* Whether each range lies in the data; sets ValueError. */
static int ranges_fit(ranges *r) {
    r->n = r->starts.len / 8;
    int fits = r->starts.len % 8 == 0 && r->ends.len == r->starts.len;
    for (Py_ssize_t i = 0; fits && i < r->n; i++)
        fits = 0 <= at(&r->starts, i) && at(&r->starts, i) <= at(&r->ends, i) && at(&r->ends, i) <= r->data.len;
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "the ranges do not fit the data");
    return fits;
}

static void release(ranges *r) {
    PyBuffer_Release(&r->data);
    PyBuffer_Release(&r->starts);
    PyBuffer_Release(&r->ends);
}

static span range(const ranges *r, Py_ssize_t i) {
    const uint8_t *base = r->data.buf;
    return (span){base + at(&r->starts, i), base + at(&r->ends, i)};
}

static PyObject *entry_columns(PyObject *self, PyObject *args) {
    ranges all;
    int verify;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*p", &all.data, &all.starts, &all.ends, &verify))
        return NULL;
    PyObject *result = NULL;
    if (!ranges_fit(&all))
        goto out;
    if (!(result = PyBytes_FromStringAndSize(NULL, all.n * ENTRY_COLUMNS * 8)))
        goto out;
    int64_t *table = (int64_t *)PyBytes_AS_STRING(result);
    memset(table, 0, (size_t)all.n * ENTRY_COLUMNS * 8);
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < all.n; i++) {
        row r = {all.data.buf, table, all.n, i};
        unsigned flags = 0;
        int status = read_entry(&r, range(&all, i), verify, &flags);
        put(&r, STATUS, status);
        put(&r, FLAGS, flags);
    }
    Py_END_ALLOW_THREADS
out:
    release(&all);
    return result;
}

/* SingleMessageMetadata; the payload's size, or -1 when it is broken. */
static int64_t read_single(const row *r, span s) {
    field f = {0};
    step state;
    int64_t properties = 0, size = -1;
    unsigned flags = 0;
    int pairs = 1, named;
    put(r, M_KEY_LENGTH, -1);
    put(r, M_ORDERING_LENGTH, -1);
    put(r, M_METADATA_START, s.p - r->base);
    put(r, M_METADATA_END, s.end - r->base);
    while ((state = next_field(&s, &f)) == FIELD) {
        if (f.wire == 2)
            switch (f.number) {
            case 1: properties++; pairs &= look_at_pair(f.bytes, &named); break;
            case 2: put_bytes(r, M_KEY_START, &f.bytes); break;
            case 7: put_bytes(r, M_ORDERING_START, &f.bytes); break;
            }
        else if (f.wire == 0)
            switch (f.number) {
            case 3: size = (int32_t)f.value; break;
            case 4: flag(&flags, COMPACTED_OUT, f.value); break;
            case 5: put(r, M_EVENT_TIME, (int64_t)f.value); flags |= HAS_EVENT_TIME; break;
            case 6: flag(&flags, KEY_IS_BASE64, f.value); break;
            case 8: put(r, M_SEQUENCE_ID, (int64_t)f.value); flags |= HAS_SEQUENCE_ID; break;
            case 9: flag(&flags, NULL_VALUE, f.value); break;
            case 10: flag(&flags, NULL_KEY, f.value); break;
            }
    }
    put(r, M_PROPERTIES, properties);
    put(r, M_FLAGS, flags);
    put(r, M_PAYLOAD_LENGTH, size);
    return state == BROKEN || !pairs ? -1 : size;
}

/* One message of a batch at s; whether it is whole. */
static int read_message(const row *r, span *s) {
    if (left(s) < 4 || be32(s->p) > left(s) - 4)
        return 0;
    span metadata = {s->p + 4, s->p + 4 + be32(s->p)};
    int64_t size = read_single(r, metadata);
    if (size < 0 || size > s->end - metadata.end)
        return 0;
    s->p = metadata.end + size;
    return 1;
}

typedef struct { Py_ssize_t entry; int64_t start, index; int broken; } place;

/* Rows until max_rows, the end, or a broken message; returns how many, and where it stopped. */
static Py_ssize_t read_batches(const ranges *all, const Py_buffer *counts, int64_t *table, Py_ssize_t max_rows, place *at_place) {
    row r = {all->data.buf, table, max_rows, 0};
    while (at_place->entry < all->n) {
        span s = range(all, at_place->entry);
        s.p = r.base + at_place->start;
        int64_t count = at(counts, at_place->entry);
        for (; at_place->index < count; at_place->index++, r.row++) {
            if (r.row == max_rows)
                goto out;
            put(&r, M_ENTRY, at_place->entry);
            put(&r, M_BATCH_INDEX, at_place->index);
            if (!read_message(&r, &s)) {
                at_place->broken = 1;
                goto out;
            }
            at_place->start = s.p - r.base;
        }
        if (++at_place->entry < all->n)
            at_place->start = at(&all->starts, at_place->entry);
        at_place->index = 0;
    }
out:
    return r.row;
}

static int check_place(const ranges *all, const Py_buffer *counts, Py_ssize_t max_rows, const place *p) {
    int fits = counts->len == all->starts.len && max_rows > 0 && max_rows <= 1 << 24 && p->index >= 0 && 0 <= p->entry && p->entry <= all->n &&
               (p->entry == all->n || (at(&all->starts, p->entry) <= p->start && p->start <= at(&all->ends, p->entry)));
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "counts, max_rows or the place do not fit the ranges");
    return fits;
}

static PyObject *message_columns(PyObject *self, PyObject *args) {
    ranges all;
    Py_buffer counts;
    Py_ssize_t max_rows;
    place p = {0, 0, 0, 0};
    long long start, index;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*y*nnLL", &all.data, &all.starts, &all.ends, &counts, &max_rows, &p.entry, &start, &index))
        return NULL;
    PyObject *result = NULL;
    int64_t *table = NULL;
    p.start = start;
    p.index = index;
    if (!ranges_fit(&all) || !check_place(&all, &counts, max_rows, &p))
        goto out;
    if (!(table = PyMem_Calloc((size_t)max_rows * MESSAGE_COLUMNS, 8))) {
        PyErr_NoMemory();
        goto out;
    }
    Py_ssize_t rows;
    Py_BEGIN_ALLOW_THREADS
    rows = read_batches(&all, &counts, table, max_rows, &p);
    Py_END_ALLOW_THREADS
    PyObject *columns = PyBytes_FromStringAndSize(NULL, rows * MESSAGE_COLUMNS * 8);
    if (!columns)
        goto out;
    for (Py_ssize_t c = 0; c < MESSAGE_COLUMNS; c++)
        memcpy(PyBytes_AS_STRING(columns) + c * rows * 8, table + c * max_rows, (size_t)rows * 8);
    result = Py_BuildValue("NnLLO", columns, p.entry, (long long)p.start, (long long)p.index, p.broken ? Py_True : Py_False);
out:
    PyMem_Free(table);
    release(&all);
    PyBuffer_Release(&counts);
    return result;
}

/* KeyValue at s as row r: the last of each part. */
static void read_pair(const row *r, span s) {
    field f = {0};
    while (next_field(&s, &f) == FIELD)
        if (f.wire == 2 && (f.number == 1 || f.number == 2))
            put_bytes(r, f.number == 1 ? 1 : 3, &f.bytes);
}

static PyObject *property_columns(PyObject *self, PyObject *args) {
    ranges all;
    unsigned number;
    Py_ssize_t room;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*In", &all.data, &all.starts, &all.ends, &number, &room))
        return NULL;
    PyObject *result = NULL;
    if (!ranges_fit(&all))
        goto out;
    if (room < 0 || room > 1 << 28) {
        PyErr_SetString(PyExc_ValueError, "no such number of properties");
        goto out;
    }
    if (!(result = PyBytes_FromStringAndSize(NULL, room * 5 * 8)))
        goto out;
    row r = {all.data.buf, (int64_t *)PyBytes_AS_STRING(result), room, 0};
    memset(r.table, 0, (size_t)room * 5 * 8);
    int fine = 1;
    for (Py_ssize_t i = 0; fine && i < all.n; i++) {
        span s = range(&all, i);
        field f = {0};
        step state;
        while (fine && (state = next_field(&s, &f)) == FIELD)
            if (f.number == number && f.wire == 2 && (fine = r.row < room)) {
                put(&r, 0, i);
                read_pair(&r, f.bytes);
                r.row++;
            }
        fine = fine && state == NO_MORE;
    }
    if (!fine || r.row != room) {
        PyErr_SetString(PyExc_ValueError, "the metadata do not hold that many properties");
        Py_CLEAR(result);
    }
out:
    release(&all);
    return result;
}

/* --- values out of many buffers ------------------------------------------------------------------------------------------------ */

enum { MAX_BUFFERS = 4096 };
typedef struct { Py_buffer buffers[MAX_BUFFERS]; Py_ssize_t count; } sources;

static int open_sources(PyObject *given, sources *s) {
    PyObject *listed = PySequence_Fast(given, "buffers in a sequence");
    s->count = 0;
    if (!listed)
        return 0;
    int fine = PySequence_Fast_GET_SIZE(listed) <= MAX_BUFFERS;
    if (!fine)
        PyErr_SetString(PyExc_ValueError, "too many buffers");
    for (Py_ssize_t i = 0; fine && i < PySequence_Fast_GET_SIZE(listed); i++) {
        fine = !PyObject_GetBuffer(PySequence_Fast_GET_ITEM(listed, i), &s->buffers[i], PyBUF_SIMPLE);
        s->count += fine;
    }
    Py_DECREF(listed);
    return fine;
}

static void close_sources(sources *s) {
    while (s->count)
        PyBuffer_Release(&s->buffers[--s->count]);
}

/* Where each value ends, and whether all lie in their buffers and fit int32 offsets; sets ValueError. */
static int value_ends(const sources *s, const Py_buffer *which, const Py_buffer *starts, const Py_buffer *lengths, int32_t *ends) {
    int64_t total = 0;
    Py_ssize_t n = starts->len / 8;
    ends[0] = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        int64_t length = at(lengths, i), number = at(which, i), start = at(starts, i);
        if (length > 0) {
            if (number < 0 || number >= s->count || start < 0 || length > s->buffers[number].len || start > s->buffers[number].len - length ||
                (total += length) > INT32_MAX) {
                PyErr_SetString(PyExc_ValueError, "the values do not fit the buffers, or 2 GiB");
                return 0;
            }
        }
        ends[i + 1] = (int32_t)total;
    }
    return 1;
}

static void copy_values(const sources *s, const Py_buffer *which, const Py_buffer *starts, const int32_t *ends, char *to) {
    for (Py_ssize_t i = 0; i < starts->len / 8; i++)
        if (ends[i + 1] > ends[i])
            memcpy(to + ends[i], (const char *)s->buffers[at(which, i)].buf + at(starts, i), (size_t)(ends[i + 1] - ends[i]));
}

static PyObject *gather(PyObject *self, PyObject *args) {
    PyObject *given, *offsets = NULL, *data = NULL, *result = NULL;
    Py_buffer which, starts, lengths;
    (void)self;
    if (!PyArg_ParseTuple(args, "Oy*y*y*", &given, &which, &starts, &lengths))
        return NULL;
    sources *s = PyMem_Malloc(sizeof *s);
    if (!s) {
        PyErr_NoMemory();
        goto out;
    }
    if (!open_sources(given, s))
        goto out;
    if (starts.len % 8 || which.len != starts.len || lengths.len != starts.len) {
        PyErr_SetString(PyExc_ValueError, "the arrays are of different lengths");
        goto out;
    }
    if (!(offsets = PyBytes_FromStringAndSize(NULL, (starts.len / 8 + 1) * 4)))
        goto out;
    int32_t *ends = (int32_t *)PyBytes_AS_STRING(offsets);
    if (!value_ends(s, &which, &starts, &lengths, ends) || !(data = PyBytes_FromStringAndSize(NULL, ends[starts.len / 8])))
        goto out;
    char *to = PyBytes_AS_STRING(data);
    Py_BEGIN_ALLOW_THREADS
    copy_values(s, &which, &starts, ends, to);
    Py_END_ALLOW_THREADS
    result = PyTuple_Pack(2, offsets, data);
out:
    Py_XDECREF(offsets);
    Py_XDECREF(data);
    if (s)
        close_sources(s);
    PyMem_Free(s);
    PyBuffer_Release(&which);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&lengths);
    return result;
}

static PyMethodDef methods[] = {
    {"entry_columns", entry_columns, METH_VARARGS, NULL},
    {"message_columns", message_columns, METH_VARARGS, NULL},
    {"property_columns", property_columns, METH_VARARGS, NULL},
    {"gather", gather, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_entry_columns", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__entry_columns(void) {
    crc32c_init();
    return PyModule_Create(&module);
}
