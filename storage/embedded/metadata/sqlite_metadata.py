"""MetadataStore in SQLite (WAL, synchronous=FULL), in a thread of its own.

Operations pending together share one transaction, so concurrent writers share its sync. Each row carries a checksum
over path, version and value; a row that fails it is reported, not used.

Tables::

    node(path primary key, parent, value, version, session, crc)   session: the run that owns an ephemeral node, else ''
    sequence(path primary key, next, crc)
    store(key primary key, value)                                   format version
"""

from __future__ import annotations

import asyncio
import sqlite3
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from magnetar.storage.embedded.metadata.sqlite_nodes import FORMAT_VERSION, SqliteNodes
from magnetar.storage.errors import (
    DamagedFileError,
    MetadataError,
    StorageClosedError,
    StorageError,
    StorageFailedError,
    StorageFullError,
    UnsupportedFormatError,
)
from magnetar.storage.metadata_paths import check_path
from magnetar.storage.watches import Watches

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.lanes import Threads

__all__ = ["SqliteMetadataStore"]

T = TypeVar("T")


class _Operation(NamedTuple):
    """One call: what to do in the thread, whom to tell."""

    run: Callable[[SqliteNodes], object]
    future: asyncio.Future[object]
    changes: str | None
    """Path a successful run changes."""


class SqliteMetadataStore:
    """See ``MetadataStore`` for what each method promises. Opened by ``open``."""

    def __init__(self, path: str, nodes: SqliteNodes, threads: Threads) -> None:
        self._path, self._nodes = path, nodes
        self._lane = threads.lane("metadata", self._work, self._done)
        self._watches = Watches()
        self._closed = False
        self.on_failure: Callable[[StorageFailedError], None] = lambda _error: None
        """Called when the disk under the database fails."""
        self.transactions = 0
        self.operations = 0

    @classmethod
    async def open(cls, path: str, threads: Threads) -> SqliteMetadataStore:
        """Raises DamagedFileError (not a database, or damaged), UnsupportedFormatError, StorageError."""
        try:
            nodes = SqliteNodes(path)
        except sqlite3.OperationalError as error:
            raise _translate(path, error) from error
        except sqlite3.DatabaseError as error:
            raise DamagedFileError(path, 0, str(error)) from error
        if nodes.format_version > FORMAT_VERSION:
            nodes.close()
            raise UnsupportedFormatError(path, nodes.format_version, FORMAT_VERSION)
        return cls(path, nodes, threads)

    async def get(self, path: str) -> tuple[bytes, int] | None:
        check_path(path)
        return await self._submit(lambda nodes: nodes.get(path))

    async def put(self, path: str, value: bytes, expected_version: int | None = None) -> int:
        check_path(path)
        return await self._submit(partial(_put, path, bytes(value), expected_version, False), path)

    async def put_ephemeral(self, path: str, value: bytes) -> int:
        check_path(path)
        return await self._submit(partial(_put, path, bytes(value), None, True), path)

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        check_path(path)
        await self._submit(lambda nodes: nodes.delete(path, expected_version), path)

    async def children(self, path: str) -> list[str]:
        check_path(path)
        return await self._submit(lambda nodes: nodes.children(path))

    def watch(self, prefix: str, callback: Callable[[str], None]) -> Callable[[], None]:
        return self._watches.add(check_path(prefix), callback)

    async def next_sequence(self, path: str, count: int = 1) -> int:
        check_path(path)
        return await self._submit(lambda nodes: nodes.next_sequence(path, count))

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._lane.close()
            self._nodes.close()

    async def _submit(self, run: Callable[[SqliteNodes], T], changes: str | None = None) -> T:
        if self._closed:
            raise StorageClosedError("the metadata store is closed")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._lane.submit(_Operation(run, future, changes))  # type: ignore[arg-type]
        return await future

    def _work(self, batch: list[_Operation]) -> list[object]:
        """In the thread: all operations in one transaction. An operation that is refused changed nothing."""
        try:
            self._nodes.begin()
            results = [self._run(operation) for operation in batch]
            self._nodes.commit()
        except sqlite3.Error as error:
            self._nodes.rollback()
            raise _translate(self._path, error) from error
        return results

    def _run(self, operation: _Operation) -> object:
        try:
            return operation.run(self._nodes)
        except (MetadataError, DamagedFileError) as refused:
            return refused

    def _done(self, batch: list[_Operation], results: list[object] | None, error: BaseException | None) -> None:
        self.transactions += 1
        self.operations += len(batch)
        if isinstance(error, StorageFailedError):
            self.on_failure(error)
        for index, operation in enumerate(batch):
            result = error if results is None else results[index]
            if isinstance(result, BaseException):
                if not operation.future.done():
                    operation.future.set_exception(result)
                    operation.future.exception()  # the caller may have been cancelled
                continue
            if operation.changes is not None:
                self._watches.changed(operation.changes)
            if not operation.future.done():
                operation.future.set_result(result)


def _put(path: str, value: bytes, expected_version: int | None, ephemeral: bool, nodes: SqliteNodes) -> int:
    return nodes.put(path, value, expected_version, ephemeral=ephemeral)


def _translate(path: str, error: sqlite3.Error) -> StorageError:
    """SQLite's error as one of ours."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StorageFullError(f"{path}: {error}")
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return DamagedFileError(path, 0, str(error))
    if code in {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}:
        return StorageFailedError(f"{path}: {error}")
    return StorageError(f"{path}: {error}")
