"""A ZooKeeper session on the event loop, over kazoo.

kazoo has its own threads (``kazoo_handler.py``): one for the connection, one for watches. Of this room only small
callbacks run on these threads, which post to the loop (``_post``); all effects that a caller sees happen on the loop,
in the order of the server's answers. Operations are pipelined: issue many, await them together.

Outages. While the connection is lost the session is SUSPENDED: new operations wait for the connection (up to their
deadline), and operations in flight fail. The session repeats a read that failed for this reason, but not a write, since
the outcome of the write is unknown.
Watches are one-shot; each fires exactly once, with kind UNKNOWN when the connection is lost before the node changed.

kazoo's thread of the connection ends when it reads an answer that it did not expect, and when a login fails (a
connection that is lost during the login counts as such), and then never connects again. The session is LOST, as if it
had expired, and kazoo is started again for another session.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient, KazooState
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KeeperState

from magnetar.bookkeeper import events
from magnetar.bookkeeper.deadlines import Deadline, deadline
from magnetar.bookkeeper.errors import (
    MetadataAccessError,
    MetadataRequestError,
    MetadataUnavailableError,
    NoSuchNodeError,
    SessionExpiredError,
    TooManyRequestsError,
)
from magnetar.bookkeeper.zookeeper.heartbeat import be_patient
from magnetar.bookkeeper.zookeeper.kazoo_handler import BehindWatches, KazooHandler
from magnetar.bookkeeper.zookeeper.translation import CONSEQUENCES, REFUSALS, node_stat, result_of, translated
from magnetar.bookkeeper.zookeeper.values import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Node,
    NodeStat,
    SessionState,
    Set,
    WatchEvent,
    WatchKind,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from magnetar.bookkeeper.zookeeper.values import Operation, ZooKeeperOptions

__all__ = ["ZooKeeperSession"]

log = structlog.get_logger(__name__)

_LONGEST_PAUSE_S = 60.0
"""Before kazoo is started again. The first pause is a session's timeout, so that the nodes of the session are gone, as
listeners of LOST expect; each further pause is twice as long as the last, until a session is connected.
"""

_PART_BYTES = 128
"""An upper bound of the bytes of headers, access list, flags and version around one value."""

_WATCH_KINDS = {
    "CREATED": WatchKind.CREATED,
    "DELETED": WatchKind.DELETED,
    "CHANGED": WatchKind.CHANGED,
    "CHILD": WatchKind.CHILDREN,
}
_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}


class ZooKeeperSession:
    """Open with ``await ZooKeeperSession.connect(options)``; ``close`` ends the session and deletes its ephemeral
    nodes.
    """

    def __init__(self, client: KazooClient, options: ZooKeeperOptions) -> None:
        self._client = client
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(options.max_outstanding)
        self._usable = asyncio.Event()
        """The session is connected, or closed: kazoo answers. Until then requests wait outside kazoo, which would send
        them all later, with or without their callers.
        """
        self._posted: collections.deque[tuple[Callable[..., object], tuple[object, ...]]] = collections.deque()
        """Calls that kazoo's threads have posted to the loop."""
        self._waking = False
        self._in_order = asyncio.Lock()
        self._waiting = 0
        """Operations that wait for their turn; later operations go behind them."""
        self._calls = 0
        """Operations that wait or have no answer yet."""
        self._listeners: list[Callable[[SessionState], None]] = []
        self._state = SessionState.LOST
        self._session_id = 0
        self._closing: asyncio.Future[None] | None = None
        self._kazoo = threading.Lock()
        """Held while kazoo is stopped or started again."""
        self._pause_s = options.session_timeout_ms / 1000
        self._restart: asyncio.TimerHandle | None = None
        self._starting: asyncio.Future[None] = self._loop.create_future()
        client.add_listener(self._on_kazoo_state)

    @classmethod
    async def connect(cls, options: ZooKeeperOptions) -> ZooKeeperSession:
        """Return a connected session. Raises MetadataUnavailableError when no server answers within
        ``connect_timeout_s``, MetadataAccessError when authentication fails.
        """
        handler = KazooHandler()
        client = KazooClient(
            handler=handler,
            hosts=options.servers,
            timeout=options.session_timeout_ms / 1000,
            # kazoo's default backoff grows so long that the session would expire before the next attempt
            connection_retry={"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": options.max_reconnect_delay_s},
            auth_data=set(options.auth),
            sasl_options=dict(options.sasl) or None,
            use_ssl=options.tls,
            ca=options.tls_ca_file,
            certfile=options.tls_certificate_file,
            keyfile=options.tls_key_file,
            verify_certs=options.tls_verify,
            check_hostname=options.tls and options.tls_verify and options.tls_verify_names,
        )
        be_patient(client)
        session = cls(client, options)
        handler.on_failure = session._on_kazoo_failure
        try:
            await session._off_loop(partial(client.start, options.connect_timeout_s), session._starting)
        except (KazooTimeoutError, kazoo_errors.KazooException, OSError) as error:
            await session.close()
            if isinstance(error, REFUSALS):
                raise MetadataAccessError(options.servers, "authentication failed") from error
            detail = f"no connection to ZooKeeper within {options.connect_timeout_s:g} s"
            raise MetadataUnavailableError(options.servers, detail) from error
        except BaseException:
            await session.close()
            raise
        await asyncio.sleep(0)  # the first state change is on its way to the loop
        return session

    @property
    def state(self) -> SessionState:
        return self._state

    @property
    def session_id(self) -> int:
        """Id of the session last connected; compare it with ``NodeStat.ephemeral_owner``."""
        return self._session_id

    @property
    def options(self) -> ZooKeeperOptions:
        return self._options

    def on_state(self, callback: Callable[[SessionState], None]) -> Callable[[], None]:
        """Call ``callback(state)`` on the loop after each change of state; returns the cancel function."""
        self._listeners.append(callback)

        def cancel() -> None:
            if callback in self._listeners:
                self._listeners.remove(callback)

        return cancel

    # reading

    async def get(self, path: str, watch: Callable[[WatchEvent], None] | None = None) -> Node:
        """Return the node. The session calls `watch` once, when the node changes or is deleted.

        Raises NoSuchNodeError (then no watch is set: use ``exists``), MetadataUnavailableError.
        """
        value, stat = await self._read(path, lambda: self._client.get_async(path, watch=self._watcher(path, watch)))
        return Node(value, node_stat(stat))

    async def get_latest(self, path: str) -> Node:
        """Return the node with every write completed before the call, in one round trip: the connected server answers
        the read behind the ``sync`` that the session sends in front of the read.

        Raises as ``get``.
        """
        synced: list[Any] = []

        def start() -> Any:
            synced.append(self._client.sync_async(path))
            return self._client.get_async(path)

        try:
            value, stat = await self._read(path, start)
        except NoSuchNodeError:
            if synced[-1].successful():
                raise
        else:
            if synced[-1].successful():
                return Node(value, node_stat(stat))
        await self.sync(path)  # a connection was lost between the two requests
        return await self.get(path)

    async def exists(self, path: str, watch: Callable[[WatchEvent], None] | None = None) -> NodeStat | None:
        """Return the node's stat, or None. The session calls `watch` once, when the node is created, changed or
        deleted.
        """
        stat = await self._read(path, lambda: self._client.exists_async(path, watch=self._watcher(path, watch)))
        return None if stat is None else node_stat(stat)

    async def children(self, path: str, watch: Callable[[WatchEvent], None] | None = None) -> list[str]:
        """Return the names of the node's children, in no order. The session calls `watch` once, when a child is created
        or deleted, or the node is deleted. Raises NoSuchNodeError.
        """
        names: list[str] = await self._read(
            path, lambda: self._client.get_children_async(path, watch=self._watcher(path, watch))
        )
        return names

    async def sync(self, path: str = "/") -> None:
        """Bring the connected server up to date with the leader: later reads see every write completed before the
        call. On return the watches that these writes fired have been called.
        """
        dispatch = self._client.handler.dispatch_callback
        await self._read(path, lambda: BehindWatches(self._client.sync_async(path), dispatch))

    # writing

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Create the node (version 0) and return its path (with ten digits appended when `sequential`).

        Raises NodeExistsError, NoSuchNodeError (the parent, unless `make_parents`), MetadataUnavailableError.
        """
        self._check_size(path, len(value))
        created: str = await self._call(
            path,
            lambda: self._client.create_async(
                path, value, ephemeral=ephemeral, sequence=sequential, makepath=make_parents
            ),
        )
        return created

    async def set(self, path: str, value: bytes, version: int = ANY_VERSION) -> NodeStat:
        """Write the value if the node has this version. Raises NoSuchNodeError, NodeVersionError."""
        self._check_size(path, len(value))
        return node_stat(await self._call(path, lambda: self._client.set_async(path, value, version)))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete the node if it has this version. Raises NoSuchNodeError, NodeVersionError, NodeNotEmptyError."""
        await self._call(path, lambda: self._client.delete_async(path, version))

    async def commit(self, operations: Sequence[Operation]) -> list[str | NodeStat | None]:
        """Carry out all operations or none. Return for each operation: the path of a create, the stat after a set, None
        for delete and check.

        Raises the error of the first operation that failed; then no node has changed.
        """
        if not operations:
            return []
        self._check_size(operations[0].path, sum(len(o.path) + _PART_BYTES + len(_value(o)) for o in operations))
        transaction = self._client.transaction()
        for operation in operations:
            _ADDERS[type(operation)](transaction, operation)
        results = await self._call(operations[0].path, transaction.commit_async)
        failed = [(o.path, r) for o, r in zip(operations, results, strict=True) if isinstance(r, Exception)]
        for path, error in failed:
            if not isinstance(error, CONSEQUENCES):
                raise translated(error, path) from error
        if failed:
            raise MetadataRequestError(failed[0][0], type(failed[0][1]).__name__)
        return [result_of(operation, result) for operation, result in zip(operations, results, strict=True)]

    async def close(self) -> None:
        """End the session: its ephemeral nodes vanish at once. Idempotent."""
        if self._closing is None:
            self._closing = self._loop.create_future()
            if self._restart is not None:
                self._restart.cancel()
            try:
                await self._off_loop(self._stop)
            finally:
                self._change_state(SessionState.CLOSED)
                self._closing.set_result(None)
        else:
            await asyncio.shield(self._closing)

    # inside

    def _check_size(self, path: str, size: int) -> None:
        if size + len(path) + _PART_BYTES > self._options.max_request_bytes:
            raise MetadataRequestError(path, f"{size} bytes are more than one request of ZooKeeper may hold")

    def _stop(self) -> None:
        with self._kazoo:
            with contextlib.suppress(Exception):  # kazoo may fail to close a broken connection; its threads end
                self._client.stop()
            with contextlib.suppress(Exception):
                self._client.close()

    def _start_again(self) -> None:
        """Start kazoo for another session. ``start_async`` ends the remaining threads of kazoo itself; ``stop`` would
        leave a request to close in the queue, which the next connection sent first.
        """
        with self._kazoo:
            if self._closing is None:
                self._client.start_async()

    async def _off_loop(self, work: Callable[[], Any], ended: asyncio.Future[None] | None = None) -> None:
        """Run blocking work in a new thread: the loop's executor may be full of work that waits for this session."""
        done = ended or self._loop.create_future()

        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - carried to the caller
                self._post(_fail, done, error)
            else:
                self._post(_resolve, done, None)

        threading.Thread(target=run, name="zookeeper session", daemon=True).start()
        await done

    async def _read(self, path: str, start: Callable[[], Any]) -> Any:
        """Execute an operation without side effects; repeat it after a lost connection, until the deadline."""
        end = self._loop.time() + self._options.request_timeout_s
        while True:
            try:
                return await self._call(path, start, end - self._loop.time())
            except (SessionExpiredError, TooManyRequestsError):
                raise
            except MetadataUnavailableError:
                if self._closing is not None or self._loop.time() >= end:
                    raise
                await asyncio.sleep(0.01)

    async def _call(self, path: str, start: Callable[[], Any], timeout_s: float | None = None) -> Any:
        limit = self._options.request_timeout_s if timeout_s is None else timeout_s
        if self._calls >= self._options.max_waiting:
            raise TooManyRequestsError(path, str(self._calls))
        self._calls += 1
        try:
            if self._waiting or not self._usable.is_set() or self._slots.locked():
                async with deadline(limit), self._slots:
                    await self._turn()
                    return await self._send(start)
            async with self._slots:
                answer = self._send(start)
                timer = Deadline(self._loop, limit, partial(_fail, answer, TimeoutError()))
                try:
                    return await answer
                finally:
                    timer.cancel()
        except TimeoutError as error:
            raise MetadataUnavailableError(path, f"no answer within {limit:g} s") from error
        except kazoo_errors.KazooException as error:
            raise translated(error, path) from error
        except (TypeError, ValueError) as error:
            raise MetadataRequestError(path, str(error)) from error
        except RuntimeError as error:  # kazoo read an answer that it did not expect; the outcome is not known
            raise MetadataUnavailableError(path, str(error)) from error
        finally:
            self._calls -= 1

    async def _turn(self) -> None:
        """Wait until the session is usable, in the order of the calls."""
        self._waiting += 1
        try:
            async with self._in_order:
                await self._usable.wait()
        finally:
            self._waiting -= 1

    def _send(self, start: Callable[[], Any]) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = self._loop.create_future()
        start().rawlink(partial(self._on_kazoo_answer, answer))
        return answer

    def _watcher(self, path: str, watch: Callable[[WatchEvent], None] | None) -> Callable[[Any], None] | None:
        if watch is None:
            return None

        def fired(event: Any) -> None:  # on kazoo's thread
            self._post(watch, WatchEvent(_WATCH_KINDS.get(event.type, WatchKind.UNKNOWN), path))

        return fired

    def _on_kazoo_answer(self, answer: asyncio.Future[Any], result: Any) -> None:
        if result.exception is not None:
            self._post(_fail, answer, result.exception)
        else:
            self._post(_resolve, answer, result.value)

    def _on_kazoo_failure(self, error: Exception) -> None:
        """A thread of kazoo ended with an error."""
        self._post(self._ended, error)

    def _ended(self, error: Exception) -> None:
        if not self._starting.done():
            _fail(self._starting, error)
        elif self._closing is None and self._restart is None:
            again_s = self._pause_s
            log.error(events.ZOOKEEPER_ENDED, servers=self._options.servers, error=repr(error), again_s=again_s)
            self._pause_s = max(again_s, min(2 * again_s, _LONGEST_PAUSE_S))
            self._restart = self._loop.call_later(again_s, self._begin_restart)

    def _begin_restart(self) -> None:
        def run() -> None:
            try:
                self._start_again()
            except Exception as error:  # noqa: BLE001 - the next attempt follows
                self._on_kazoo_failure(error)

        self._restart = None  # kazoo may fail again before ``_start_again`` returns
        if self._closing is None:
            try:
                threading.Thread(target=run, name="zookeeper session", daemon=True).start()
            except RuntimeError as error:  # no thread for this process
                self._ended(error)

    def _on_kazoo_state(self, state: str) -> None:
        if self._client._state == KeeperState.AUTH_FAILED:  # noqa: SLF001 - kazoo's thread ends without an error
            self._post(self._ended, kazoo_errors.AuthFailedError())
        identity = self._client.client_id
        self._post(self._change_state, _STATES[state], identity[0] if identity else None)

    def _post(self, function: Callable[..., object], *arguments: object) -> None:
        """Have the loop call the function. One wake-up of the loop serves all functions that are posted before it."""
        self._posted.append((function, arguments))
        if not self._waking:
            self._waking = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: there is no listener any more
                self._loop.call_soon_threadsafe(self._call_posted)

    def _call_posted(self) -> None:
        self._waking = False  # before the look: a later post wakes the loop again
        for _ in range(len(self._posted)):
            function, arguments = self._posted.popleft()
            self._loop.call_soon(function, *arguments)

    def _change_state(self, state: SessionState, session_id: int | None = None) -> None:
        if session_id:
            self._session_id = session_id
        if state is self._state or self._state is SessionState.CLOSED:
            return
        self._state = state
        if state is SessionState.CONNECTED:
            self._pause_s = self._options.session_timeout_ms / 1000
        if state in (SessionState.CONNECTED, SessionState.CLOSED):
            self._usable.set()
        else:
            self._usable.clear()
        for listener in list(self._listeners):
            listener(state)


def _value(operation: Operation) -> bytes:
    return operation.value if isinstance(operation, Create | Set) else b""


def _resolve(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


_ADDERS: dict[type, Callable[[Any, Any], None]] = {
    Create: lambda t, o: t.create(o.path, o.value, ephemeral=o.ephemeral, sequence=o.sequential),
    Set: lambda t, o: t.set_data(o.path, o.value, o.version),
    Delete: lambda t, o: t.delete(o.path, o.version),
    Check: lambda t, o: t.check(o.path, o.version),
}
