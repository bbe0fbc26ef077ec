"""Requests of one connection that have to wait: their tasks, their memory, and the replies to failed requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from magnetar.broker.errors import BrokerError, ConnectionFatalError
from magnetar.broker.handlers.request_turns import FEW_REQUESTS
from magnetar.broker.network.gone import GONE
from magnetar.broker.slices import IN_SLICES
from magnetar.broker.tasks import TaskSet
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from magnetar.broker.handlers.request_turns import RequestTurns
    from magnetar.broker.handlers.table import Row
    from magnetar.broker.memory_account import MemoryShare
    from magnetar.broker.parsed_commands import Place

    Fail = Callable[..., bytes]

log = structlog.get_logger(__name__)
REQUESTS_HIGH = 1000
"""The most requests of one connection without an answer. At this number reading pauses until half of them have one."""
_LARGE_COMMAND_BYTES = 1024
_PLACE_FROM_BYTES = 64 * 1024
"""Commands that are larger are parsed when they have a place among those of all connections."""
_PLACE_S = 10.0
"""A request that takes longer, such as a producer that waits for exclusive access, leaves its place to others."""
_FOR_A_PLACE = "place"
"""Reason to stop reading a connection: its next command waits for a place."""
_PARSED_FACTOR = 12
"""The assumed bytes of memory per byte of a command in progress: short ids of messages take so many."""
_REQUEST_BYTES = 4096
_STEP_BITS = 6
"""The account counts requests in progress in steps of 64, each request with these bytes: so a few cost no call."""

_HOLD_READING = frozenset({"ack", "redeliverUnacknowledgedMessages"})
"""Commands whose handlers hold the reading themselves while they are done in slices; they are cheap otherwise."""


class AskedServices(Protocol):
    """The part of `ClientServices` that requests need."""

    @property
    def request_turns(self) -> RequestTurns: ...


class Answering(Protocol):
    """The part of a connection that its requests need."""

    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    def refuse(self, reason: str) -> None: ...
    def hold_reading(self, reason: str) -> None: ...
    def release_reading(self, reason: str) -> None: ...


class Asker(Answering, Protocol):
    """A connection that is open."""

    connection_id: int
    loop: asyncio.AbstractEventLoop

    @property
    def services(self) -> AskedServices: ...


class RequestTasks:
    """Runs the awaitables of handlers; reading pauses at REQUESTS_HIGH requests without an answer and continues at half
    of it. Reading also pauses when this connection and others begin many requests in a round of the event loop.
    """

    def __init__(self, owner: Asker, share: MemoryShare) -> None:
        self._owner: Answering = owner
        self._connection_id = owner.connection_id
        self._loop = owner.loop
        self._turns = owner.services.request_turns
        self._share = share
        self._tasks = TaskSet()
        self._aside: set[asyncio.Task[Any] | None] = set()
        self._holding = False
        self._round = self._begun = 0
        """The round in which the last request began, and how many requests began in it."""
        self._waits = False
        self._steps = 0
        self._place: Place | None = None
        """The place of the next command."""

    def __len__(self) -> int:
        return len(self._tasks)

    def begin(self, coroutine: Coroutine[Any, Any, None], row: Row, command: Any, size: int) -> bool:
        """Run the rest of a request as a task; return whether the memory share counts more bytes than before: of a
        command whose `size` in bytes is large, or of many requests in progress.
        """
        task = self._tasks.spawn(self._run(coroutine, row.fail, command), row.field)
        large = size >= _LARGE_COMMAND_BYTES
        if not large:
            task.add_done_callback(self._ended)
        else:
            parsed_bytes, place = _PARSED_FACTOR * size, None
            self._share.add("requests", parsed_bytes)
            if size > _PLACE_FROM_BYTES and self._place is not None:
                place, self._place = self._place, None
                self._loop.call_later(_PLACE_S, place.leave)
            task.add_done_callback(lambda task: self._ended(task, parsed_bytes, place))
        grows = len(self._tasks) >> _STEP_BITS != self._steps
        if grows:
            self._weigh()
        if self._unanswered >= REQUESTS_HIGH:
            self._holding = True
            self._owner.hold_reading("requests")
        if row.field not in _HOLD_READING:
            self._count()
        return large or grows

    @property
    def _unanswered(self) -> int:
        return len(self._tasks) - len(self._aside)

    def set_aside(self, request: asyncio.Task[Any] | None) -> None:
        """Hold no reading for this request from now on. It has a first answer and waits for other clients, perhaps for
        those of this connection, whose commands would never be read behind the hold.
        """
        self._aside.add(request)
        self._let_read()

    def may_parse(self, size: int) -> bool:
        """Whether the next command, of so many bytes, may be parsed and handled within this call of the event loop. If
        not, reading pauses until the command has a place.
        """
        if size <= _PLACE_FROM_BYTES:
            return True
        parsed_bytes = _PARSED_FACTOR * size
        if self._place is not None and self._place.size != parsed_bytes:  # the place of the command before
            self._place.leave()
            self._place = None
        if self._place is None:
            self._place = self._share.place(parsed_bytes, self._on_place)
        if self._place.is_taken:
            self._loop.call_soon(self.leave_place)
            return True
        self._owner.hold_reading(_FOR_A_PLACE)
        return False

    def _on_place(self) -> None:
        self._owner.release_reading(_FOR_A_PLACE)

    def leave_place(self) -> None:
        """Free the place of a command that began no task, or that has to wait for another reason."""
        if self._place is not None and self._place.is_taken:
            self._place.leave()
            self._place = None

    def _weigh(self) -> None:
        self._steps = len(self._tasks) >> _STEP_BITS
        self._share.set("waiting", self._steps * _REQUEST_BYTES << _STEP_BITS)

    def _count(self) -> None:
        """Count a request that began; hold reading for a round when there are too many in this round."""
        turns = self._turns
        if self._round != turns.round:
            self._round, self._begun = turns.round, 0
        self._begun += 1
        if turns.count(self._loop) and self._begun >= FEW_REQUESTS and not self._waits:
            self._waits = True
            self._owner.hold_reading(IN_SLICES)
            turns.wait(self._go_on, connection=self._owner)

    def _go_on(self) -> None:
        self._waits = False
        self._owner.release_reading(IN_SLICES)

    def _ended(self, task: asyncio.Task[Any], parsed_bytes: int = 0, place: Place | None = None) -> None:
        self._aside.discard(task)
        if parsed_bytes:
            self._share.add("requests", -parsed_bytes)
        if place is not None:
            place.leave()
        if len(self._tasks) >> _STEP_BITS != self._steps:
            self._weigh()
        self._let_read()

    def _let_read(self) -> None:
        if self._holding and self._unanswered <= REQUESTS_HIGH // 2:
            self._holding = False
            self._owner.release_reading("requests")

    async def _run(self, coroutine: Coroutine[Any, Any, None], fail: Fail | None, command: Any) -> None:
        try:
            await coroutine
        except asyncio.CancelledError:
            raise
        except Exception as e:  # noqa: BLE001 - a door: whatever a handler raises becomes a reply
            self.failed(fail, command, e)

    def failed(self, fail: Fail | None, command: Any, error: Exception) -> None:
        """Answer a failed request: the only place where an exception becomes a reply."""
        owner = self._owner
        if isinstance(error, ConnectionFatalError):
            owner.refuse(str(error))
            return
        if isinstance(error, BrokerError):
            code, text, closes = error.server_error, str(error), error.closes_connection
        elif isinstance(error, StorageError):
            code, text, closes = pb.PersistenceError, str(error), False
            log.warning("request.not_stored", conn=self._connection_id, command=type(command).__name__, reason=text)
        else:
            code, text, closes = pb.UnknownError, "internal error", False
            log.error("request.failed", conn=self._connection_id, command=type(command).__name__, exc_info=error)
        if fail is not None:
            owner.write(fail(command, code, text))
        if closes:
            owner.close()

    def close(self) -> None:
        """Forget the connection, which has ended: requests in progress go on and are not answered."""
        self._owner = GONE
        if self._place is not None:
            self._place.leave()
            self._place = None

    async def settle(self) -> None:
        """Wait until all requests have ended. No request is cancelled, because it changes the metadata store as a
        whole.
        """
        await self._tasks.settle()
