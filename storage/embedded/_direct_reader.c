/* Reads past the system's cache without a thread: see direct_reader.py for the guarantees.
 *
 * A read goes to the device by the system's asynchronous I/O with O_DIRECT, into its half of a huge page; the system counts
 * up an eventfd at its end. RWF_NOWAIT: a read that would wait within the call (for the file system's
 * metadata, for dirty pages, for room in the device's queue) fails with EAGAIN instead. */
#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>

#ifndef __linux__
#error "asynchronous I/O with eventfds is Linux's; elsewhere threads read"
#endif

#include <errno.h>
#include <linux/aio_abi.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../../protocol/_long_copy.h"

#define PAGE 4096
#define SLOTS 4
#define HUGE (2ul << 20)
#define MOST (HUGE / 2) /* bytes of a read: two slots share a huge page */
#define NOWAIT 0x8 /* RWF_NOWAIT */

enum { FREE, READING, HELD };

typedef struct {
    int state;
    int64_t got; /* bytes read, or -errno */
} Slot;

typedef struct {
    PyObject_HEAD
    int wake_fd; /* -1: closed */
    aio_context_t aio;
    Slot slots[SLOTS];
    uint8_t *mapped[SLOTS / 2]; /* each with room for a huge page, for two slots; NULL: not used yet */
} Reader;

/* The memory of a slot; NULL without memory. */
static uint8_t *memory_of(Reader *r, int number) {
    uint8_t **mapped = &r->mapped[number / 2];
    if (*mapped == NULL) {
        uint8_t *found = mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (found == MAP_FAILED)
            return NULL;
        *mapped = found;
        madvise(found + (-(uintptr_t)found & (HUGE - 1)), HUGE, MADV_HUGEPAGE); /* advice: the system may refuse */
    }
    return *mapped + (-(uintptr_t)*mapped & (HUGE - 1)) + (number % 2 ? MOST : 0);
}

static bool is_open(Reader *r) {
    if (r->wake_fd < 0)
        PyErr_SetString(PyExc_RuntimeError, "the reader is closed");
    return r->wake_fd >= 0;
}

PyDoc_STRVAR(begin_doc, "begin(fd, offset, size) -> the number of the read, -1 where the system or the reader does not take the read now\n"
                        "`fd` is open past the cache; offset and size are multiples of 4096, the size at most 1 MiB.");

static PyObject *reader_begin(Reader *r, PyObject *args) {
    int fd, number = 0;
    long long offset, size;
    if (!PyArg_ParseTuple(args, "iLL", &fd, &offset, &size) || !is_open(r))
        return NULL;
    if (offset < 0 || offset % PAGE || size <= 0 || size % PAGE || size > (long long)MOST) {
        PyErr_SetString(PyExc_ValueError, "a read past the cache takes whole pages, at most 1 MiB");
        return NULL;
    }
    while (number < SLOTS && r->slots[number].state != FREE)
        number++;
    uint8_t *memory = number == SLOTS ? NULL : memory_of(r, number);
    if (memory == NULL)
        return PyLong_FromLong(-1);
    struct iocb request, *item = &request;
    memset(&request, 0, sizeof request);
    request.aio_data = (uint64_t)number;
    request.aio_fildes = (uint32_t)fd;
    request.aio_lio_opcode = IOCB_CMD_PREAD;
    request.aio_buf = (uint64_t)(uintptr_t)memory;
    request.aio_nbytes = (uint64_t)size;
    request.aio_offset = offset;
    request.aio_rw_flags = NOWAIT;
    request.aio_flags = IOCB_FLAG_RESFD;
    request.aio_resfd = (uint32_t)r->wake_fd;
    long taken;
    do
        taken = syscall(SYS_io_submit, r->aio, 1, &item);
    while (taken < 0 && errno == EINTR);
    if (taken != 1)
        return PyLong_FromLong(-1);
    r->slots[number].state = READING;
    return PyLong_FromLong(number);
}

PyDoc_STRVAR(reap_doc, "reap() -> [(number of the read, bytes read or -errno)] of the reads that ended since the last call\n"
                       "To be called when `fileno` is readable.");

static PyObject *reader_reap(Reader *r, PyObject *Py_UNUSED(ignored)) {
    uint64_t count;
    if (!is_open(r))
        return NULL;
    if (read(r->wake_fd, &count, sizeof count) < 0 && errno != EAGAIN)
        return PyErr_SetFromErrno(PyExc_OSError);
    struct io_event events[SLOTS];
    struct timespec no_time = {0, 0};
    long found = syscall(SYS_io_getevents, r->aio, 0, SLOTS, events, &no_time);
    PyObject *ended = PyList_New(0);
    for (long i = 0; ended != NULL && i < found; i++) {
        Slot *slot = &r->slots[events[i].data];
        slot->got = (int64_t)events[i].res;
        slot->state = HELD;
        PyObject *item = Py_BuildValue("KL", (unsigned long long)events[i].data, (long long)slot->got);
        if (item == NULL || PyList_Append(ended, item) != 0)
            Py_CLEAR(ended);
        Py_XDECREF(item);
    }
    return ended;
}

PyDoc_STRVAR(take_doc, "take(number, ranges) -> bytes\nThe bytes of these ranges (start, size) of an ended read, joined; fewer where the "
                       "read ended before. The number is free afterwards.");

static PyObject *reader_take(Reader *r, PyObject *args) {
    int number;
    PyObject *sequence, *result = NULL;
    if (!PyArg_ParseTuple(args, "iO", &number, &sequence) || !is_open(r))
        return NULL;
    if (number < 0 || number >= SLOTS || r->slots[number].state != HELD) {
        PyErr_SetString(PyExc_ValueError, "no read with this number has ended");
        return NULL;
    }
    Slot *slot = &r->slots[number];
    const uint8_t *memory = memory_of(r, number);
    slot->state = FREE;
    PyObject *items = PySequence_Fast(sequence, "ranges are a sequence");
    if (items == NULL)
        return NULL;
    Py_ssize_t total = 0, got = slot->got > 0 ? (Py_ssize_t)slot->got : 0;
    for (int copies = 0; copies < 2; copies++) {
        uint8_t *at = copies ? (uint8_t *)PyBytes_AS_STRING(result) : NULL;
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); i++) {
            Py_ssize_t start, size;
            if (!PyArg_ParseTuple(PySequence_Fast_GET_ITEM(items, i), "nn", &start, &size))
                goto failed;
            if (start < 0 || size < 0) {
                PyErr_SetString(PyExc_ValueError, "a range begins within the read");
                goto failed;
            }
            size = start >= got ? 0 : size < got - start ? size : got - start;
            if (copies)
                copy_long(at, memory + start, (size_t)size);
            else
                total += size;
            at += copies ? size : 0;
        }
        if (!copies && (result = PyBytes_FromStringAndSize(NULL, total)) == NULL)
            goto failed;
    }
    Py_DECREF(items);
    return result;
failed:
    Py_DECREF(items);
    Py_XDECREF(result);
    return NULL;
}

static PyObject *reader_fileno(Reader *r, PyObject *Py_UNUSED(ignored)) { return PyLong_FromLong(r->wake_fd); }

PyDoc_STRVAR(close_doc, "close()\nGive back the memory; waits for reads under way. Idempotent.");

static PyObject *reader_close(Reader *r, PyObject *Py_UNUSED(ignored)) {
    if (r->wake_fd < 0)
        Py_RETURN_NONE;
    close(r->wake_fd);
    r->wake_fd = -1;
    Py_BEGIN_ALLOW_THREADS;
    syscall(SYS_io_destroy, r->aio);
    Py_END_ALLOW_THREADS;
    for (int i = 0; i < SLOTS / 2; i++)
        if (r->mapped[i] != NULL)
            munmap(r->mapped[i], 2 * HUGE);
    Py_RETURN_NONE;
}

static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    if (PyTuple_GET_SIZE(args) || (kwargs != NULL && PyDict_GET_SIZE(kwargs))) {
        PyErr_SetString(PyExc_TypeError, "a reader takes no arguments");
        return NULL;
    }
    Reader *r = (Reader *)type->tp_alloc(type, 0);
    if (r == NULL)
        return NULL;
    r->wake_fd = -1;
    if (syscall(SYS_io_setup, SLOTS, &r->aio) != 0 || (r->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        if (r->aio != 0)
            syscall(SYS_io_destroy, r->aio);
        Py_DECREF(r);
        return NULL;
    }
    return (PyObject *)r;
}

static void reader_dealloc(Reader *r) {
    PyObject *nothing = reader_close(r, NULL);
    Py_XDECREF(nothing);
    Py_TYPE(r)->tp_free((PyObject *)r);
}

static PyMethodDef reader_methods[] = {
    {"begin", (PyCFunction)reader_begin, METH_VARARGS, begin_doc},
    {"reap", (PyCFunction)reader_reap, METH_NOARGS, reap_doc},
    {"take", (PyCFunction)reader_take, METH_VARARGS, take_doc},
    {"fileno", (PyCFunction)reader_fileno, METH_NOARGS, "fileno() -> eventfd, readable when a read has ended"},
    {"close", (PyCFunction)reader_close, METH_NOARGS, close_doc},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject reader_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "magnetar.storage.embedded._direct_reader.Reader",
    .tp_basicsize = sizeof(Reader),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Reader(): up to four reads at a time",
    .tp_new = reader_new,
    .tp_dealloc = (destructor)reader_dealloc,
    .tp_methods = reader_methods,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_direct_reader", "Reads past the system's cache without a thread", -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__direct_reader(void) {
    if (PyType_Ready(&reader_type) < 0)
        return NULL;
    PyObject *m = PyModule_Create(&module);
    if (m != NULL && PyModule_AddObjectRef(m, "Reader", (PyObject *)&reader_type) < 0) {
        Py_DECREF(m);
        return NULL;
    }
    return m;
}
