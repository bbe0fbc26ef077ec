/* Hashes of keys, compiled. `key_hash.py` describes both and has the reference in Python (tests/protocol/test_key_hash.py
 * compares them): a peer chooses the size of a key. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#include "_murmur.h"

static PyObject *murmur3_32(PyObject *self, PyObject *data) {
    Py_buffer view;
    (void)self;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE))
        return NULL;
    murmur state = {0};
    murmur_add(&state, view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(murmur_end(&state));
}

static PyObject *java_hash(PyObject *self, PyObject *text) {
    (void)self;
    if (!PyUnicode_Check(text)) {
        PyErr_SetString(PyExc_TypeError, "a str is needed");
        return NULL;
    }
    uint32_t value = 0;
    Py_ssize_t n = PyUnicode_GET_LENGTH(text);
    int kind = PyUnicode_KIND(text);
    const void *points = PyUnicode_DATA(text);
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_UCS4 c = PyUnicode_READ(kind, points, i);
        if (c > 0xffff) { /* two units of UTF-16 */
            value = 31 * value + (0xd800u + ((c - 0x10000u) >> 10));
            c = 0xdc00u + ((c - 0x10000u) & 0x3ffu);
        }
        value = 31 * value + c;
    }
    return PyLong_FromUnsignedLong(value);
}

static PyMethodDef methods[] = {
    {"murmur3_32", murmur3_32, METH_O, NULL},
    {"java_hash", java_hash, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_key_hashes", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__key_hashes(void) { return PyModule_Create(&module); }
