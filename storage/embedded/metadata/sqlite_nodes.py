"""The SQL behind ``sqlite_metadata.py``. One thread uses it at a time."""

from __future__ import annotations

import contextlib
import os
import sqlite3

from magnetar.protocol.checksum import crc32c
from magnetar.storage.errors import BadVersionError, DamagedFileError, NoNodeError
from magnetar.storage.metadata_paths import names_below

__all__ = ["FORMAT_VERSION", "SqliteNodes", "row_crc"]

FORMAT_VERSION = 1
_FILE_MODE = 0o600

_SCHEMA = """
CREATE TABLE IF NOT EXISTS store (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS node (
    path TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL, ephemeral INTEGER NOT NULL, crc INTEGER NOT
    NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sequence (path TEXT PRIMARY KEY, next INTEGER NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID;
"""


def row_crc(path: str, value: bytes, number: int) -> int:
    """Checksum of a row."""
    return crc32c(value, crc32c(f"{path}\0{number}\0".encode()))


class SqliteNodes:
    """Connection and statements. Raises sqlite3.Error."""

    def __init__(self, path: str) -> None:
        self._path = path
        # SQLite creates files that every user may read; those beside it (-wal, -shm) get the mode of this one.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        with contextlib.suppress(PermissionError):  # another user's
            os.fchmod(descriptor, _FILE_MODE)  # an earlier version's was open to all
        os.close(descriptor)
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=64)
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("PRAGMA cell_size_check=ON")
            self._db.execute("PRAGMA wal_autocheckpoint=1000")
            found = self._db.execute("SELECT count(*) FROM sqlite_master WHERE name='store'").fetchone()
            if not found[0]:
                self._db.executescript(_SCHEMA)
                self._db.execute("INSERT OR IGNORE INTO store VALUES ('format', ?)", (FORMAT_VERSION,))
            row = self._db.execute("SELECT value FROM store WHERE key='format'").fetchone()
            self.format_version: int = row[0] if row else FORMAT_VERSION
            if self.format_version <= FORMAT_VERSION:
                self._db.execute("DELETE FROM node WHERE ephemeral")
        except BaseException:
            self._db.close()
            raise

    def begin(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Durable on return."""
        self._db.execute("COMMIT")

    def rollback(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._db.execute("ROLLBACK")

    def close(self) -> None:
        self._db.close()

    def get(self, path: str) -> tuple[bytes, int] | None:
        row = self._db.execute("SELECT value, version, crc FROM node WHERE path=?", (path,)).fetchone()
        if row is None:
            return None
        if row_crc(path, row[0], row[1]) != row[2]:
            raise DamagedFileError(self._path, 0, f"the row of {path} has a wrong checksum")
        return row[0], row[1]

    def put(self, path: str, value: bytes, expected_version: int | None, *, ephemeral: bool) -> int:
        row = self._db.execute("SELECT version FROM node WHERE path=?", (path,)).fetchone()
        found: int = row[0] if row else -1
        if expected_version is not None and expected_version != found:
            raise BadVersionError(path, expected_version, found)
        version = found + 1
        self._db.execute(
            "INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?)",
            (path, value, version, int(ephemeral), row_crc(path, value, version)),
        )
        return version

    def delete(self, path: str, expected_version: int | None) -> None:
        row = self._db.execute("SELECT version FROM node WHERE path=?", (path,)).fetchone()
        if row is None:
            raise NoNodeError(path)
        if expected_version is not None and expected_version != row[0]:
            raise BadVersionError(path, expected_version, row[0])
        self._db.execute("DELETE FROM node WHERE path=?", (path,))

    def children(self, path: str) -> list[str]:
        start = "/" if path == "/" else path + "/"
        # "0" is the character after "/": the range holds exactly the descendants.
        rows = self._db.execute("SELECT path FROM node WHERE path > ? AND path < ?", (start, start[:-1] + "0"))
        return names_below(path, (row[0] for row in rows))

    def next_sequence(self, path: str, count: int) -> int:
        row = self._db.execute("SELECT next, crc FROM sequence WHERE path=?", (path,)).fetchone()
        if row is not None and row_crc(path, b"", row[0]) != row[1]:
            raise DamagedFileError(self._path, 0, f"the sequence {path} has a wrong checksum")
        first: int = row[0] if row else 0
        following = first + count
        self._db.execute(
            "INSERT OR REPLACE INTO sequence VALUES (?, ?, ?)", (path, following, row_crc(path, b"", following))
        )
        return first

    def rows(self) -> list[tuple[str, bytes, int]]:
        """(path, value, version) of every node, for ``verify``."""
        return self._db.execute("SELECT path, value, version FROM node ORDER BY path").fetchall()

    def problems(self) -> list[str]:
        """Everything wrong with the database, for ``verify``."""
        found = [row[0] for row in self._db.execute("PRAGMA integrity_check") if row[0] != "ok"]
        for path, value, version, crc in self._db.execute("SELECT path, value, version, crc FROM node"):
            if row_crc(path, value, version) != crc:
                found.append(f"the row of {path} has a wrong checksum")
        for path, following, crc in self._db.execute("SELECT path, next, crc FROM sequence"):
            if row_crc(path, b"", following) != crc:
                found.append(f"the sequence {path} has a wrong checksum")
        return found
