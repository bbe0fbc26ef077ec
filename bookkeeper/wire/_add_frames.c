/* Add frames of a run of entries, compiled. `packed_runs.py` says what the function gives, and has the same in Python as the reference
 * (tests/bookkeeper/wire/test_packed_runs.py). */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "../../protocol/_crc32c.h"

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
        memcpy(at + OVERHEAD, body, size);
        put_be32(header + HEADER, crc32c_update(crc32c_update(0, header, HEADER), at + OVERHEAD, size));
        at += OVERHEAD + size;
        end = at - begin;
        memcpy(end_at + 8 * (k + 1), &end, 8);
    }
    Py_END_ALLOW_THREADS;
    return Py_BuildValue("(NNL)", frames, ends, length);
}

static PyObject *encode_packed(PyObject *self, PyObject *args) {
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

static PyMethodDef methods[] = {
    {"encode_packed", encode_packed, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_add_frames", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__add_frames(void) {
    crc32c_init();
    return PyModule_Create(&module);
}
