"""MetadataStore in memory. A write is "durable" when its await returns: crash tests take a ``snapshot``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.storage.errors import BadVersionError, GuardChangedError, NoNodeError, StorageClosedError, StorageError
from magnetar.storage.interfaces import MUST_NOT_EXIST
from magnetar.storage.metadata_nodes import Watches, check_path, is_at_or_below, names_below

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.interfaces import Guard

__all__ = ["MemoryMetadataStore"]


class MemoryMetadataStore:
    """``before_write`` is called before each write and may raise: a test's door for crashes and full disks."""

    def __init__(self) -> None:
        self.before_write: Callable[[str], None] = lambda _path: None
        self.fail_writes: StorageError | None = None
        self.writes = 0
        self._nodes: dict[str, tuple[bytes, int]] = {}
        self._ephemeral: set[str] = set()
        self._sequences: dict[str, int] = {}
        self._watches = Watches()
        self._closed = False

    async def get(self, path: str) -> tuple[bytes, int] | None:
        self._check_open()
        return self._nodes.get(check_path(path))

    async def put(
        self, path: str, value: bytes, expected_version: int | None = None, guard: Guard | None = None
    ) -> int:
        self._write(path)
        self._check_guard(guard)
        found = self._nodes[path][1] if path in self._nodes else -1
        if expected_version is not None and expected_version != found:
            raise BadVersionError(path, expected_version, found)
        self._nodes[path] = (bytes(value), found + 1)
        self._ephemeral.discard(path)
        self._watches.changed(path)
        return found + 1

    async def put_ephemeral(self, path: str, value: bytes) -> int:
        version = await self.put(path, value)
        self._ephemeral.add(path)
        return version

    async def delete(self, path: str, expected_version: int | None = None, guard: Guard | None = None) -> None:
        self._write(path)
        self._check_guard(guard)
        if path not in self._nodes:
            raise NoNodeError(path)
        found = self._nodes[path][1]
        if expected_version is not None and expected_version != found:
            raise BadVersionError(path, expected_version, found)
        del self._nodes[path]
        self._ephemeral.discard(path)
        self._watches.changed(path)

    async def children(self, path: str) -> list[str]:
        self._check_open()
        return names_below(check_path(path), (node for node in self._nodes if is_at_or_below(path, node)))

    def watch(self, prefix: str, callback: Callable[[str], None]) -> Callable[[], None]:
        return self._watches.add(check_path(prefix), callback)

    async def next_sequence(self, path: str, count: int = 1) -> int:
        self._write(path)
        first = self._sequences.get(path, 0)
        self._sequences[path] = first + count
        return first

    async def close(self) -> None:
        self._closed = True
        self._end_session()

    def snapshot(self) -> MemoryMetadataStore:
        """The nodes that a new process would find now: all nodes except ephemeral nodes."""
        copy = MemoryMetadataStore()
        copy._nodes = {path: node for path, node in self._nodes.items() if path not in self._ephemeral}
        copy._sequences = dict(self._sequences)
        return copy

    def _end_session(self) -> None:
        for path in self._ephemeral:
            self._nodes.pop(path, None)
        self._ephemeral.clear()

    def _write(self, path: str) -> None:
        self._check_open()
        check_path(path)
        self.before_write(path)
        if self.fail_writes is not None:
            raise self.fail_writes
        self.writes += 1

    def _check_guard(self, guard: Guard | None) -> None:
        if guard is not None and self._nodes.get(guard.path, (b"", MUST_NOT_EXIST))[1] != guard.version:
            raise GuardChangedError(guard.path)

    def _check_open(self) -> None:
        if self._closed:
            raise StorageClosedError("metadata store is closed")
