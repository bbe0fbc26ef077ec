/* MESSAGE frames as columns, compiled. `deliveries.py` describes the result and has the reference in Python
 * (tests/protocol/test_deliveries.py compares both). Only whole frames are read, and no length may go beyond its frame. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "_wire_fields.h"

enum { COLUMNS = 4, MESSAGE = 9, FIRST_CHUNK = 7, LEAST_FRAME_BYTES = 16 };
typedef struct { int64_t ledger, entry, start, end; } delivery;

/* MessageIdData: whether it has ledger and entry, each once. */
static int read_message_id(span s, delivery *d) {
    field f = {0};
    step state;
    unsigned seen = 0;
    while ((state = next_field(&s, &f)) == FIELD)
        if (f.number <= 2) {
            if (f.wire || (seen & f.number))
                return 0;
            seen |= f.number;
            *(f.number == 1 ? &d->ledger : &d->entry) = (int64_t)f.value;
        } else if (f.number == FIRST_CHUNK)
            return 0; /* an id of its own, which may lack required fields */
    return state == NO_MORE && seen == 3;
}

/* CommandMessage: whether it is for this consumer and names an entry. */
static int read_message(span s, uint64_t consumer, delivery *d) {
    field f = {0};
    step state;
    unsigned seen = 0;
    while ((state = next_field(&s, &f)) == FIELD)
        if (f.number <= 2) {
            if (f.wire != (f.number == 1 ? 0u : 2u) || (seen & f.number))
                return 0;
            seen |= f.number;
            if (f.number == 1 ? f.value != consumer : !read_message_id(f.bytes, d))
                return 0;
        }
    return state == NO_MORE && seen == 3;
}

/* BaseCommand: whether it is a MESSAGE that `read_message` takes. */
static int read_command(span s, uint64_t consumer, delivery *d) {
    field f = {0};
    step state;
    int type = 0, message = 0;
    while ((state = next_field(&s, &f)) == FIELD)
        if (f.number == 1) {
            if (f.wire || f.value != MESSAGE || type++)
                return 0;
        } else if (f.number == 9) {
            if (f.wire != 2 || message++ || !read_message(f.bytes, consumer, d))
                return 0;
        } else
            return 0; /* another command beside the MESSAGE: for the cutter of all frames */
    return state == NO_MORE && type && message;
}

/* The frame at the beginning of s; moves s behind it. */
static int read_frame(span *s, const uint8_t *base, uint64_t consumer, delivery *d) {
    if (left(s) < 8)
        return 0;
    int64_t total = be32(s->p), size = be32(s->p + 4);
    if (total > left(s) - 4 || size + 4 > total)
        return 0;
    span command = {s->p + 8, s->p + 8 + size};
    if (!read_command(command, consumer, d))
        return 0;
    d->start = command.end - base;
    s->p += 4 + total;
    d->end = s->p - base;
    return 1;
}

static PyObject *deliveries(PyObject *self, PyObject *args) {
    Py_buffer data;
    Py_ssize_t start;
    unsigned long long consumer;
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*nK", &data, &start, &consumer))
        return NULL;
    if (start < 0 || start > data.len) {
        PyErr_SetString(PyExc_ValueError, "the start is not in the data");
        goto out;
    }
    const uint8_t *base = data.buf;
    span s = {base + start, base + data.len};
    Py_ssize_t room = left(&s) / LEAST_FRAME_BYTES + 1, n = 0;
    delivery *found = PyMem_Malloc((size_t)room * sizeof *found);
    if (!found) {
        PyErr_NoMemory();
        goto out;
    }
    Py_BEGIN_ALLOW_THREADS
    while (n < room && read_frame(&s, base, consumer, &found[n]))
        n++;
    Py_END_ALLOW_THREADS
    PyObject *table = PyBytes_FromStringAndSize(NULL, n * COLUMNS * 8);
    if (table) {
        int64_t *to = (int64_t *)PyBytes_AS_STRING(table);
        for (Py_ssize_t i = 0; i < n; i++) {
            to[i] = found[i].ledger;
            to[n + i] = found[i].entry;
            to[2 * n + i] = found[i].start;
            to[3 * n + i] = found[i].end;
        }
        result = Py_BuildValue("Nn", table, (Py_ssize_t)(s.p - base));
    }
    PyMem_Free(found);
out:
    PyBuffer_Release(&data);
    return result;
}

static PyMethodDef methods[] = {{"deliveries", deliveries, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_deliveries", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__deliveries(void) { return PyModule_Create(&module); }
