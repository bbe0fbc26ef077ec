/* Add frames of a run of entries, their acknowledgements joined, and the records of a batch that was read, compiled.
 * `packed_runs.py`, `packed_answers.py` and `packed_batches.py` describe the results and have the reference in Python
 * (tests/bookkeeper/wire compares both). */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "../../protocol/_crc32c.h"
#include "../../protocol/_long_copy.h"

enum { PREFIX = 8, KEY = 20, HEADER = 32, DIGEST = 4, OVERHEAD = PREFIX + KEY + HEADER + DIGEST };

static void put_be32(uint8_t *p, uint32_t v) {
    p[0] = (uint8_t)(v >> 24), p[1] = (uint8_t)(v >> 16), p[2] = (uint8_t)(v >> 8), p[3] = (uint8_t)v;
}

static void put_be64(uint8_t *p, uint64_t v) {
    put_be32(p, (uint32_t)(v >> 32));
    put_be32(p + 4, (uint32_t)v);
}

static int64_t offset_at(const Py_buffer *offsets, Py_ssize_t k) {
    int64_t v;
    memcpy(&v, (const char *)offsets->buf + 8 * k, 8);
    return v;
}

/* Whether the offsets cut the data into pieces that have at least `skip` bytes. */
static int fits(const Py_buffer *data, const Py_buffer *offsets, Py_ssize_t count, Py_ssize_t skip) {
    if (count < 1 || offsets->len % 8 || skip < 0)
        return 0;
    for (Py_ssize_t k = 0; k < count; k++) {
        int64_t begin = offset_at(offsets, k), end = offset_at(offsets, k + 1);
        if (begin < 0 || end < begin || end > data->len)
            return 0;
        int64_t size = end - begin;
        if (size < skip || size - skip > INT32_MAX - OVERHEAD)
            return 0;
    }
    return 1;
}

static PyObject *frames_of(const Py_buffer *data, const Py_buffer *offsets, Py_ssize_t count, Py_ssize_t skip, long long ledger,
                           long long first, long long confirmed, long long length, const uint8_t *key, uint32_t opcode) {
    int64_t payload = offset_at(offsets, count) - offset_at(offsets, 0) - count * (int64_t)skip;
    PyObject *frames = PyBytes_FromStringAndSize(NULL, payload + count * OVERHEAD);
    PyObject *ends = PyBytes_FromStringAndSize(NULL, 8 * (count + 1));
    if (!frames || !ends) {
        Py_XDECREF(frames);
        Py_XDECREF(ends);
        return NULL;
    }
    uint8_t *at = (uint8_t *)PyBytes_AS_STRING(frames), *begin = at;
    char *end_at = PyBytes_AS_STRING(ends);
    int64_t end = 0;
    memcpy(end_at, &end, 8);
    Py_BEGIN_ALLOW_THREADS;
    for (Py_ssize_t k = 0; k < count; k++) {
        const uint8_t *body = (const uint8_t *)data->buf + offset_at(offsets, k) + skip;
        size_t size = (size_t)(offset_at(offsets, k + 1) - offset_at(offsets, k) - skip);
        length += (long long)size;
        put_be32(at, (uint32_t)(OVERHEAD - 4 + size));
        put_be32(at + 4, opcode);
        memcpy(at + PREFIX, key, KEY);
        uint8_t *header = at + PREFIX + KEY;
        put_be64(header, (uint64_t)ledger);
        put_be64(header + 8, (uint64_t)(first + k));
        put_be64(header + 16, (uint64_t)confirmed);
        put_be64(header + 24, (uint64_t)length);
        copy_long(at + OVERHEAD, body, size);
        put_be32(header + HEADER, crc32c_update(crc32c_update(0, header, HEADER), at + OVERHEAD, size));
        at += OVERHEAD + size;
        end = at - begin;
        memcpy(end_at + 8 * (k + 1), &end, 8);
    }
    Py_END_ALLOW_THREADS;
    return Py_BuildValue("(NNL)", frames, ends, length);
}

static PyObject *encode_packed(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer data, offsets, key;
    Py_ssize_t skip;
    long long ledger, first, confirmed, length;
    unsigned int opcode;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*y*nLLLLy*I", &data, &offsets, &skip, &ledger, &first, &confirmed, &length, &key, &opcode))
        return NULL;
    Py_ssize_t count = offsets.len / 8 - 1;
    if (ledger < 0 || first < 0 || key.len != KEY || !fits(&data, &offsets, count, skip))
        PyErr_SetString(PyExc_ValueError, "no run of entries");
    else
        result = frames_of(&data, &offsets, count, skip, ledger, first, confirmed, length, key.buf, opcode);
    PyBuffer_Release(&data);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&key);
    return result;
}

enum { RECORD = 32 };

static uint32_t get_be32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static uint64_t get_be64(const uint8_t *p) {
    return (uint64_t)get_be32(p) << 32 | get_be32(p + 4);
}

static void put_le32(uint8_t *p, uint32_t v) {
    p[0] = (uint8_t)v, p[1] = (uint8_t)(v >> 8), p[2] = (uint8_t)(v >> 16), p[3] = (uint8_t)(v >> 24);
}

static void put_le64(uint8_t *p, uint64_t v) {
    put_le32(p, (uint32_t)v);
    put_le32(p + 4, (uint32_t)(v >> 32));
}

/* Counts the entries at the beginning of the batch that are as expected; *payload gets the bytes of their payloads. */
static Py_ssize_t good_entries(const Py_buffer *packed, uint64_t ledger, uint64_t first, Py_ssize_t most, Py_ssize_t *payload) {
    const uint8_t *at = packed->buf, *end = at + packed->len;
    Py_ssize_t count = 0;
    *payload = 0;
    while (count < most && end - at >= 4) {
        size_t size = get_be32(at);
        const uint8_t *entry = at + 4;
        if (size > (size_t)(end - entry) || size < HEADER + DIGEST)
            break;
        size_t body = size - HEADER - DIGEST;
        if (get_be64(entry) != ledger || get_be64(entry + 8) != first + (uint64_t)count)
            break;
        if (get_be32(entry + HEADER) != crc32c_update(crc32c_update(0, entry, HEADER), entry + HEADER + DIGEST, body))
            break;
        *payload += (Py_ssize_t)body;
        at = entry + size;
        count++;
    }
    return count;
}

static PyObject *records_of_batch(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer packed;
    long long ledger, first;
    Py_ssize_t most, payload, count;
    if (!PyArg_ParseTuple(args, "y*LLn", &packed, &ledger, &first, &most))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    count = ledger < 0 || first < 0 ? 0 : good_entries(&packed, (uint64_t)ledger, (uint64_t)first, most, &payload);
    Py_END_ALLOW_THREADS;
    if (!count)
        payload = 0;
    PyObject *data = PyBytes_FromStringAndSize(NULL, payload + count * RECORD);
    PyObject *offsets = PyBytes_FromStringAndSize(NULL, 8 * (count + 1));
    if (!data || !offsets) {
        Py_XDECREF(data);
        Py_XDECREF(offsets);
        PyBuffer_Release(&packed);
        return NULL;
    }
    uint8_t *out = (uint8_t *)PyBytes_AS_STRING(data);
    char *ends = PyBytes_AS_STRING(offsets);
    const uint8_t *at = packed.buf;
    int64_t end = 0;
    memcpy(ends, &end, 8);
    Py_BEGIN_ALLOW_THREADS;
    for (Py_ssize_t k = 0; k < count; k++) {
        size_t size = get_be32(at), body = size - HEADER - DIGEST;
        const uint8_t *entry = at + 4;
        uint8_t *record = out + end;
        put_le32(record, (uint32_t)body);
        put_le64(record + 8, (uint64_t)ledger);
        put_le64(record + 16, (uint64_t)(first + k));
        put_le64(record + 24, get_be64(entry + 16));
        copy_long(record + RECORD, entry + HEADER + DIGEST, body);
        put_le32(record + 4, crc32c_update(crc32c_update(0, record, 4), record + 8, RECORD - 8 + body));
        end += (int64_t)(RECORD + body);
        memcpy(ends + 8 * (k + 1), &end, 8);
        at = entry + size;
    }
    Py_END_ALLOW_THREADS;
    PyBuffer_Release(&packed);
    return Py_BuildValue("(NN)", data, offsets);
}

enum { ANSWER = 28, ADDED = 0x02010000 };

static PyObject *join_added(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer data;
    Py_ssize_t at;
    if (!PyArg_ParseTuple(args, "y*n", &data, &at))
        return NULL;
    const uint8_t *bytes = data.buf;
    int64_t ledger = -1, first = -1, last = -1;
    while (at >= 0 && data.len - at >= ANSWER) {
        const uint8_t *p = bytes + at;
        int64_t of = (int64_t)get_be64(p + 12), entry = (int64_t)get_be64(p + 20);
        if (get_be32(p) != ANSWER - 4 || get_be32(p + 4) != ADDED || get_be32(p + 8) != 0 || of < 0 || entry < 0)
            break;
        if (last < 0)
            ledger = of, first = entry;
        else if (of != ledger || entry - 1 != last)
            break;
        last = entry;
        at += ANSWER;
    }
    PyBuffer_Release(&data);
    if (last < 0)
        Py_RETURN_NONE;
    return Py_BuildValue("(LLLn)", (long long)ledger, (long long)first, (long long)last, at);
}

static PyMethodDef methods[] = {
    {"join_added", join_added, METH_VARARGS, NULL},
    {"encode_packed", encode_packed, METH_VARARGS, NULL},
    {"records_of_batch", records_of_batch, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_add_frames", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__add_frames(void) {
    crc32c_init();
    return PyModule_Create(&module);
}
