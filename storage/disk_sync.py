"""Syncs of files on systems with and without ``fdatasync``.

On macOS ``fsync`` leaves bytes in the cache of the device, so files are synced by F_FULLFSYNC there, and by ``fsync``
only where a file system (of a network, for example) does not have that.
"""

from __future__ import annotations

import errno
import fcntl
import os

__all__ = ["sync_all", "sync_data"]

_FULL: int | None = getattr(fcntl, "F_FULLFSYNC", None)
_HAS_DATA_SYNC = hasattr(os, "fdatasync")
_NOT_THERE = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL})
"""Errors of a file system without F_FULLFSYNC."""


def sync_all(descriptor: int) -> None:
    """Bring the bytes and attributes of an open file, or the names in an open folder, to the disk. Raises OSError."""
    if _FULL is None:
        os.fsync(descriptor)
        return
    try:
        fcntl.fcntl(descriptor, _FULL)
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
        os.fsync(descriptor)


def sync_data(descriptor: int) -> None:
    """Bring the bytes of an open file, and the size that they imply, to the disk. Raises OSError."""
    if _HAS_DATA_SYNC:
        os.fdatasync(descriptor)
    else:
        sync_all(descriptor)
