"""``MetadataStore`` and ``Coordination`` on one ZooKeeper session.

A path of the store is a path of ZooKeeper (below the chroot of the session), a version is the node's data version.
Differences from the embedded store, because ZooKeeper has no nodes without parents:

- a put creates missing parents as empty nodes of version 0, and a read finds these nodes;
- a node with children cannot be deleted (NotEmptyError).

Outages. Reads wait for the connection and are repeated. After a lost answer the store reads the node to learn the
outcome of the write: the node has the version and value of the write (done), its old version (the store repeats the
write), or another version (BadVersionError). Two writers of the same bytes over the same version both succeed: a record
over which owners compete must contain a value of its owner alone, such as the id of a ledger just created.
StorageUnavailableError: no answer within the deadline; the outcome of a write is unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from magnetar.bookkeeper import errors as service
from magnetar.bookkeeper.background import Background
from magnetar.bookkeeper.errors import (
    MetadataUnavailableError,
    NodeExistsError,
    NodeVersionError,
    NoSuchNodeError,
)
from magnetar.bookkeeper.zookeeper.values import ANY_VERSION as ANY
from magnetar.bookkeeper.zookeeper.values import Check, Create, Delete, NodeStat, SessionState, Set
from magnetar.storage.coordination import Session
from magnetar.storage.errors import (
    BadVersionError,
    GuardChangedError,
    NoNodeError,
    NotEmptyError,
    StorageClosedError,
    StorageError,
    StorageUnavailableError,
)
from magnetar.storage.interfaces import ANY_VERSION, MUST_NOT_EXIST
from magnetar.storage.metadata_nodes import check_path
from magnetar.storage.zookeeper.children_watch import ChildrenWatch
from magnetar.storage.zookeeper.tree_watch import TreeWatch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from magnetar.bookkeeper.zookeeper.session import ZooKeeperSession
    from magnetar.bookkeeper.zookeeper.values import Node, Operation
    from magnetar.storage.interfaces import Guard

__all__ = ["ZooKeeperMetadataStore", "storage_errors"]


@contextlib.contextmanager
def storage_errors() -> Iterator[None]:
    """Every error of the session that leaves the block is a StorageError."""
    try:
        yield
    except service.NoSuchNodeError as error:
        raise NoNodeError(error.path) from error
    except service.NodeNotEmptyError as error:
        raise NotEmptyError(error.path) from error
    except service.MetadataUnavailableError as error:
        raise StorageUnavailableError(str(error)) from error
    except service.MetadataError as error:
        raise StorageError(str(error)) from error


_SESSIONS = {
    SessionState.CONNECTED: Session.CONNECTED,
    SessionState.SUSPENDED: Session.SUSPENDED,
    SessionState.LOST: Session.LOST,
}
_ATTEMPTS = 3
"""The attempts of a write whose connection was lost; each attempt waits for the service as long as the session does."""


class ZooKeeperMetadataStore:
    """``MetadataStore`` states the guarantees of each method. The session belongs to the caller and
    outlives the store.
    """

    def __init__(self, session: ZooKeeperSession) -> None:
        self.session = session
        self._background = Background("metadata")
        self._watches: list[TreeWatch | ChildrenWatch] = []
        self._changing: dict[str, asyncio.Task[None]] = {}
        """Nodes whose change a watch has noticed and not yet reported."""
        self._ephemeral: dict[str, None] = {}
        self._closed = False

    async def get(self, path: str) -> tuple[bytes, int] | None:
        self._check(path)
        node = await self._node(path)
        return None if node is None else (node.value, node.version)

    async def put(
        self, path: str, value: bytes, expected_version: int | None = ANY_VERSION, guard: Guard | None = None
    ) -> int:
        self._check(path)
        with storage_errors():
            if expected_version == MUST_NOT_EXIST:
                return await self._create(path, bytes(value), ephemeral=False, guard=guard)
            if expected_version is not None:
                return await self._set(path, bytes(value), expected_version, guard)
            return await self._put_any(path, bytes(value), guard)

    async def put_ephemeral(self, path: str, value: bytes) -> int:
        self._check(path)
        with storage_errors():
            while True:
                try:
                    version = await self._create(path, bytes(value), ephemeral=True)
                    break
                except BadVersionError:
                    node = await self._node(path)
                if node is not None and node.stat.ephemeral_owner == self.session.session_id:
                    version = await self._set(path, bytes(value), node.version)
                    break
                if node is not None:
                    with contextlib.suppress(NoSuchNodeError, NodeVersionError):
                        await self.session.delete(path, node.version)
        self._ephemeral[path] = None
        return version

    async def create_ephemeral(self, path: str, value: bytes) -> int:
        """Create a node that vanishes with the session. Raises BadVersionError when any session has created it."""
        self._check(path)
        with storage_errors():
            version = await self._create(path, bytes(value), ephemeral=True)
        self._ephemeral[path] = None
        return version

    async def create_numbered(self, prefix: str, value: bytes = b"") -> int:
        """Create the ephemeral node ``prefix`` + ten digits; return the number, which this parent has never given
        before.
        """
        self._check(prefix)
        with storage_errors():
            path = await self.session.create(prefix, value, ephemeral=True, sequential=True, make_parents=True)
        self._ephemeral[path] = None
        return int(path[len(prefix) :])

    async def delete(self, path: str, expected_version: int | None = ANY_VERSION, guard: Guard | None = None) -> None:
        self._check(path)
        with storage_errors():
            await self._delete(path, expected_version, guard)
        self._ephemeral.pop(path, None)

    async def children(self, path: str) -> list[str]:
        self._check(path)
        try:
            with storage_errors():
                return sorted(await self.session.children(path))
        except NoNodeError:
            return []

    @property
    def session_timeout_s(self) -> float:
        return self.session.options.session_timeout_ms / 1000

    def on_session(self, callback: Callable[[Session], None]) -> Callable[[], None]:
        def changed(state: SessionState) -> None:
            if not self._closed and state is not SessionState.CLOSED:
                callback(_SESSIONS[state])

        return self.session.on_state(changed)

    async def created_ms(self, path: str) -> int:
        self._check(path)
        with storage_errors():
            stat = await self.session.exists(path)
        return 0 if stat is None else stat.created_ms

    async def is_mine(self, path: str) -> bool:
        """Whether the node is an ephemeral node of this session."""
        node = await self._node(path)
        return node is not None and node.stat.ephemeral_owner == self.session.session_id

    def watch(self, prefix: str, callback: Callable[[str], None]) -> Callable[[], None]:
        """Watch as ``MetadataStore.watch``. Changes made before ``watching`` returns may go unreported: await
        ``watching``, then read.
        """
        return self._add(TreeWatch(self.session, check_path(prefix), callback, self._background, self._changing))

    def _add(self, watch: TreeWatch | ChildrenWatch) -> Callable[[], None]:
        self._watches.append(watch)

        def cancel() -> None:
            watch.cancel()
            if watch in self._watches:
                self._watches.remove(watch)

        return cancel

    def watch_children(self, path: str, callback: Callable[[list[str]], None]) -> Callable[[], None]:
        return self._add(ChildrenWatch(self.session, check_path(path), callback, self._background))

    async def watching(self) -> None:
        """Wait until every requested watch is in place."""
        for watch in list(self._watches):
            await watch.ready.wait()

    async def caught_up(self) -> None:
        """See ``Coordination``: one ``sync``, and the reads that the watches it brought have begun."""
        with storage_errors():
            await self.session.sync()
        for watch in list(self._watches):
            if isinstance(watch, TreeWatch):
                await watch.settled()

    def change_of(self, path: str) -> Awaitable[object] | None:
        look = self._changing.get(path)
        return None if look is None else asyncio.wait([look])

    async def next_sequence(self, path: str, count: int = 1) -> int:
        """Kept as decimal text in the node."""
        self._check(path)
        while True:
            found = await self.get(path)
            first = int(found[0] or b"0") if found else 0
            try:
                await self.put(path, b"%d" % (first + count), found[1] if found else MUST_NOT_EXIST)
            except BadVersionError:
                continue
            return first

    async def close(self) -> None:
        """Delete this store's ephemeral nodes. The session stays open."""
        if self._closed:
            return
        self._closed = True
        for watch in self._watches:
            watch.cancel()
        await self._background.close()
        with contextlib.suppress(StorageError), storage_errors():  # the nodes vanish with the session at the latest
            for path in self._ephemeral:
                node = await self._node(path)
                if node is not None and node.stat.ephemeral_owner == self.session.session_id:
                    with contextlib.suppress(NoSuchNodeError, NodeVersionError):
                        await self.session.delete(path, node.version)

    # -- writes whose answer may be lost ---

    async def _create(self, path: str, value: bytes, *, ephemeral: bool, guard: Guard | None = None) -> int:
        owner = self.session.session_id if ephemeral else 0
        for attempt in range(_ATTEMPTS):
            try:
                if guard is None:
                    await self.session.create(path, value, ephemeral=ephemeral, make_parents=True)
                else:
                    await self._create_guarded(path, value, guard)
            except NodeExistsError as error:
                node = await self._node(path)
                if node is None:
                    continue  # the node was deleted meanwhile: try again
                if attempt and node.version == 0 and node.value == value and node.stat.ephemeral_owner == owner:
                    return 0  # an earlier attempt made the node
                raise BadVersionError(path, MUST_NOT_EXIST, node.version) from error
            except MetadataUnavailableError:
                if attempt == _ATTEMPTS - 1 or owner != (self.session.session_id if ephemeral else 0):
                    raise
            else:
                return 0
        return await self._create(path, value, ephemeral=ephemeral, guard=guard)

    async def _set(self, path: str, value: bytes, expected: int, guard: Guard | None = None) -> int:
        for attempt in range(_ATTEMPTS):
            try:
                return await self._set_once(path, value, expected, guard)
            except NoSuchNodeError as error:
                raise BadVersionError(path, expected, MUST_NOT_EXIST) from error
            except NodeVersionError as error:
                node = await self._node(path)
                if node is not None and attempt and node.version == expected + 1 and node.value == value:
                    return node.version
                raise BadVersionError(path, expected, node.version if node else MUST_NOT_EXIST) from error
            except MetadataUnavailableError:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    async def _put_any(self, path: str, value: bytes, guard: Guard | None) -> int:
        while True:
            try:
                return await self._set_once(path, value, ANY, guard)
            except NoSuchNodeError:
                with contextlib.suppress(BadVersionError):
                    return await self._create(path, value, ephemeral=False, guard=guard)

    async def _set_once(self, path: str, value: bytes, version: int, guard: Guard | None) -> int:
        if guard is None:
            return (await self.session.set(path, value, version)).version
        stat = await self._commit(Set(path, value, version), guard)
        assert isinstance(stat, NodeStat)
        return stat.version

    async def _create_guarded(self, path: str, value: bytes, guard: Guard) -> None:
        try:
            await self._commit(Create(path, value), guard)
        except NoSuchNodeError:  # a transaction creates no parents
            with contextlib.suppress(NodeExistsError):
                await self.session.create(path.rpartition("/")[0], b"", ephemeral=False, make_parents=True)
            await self._commit(Create(path, value), guard)

    async def _commit(self, operation: Operation, guard: Guard) -> str | NodeStat | None:
        """Carry out one operation while the guard's node has its version. Raises GuardChangedError."""
        try:
            return (await self.session.commit([Check(*guard), operation]))[1]
        except (NoSuchNodeError, NodeVersionError) as error:
            if error.path == guard.path:
                raise GuardChangedError(guard.path) from error
            raise

    async def _delete(self, path: str, expected: int | None, guard: Guard | None) -> None:
        version = ANY if expected is None else expected
        for attempt in range(_ATTEMPTS):
            try:
                if guard is None:
                    await self.session.delete(path, version)
                else:
                    await self._commit(Delete(path, version), guard)
            except NoSuchNodeError:
                if attempt:
                    return  # an earlier attempt deleted the node
                raise
            except NodeVersionError as error:
                node = await self._node(path)
                raise BadVersionError(path, expected or 0, node.version if node else MUST_NOT_EXIST) from error
            except MetadataUnavailableError:
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return

    async def _node(self, path: str) -> Node | None:
        try:
            with storage_errors():
                return await self.session.get(path)
        except NoNodeError:
            return None

    def _check(self, path: str) -> None:
        check_path(path)
        if self._closed:
            raise StorageClosedError("the metadata store is closed")
