/* Writes journal frames and syncs them without a thread of the interpreter: see frame_writer.py for the guarantees.
 *
 * A frame is put together (format.py) in one aligned buffer and written by a thread of this module, which never holds the
 * interpreter lock and counts up an eventfd when the frame is on stable storage. A frame whose producer waits for it goes by
 * the system's asynchronous I/O instead (O_DIRECT, RWF_DSYNC), which counts up the same eventfd: no thread has to wake up. One
 * frame at a time: the caller begins the next when it has reaped the last. */
#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>

#ifndef __linux__
#error "eventfds, asynchronous I/O and durable writes with a flag are Linux's; elsewhere the journal's Python thread serves"
#endif

#include <errno.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "../../../protocol/_crc32c.h"
#include "../../../protocol/_long_copy.h"

#define PAGE 4096
#define HEADER 64
#define MAGIC 0x4D46474Du
#define DSYNC 0x2 /* RWF_DSYNC */
#define NOWAIT 0x8 /* RWF_NOWAIT: refuse a write that would wait for a lock, an allocation or room in the device's queue */
#define MAX_FRAME (1ull << 30)
#define COPY_STEP (32u << 10) /* checksum and copy go over a piece that is in the processor's cache */
#define SMALL (256u << 10)
#define HUGE (2ul << 20)
#define DISTURBED 250e-6 /* seconds in which other threads had the processor: a sleep would have been better */

enum { IDLE, WORKING, WRITTEN, SUBMITTED };

/* The ring of ended requests, memory that the system shares with the process (fs/aio.c). The system moves `tail`, the reader
 * `head`. */
typedef struct {
    uint32_t id, count, head, tail, magic, compatible, incompatible, header_bytes;
    struct io_event events[];
} Ring;
#define RING_MAGIC 0xa10a10a1u

typedef struct {
    PyObject_HEAD
    int wake_fd, timer_fd;
    aio_context_t aio; /* 0: none */
    Ring *ring;        /* of `aio`; NULL: the thread writes all frames */
    unsigned long long submitted;
    bool direct;       /* writes past the cache are taken by the file system */
    atomic_int state;  /* WORKING -> WRITTEN by the thread, all else by the interpreter's threads */
    bool is_built;     /* the frame is in the buffer */
    uint8_t *mapped, *buffer; /* the buffer begins at a huge page of the mapped memory */
    size_t mapped_size, capacity;
    int fd, direct_fd;
    int64_t offset;
    int error;
    double started, seconds;
    /* the frame: */
    Py_buffer *views; /* [0] goes before the frame, the others are its payload */
    int64_t *known; /* the checksum of each view, -1 where the caller has none */
    Py_ssize_t view_count;
    uint64_t generation, salt, sequence, metadata;
    int64_t written_ms;
    size_t payload, size;
    /* the thread: */
    pthread_t thread;
    sem_t work; /* a frame, or the end */
    bool has_thread, closed;
} Writer;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void put32(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static void put64(uint8_t *p, uint64_t v) {
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static void give_back(Writer *w) {
    if (w->mapped != NULL)
        munmap(w->mapped, w->mapped_size);
    w->mapped = w->buffer = NULL;
    w->mapped_size = w->capacity = 0;
}

/* Room for `size` bytes, aligned to pages; false without memory. Large frames get huge pages: a megabyte is one piece of
 * memory to the device then instead of 256, which halves the time and the processor's work of a write. */
static bool reserve(Writer *w, size_t size) {
    if (size <= w->capacity)
        return true;
    size_t capacity = SMALL, spare = 0;
    if (size > SMALL) {
        for (capacity = HUGE; capacity < size;)
            capacity *= 2;
        spare = HUGE;
    }
    give_back(w);
    uint8_t *memory = mmap(NULL, capacity + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    w->mapped = memory;
    w->mapped_size = capacity + spare;
    w->buffer = memory;
    w->capacity = capacity;
    if (spare) {
        w->buffer += -(uintptr_t)memory & (HUGE - 1);
        madvise(w->buffer, capacity, MADV_HUGEPAGE); /* advice: the system may refuse */
    }
    return true;
}

/* Prefix, header, payload and padding into the buffer. Needs no interpreter. */
static void build(Writer *w) {
    uint8_t *at = w->buffer, *header, seed[24];
    memcpy(at, w->views[0].buf, (size_t)w->views[0].len);
    header = at += w->views[0].len;
    at += HEADER;
    put64(seed, w->generation);
    put64(seed + 8, w->salt);
    put64(seed + 16, w->sequence);
    uint32_t crc = crc32c_update(0, seed, sizeof seed);
    for (Py_ssize_t i = 1; i < w->view_count; i++) {
        const uint8_t *from = w->views[i].buf;
        size_t left = (size_t)w->views[i].len;
        if (w->known[i] >= 0) {
            crc = crc32c_append(crc, from, left, (uint32_t)w->known[i]);
            copy_long(at, from, left);
            at += left;
            continue;
        }
        while (left > 0) {
            size_t step = left < COPY_STEP ? left : COPY_STEP;
            crc = crc32c_update(crc, from, step);
            copy_long(at, from, step);
            at += step;
            from += step;
            left -= step;
        }
    }
    memset(at, 0, (size_t)(w->buffer + w->size - at));
    put32(header, MAGIC);
    put32(header + 4, 0);
    put64(header + 8, w->generation);
    put64(header + 16, w->salt);
    put64(header + 24, w->sequence);
    put64(header + 32, w->payload);
    put32(header + 40, crc);
    put32(header + 44, (uint32_t)(w->view_count - 1));
    put64(header + 48, (uint64_t)w->written_ms);
    put64(header + 56, w->metadata);
    put32(header + 4, crc32c_update(0, header, HEADER));
    w->is_built = true;
}

/* Write the buffer, durable on return: 0 or an errno. Needs no interpreter. A sync that failed is never tried again. */
static int write_all(Writer *w) {
    bool direct = w->direct && w->direct_fd >= 0, flagged = true;
    size_t done = 0;
    while (done < w->size) {
        struct iovec piece = {w->buffer + done, w->size - done};
        int fd = direct ? w->direct_fd : w->fd;
        ssize_t step = flagged ? pwritev2(fd, &piece, 1, w->offset + (int64_t)done, DSYNC)
                               : pwrite(fd, piece.iov_base, piece.iov_len, w->offset + (int64_t)done);
        if (step < 0 && errno == EINTR)
            continue;
        if (step < 0 && errno == EINVAL && direct) { /* this file system, or this place in the file, not past the cache */
            direct = false;
            w->direct = false;
            continue;
        }
        if (step < 0 && (errno == EOPNOTSUPP || errno == ENOSYS) && flagged) {
            flagged = false;
            continue;
        }
        if (step < 0)
            return errno;
        if (step == 0)
            return EIO;
        done += (size_t)step;
        if (done % PAGE)
            direct = false;
    }
    if (!flagged && fdatasync(w->fd) != 0)
        return errno;
    return 0;
}

static void *run(void *argument) {
    Writer *w = argument;
    for (;;) {
        while (sem_wait(&w->work) != 0) { /* a signal */
        }
        if (w->state != WORKING)
            return NULL;
        if (!w->is_built)
            build(w);
        w->error = write_all(w);
        w->seconds = now() - w->started;
        w->state = WRITTEN;
        uint64_t one = 1;
        if (write(w->wake_fd, &one, sizeof one) < 0) { /* cannot happen: the counter never comes near its end */
        }
    }
}

static bool start_thread(Writer *w) {
    if (w->has_thread)
        return true;
    sigset_t all, before; /* signals are the interpreter's */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    w->has_thread = pthread_create(&w->thread, NULL, run, w) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return w->has_thread;
}

static bool hand_over(Writer *w) {
    if (!start_thread(w))
        return false;
    w->state = WORKING;
    sem_post(&w->work);
    return true;
}

/* Look for the end of the request under way. A request that was cut short, interrupted or refused, or that would have
 * blocked, is the thread's from here on. */
static void look(Writer *w) {
    Ring *ring = w->ring;
    uint32_t head = ring->head;
    if (head == __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE))
        return;
    int64_t result = (int64_t)ring->events[head % ring->count].res;
    __atomic_store_n(&ring->head, (head + 1) % ring->count, __ATOMIC_RELEASE);
    bool is_refused = result == -EINVAL || result == -EOPNOTSUPP;
    if (is_refused || result == -EAGAIN || result == -EINTR || (result >= 0 && result != (int64_t)w->size)) {
        if (is_refused)
            w->ring = NULL;
        if (hand_over(w))
            return;
        result = -EAGAIN; /* no thread for the journal: the frame failed */
    }
    w->error = result < 0 ? (int)-result : 0;
    w->seconds = now() - w->started;
    w->state = WRITTEN;
}

/* Give the frame to the system; false when the thread has to write it. */
static bool submit(Writer *w) {
    if (w->ring == NULL || !w->direct || w->direct_fd < 0)
        return false;
    build(w);
    struct iocb request, *item = &request;
    memset(&request, 0, sizeof request);
    request.aio_fildes = (uint32_t)w->direct_fd;
    request.aio_lio_opcode = IOCB_CMD_PWRITE;
    request.aio_buf = (uint64_t)(uintptr_t)w->buffer;
    request.aio_nbytes = w->size;
    request.aio_offset = w->offset;
    request.aio_rw_flags = DSYNC | NOWAIT;
    request.aio_flags = IOCB_FLAG_RESFD;
    request.aio_resfd = (uint32_t)w->wake_fd;
    long taken;
    do
        taken = syscall(SYS_io_submit, w->aio, 1, &item);
    while (taken < 0 && errno == EINTR);
    if (taken != 1) {
        if (errno != EAGAIN)
            w->ring = NULL; /* this file system, or a sandbox, does not take it */
        return false;
    }
    w->submitted++;
    w->state = SUBMITTED;
    look(w); /* a refusal is there already */
    return true;
}

static void release_views(Writer *w) {
    for (Py_ssize_t i = 0; i < w->view_count; i++)
        PyBuffer_Release(&w->views[i]);
    PyMem_Free(w->views);
    PyMem_Free(w->known);
    w->views = NULL;
    w->known = NULL;
    w->view_count = 0;
}

/* Checksums of the payload's buffers; none of them for an empty sequence. */
static bool take_checksums(Writer *w, PyObject *checksums, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i <= count; i++)
        w->known[i] = -1;
    if (checksums == NULL)
        return true;
    PyObject *items = PySequence_Fast(checksums, "checksums are a sequence of numbers");
    if (items == NULL)
        return false;
    Py_ssize_t given = PySequence_Fast_GET_SIZE(items);
    if (given != 0 && given != count)
        PyErr_SetString(PyExc_ValueError, "one checksum for each buffer");
    for (Py_ssize_t i = 0; i < given && !PyErr_Occurred(); i++) {
        int64_t value = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(items, i));
        if (!PyErr_Occurred() && (value < -1 || value > UINT32_MAX))
            PyErr_SetString(PyExc_ValueError, "a checksum has 32 bits");
        w->known[i + 1] = value;
    }
    Py_DECREF(items);
    return !PyErr_Occurred();
}

static bool take_views(Writer *w, PyObject *prefix, PyObject *payload, PyObject *checksums) {
    PyObject *items = PySequence_Fast(payload, "a frame's payload is a sequence of buffers");
    if (items == NULL)
        return false;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(items);
    w->views = PyMem_Calloc((size_t)count + 1, sizeof(Py_buffer));
    w->known = PyMem_Calloc((size_t)count + 1, sizeof *w->known);
    if (w->views == NULL || w->known == NULL) {
        PyErr_NoMemory();
        goto failed;
    }
    if (!take_checksums(w, checksums, count))
        goto failed;
    uint64_t total = 0;
    for (Py_ssize_t i = 0; i <= count; i++) {
        PyObject *item = i == 0 ? prefix : PySequence_Fast_GET_ITEM(items, i - 1);
        if (PyObject_GetBuffer(item, &w->views[i], PyBUF_SIMPLE) != 0)
            goto failed;
        w->view_count = i + 1;
        if (i > 0)
            total += (uint64_t)w->views[i].len;
    }
    if (w->views[0].len % PAGE != 0 || total + (uint64_t)w->views[0].len > MAX_FRAME || count > UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "what goes before a frame is whole pages, a frame at most 1 GiB");
        goto failed;
    }
    Py_DECREF(items);
    w->payload = (size_t)total;
    w->size = (size_t)w->views[0].len + ((HEADER + w->payload + PAGE - 1) & ~(size_t)(PAGE - 1));
    return true;
failed:
    Py_DECREF(items);
    release_views(w);
    return false;
}

PyDoc_STRVAR(write_doc,
             "write(fd, direct_fd, offset, prefix, generation, salt, sequence, written_ms, metadata_sequence, payload, checksums=(),\n"
             "      is_awaited=False)\n"
             "Begin to write a frame. `payload` and `prefix` are not to be changed before it is reaped. With `is_awaited` the calling\n"
             "thread puts the frame together and the system writes it, where the system takes it.");

static PyObject *writer_write(Writer *w, PyObject *args) {
    PyObject *prefix, *payload, *checksums = NULL;
    long long offset, written_ms;
    unsigned long long generation, salt, sequence, metadata;
    int fd, direct_fd, is_awaited = 0;
    if (!PyArg_ParseTuple(args, "iiLOKKKLKO|Op", &fd, &direct_fd, &offset, &prefix, &generation, &salt, &sequence, &written_ms, &metadata,
                          &payload, &checksums, &is_awaited))
        return NULL;
    if (w->closed || w->state != IDLE) {
        PyErr_SetString(PyExc_RuntimeError, w->closed ? "the writer is closed" : "a frame is under way");
        return NULL;
    }
    if (!take_views(w, prefix, payload, checksums))
        return NULL;
    w->fd = fd;
    w->direct_fd = direct_fd;
    w->offset = offset;
    w->generation = generation;
    w->salt = salt;
    w->sequence = sequence;
    w->written_ms = written_ms;
    w->metadata = metadata;
    w->error = 0;
    w->is_built = false;
    w->started = now();
    if (!reserve(w, w->size)) {
        release_views(w);
        return PyErr_NoMemory();
    }
    if (is_awaited && submit(w))
        Py_RETURN_NONE;
    if (!hand_over(w)) {
        release_views(w);
        PyErr_SetString(PyExc_RuntimeError, "no thread for the journal");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Take back the count of a wake-up whose frame is reaped. Where nothing is counted yet, the loop wakes up once more. */
static void forget_wake_up(Writer *w) {
    uint64_t count;
    if (read(w->wake_fd, &count, sizeof count) < 0) { /* see above */
    }
}

/* The result of a written frame. */
static PyObject *ended(Writer *w) {
    release_views(w);
    w->state = IDLE;
    return Py_BuildValue("id", w->error, w->seconds);
}

PyDoc_STRVAR(reap_doc, "reap() -> None while the frame is under way, else (errno or 0, seconds since its write began)\n"
                       "To be called when `fileno` is readable.");

static PyObject *writer_reap(Writer *w, PyObject *Py_UNUSED(ignored)) {
    uint64_t count;
    if (w->closed)
        Py_RETURN_NONE;
    ssize_t woken = read(w->wake_fd, &count, sizeof count);
    if (woken < 0 && errno != EAGAIN)
        return PyErr_SetFromErrno(PyExc_OSError);
    if (w->state == SUBMITTED)
        look(w);
    if (w->state != WRITTEN)
        Py_RETURN_NONE;
    return ended(w);
}

PyDoc_STRVAR(reap_within_doc, "reap_within(seconds) -> as reap; None also when other threads took the processor meanwhile\n"
                              "Waits at most so many seconds for the end of the frame. Does not sleep, gives way to each thread that waits for\n"
                              "this processor, needs no interpreter lock meanwhile.");

static PyObject *writer_reap_within(Writer *w, PyObject *arg) {
    double seconds = PyFloat_AsDouble(arg);
    if (seconds == -1.0 && PyErr_Occurred())
        return NULL;
    if (!w->closed && w->state == SUBMITTED)
        look(w);
    if (!w->closed && (w->state == WORKING || w->state == SUBMITTED) && seconds > 0) {
        Py_BEGIN_ALLOW_THREADS;
        double at = now(), end = at + seconds, before = at;
        while (at < end && at - before <= DISTURBED) {
            sched_yield(); /* the thread, or the system's worker, may need this processor */
            if (w->state == SUBMITTED)
                look(w);
            if (w->state != WORKING && w->state != SUBMITTED)
                break;
            before = at;
            at = now();
        }
        Py_END_ALLOW_THREADS;
    }
    if (w->closed || w->state != WRITTEN)
        Py_RETURN_NONE;
    forget_wake_up(w);
    return ended(w);
}

static PyObject *writer_fileno(Writer *w, PyObject *Py_UNUSED(ignored)) { return PyLong_FromLong(w->wake_fd); }

PyDoc_STRVAR(set_timer_doc, "set_timer(seconds)\nMake `timer_fileno` readable after this time, which replaces the time of an earlier call.");

static PyObject *writer_set_timer(Writer *w, PyObject *arg) {
    double seconds = PyFloat_AsDouble(arg);
    if (seconds == -1.0 && PyErr_Occurred())
        return NULL;
    if (!(seconds > 1e-9)) /* a time of zero would stop the timer */
        seconds = 1e-9;
    if (seconds > 1e6)
        seconds = 1e6;
    struct itimerspec at = {{0, 0}, {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}};
    if (!w->closed && timerfd_settime(w->timer_fd, 0, &at, NULL) != 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(timer_ended_doc, "timer_ended() -> whether the time of `set_timer` has passed since the last call\n"
                              "To be called when `timer_fileno` is readable.");

static PyObject *writer_timer_ended(Writer *w, PyObject *Py_UNUSED(ignored)) {
    uint64_t count;
    if (w->closed)
        Py_RETURN_FALSE;
    ssize_t found = read(w->timer_fd, &count, sizeof count);
    if (found < 0 && errno != EAGAIN)
        return PyErr_SetFromErrno(PyExc_OSError);
    return PyBool_FromLong(found > 0);
}

PyDoc_STRVAR(submitted_doc, "submitted() -> how many frames the system was given; the thread may have written some of them in the end");

static PyObject *writer_submitted(Writer *w, PyObject *Py_UNUSED(ignored)) { return PyLong_FromUnsignedLongLong(w->submitted); }

static PyObject *writer_timer_fileno(Writer *w, PyObject *Py_UNUSED(ignored)) { return PyLong_FromLong(w->timer_fd); }

PyDoc_STRVAR(close_doc, "close()\nEnd the thread and give back what is held; waits for a frame under way. Idempotent.");

static PyObject *writer_close(Writer *w, PyObject *Py_UNUSED(ignored)) {
    if (w->closed)
        Py_RETURN_NONE;
    w->closed = true;
    Py_BEGIN_ALLOW_THREADS;
    if (w->has_thread) {
        sem_post(&w->work);
        pthread_join(w->thread, NULL);
        w->has_thread = false;
    }
    if (w->aio != 0)
        syscall(SYS_io_destroy, w->aio); /* waits for a request under way */
    Py_END_ALLOW_THREADS;
    w->aio = 0;
    w->ring = NULL;
    release_views(w);
    close(w->wake_fd);
    close(w->timer_fd);
    give_back(w);
    w->state = IDLE;
    Py_RETURN_NONE;
}

static PyObject *writer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"is_async", NULL};
    int is_async = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|p", names, &is_async))
        return NULL;
    Writer *w = (Writer *)type->tp_alloc(type, 0);
    if (w == NULL)
        return NULL;
    w->closed = true; /* until it is whole */
    w->direct = true;
    w->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    w->timer_fd = w->wake_fd < 0 ? -1 : timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (w->timer_fd < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        if (w->wake_fd >= 0)
            close(w->wake_fd);
        Py_DECREF(w);
        return NULL;
    }
    if (is_async && syscall(SYS_io_setup, 1, &w->aio) != 0)
        w->aio = 0; /* a container may forbid the call */
    Ring *ring = (Ring *)w->aio;
    if (ring != NULL && ring->magic == RING_MAGIC && ring->incompatible == 0 && ring->header_bytes == sizeof *ring)
        w->ring = ring;
    sem_init(&w->work, 0, 0);
    w->closed = false;
    return (PyObject *)w;
}

/* Without `close` the thread and its memory stay until the process ends: a stuck disk must not keep the process. */
static void writer_dealloc(Writer *w) {
    if (!w->closed && !w->has_thread && w->state == IDLE) {
        PyObject *nothing = writer_close(w, NULL);
        Py_XDECREF(nothing);
    }
    if (w->closed)
        Py_TYPE(w)->tp_free((PyObject *)w);
}

/* The buffers of a sequence; the sequence stays alive as long. */
typedef struct {
    PyObject *items;
    Py_buffer *views;
    Py_ssize_t count, total;
} Pieces;

static void release_pieces(Pieces *p) {
    while (p->count > 0)
        PyBuffer_Release(&p->views[--p->count]);
    PyMem_Free(p->views);
    Py_XDECREF(p->items);
}

static bool take_pieces(Pieces *p, PyObject *sequence) {
    *p = (Pieces){0};
    if ((p->items = PySequence_Fast(sequence, "pieces are a sequence of buffers")) == NULL)
        return false;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(p->items);
    if ((p->views = PyMem_Calloc((size_t)count + 1, sizeof(Py_buffer))) == NULL)
        PyErr_NoMemory();
    while (p->views != NULL && p->count < count) {
        if (PyObject_GetBuffer(PySequence_Fast_GET_ITEM(p->items, p->count), &p->views[p->count], PyBUF_SIMPLE) != 0)
            break;
        p->total += p->views[p->count++].len;
    }
    if (p->views != NULL && p->count == count)
        return true;
    release_pieces(p);
    return false;
}

/* Fill `size` bytes from the pieces, from their byte `start` on. Needs no interpreter lock. */
static void copy_pieces(uint8_t *at, Py_ssize_t size, const Pieces *p, Py_ssize_t start) {
    for (Py_ssize_t i = 0; i < p->count && size > 0; i++) {
        Py_ssize_t step = p->views[i].len - start;
        if (step <= 0) {
            start -= p->views[i].len;
            continue;
        }
        step = step < size ? step : size;
        copy_long(at, (const uint8_t *)p->views[i].buf + start, (size_t)step);
        at += step;
        size -= step;
        start = 0;
    }
}

PyDoc_STRVAR(copy_doc, "copy(target, pieces, start)\nFill the target from the pieces, one after the other, from their byte `start` on; without the "
                       "interpreter lock.");

static PyObject *copy(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *sequence;
    Py_buffer target;
    Py_ssize_t start;
    Pieces pieces;
    if (!PyArg_ParseTuple(args, "w*On", &target, &sequence, &start))
        return NULL;
    if (!take_pieces(&pieces, sequence)) {
        PyBuffer_Release(&target);
        return NULL;
    }
    bool fits = start >= 0 && target.len <= pieces.total - start;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS;
        copy_pieces(target.buf, target.len, &pieces, start);
        Py_END_ALLOW_THREADS;
    } else {
        PyErr_SetString(PyExc_ValueError, "the pieces have fewer bytes than the target takes");
    }
    release_pieces(&pieces);
    PyBuffer_Release(&target);
    if (!fits)
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(joined_doc, "joined(pieces) -> bytes\nThe bytes of all pieces, one after the other; copied without the interpreter lock.");

static PyObject *joined(PyObject *Py_UNUSED(module), PyObject *sequence) {
    Pieces pieces;
    if (!take_pieces(&pieces, sequence))
        return NULL;
    PyObject *found = PyBytes_FromStringAndSize(NULL, pieces.total);
    if (found != NULL) {
        Py_BEGIN_ALLOW_THREADS;
        copy_pieces((uint8_t *)PyBytes_AS_STRING(found), pieces.total, &pieces, 0);
        Py_END_ALLOW_THREADS;
    }
    release_pieces(&pieces);
    return found;
}

PyDoc_STRVAR(resident_doc, "resident(fd, offset, size) -> the part of the range that lies in the system's cache, from 0 to 1\n"
                           "0 where the system does not tell. Reads nothing.");

static PyObject *resident(PyObject *Py_UNUSED(module), PyObject *args) {
    int fd;
    long long offset;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "iLn", &fd, &offset, &size))
        return NULL;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (offset < 0 || size <= 0)
        return PyFloat_FromDouble(0);
    size_t skip = (size_t)offset % page, length = (size_t)size + skip, pages = (length + page - 1) / page, found = 0;
    unsigned char *each = PyMem_Malloc(pages);
    if (each == NULL)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS;
    void *mapped = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, (off_t)(offset - (long long)skip));
    if (mapped != MAP_FAILED) {
        if (mincore(mapped, length, each) == 0)
            for (size_t i = 0; i < pages; i++)
                found += each[i] & 1;
        munmap(mapped, length);
    }
    Py_END_ALLOW_THREADS;
    PyMem_Free(each);
    return PyFloat_FromDouble((double)found / (double)pages);
}

PyDoc_STRVAR(poll_doc, "poll(fd, seconds) -> 1: the descriptor is readable, 0: the time has passed, -1: other threads took the processor\n"
                       "Does not sleep, gives way to each thread that waits for this processor, needs no interpreter lock meanwhile.");

static PyObject *busy_poll(PyObject *Py_UNUSED(module), PyObject *args) {
    int fd, outcome = 0;
    double seconds;
    if (!PyArg_ParseTuple(args, "id", &fd, &seconds))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    struct pollfd wanted = {fd, POLLIN, 0};
    double at = now(), end = at + seconds;
    for (;;) {
        if (poll(&wanted, 1, 0) != 0) { /* an error as well: the loop's own wait reports it */
            outcome = 1;
            break;
        }
        if (at >= end)
            break;
        sched_yield();
        double before = at;
        at = now();
        if (at - before > DISTURBED) {
            outcome = -1;
            break;
        }
    }
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(outcome);
}

static PyMethodDef functions[] = {
    {"copy", copy, METH_VARARGS, copy_doc},
    {"joined", joined, METH_O, joined_doc},
    {"poll", busy_poll, METH_VARARGS, poll_doc},
    {"resident", resident, METH_VARARGS, resident_doc},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef writer_methods[] = {
    {"write", (PyCFunction)writer_write, METH_VARARGS, write_doc},
    {"reap", (PyCFunction)writer_reap, METH_NOARGS, reap_doc},
    {"reap_within", (PyCFunction)writer_reap_within, METH_O, reap_within_doc},
    {"fileno", (PyCFunction)writer_fileno, METH_NOARGS, "fileno() -> eventfd, readable when a frame may be reaped"},
    {"set_timer", (PyCFunction)writer_set_timer, METH_O, set_timer_doc},
    {"timer_ended", (PyCFunction)writer_timer_ended, METH_NOARGS, timer_ended_doc},
    {"timer_fileno", (PyCFunction)writer_timer_fileno, METH_NOARGS, "timer_fileno() -> timerfd, readable when the time of set_timer has passed"},
    {"submitted", (PyCFunction)writer_submitted, METH_NOARGS, submitted_doc},
    {"close", (PyCFunction)writer_close, METH_NOARGS, close_doc},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject writer_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "magnetar.storage.embedded.journal._frame_writer.Writer",
    .tp_basicsize = sizeof(Writer),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Writer(is_async=False): writes one frame at a time. Without `is_async` the thread writes all frames",
    .tp_new = writer_new,
    .tp_dealloc = (destructor)writer_dealloc,
    .tp_methods = writer_methods,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_frame_writer", "Durable writes of journal frames without the interpreter lock", -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__frame_writer(void) {
    crc32c_init();
    if (PyType_Ready(&writer_type) < 0)
        return NULL;
    PyObject *m = PyModule_Create(&module);
    if (m != NULL && PyModule_AddObjectRef(m, "Writer", (PyObject *)&writer_type) < 0) {
        Py_DECREF(m);
        return NULL;
    }
    return m;
}
