/* Preloaded into a broker, makes its syncs no-ops and its durable writes ordinary writes, so that bench/contenders.py
 * can measure the cost of durability. The journal writes through libc, so all its syncs pass here.
 * Build: cc -O2 -shared -fPIC no_sync.c -o no_sync.so */
#define _GNU_SOURCE
#include <sys/uio.h>
#include <unistd.h>

int fsync(int fd) { return (void)fd, 0; }
int fdatasync(int fd) { return (void)fd, 0; }
int sync_file_range(int fd, off_t at, off_t size, unsigned flags) { return (void)fd, (void)at, (void)size, (void)flags, 0; }

ssize_t pwritev2(int fd, const struct iovec *pieces, int count, off_t at, int flags) {
    (void)flags; /* the broker uses no flag but RWF_DSYNC */
    return pwritev(fd, pieces, count, at);
}

ssize_t pwritev64v2(int fd, const struct iovec *pieces, int count, off_t at, int flags) {
    (void)flags;
    return pwritev(fd, pieces, count, at);
}
