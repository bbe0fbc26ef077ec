"""The files under a table: the only access of the package `lake` to a file system. Pickles, so that tasks can use it
too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from magnetar.pipeline.lake.errors import NotATableError, SinkFullError
from magnetar.pipeline.lake.local_output import LocalOutput

if TYPE_CHECKING:
    from collections.abc import Iterator

_REMOTE = re.compile(r"(?!file:)[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True, slots=True)
class Listed:
    """One file: path relative to the table, size, and when it was last changed (seconds since 1970)."""

    path: str
    bytes: int
    changed_s: float


class TableFiles:
    """Files below one directory of a pyarrow file system; paths are relative, with "/".

    Args: uri: a local path as it is, ``file:///...`` with percent-encoding, ``s3://...``, ``gs://...`` (credentials as
               pyarrow finds them).
    """

    def __init__(self, uri: str) -> None:
        self.is_local = _REMOTE.match(uri) is None
        self.uri = os.path.abspath(_local_path(uri)) if self.is_local else uri.rstrip("/")  # noqa: PTH100 - a URI may be a path

    def without(self, characters: str, library: str) -> TableFiles:
        """Returns self. Raises: NotATableError for a local path with one of the characters that a library misreads."""
        found = sorted(set(characters) & set(self.uri)) if self.is_local else []
        if found:
            raise NotATableError(f"{self.uri}: {library} takes no local path with {' or '.join(found)}; rename it")
        return self

    def __repr__(self) -> str:
        return f"TableFiles({self.uri!r})"

    def absolute(self, path: str) -> str:
        """The path or URI of a file, as other libraries take it."""
        return posixpath.join(self.uri, path)

    def make_directory(self) -> None:
        """The directory of the table."""
        system, root = self._system()
        system.create_dir(root, recursive=True)

    def open_output(self, path: str) -> pa.NativeFile:
        """A new file; its directory is made. Raises: SinkFullError, OSError."""
        system, root = self._system()
        target = posixpath.join(root, path)
        with raising_full(self.absolute(path)):
            system.create_dir(posixpath.dirname(target), recursive=True)
            return pa.PythonFile(LocalOutput(target), "w") if self.is_local else system.open_output_stream(target)

    def open_input(self, path: str) -> pa.NativeFile:
        system, root = self._system()
        return system.open_input_file(posixpath.join(root, path))

    def sync(self, path: str) -> None:
        """Return when the file and its name are on the disk; object stores are durable once a file is closed."""
        if self.is_local:
            with raising_full(self.absolute(path)):
                sync_with_directories(self.absolute(path), posixpath.dirname(self.uri))

    def remove(self, path: str) -> None:
        """Delete a file; does nothing for an absent file."""
        system, root = self._system()
        with contextlib.suppress(FileNotFoundError):
            system.delete_file(posixpath.join(root, path))

    def list(self, below: str = "") -> list[Listed]:
        """Every file, ascending by path; none when the directory is absent."""
        system, root = self._system()
        found = system.get_file_info(
            fs.FileSelector(posixpath.join(root, below) if below else root, recursive=True, allow_not_found=True)
        )
        return sorted(
            (
                Listed(posixpath.relpath(each.path, root), each.size, each.mtime_ns / 1e9)
                for each in found
                if each.type == fs.FileType.File
            ),
            key=lambda each: each.path,
        )

    def _system(self) -> tuple[Any, str]:
        if self.is_local:
            return fs.LocalFileSystem(), self.uri
        try:
            system, root = fs.FileSystem.from_uri(self.uri)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise NotATableError(f"{self.uri}: {error}") from error
        return system, root


@contextlib.contextmanager
def raising_full(path: str) -> Iterator[None]:
    """Turns the errors of a full file system into SinkFullError."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL or "No space left" in str(error) or "quota" in str(error):
            raise SinkFullError(path, error.strerror or str(error)) from error
        raise


def _local_path(uri: str) -> str:
    """The local path of a path or file URL. Raises: NotATableError for a URL that names another machine."""
    if not uri.lower().startswith("file:"):
        return uri
    rest = uri[len("file:") :]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise NotATableError(f"{uri}: a file URL has three slashes, file:///PATH")
        rest = slash + path
    return unquote(rest)


def sync_with_directories(path: str, top: str) -> None:
    """Sync the file, its name, and the names of the directories above it up to the names in `top`; all are durable on
    return.

    A directory that this user may not read counts as synced.
    """
    sync_path(path)
    while len(path := posixpath.dirname(path)) >= len(top):
        with contextlib.suppress(PermissionError):
            sync_path(path)
        if path == posixpath.dirname(path):
            break


def sync_path(path: str) -> None:
    """Sync a file, or the names in a directory; they are durable on return."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
