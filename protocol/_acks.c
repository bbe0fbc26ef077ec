/* Message ids of an ACK by ledger, compiled. `acks.py` describes the result and has the reference in Python
 * (tests/protocol/test_acks.py compares both). */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#include "_wire_fields.h"

enum { MESSAGE_ID = 3, LEDGER = 1, ENTRY = 2, ACK_SET = 5 };

/* MessageIdData of a whole entry that may exist. */
static int read_message_id(span s, uint64_t *ledger, uint64_t *entry) {
    field f = {0};
    step state;
    unsigned seen = 0;
    while ((state = next_field(&s, &f)) == FIELD) {
        if (f.number == ACK_SET)
            return 0;
        if (f.number == LEDGER || f.number == ENTRY) {
            if (f.wire)
                return 0;
            *(f.number == LEDGER ? ledger : entry) = f.value;
            seen |= f.number;
        }
    }
    return state == NO_MORE && seen == (LEDGER | ENTRY) && *ledger <= INT64_MAX && *entry <= UINT32_MAX;
}

/* The list of a ledger, borrowed; made at the ledger's first id. */
static PyObject *list_of(PyObject *ledgers, uint64_t ledger) {
    PyObject *key = PyLong_FromUnsignedLongLong(ledger);
    if (!key)
        return NULL;
    PyObject *found = PyDict_GetItemWithError(ledgers, key);
    if (!found && !PyErr_Occurred() && (found = PyList_New(0))) {
        int failed = PyDict_SetItem(ledgers, key, found);
        Py_DECREF(found);
        found = failed ? NULL : found;
    }
    Py_DECREF(key);
    return found;
}

static PyObject *whole_entries(PyObject *self, PyObject *args) {
    Py_buffer data;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*", &data))
        return NULL;
    PyObject *ledgers = PyDict_New(), *entries = NULL;
    span s = {data.buf, (const uint8_t *)data.buf + data.len};
    field f = {0};
    step state = NO_MORE;
    uint64_t last = 0, ledger = 0, entry = 0;
    while (ledgers && (state = next_field(&s, &f)) == FIELD) {
        if (f.number != MESSAGE_ID)
            continue;
        if (f.wire != 2 || !read_message_id(f.bytes, &ledger, &entry)) {
            state = BROKEN;
            break;
        }
        if (!entries || ledger != last)
            entries = list_of(ledgers, last = ledger);
        PyObject *number = entries ? PyLong_FromUnsignedLongLong(entry) : NULL;
        if (!number || PyList_Append(entries, number))
            Py_CLEAR(ledgers);
        Py_XDECREF(number);
    }
    if (ledgers && state == BROKEN) {
        Py_DECREF(ledgers);
        ledgers = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&data);
    return ledgers;
}

static PyMethodDef methods[] = {{"whole_entries", whole_entries, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_acks", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__acks(void) { return PyModule_Create(&module); }
