/* Reads past the system's cache without a thread of the interpreter: see direct_reader.py for the guarantees.
 *
 * A read goes to the device by the system's asynchronous I/O with O_DIRECT, into its half of a huge page. RWF_NOWAIT: a read that
 * would wait within the call (for the file system's metadata, for dirty pages, for room in the device's queue) fails with EAGAIN
 * instead. At the end of a read the system counts up an eventfd on which a thread of this module waits. The thread never holds the
 * interpreter lock; it copies the wanted ranges into their own object, checks their records, and counts up the eventfd of the loop. */
#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>

#ifndef __linux__
#error "asynchronous I/O with eventfds is Linux's; elsewhere threads of the interpreter read"
#endif

#include <errno.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../../protocol/_crc32c.h"
#include "../../protocol/_long_copy.h"
#include "../../protocol/_record_walk.h"

#define PAGE 4096
#define SLOTS 4
#define HUGE (2ul << 20)
#define MOST (HUGE / 2) /* bytes of a read: two slots share a huge page */
#define MOST_MARKS (MOST / RECORD_HEADER + 1)
#define NOWAIT 0x8 /* RWF_NOWAIT */

enum { FREE, READING, ENDED, HELD };

typedef struct {
    size_t start, size; /* within the read */
} Range;

typedef struct {
    atomic_int state; /* READING -> ENDED by the thread, all else by the loop; while READING all other fields are the thread's */
    int64_t got;      /* bytes read, or -errno */
    Range *ranges;    /* each behind the range before */
    Py_ssize_t count;
    PyObject *data; /* bytes with room for the ranges */
    size_t filled;
    int64_t ledger, proof;
    int64_t *marks; /* the offsets of the intact records at the start of the data, and the end of the last; one more than `records` */
    size_t records;
} Slot;

typedef struct {
    PyObject_HEAD
    int wake_fd, ended_fd; /* of the loop, of the thread */
    aio_context_t aio;
    Slot slots[SLOTS];
    uint8_t *mapped[SLOTS / 2]; /* each with room for a huge page, for two slots; NULL: not used yet */
    int64_t *marks;             /* of all slots; their pages cost memory from their first use on */
    pthread_t thread;
    pid_t process; /* of the thread; a fork of the process has no thread */
    bool has_thread, closed;
    atomic_bool closing;
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
    if (r->closed)
        PyErr_SetString(PyExc_RuntimeError, "the reader is closed");
    return !r->closed;
}

/* The wanted bytes of an ended read into their object, and the offsets of its records. Needs no interpreter. */
static void take_over(Slot *slot, const uint8_t *memory) {
    uint8_t *data = (uint8_t *)PyBytes_AS_STRING(slot->data), *at = data;
    size_t got = slot->got > 0 ? (size_t)slot->got : 0;
    for (Py_ssize_t i = 0; i < slot->count; i++) {
        Range *range = &slot->ranges[i];
        size_t size = range->start >= got ? 0 : range->size < got - range->start ? range->size : got - range->start;
        copy_long(at, memory + range->start, size);
        at += size;
    }
    slot->filled = (size_t)(at - data);
    slot->records = 0;
    slot->marks[0] = 0;
    RecordWalk walk = record_walk(slot->ledger, slot->proof);
    for (size_t end = 0, size; end < slot->filled;) {
        if (next_record(&walk, data + end, slot->filled - end, &size) != NULL)
            break;
        end += size;
        slot->marks[++slot->records] = (int64_t)end;
    }
}

/* Take over the reads that have ended. */
static void finish_reads(Reader *r) {
    struct io_event events[SLOTS];
    struct timespec no_time = {0, 0};
    long found = syscall(SYS_io_getevents, r->aio, 0, SLOTS, events, &no_time);
    for (long i = 0; i < found; i++) {
        int number = (int)events[i].data;
        Slot *slot = &r->slots[number];
        if (slot->state != READING) /* cannot be: the look makes the writes of the loop visible here */
            continue;
        slot->got = (int64_t)events[i].res;
        take_over(slot, memory_of(r, number));
        slot->state = ENDED;
        uint64_t one = 1;
        if (write(r->wake_fd, &one, sizeof one) < 0) { /* cannot happen: the counter never comes near its end */
        }
    }
}

static bool is_reading(Reader *r) {
    for (int i = 0; i < SLOTS; i++)
        if (r->slots[i].state == READING)
            return true;
    return false;
}

static void *run(void *argument) {
    Reader *r = argument;
    while (!r->closing || is_reading(r)) {
        uint64_t count;
        if (read(r->ended_fd, &count, sizeof count) == (ssize_t)sizeof count)
            finish_reads(r);
    }
    return NULL;
}

/* Precondition: the slot has an object for its data. */
static void free_slot(Slot *slot) {
    PyMem_Free(slot->ranges);
    slot->ranges = NULL;
    Py_CLEAR(slot->data);
    slot->state = FREE;
}

/* Start the thread with the first read; false where the system has none for this reader. */
static bool start_thread(Reader *r) {
    if (r->has_thread)
        return r->process == getpid();
    if (r->marks == NULL) {
        int64_t *found = mmap(NULL, SLOTS * MOST_MARKS * sizeof *found, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (found == MAP_FAILED)
            return false;
        r->marks = found;
        for (int i = 0; i < SLOTS; i++)
            r->slots[i].marks = found + (size_t)i * MOST_MARKS;
    }
    sigset_t all, before; /* signals are the interpreter's */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r->has_thread = pthread_create(&r->thread, NULL, run, r) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    r->process = getpid();
    return r->has_thread;
}

/* The ranges and an object for their bytes; false with an exception. */
static bool prepare(Slot *slot, PyObject *sequence, size_t size) {
    PyObject *items = PySequence_Fast(sequence, "ranges are a sequence");
    if (items == NULL)
        return false;
    slot->count = PySequence_Fast_GET_SIZE(items);
    slot->ranges = PyMem_Calloc((size_t)slot->count + 1, sizeof *slot->ranges);
    if (slot->ranges == NULL)
        PyErr_NoMemory();
    size_t total = 0, end = 0;
    for (Py_ssize_t i = 0; i < slot->count && !PyErr_Occurred(); i++) {
        Py_ssize_t start, wanted;
        if (!PyArg_ParseTuple(PySequence_Fast_GET_ITEM(items, i), "nn", &start, &wanted))
            break;
        if (start < (Py_ssize_t)end || wanted < 0 || (size_t)start > size || (size_t)wanted > size - (size_t)start) {
            PyErr_SetString(PyExc_ValueError, "a range lies within the read, behind the range before");
            break;
        }
        slot->ranges[i] = (Range){(size_t)start, (size_t)wanted};
        end = (size_t)start + (size_t)wanted;
        total += (size_t)wanted;
    }
    Py_DECREF(items);
    if (!PyErr_Occurred())
        slot->data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
    if (slot->data != NULL)
        return true;
    free_slot(slot);
    return false;
}

PyDoc_STRVAR(begin_doc, "begin(fd, offset, size, ranges, ledger_id, proof) -> the number of the read, -1 where the system or the reader does not\n"
                        "take the read now\n"
                        "`fd` is open past the cache; offset and size are multiples of 4096, the size at most 1 MiB. `ranges`: (start, size)\n"
                        "within the read, each behind the range before. Ledger and proof are those of `scan_records`.");

static PyObject *reader_begin(Reader *r, PyObject *args) {
    int fd, number = 0;
    long long offset, size, ledger, proof;
    PyObject *ranges;
    if (!PyArg_ParseTuple(args, "iLLOLL", &fd, &offset, &size, &ranges, &ledger, &proof) || !is_open(r))
        return NULL;
    if (offset < 0 || offset % PAGE || size <= 0 || size % PAGE || size > (long long)MOST) {
        PyErr_SetString(PyExc_ValueError, "a read past the cache takes whole pages, at most 1 MiB");
        return NULL;
    }
    while (number < SLOTS && r->slots[number].state != FREE)
        number++;
    uint8_t *memory = number == SLOTS ? NULL : memory_of(r, number);
    if (memory == NULL || !start_thread(r))
        return PyLong_FromLong(-1);
    Slot *slot = &r->slots[number];
    if (!prepare(slot, ranges, (size_t)size))
        return NULL;
    slot->ledger = ledger;
    slot->proof = proof;
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
    request.aio_resfd = (uint32_t)r->ended_fd;
    slot->state = READING; /* the thread may have the end before the call returns */
    long taken;
    do
        taken = syscall(SYS_io_submit, r->aio, 1, &item);
    while (taken < 0 && errno == EINTR);
    if (taken != 1) {
        free_slot(slot);
        return PyLong_FromLong(-1);
    }
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
    PyObject *ended = PyList_New(0);
    for (int i = 0; ended != NULL && i < SLOTS; i++) {
        Slot *slot = &r->slots[i];
        if (slot->state != ENDED)
            continue;
        PyObject *item = Py_BuildValue("iL", i, (long long)slot->got);
        if (item == NULL || PyList_Append(ended, item) != 0)
            Py_CLEAR(ended);
        else
            slot->state = HELD;
        Py_XDECREF(item);
    }
    return ended;
}

PyDoc_STRVAR(take_doc, "take(number) -> (bytes, offsets)\nThe joined bytes of the ranges of an ended read, fewer where the read ended before, "
                       "and the offsets of the records at their start, as\n`scan_records` finds them. The number is free afterwards.");

static PyObject *reader_take(Reader *r, PyObject *arg) {
    long number = PyLong_AsLong(arg);
    if ((number == -1 && PyErr_Occurred()) || !is_open(r))
        return NULL;
    if (number < 0 || number >= SLOTS || r->slots[number].state != HELD) {
        PyErr_SetString(PyExc_ValueError, "no read with this number has ended");
        return NULL;
    }
    Slot *slot = &r->slots[number];
    PyObject *data = slot->data, *result = NULL;
    PyObject *offsets = PyBytes_FromStringAndSize((const char *)slot->marks, (Py_ssize_t)((slot->records + 1) * sizeof *slot->marks));
    slot->data = NULL;
    if ((size_t)PyBytes_GET_SIZE(data) == slot->filled || _PyBytes_Resize(&data, (Py_ssize_t)slot->filled) == 0)
        if (offsets != NULL)
            result = PyTuple_Pack(2, data, offsets);
    Py_XDECREF(data);
    Py_XDECREF(offsets);
    free_slot(slot);
    return result;
}

static PyObject *reader_fileno(Reader *r, PyObject *Py_UNUSED(ignored)) { return PyLong_FromLong(r->closed ? -1 : r->wake_fd); }

PyDoc_STRVAR(close_doc, "close()\nEnd the thread and give back the memory; waits for reads under way. Idempotent.");

static PyObject *reader_close(Reader *r, PyObject *Py_UNUSED(ignored)) {
    if (r->closed)
        Py_RETURN_NONE;
    r->closed = true;
    r->closing = true;
    if (!r->has_thread || r->process == getpid()) { /* in a fork the thread and the context are those of the parent process */
        Py_BEGIN_ALLOW_THREADS;
        uint64_t one = 1;
        if (r->has_thread && write(r->ended_fd, &one, sizeof one) == (ssize_t)sizeof one)
            pthread_join(r->thread, NULL);
        syscall(SYS_io_destroy, r->aio);
        Py_END_ALLOW_THREADS;
    }
    close(r->wake_fd);
    close(r->ended_fd);
    for (int i = 0; i < SLOTS; i++)
        free_slot(&r->slots[i]);
    for (int i = 0; i < SLOTS / 2; i++)
        if (r->mapped[i] != NULL)
            munmap(r->mapped[i], 2 * HUGE);
    if (r->marks != NULL)
        munmap(r->marks, SLOTS * MOST_MARKS * sizeof *r->marks);
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
    r->closed = true; /* until it is whole */
    r->ended_fd = -1;
    r->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (r->wake_fd < 0 || (r->ended_fd = eventfd(0, EFD_CLOEXEC)) < 0 || syscall(SYS_io_setup, SLOTS, &r->aio) != 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        if (r->wake_fd >= 0)
            close(r->wake_fd);
        if (r->ended_fd >= 0)
            close(r->ended_fd);
        Py_DECREF(r);
        return NULL;
    }
    r->closed = false;
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
    {"take", (PyCFunction)reader_take, METH_O, take_doc},
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
    PyModuleDef_HEAD_INIT, "_direct_reader", "Reads past the system's cache without the interpreter lock", -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__direct_reader(void) {
    crc32c_init();
    if (PyType_Ready(&reader_type) < 0)
        return NULL;
    PyObject *m = PyModule_Create(&module);
    if (m != NULL && PyModule_AddObjectRef(m, "Reader", (PyObject *)&reader_type) < 0) {
        Py_DECREF(m);
        return NULL;
    }
    return m;
}
