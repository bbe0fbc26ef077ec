"""Opening the files of a data directory, or of an image, for a user with more rights than the broker's, such as root.

The broker's user can put anything into the directory: a link to a file that only root reads, a FIFO that never ends,
the number of a foreign process in LOCK. So the backup opens only regular files of the directory's owner and follows no
links. Only a folder may be a link, to another folder of that owner (for a journal on another disk).
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from magnetar.cli.errors import DeniedError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Folder", "holds_open", "open_folder", "open_own", "regular_files"]

_FILE: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FOLDER: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY


class Folder:
    """An open folder of the data directory's owner."""

    def __init__(self, path: Path, descriptor: int, owner: int) -> None:
        self.path, self._descriptor, self._owner = path, descriptor, owner

    def names(self) -> list[str]:
        """Return the names of all entries, sorted."""
        return sorted(os.listdir(self._descriptor))  # noqa: PTH208 - by descriptor: the path may change

    def stat(self, name: str) -> os.stat_result:
        """Return the facts of a file; follows no links. Raises: FileNotFoundError."""
        return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)

    def open(self, name: str) -> int:
        """Open a regular file of the owner for reading; return the descriptor. Raises: DeniedError, OSError."""
        return _checked(self.path / name, os.open(name, _FILE, dir_fd=self._descriptor), self._owner)

    def read(self, name: str) -> bytes:
        """Return the bytes of the whole file. Raises: DeniedError, OSError."""
        with os.fdopen(self.open(name), "rb") as file:
            return file.read()


@contextmanager
def open_folder(data_dir: Path, name: str = "") -> Iterator[Folder]:
    """Open the directory itself, or a folder in it. Raises: DeniedError for a folder of another user, OSError."""
    owner = data_dir.stat().st_uid
    path = data_dir / name
    descriptor = os.open(path, _FOLDER)
    try:
        if os.fstat(descriptor).st_uid != owner:
            raise DeniedError(f"{path} is a folder of another user than {data_dir}: it is not read")
        yield Folder(path, descriptor, owner)
    finally:
        os.close(descriptor)


def open_own(data_dir: Path, name: str) -> int:
    """Open a file directly in the data directory for reading; return the descriptor. Raises: DeniedError, OSError."""
    with open_folder(data_dir) as folder:
        return folder.open(name)


def regular_files(root: Path) -> Iterator[tuple[Path, int]]:
    """Open the files of an image one after the other: (name below `root`, descriptor), or -1 for a folder, before its
    files. The descriptor is open until the next step.

    Raises: DeniedError for anything but folders and regular files: a link to a file that only the caller reads, a FIFO.
    OSError.
    """
    for folder, folders, files, within in os.fwalk(root, onerror=_raise):
        place = Path(folder).relative_to(root)
        yield place, -1
        folders.sort()
        for name in folders:
            if not stat.S_ISDIR(os.stat(name, dir_fd=within, follow_symlinks=False).st_mode):
                raise DeniedError(f"{Path(folder, name)} is a link: it is not read, and nothing was kept")
        for name in sorted(files):
            try:
                descriptor = os.open(name, _FILE, dir_fd=within)
            except OSError as error:
                error.filename = str(Path(folder, name))
                raise
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise DeniedError(f"{Path(folder, name)} is no regular file: it is not read, and nothing was kept")
                yield place / name, descriptor
            finally:
                os.close(descriptor)


def _raise(error: OSError) -> None:
    raise error


def holds_open(pid: int, descriptor: int) -> bool:
    """Whether the process has the file of `descriptor` open.

    Raises: PermissionError when the caller may not see the descriptors of the process.
    """
    wanted = os.fstat(descriptor)
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found = link.stat()
        except FileNotFoundError:
            continue  # closed meanwhile, or a descriptor without a name
        if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
            return True
    return False


def _checked(path: Path, descriptor: int, owner: int) -> int:
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_uid == owner:
        return descriptor
    os.close(descriptor)
    what = "a file of another user" if stat.S_ISREG(found.st_mode) else "no regular file"
    raise DeniedError(f"{path} is {what}: it is not read, and nothing was kept")
