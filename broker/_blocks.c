/* Large blocks of the interpreter from a region of their own; heap.py says why. The region is cut into units; a block takes
 * the first free units that are enough, so blocks gather at its beginning. Free units stay with the process up to a number of
 * bytes, beyond that those at its end go back to the system. Blocks that find no room, all smaller ones, and blocks that shrink to
 * less than a unit are those of the allocator that was there before. */
#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>

#ifndef __linux__
#error "madvise gives memory back at once on Linux; elsewhere the allocator of the system serves"
#endif

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define UNIT ((size_t)16 << 10)
#define LEAST ((size_t)64 << 10) /* bytes of a block of the region */
#define WORDS(units) (((units) + 63) / 64)

static struct {
    PyMemAllocatorEx before;
    uint8_t *base; /* NULL: not installed */
    size_t units, top;      /* top: no unit from there on was ever used */
    size_t used_units, resident_units, kept_units;
    uint64_t *used, *resident; /* a bit for each unit */
    uint32_t *sizes;           /* units of the block that begins with a unit */
    pthread_mutex_t mutex;
} region = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static inline bool is_ours(const void *p) { return (uintptr_t)p - (uintptr_t)region.base < region.units * UNIT; }

static inline size_t units_of(size_t bytes) { return (bytes + UNIT - 1) / UNIT; }

static inline bool has(const uint64_t *bits, size_t at) { return bits[at / 64] >> (at % 64) & 1; }

/* The first unit from `at` on, below `end`, whose bit is `wanted`; else `end`. */
static size_t next(const uint64_t *bits, size_t at, size_t end, bool wanted) {
    while (at < end) {
        uint64_t word = (wanted ? bits[at / 64] : ~bits[at / 64]) >> (at % 64);
        if (word) {
            at += (size_t)__builtin_ctzll(word);
            return at < end ? at : end;
        }
        at += 64 - at % 64;
    }
    return end;
}

/* Set these bits; returns how many of them were other. */
static size_t set(uint64_t *bits, size_t at, size_t end, bool value) {
    size_t changed = 0;
    while (at < end) {
        size_t stop = at - at % 64 + 64 < end ? at - at % 64 + 64 : end, count = stop - at;
        uint64_t mask = (count == 64 ? ~0ull : (1ull << count) - 1) << (at % 64), *word = &bits[at / 64];
        changed += (size_t)__builtin_popcountll(mask & (value ? ~*word : *word));
        *word = value ? *word | mask : *word & ~mask;
        at = stop;
    }
    return changed;
}

static void occupy(size_t at, size_t count) {
    set(region.used, at, at + count, true);
    region.used_units += count;
    region.resident_units += set(region.resident, at, at + count, true);
    if (at + count > region.top)
        region.top = at + count;
}

/* Give free units at the end of the region back while too many are kept: never more than were freed since the last call, but
 * for the rest of a word. */
static void give_back(void) {
    for (size_t word = WORDS(region.top); word-- > 0 && region.resident_units - region.used_units > region.kept_units;) {
        uint64_t spare = region.resident[word] & ~region.used[word];
        while (spare) {
            size_t last = 63 - (size_t)__builtin_clzll(spare), first = last;
            while (first > 0 && spare >> (first - 1) & 1)
                first--;
            size_t at = word * 64 + first, count = last - first + 1;
            madvise(region.base + at * UNIT, count * UNIT, MADV_DONTNEED);
            region.resident_units -= set(region.resident, at, at + count, false);
            spare &= ~((count == 64 ? ~0ull : (1ull << count) - 1) << first);
        }
    }
}

static void release(size_t at, size_t count) {
    set(region.used, at, at + count, false);
    region.used_units -= count;
    if (region.resident_units - region.used_units > region.kept_units)
        give_back();
}

static void *take(size_t bytes) {
    size_t count = units_of(bytes), at = 0;
    void *found = NULL;
    pthread_mutex_lock(&region.mutex);
    while ((at = next(region.used, at, region.top, false)) + count <= region.units) {
        size_t end = at + count < region.top ? at + count : region.top, stop = next(region.used, at, end, true);
        if (stop == end) { /* free up to there; from the top on all is */
            occupy(at, count);
            region.sizes[at] = (uint32_t)count;
            found = region.base + at * UNIT;
            break;
        }
        at = stop;
    }
    pthread_mutex_unlock(&region.mutex);
    return found;
}

static void put(void *p) {
    size_t at = (size_t)((uint8_t *)p - region.base) / UNIT;
    pthread_mutex_lock(&region.mutex);
    release(at, region.sizes[at]);
    pthread_mutex_unlock(&region.mutex);
}

/* Change the size of a block where it lies: whether that is possible. */
static bool resize(void *p, size_t bytes) {
    size_t at = (size_t)((uint8_t *)p - region.base) / UNIT, count = units_of(bytes ? bytes : 1);
    pthread_mutex_lock(&region.mutex);
    size_t have = region.sizes[at], end = at + count;
    bool fits = end <= region.units;
    if (count > have) {
        size_t known = end < region.top ? end : region.top;
        fits = fits && (at + have >= known || next(region.used, at + have, known, true) == known);
        if (fits)
            occupy(at + have, count - have);
    } else if (count < have)
        release(end, have - count);
    if (fits)
        region.sizes[at] = (uint32_t)count;
    pthread_mutex_unlock(&region.mutex);
    return fits;
}

static void *raw_malloc(void *Py_UNUSED(ctx), size_t size) {
    void *p = size >= LEAST ? take(size) : NULL;
    return p ? p : region.before.malloc(region.before.ctx, size);
}

static void *raw_calloc(void *Py_UNUSED(ctx), size_t count, size_t size) {
    size_t bytes;
    if (!__builtin_mul_overflow(count, size, &bytes) && bytes >= LEAST) {
        void *p = take(bytes);
        if (p)
            return memset(p, 0, bytes);
    }
    return region.before.calloc(region.before.ctx, count, size);
}

static void raw_free(void *Py_UNUSED(ctx), void *p) {
    if (is_ours(p))
        put(p);
    else
        region.before.free(region.before.ctx, p);
}

static void *raw_realloc(void *ctx, void *p, size_t size) {
    if (!p)
        return raw_malloc(ctx, size);
    if (!is_ours(p))
        return region.before.realloc(region.before.ctx, p, size);
    void *moved = NULL;
    if (size < UNIT) /* as a long buffer of which a read filled a few bytes: the whole unit would stay with these bytes */
        moved = region.before.malloc(region.before.ctx, size);
    if (!moved && resize(p, size))
        return p;
    if (!moved)
        moved = raw_malloc(ctx, size);
    if (moved) {
        size_t have = region.sizes[(size_t)((uint8_t *)p - region.base) / UNIT] * UNIT;
        memcpy(moved, p, have < size ? have : size);
        put(p);
    }
    return moved;
}

static void lock(void) { pthread_mutex_lock(&region.mutex); }
static void unlock(void) { pthread_mutex_unlock(&region.mutex); }

static void *pages(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

PyDoc_STRVAR(install_doc, "install(region_bytes, kept_bytes) -> whether the region is there\n"
                          "Blocks of 64 KiB and more come from a region of this size from now on; so many free bytes stay with the process.\n"
                          "Once a process; later calls change nothing.");

static PyObject *install(PyObject *Py_UNUSED(module), PyObject *args) {
    unsigned long long bytes, kept;
    if (!PyArg_ParseTuple(args, "KK", &bytes, &kept))
        return NULL;
    if (region.base != NULL)
        Py_RETURN_TRUE;
    size_t units = (size_t)(bytes / UNIT);
    if (units < 64 || units > UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "no such size of a region");
        return NULL;
    }
    uint8_t *base = pages(units * UNIT), *tables = pages(2 * WORDS(units) * 8 + units * 4);
    if (base == NULL || tables == NULL) { /* a process with a limit of its memory */
        if (base != NULL)
            munmap(base, units * UNIT);
        Py_RETURN_FALSE;
    }
    region.used = (uint64_t *)tables;
    region.resident = region.used + WORDS(units);
    region.sizes = (uint32_t *)(region.resident + WORDS(units));
    region.units = units;
    region.kept_units = (size_t)(kept / UNIT);
    region.base = base;
    pthread_atfork(lock, unlock, unlock);
    PyMem_GetAllocator(PYMEM_DOMAIN_RAW, &region.before);
    PyMemAllocatorEx ours = {NULL, raw_malloc, raw_calloc, raw_realloc, raw_free};
    PyMem_SetAllocator(PYMEM_DOMAIN_RAW, &ours);
    Py_RETURN_TRUE;
}

PyDoc_STRVAR(counts_doc, "counts() -> (bytes of blocks in the region, bytes that the region has from the system)");

static PyObject *counts(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    pthread_mutex_lock(&region.mutex);
    size_t used = region.used_units * UNIT, resident = region.resident_units * UNIT;
    pthread_mutex_unlock(&region.mutex);
    return Py_BuildValue("nn", (Py_ssize_t)used, (Py_ssize_t)resident);
}

static PyMethodDef methods[] = {
    {"install", install, METH_VARARGS, install_doc},
    {"counts", counts, METH_NOARGS, counts_doc},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_blocks", "A region of large blocks", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__blocks(void) { return PyModule_Create(&module); }
