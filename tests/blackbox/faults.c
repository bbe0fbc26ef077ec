/* Preloaded into a broker under test: makes its disk fail on demand.
 *
 * FAULT_CONTROL names a file; its first word selects the operations that fail on files below FAULT_ROOT:
 *   full   writes and growth give ENOSPC        sync   every sync gives EIO, a synced write too
 *   slow   every sync, and every synced write, takes a second more
 *   none   (or no file) nothing fails
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NONE, FULL, SYNC, SLOW };

static int fault(int fd) {
    static char root[4096];
    static size_t root_size;
    const char *control = getenv("FAULT_CONTROL"), *under = getenv("FAULT_ROOT");
    char text[16] = "", link[64], path[4096];
    if (!control || !under) return NONE;
    if (!root_size && realpath(under, root)) root_size = strlen(root);
    int file = open(control, O_RDONLY | O_CLOEXEC);
    if (file < 0) return NONE;
    ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    if (got <= 0 || !root_size) return NONE;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < (ssize_t)root_size || strncmp(path, root, root_size)) return NONE;
    if (!strncmp(text, "full", 4)) return FULL;
    if (!strncmp(text, "slow", 4)) return SLOW;
    return strncmp(text, "sync", 4) ? NONE : SYNC;
}

#define REFUSE(code) do { errno = code; return -1; } while (0)
#define REAL(name, type) static type real; if (!real) real = (type)dlsym(RTLD_NEXT, #name)

#define SYNCED_WRITER(name) \
    ssize_t name(int fd, const struct iovec *parts, int count, off64_t offset, int flags) { \
        typedef ssize_t (*call)(int, const struct iovec *, int, off64_t, int); \
        REAL(name, call); \
        int found = fault(fd); \
        if (found == FULL) REFUSE(ENOSPC); \
        if (found == SYNC && (flags & (RWF_DSYNC | RWF_SYNC))) REFUSE(EIO); \
        if (found == SLOW && (flags & (RWF_DSYNC | RWF_SYNC))) sleep(1); \
        return real(fd, parts, count, offset, flags); \
    }
SYNCED_WRITER(pwritev2)
SYNCED_WRITER(pwritev64v2)
#define WRITER(name, params, args) \
    ssize_t name params { typedef ssize_t (*call) params; REAL(name, call); if (fault(fd) == FULL) REFUSE(ENOSPC); return real args; }
WRITER(pwritev, (int fd, const struct iovec *parts, int count, off_t offset), (fd, parts, count, offset))
WRITER(pwritev64, (int fd, const struct iovec *parts, int count, off64_t offset), (fd, parts, count, offset))
WRITER(pwrite, (int fd, const void *data, size_t size, off_t offset), (fd, data, size, offset))
WRITER(pwrite64, (int fd, const void *data, size_t size, off64_t offset), (fd, data, size, offset))
WRITER(write, (int fd, const void *data, size_t size), (fd, data, size))
#define GROWER(name, params, args) \
    int name params { typedef int (*call) params; REAL(name, call); if (fault(fd) == FULL) REFUSE(ENOSPC); return real args; }
GROWER(fallocate, (int fd, int mode, off_t offset, off_t size), (fd, mode, offset, size))
#define SYNCER(name) \
    int name(int fd) { typedef int (*call)(int); REAL(name, call); int found = fault(fd); if (found == SYNC) REFUSE(EIO); if (found == SLOW) sleep(1); return real(fd); }
SYNCER(fdatasync)
SYNCER(fsync)
