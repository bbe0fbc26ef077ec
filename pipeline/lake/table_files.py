"""The files under a table: the one door of the room `lake` to a file system. Pickles, so tasks write through it too."""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from magnetar.pipeline.lake.errors import NotATableError, SinkFullError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True, slots=True)
class Listed:
    """One file: path relative to the table, size, and when it was last changed (seconds since 1970)."""

    path: str
    bytes: int
    changed_s: float


class TableFiles:
    """Files below one directory of a pyarrow file system; paths are relative, with "/".

    Args: uri: a local path, ``file:///...``, ``s3://...``, ``gs://...`` (credentials as pyarrow finds them).
    """

    def __init__(self, uri: str) -> None:
        local = urlsplit(uri).scheme in ("", "file")
        self.uri = os.path.abspath(uri.removeprefix("file://")) if local else uri.rstrip("/")  # noqa: PTH100 - a URI may be a path
        self.is_local = local

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
            return system.open_output_stream(target)

    def open_input(self, path: str) -> pa.NativeFile:
        system, root = self._system()
        return system.open_input_file(posixpath.join(root, path))

    def sync(self, path: str) -> None:
        """Return when the file and its name are on the disk; object stores are durable once a file is closed."""
        if not self.is_local:
            return
        full = self.absolute(path)
        with raising_full(full):
            _sync(full)
            while len(full := posixpath.dirname(full)) >= len(self.uri):
                _sync(full)

    def remove(self, path: str) -> None:
        """Does nothing for an absent file."""
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


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
