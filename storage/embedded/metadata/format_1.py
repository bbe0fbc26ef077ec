"""Metadata of format 1: SQLite. The engine reads the database when it migrates a store of format 1, and keeps the file.

SQLite silently leaves out every frame of its write-ahead log behind a frame with a wrong checksum, so this module
checks the log before SQLite reads it. ::

    node(path primary key, value, version, ephemeral, crc)   ephemeral nodes ended with their process
    sequence(path primary key, next, crc)
    store(key primary key, value)                            format version
"""

from __future__ import annotations

import shutil
import sqlite3
import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.protocol.checksum import crc32c
from magnetar.storage.embedded.metadata.changes import PUT, SEQUENCE
from magnetar.storage.embedded.metadata.node_tree import NodeTree
from magnetar.storage.errors import DamagedFileError, UnsupportedFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["read_format_1", "salvage_format_1", "write_ahead_problem"]

_FORMAT = 1
_WAL_HEADER = struct.Struct(">IIIIIIII")
_WAL_FRAME = struct.Struct(">IIIIII")
_WAL_MAGIC = 0x377F0682


def read_format_1(path: str) -> NodeTree:
    """Read all nodes and sequences. Raises DamagedFileError when any part of the database is damaged,
    UnsupportedFormatError.
    """
    if problem := write_ahead_problem(Path(path + "-wal")):
        raise DamagedFileError(path + "-wal", 0, problem)
    tree, problems = _read(path)
    if problems:
        raise DamagedFileError(path, 0, "; ".join(problems))
    return tree


def salvage_format_1(path: str) -> tuple[NodeTree, list[str]]:
    """Return the intact nodes, and the problems of the rest. The function works on a copy and leaves the file
    unchanged.

    In the copy the function computes the checksums of the write-ahead log anew, so that SQLite reads the frames behind
    damage; a damaged row has a wrong checksum of its own.
    """
    source = Path(path)
    if not source.exists():
        return NodeTree(), ["the database is missing"]
    problem = write_ahead_problem(Path(path + "-wal"))
    with tempfile.TemporaryDirectory(prefix="magnetar-format-1-") as folder:
        copy = Path(folder) / "metadata.sqlite"
        for suffix in ("", "-wal"):
            if (part := Path(path + suffix)).exists():
                shutil.copyfile(part, f"{copy}{suffix}")
        if problem:
            _make_right(Path(f"{copy}-wal"))
        tree, problems = _read(str(copy))
    return tree, [*([problem] if problem else []), *problems]


def _read(path: str) -> tuple[NodeTree, list[str]]:
    tree, problems = NodeTree(), list[str]()
    try:
        database = sqlite3.connect(path, isolation_level=None)
        try:
            database.execute("PRAGMA cell_size_check=ON")
            row = database.execute("SELECT value FROM store WHERE key='format'").fetchone()
            if row is None or row[0] < _FORMAT:
                problems.append("no format version")
            elif row[0] > _FORMAT:
                raise UnsupportedFormatError(path, row[0], _FORMAT)
            problems += [row[0] for row in database.execute("PRAGMA integrity_check") if row[0] != "ok"]
            problems += _nodes(database, tree)
        finally:
            database.close()
    except sqlite3.Error as error:
        problems.append(str(error))
    return tree, problems


def _nodes(database: sqlite3.Connection, tree: NodeTree) -> Iterator[str]:
    """Fill the tree; yields the problems of rows."""
    for path, value, version, crc in database.execute("SELECT path, value, version, crc FROM node WHERE NOT ephemeral"):
        if _row_crc(path, value, version) == crc:
            tree.apply([(PUT, path, version, value)])
        else:
            yield f"the row of {path} has a wrong checksum"
    for path, following, crc in database.execute("SELECT path, next, crc FROM sequence"):
        if _row_crc(path, b"", following) == crc:
            tree.apply([(SEQUENCE, path, following, b"")])
        else:
            yield f"the sequence {path} has a wrong checksum"


def _row_crc(path: str, value: bytes, number: int) -> int:
    return crc32c(value, crc32c(f"{path}\0{number}\0".encode()))


def write_ahead_problem(path: Path) -> str | None:
    """The problem of a log that SQLite would leave out silently; None when the log is missing, whole, or torn in its
    last transaction.

    SQLite does not read behind a frame with a wrong checksum. If a whole transaction and the beginning of another
    transaction follow that frame, SQLite had synced the whole transaction: the frame is damaged, not torn.
    """
    data = path.read_bytes() if path.exists() else b""
    if not data:
        return None
    if len(data) < _WAL_HEADER.size:
        return "the write-ahead log is cut off in its header"
    magic, _, page_bytes, _, salt_1, salt_2, *said = _WAL_HEADER.unpack_from(data)
    order = ">" if magic & 1 else "<"
    intact = magic & ~1 == _WAL_MAGIC and _sums(data[:24], (0, 0), order) == tuple(said)
    size = _WAL_FRAME.size + page_bytes
    if not intact or not 512 <= page_bytes <= 1 << 16:
        return "the header of the write-ahead log is damaged"
    sums: tuple[int, int] | None = (said[0], said[1])
    commits_behind = 0
    for at in range(_WAL_HEADER.size, len(data) - size + 1, size):
        _, commit, first, second, *found = _WAL_FRAME.unpack_from(data, at)
        if sums is not None and (first, second) == (salt_1, salt_2):
            sums = _sums(data[at + _WAL_FRAME.size : at + size], _sums(data[at : at + 8], sums, order), order)
            sums = sums if sums == tuple(found) else None
        elif sums is not None:
            # Frames of an earlier use of the file begin here, unless frames of this use follow behind a damaged salt.
            sums = None
        if sums is None and (first, second) == (salt_1, salt_2):
            if commits_behind:
                return f"the write-ahead log is damaged before byte {at}: SQLite would leave out what follows"
            commits_behind += bool(commit)
    return None


def _make_right(path: Path) -> None:
    """Compute the checksums of header and frames anew, up to the first frame of an earlier use of the file."""
    data = bytearray(path.read_bytes())
    magic, _, page_bytes, _, salt_1, salt_2, *_ = _WAL_HEADER.unpack_from(data)
    order = ">" if magic & 1 else "<"
    sums = _sums(bytes(data[:24]), (0, 0), order)
    struct.pack_into(">II", data, 24, *sums)
    size = _WAL_FRAME.size + page_bytes
    for at in range(_WAL_HEADER.size, len(data) - size + 1, size):
        if struct.unpack_from(">II", data, at + 8) != (salt_1, salt_2):
            break
        sums = _sums(bytes(data[at + _WAL_FRAME.size : at + size]), _sums(bytes(data[at : at + 8]), sums, order), order)
        struct.pack_into(">II", data, at + 16, *sums)
    path.write_bytes(data)


def _sums(data: bytes, start: tuple[int, int], order: str) -> tuple[int, int]:
    """SQLite's checksum of a multiple of 8 bytes."""
    first, second = start
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[0::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
