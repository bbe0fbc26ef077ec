/* Records of one Kafka batch as messages of a Pulsar batch, compiled: the same conversion as `SlotWriter` and
 * `SingleMessageEncoder` do record by record, for batches in which nothing is out of the ordinary. For any other batch the
 * function returns None; the Python code then converts the whole batch and describes its errors
 * (tests/converters/kafka_entry/test_fast_slots.py compares both).
 * Each length is checked against the available bytes before its use; the output is bounded by the caller's max_bytes. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef struct { const uint8_t *p, *end; } span;
typedef struct { const uint8_t *data; int64_t length; } bytes; /* length -1: null */

/* --- reading ------------------------------------------------------------------------------------------------------------------- */

/* A zigzag varint of at most max_bytes bytes and `bits` bits. */
static inline int get_signed(span *s, int max_bytes, int bits, int64_t *out) {
    uint64_t raw = 0;
    for (int i = 0; i < max_bytes && s->p < s->end; i++) {
        uint8_t byte = *s->p++;
        if (i == 9 && byte > 1)
            return 0;
        raw |= (uint64_t)(byte & 127) << (7 * i);
        if (byte < 128) {
            if (bits == 32 && raw > UINT32_MAX)
                return 0;
            *out = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            return 1;
        }
    }
    return 0;
}

static inline int get_bytes(span *s, bytes *out) {
    if (s->p < s->end && *s->p == 1) { /* the only encoding of null */
        s->p++;
        *out = (bytes){NULL, -1};
        return 1;
    }
    int64_t length;
    if (!get_signed(s, 5, 32, &length) || length < 0 || length > s->end - s->p)
        return 0;
    *out = (bytes){s->p, length};
    s->p += length;
    return 1;
}

static int is_ascii(const bytes *text) {
    uint8_t seen = 0;
    for (int64_t i = 0; i < text->length; i++)
        seen |= text->data[i];
    return seen < 128;
}

/* UTF-8 as Python decodes it: no surrogates, no overlong forms, nothing above U+10FFFF. */
static int is_utf8(const bytes *text) {
    if (is_ascii(text))
        return 1;
    const uint8_t *p = text->data, *end = p + text->length;
    while (p < end) {
        uint8_t lead = *p++;
        if (lead < 0x80)
            continue;
        int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
        if (lead < 0xC2 || lead > 0xF4 || end - p < more)
            return 0;
        uint8_t least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80, most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        if (*p < least || *p > most)
            return 0;
        for (p++; --more; p++)
            if ((*p & 0xC0) != 0x80)
                return 0;
    }
    return 1;
}

/* --- writing ------------------------------------------------------------------------------------------------------------------- */

typedef struct { uint8_t *data; size_t used, room, most; } output;

/* Room for n more bytes; not beyond `most`. */
static inline int reserve(output *out, size_t n) {
    if (n > out->most - out->used)
        return 0;
    if (n <= out->room - out->used)
        return 1;
    size_t room = out->room * 2 > out->used + n ? out->room * 2 : out->used + n;
    if (room > out->most)
        room = out->most;
    uint8_t *grown = PyMem_RawRealloc(out->data, room);
    if (!grown)
        return 0;
    out->data = grown;
    out->room = room;
    return 1;
}

static inline int varint_bytes(uint64_t value) {
    int n = 1;
    while (value >>= 7)
        n++;
    return n;
}

static inline void put_varint(output *out, uint64_t value) {
    for (; value > 127; value >>= 7)
        out->data[out->used++] = (uint8_t)(value | 128);
    out->data[out->used++] = (uint8_t)value;
}

static inline int put_field(output *out, uint8_t tag, const bytes *value) {
    if (!reserve(out, (size_t)value->length + 6))
        return 0;
    out->data[out->used++] = tag;
    put_varint(out, (uint64_t)value->length);
    if (value->length)
        memcpy(out->data + out->used, value->data, (size_t)value->length);
    out->used += (size_t)value->length;
    return 1;
}

static int put_base64(output *out, uint8_t tag, const bytes *value) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    int64_t length = (value->length + 2) / 3 * 4, i = 0;
    if (!reserve(out, (size_t)length + 6))
        return 0;
    out->data[out->used++] = tag;
    put_varint(out, (uint64_t)length);
    uint8_t *to = out->data + out->used;
    const uint8_t *from = value->data;
    for (; i + 2 < value->length; i += 3, to += 4) {
        uint32_t group = (uint32_t)from[i] << 16 | (uint32_t)from[i + 1] << 8 | from[i + 2];
        to[0] = (uint8_t)digits[group >> 18];
        to[1] = (uint8_t)digits[group >> 12 & 63];
        to[2] = (uint8_t)digits[group >> 6 & 63];
        to[3] = (uint8_t)digits[group & 63];
    }
    if (i < value->length) {
        int two = value->length - i == 2;
        uint32_t group = (uint32_t)from[i] << 16 | (two ? (uint32_t)from[i + 1] << 8 : 0);
        to[0] = (uint8_t)digits[group >> 18];
        to[1] = (uint8_t)digits[group >> 12 & 63];
        to[2] = two ? (uint8_t)digits[group >> 6 & 63] : '=';
        to[3] = '=';
    }
    out->used += (size_t)length;
    return 1;
}

/* --- one record ---------------------------------------------------------------------------------------------------------------- */

enum { MAX_HEADERS = 1 << 16, PREFIX_BYTES = 8, FLAGS_AND_TIME = 32 };

typedef struct { int64_t base_time, append_time; int has_append_time, text_keys, in_order; } form;

/* Headers as properties; those that need a companion are out of the ordinary. */
static int put_headers(output *out, span *s) {
    int64_t count;
    if (!get_signed(s, 5, 32, &count) || count < 0 || count > (s->end - s->p) / 2 || count > MAX_HEADERS)
        return 0;
    while (count--) {
        bytes key, value;
        if (!get_bytes(s, &key) || key.length < 0 || !is_ascii(&key) || !get_bytes(s, &value) || value.length < 0 || !is_utf8(&value))
            return 0;
        if (key.length >= PREFIX_BYTES && !memcmp(key.data, "__kafka.", PREFIX_BYTES))
            return 0;
        size_t pair = (size_t)(2 + varint_bytes((uint64_t)key.length) + varint_bytes((uint64_t)value.length) + key.length + value.length);
        if (!reserve(out, pair + 6))
            return 0;
        out->data[out->used++] = 0x0a;
        put_varint(out, pair);
        if (!put_field(out, 0x0a, &key) || !put_field(out, 0x12, &value))
            return 0;
    }
    return 1;
}

static int put_fields(output *out, const form *f, const bytes *key, const bytes *value, int64_t time) {
    int as_text = f->text_keys && key->length >= 0 && is_utf8(key);
    if (key->length >= 0 && !(as_text ? put_field(out, 0x12, key) : put_base64(out, 0x12, key)))
        return 0;
    if (!reserve(out, FLAGS_AND_TIME))
        return 0;
    out->data[out->used++] = 0x18;
    put_varint(out, value->length > 0 ? (uint64_t)value->length : 0);
    if (time >= 0) {
        out->data[out->used++] = 0x28;
        put_varint(out, (uint64_t)time);
    }
    if (key->length >= 0) {
        if (!as_text) {
            out->data[out->used++] = 0x30;
            out->data[out->used++] = 1;
        }
        if (!put_field(out, 0x3a, key))
            return 0;
    }
    if (value->length < 0) {
        if (!reserve(out, 2))
            return 0;
        out->data[out->used++] = 0x48;
        out->data[out->used++] = 1;
    }
    return 1;
}

static int put_record(output *out, const form *f, span *records, int64_t number) {
    int64_t length, time_delta, delta, time;
    bytes key, value;
    if (!get_signed(records, 5, 32, &length) || length < 1 || length > records->end - records->p)
        return 0;
    span s = {records->p + 1, records->p + length}; /* the attributes byte means nothing */
    records->p += length;
    if (!get_signed(&s, 10, 64, &time_delta) || !get_signed(&s, 5, 32, &delta) || !get_bytes(&s, &key) || !get_bytes(&s, &value))
        return 0;
    if (f->in_order && delta != number)
        return 0;
    if (f->has_append_time)
        time = f->append_time;
    else if (__builtin_add_overflow(f->base_time, time_delta, &time))
        return 0;
    if (time < -1 || !reserve(out, 4))
        return 0;
    size_t size_at = out->used;
    out->used += 4;
    if (!put_headers(out, &s) || s.p != s.end || !put_fields(out, f, &key, &value, time))
        return 0;
    size_t size = out->used - size_at - 4;
    if (size > UINT32_MAX)
        return 0;
    for (int i = 0; i < 4; i++)
        out->data[size_at + i] = (uint8_t)(size >> (24 - 8 * i));
    if (value.length > 0) {
        if (!reserve(out, (size_t)value.length))
            return 0;
        memcpy(out->data + out->used, value.data, (size_t)value.length);
        out->used += (size_t)value.length;
    }
    return 1;
}

/* plain_slots(records, count, base_timestamp, append_time | None, text_keys, in_order, max_bytes) -> bytes | None */
static PyObject *plain_slots(PyObject *self, PyObject *args) {
    Py_buffer records;
    long long count, base_time, max_bytes;
    PyObject *append_time, *result = NULL;
    form f = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "y*LLOppL", &records, &count, &base_time, &append_time, &f.text_keys, &f.in_order, &max_bytes))
        return NULL;
    f.base_time = base_time;
    if ((f.has_append_time = append_time != Py_None)) {
        f.append_time = PyLong_AsLongLong(append_time);
        if (f.append_time == -1 && PyErr_Occurred())
            goto out;
    }
    output to = {NULL, 0, 0, max_bytes > 0 ? (size_t)max_bytes : 0};
    span s = {records.buf, (const uint8_t *)records.buf + records.len};
    int fine = 1;
    Py_BEGIN_ALLOW_THREADS
    /* The first guess mostly holds: keys of some bytes, twice, and the framing of a message. */
    fine = count >= 0 && reserve(&to, to.most < (size_t)records.len + 4096 ? to.most : (size_t)records.len + 4096);
    for (int64_t i = 0; fine && i < count; i++)
        fine = put_record(&to, &f, &s, i);
    fine = fine && s.p == s.end;
    Py_END_ALLOW_THREADS
    result = fine ? PyBytes_FromStringAndSize((const char *)to.data, (Py_ssize_t)to.used) : Py_NewRef(Py_None);
    PyMem_RawFree(to.data);
out:
    PyBuffer_Release(&records);
    return result;
}

static PyMethodDef methods[] = {
    {"plain_slots", plain_slots, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_slots", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__slots(void) { return PyModule_Create(&module); }
