"""Makes Python on Linux look as Python on macOS does: on the path of a process, the interpreter imports this module first.

Calls that only Linux has are missing, and so are /proc, /sys and the helpers that need Linux's headers. F_FULLFSYNC
is an `fsync`, and each of these syncs adds a byte to the file that SYNCS_FILE names.
"""

import builtins
import errno
import fcntl
import io
import mmap
import os
import select
import socket
import sys
import types

F_FULLFSYNC = 51
LINUX_ALONE = {
    os: "fdatasync posix_fallocate posix_fadvise O_DIRECT O_TMPFILE O_PATH RWF_DSYNC RWF_SYNC RWF_NOWAIT RWF_HIPRI "
    "RWF_APPEND sched_getaffinity sched_setaffinity sched_setscheduler sched_param SCHED_BATCH eventfd eventfd_read "
    "eventfd_write memfd_create copy_file_range splice pidfd_open getxattr setxattr listxattr pipe2 getrandom "
    "process_cpu_count",
    mmap: "MADV_HUGEPAGE MADV_NOHUGEPAGE MAP_POPULATE",
    fcntl: "F_SETPIPE_SZ F_GETPIPE_SZ F_ADD_SEALS F_OFD_SETLK F_OFD_GETLK",
    select: "epoll",
    socket: "TCP_QUICKACK TCP_USER_TIMEOUT TCP_DEFER_ACCEPT TCP_CORK SO_PEERCRED AF_NETLINK",
}
NOT_BUILT = ("magnetar.storage.embedded.journal._frame_writer", "magnetar.storage.embedded._direct_reader")
HIDDEN = ("/proc", "/sys")

_fsync, _fcntl = os.fsync, fcntl.fcntl


def _full_sync(descriptor, command, argument=0):
    if command != F_FULLFSYNC:
        return _fcntl(descriptor, command, argument)
    _fsync(descriptor)
    if counted := os.environ.get("SYNCS_FILE"):
        with open(counted, "ab") as file:
            file.write(b".")
    return 0


def _without_hidden(call):
    def refuses(path=".", *arguments, **options):
        name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
        if name.startswith(HIDDEN):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return call(path, *arguments, **options)

    return refuses


for module, names in LINUX_ALONE.items():
    for each in names.split():
        if hasattr(module, each):
            delattr(module, each)
fcntl.fcntl, fcntl.F_FULLFSYNC = _full_sync, F_FULLFSYNC
builtins.open = io.open = _without_hidden(io.open)
os.open, os.stat, os.listdir = map(_without_hidden, (os.open, os.stat, os.listdir))
sys.modules.update(dict.fromkeys(NOT_BUILT))
proxies = types.ModuleType("_scproxy")  # Python's own, on macOS alone
proxies._get_proxy_settings = proxies._get_proxies = dict
sys.modules["_scproxy"] = proxies
sys.platform = "darwin"
