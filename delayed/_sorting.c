/* Sorting of delayed indexes by (time, ledger, entry), many columns into one. sorting.py has the twin in Python.
 *
 * A natural merge sort: parts that are sorted already, or follow each other, cost one comparison a row. Without the
 * interpreter lock from some thousand rows on, so that a seal does not block other threads. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define SHORT_RUN 16
#define UNLOCKED_ROWS 4096

typedef struct {
    int64_t time, ledger;
    uint32_t entry;
} row;

static inline int before(const row *a, const row *b) {
    if (a->time != b->time)
        return a->time < b->time;
    return a->ledger != b->ledger ? a->ledger < b->ledger : a->entry < b->entry;
}

/* Where the sorted run that begins at `start` ends; short runs are made longer. */
static size_t run_end(row *rows, size_t start, size_t n) {
    size_t end = start + 1;
    while (end < n && !before(&rows[end], &rows[end - 1]))
        end++;
    size_t least = n - start < SHORT_RUN ? n : start + SHORT_RUN;
    for (; end < least; end++) {
        row moved = rows[end];
        size_t k = end;
        for (; k > start && before(&moved, &rows[k - 1]); k--)
            rows[k] = rows[k - 1];
        rows[k] = moved;
    }
    return end;
}

static void merge(const row *a, size_t an, const row *b, size_t bn, row *out) {
    if (!bn || !before(b, &a[an - 1])) {
        memcpy(out, a, an * sizeof(row));
        memcpy(out + an, b, bn * sizeof(row));
        return;
    }
    while (an && bn) {
        int second = before(b, a);
        *out++ = second ? *b : *a;
        a += !second, an -= !second;
        b += second, bn -= second;
    }
    memcpy(out, a, an * sizeof(row));
    memcpy(out + an, b, bn * sizeof(row));
}

/* Sorts n rows; `ends` has room for n / SHORT_RUN + 1 runs. Returns which of the two holds the result. */
static row *sorted(row *rows, row *other, size_t *ends, size_t n) {
    size_t runs = 0;
    for (size_t start = 0; start < n; start = ends[runs++])
        ends[runs] = run_end(rows, start, n);
    while (runs > 1) {
        size_t kept = 0, start = 0;
        for (size_t k = 0; k < runs; k += 2) {
            size_t middle = ends[k], end = k + 1 < runs ? ends[k + 1] : middle;
            merge(rows + start, middle - start, rows + middle, end - middle, other + start);
            start = ends[kept++] = end;
        }
        runs = kept;
        row *swap = rows;
        rows = other, other = swap;
    }
    return rows;
}

/* Appends the rows of one (times, ledgers, entries); returns how many, -1 with an exception set. */
static Py_ssize_t load(PyObject *part, row *rows, Py_ssize_t room) {
    Py_buffer times, ledgers, entries;
    if (!PyArg_ParseTuple(part, "y*y*y*", &times, &ledgers, &entries))
        return -1;
    Py_ssize_t n = times.len / 8;
    if (times.len != n * 8 || ledgers.len != n * 8 || entries.len != n * 4 || n > room) {
        PyErr_SetString(PyExc_ValueError, "columns of different length");
        n = -1;
    }
    for (Py_ssize_t k = 0; k < n; k++) {
        memcpy(&rows[k].time, (char *)times.buf + k * 8, 8);
        memcpy(&rows[k].ledger, (char *)ledgers.buf + k * 8, 8);
        memcpy(&rows[k].entry, (char *)entries.buf + k * 4, 4);
    }
    PyBuffer_Release(&times);
    PyBuffer_Release(&ledgers);
    PyBuffer_Release(&entries);
    return n;
}

static PyObject *columns_of(const row *rows, Py_ssize_t n) {
    PyObject *times = PyBytes_FromStringAndSize(NULL, n * 8), *ledgers = PyBytes_FromStringAndSize(NULL, n * 8);
    PyObject *entries = PyBytes_FromStringAndSize(NULL, n * 4);
    if (!times || !ledgers || !entries) {
        Py_XDECREF(times), Py_XDECREF(ledgers), Py_XDECREF(entries);
        return NULL;
    }
    char *t = PyBytes_AS_STRING(times), *l = PyBytes_AS_STRING(ledgers), *e = PyBytes_AS_STRING(entries);
    for (Py_ssize_t k = 0; k < n; k++, t += 8, l += 8, e += 4) {
        memcpy(t, &rows[k].time, 8);
        memcpy(l, &rows[k].ledger, 8);
        memcpy(e, &rows[k].entry, 4);
    }
    return Py_BuildValue("(NNN)", times, ledgers, entries);
}

static PyObject *sorted_columns(PyObject *self, PyObject *parts) {
    (void)self;
    PyObject *items = PySequence_Fast(parts, "a sequence of columns is needed"), *result = NULL;
    if (!items)
        return NULL;
    Py_ssize_t n = 0, count = PySequence_Fast_GET_SIZE(items);
    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject *part = PySequence_Fast_GET_ITEM(items, k);
        Py_ssize_t rows = PyTuple_Check(part) && PyTuple_GET_SIZE(part) == 3 ? PyObject_Size(PyTuple_GET_ITEM(part, 0)) : -1;
        if (rows < 0) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_TypeError, "(times, ledgers, entries) is needed");
            Py_DECREF(items);
            return NULL;
        }
        n += rows;
    }
    row *rows = PyMem_New(row, n ? n : 1), *other = PyMem_New(row, n ? n : 1);
    size_t *ends = PyMem_New(size_t, n / SHORT_RUN + 2);
    if (!rows || !other || !ends) {
        PyErr_NoMemory();
        goto out;
    }
    Py_ssize_t loaded = 0;
    for (Py_ssize_t k = 0; k < count; k++) {
        Py_ssize_t more = load(PySequence_Fast_GET_ITEM(items, k), rows + loaded, n - loaded);
        if (more < 0)
            goto out;
        loaded += more;
    }
    row *in_order;
    if (loaded >= UNLOCKED_ROWS) {
        Py_BEGIN_ALLOW_THREADS
        in_order = sorted(rows, other, ends, (size_t)loaded);
        Py_END_ALLOW_THREADS
    } else
        in_order = sorted(rows, other, ends, (size_t)loaded);
    result = columns_of(in_order, loaded);
out:
    PyMem_Free(rows);
    PyMem_Free(other);
    PyMem_Free(ends);
    Py_DECREF(items);
    return result;
}

static PyMethodDef methods[] = {
    {"sorted_columns", sorted_columns, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_sorting", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__sorting(void) { return PyModule_Create(&module); }
