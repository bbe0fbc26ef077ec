"""The nodes of a ZooKeeper in the test's process, and sessions for ``ZooKeeperMetadataStore`` on them. A session hands
each request to the test, which decides when the request arrives and whether its answer does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.bookkeeper.errors import BookKeeperError, NodeExistsError, NodeVersionError, NoSuchNodeError
from magnetar.bookkeeper.zookeeper.values import ANY_VERSION, Check, Create, Delete, Node, NodeStat

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from magnetar.bookkeeper.zookeeper.values import Operation

    Ask = Callable[[Callable[[], object]], Awaitable[object]]

__all__ = ["SimSession", "SimZooKeeper"]


class SimZooKeeper:
    """The service: persistent nodes with versions, and transactions."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {}
        """Path -> (value, version)."""

    def get(self, path: str) -> Node:
        if path not in self.nodes:
            raise NoSuchNodeError(path)
        value, version = self.nodes[path]
        return Node(value, NodeStat(version, 0, 0, 0, 0, 0, 0, 0))

    def children(self, path: str) -> list[str]:
        below = f"{path}/"
        return [each[len(below) :] for each in self.nodes if each.startswith(below) and "/" not in each[len(below) :]]

    def create(self, path: str, value: bytes) -> str:
        if path in self.nodes:
            raise NodeExistsError(path)
        self.nodes[path] = value, 0
        return path

    def set(self, path: str, value: bytes, version: int) -> NodeStat:
        self.check(path, version)
        self.nodes[path] = value, self.nodes[path][1] + 1
        return self.get(path).stat

    def delete(self, path: str, version: int) -> None:
        self.check(path, version)
        del self.nodes[path]

    def check(self, path: str, version: int) -> None:
        if version not in (ANY_VERSION, self.get(path).version):
            raise NodeVersionError(path)

    def commit(self, operations: Sequence[Operation]) -> list[object]:
        before = dict(self.nodes)
        try:
            return [self._carry_out(operation) for operation in operations]
        except BookKeeperError:
            self.nodes = before
            raise

    def _carry_out(self, operation: Operation) -> object:
        if isinstance(operation, Check):
            return self.check(operation.path, operation.version)
        if isinstance(operation, Create):
            parent = operation.path.rpartition("/")[0]
            if parent not in self.nodes and not self.children(parent):
                raise NoSuchNodeError(operation.path)
            return self.create(operation.path, operation.value)
        if isinstance(operation, Delete):
            return self.delete(operation.path, operation.version)
        return self.set(operation.path, operation.value, operation.version)


class SimSession:
    """One client's session. ``read`` and ``write`` carry out a request at the service and return its result; they may
    raise MetadataUnavailableError, before the request or behind it.
    """

    session_id = 1

    def __init__(self, service: SimZooKeeper, read: Ask, write: Ask) -> None:
        self._service, self._read, self._write = service, read, write

    async def get(self, path):
        return await self._read(lambda: self._service.get(path))

    async def children(self, path):
        return await self._read(lambda: self._service.children(path))

    async def create(self, path, value, *, ephemeral, make_parents):
        assert make_parents
        assert not ephemeral
        return await self._write(lambda: self._service.create(path, value))

    async def set(self, path, value, version):
        return await self._write(lambda: self._service.set(path, value, version))

    async def delete(self, path, version=ANY_VERSION):
        return await self._write(lambda: self._service.delete(path, version))

    async def commit(self, operations):
        return await self._write(lambda: self._service.commit(operations))
