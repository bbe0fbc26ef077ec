"""One client connection: bytes in, commands to handlers, bytes out, and the life of the socket.

Theory of operation. `buffer_updated` cuts received bytes into items and passes each to its handler in order. SENDs
arrive as whole runs, and plain calls publish them. For every other command the protocol's command table names the
handler in `broker.handlers`. A handler that has to wait is a coroutine and becomes a task of this connection; the other
handlers run at once. No bytes of a peer cause an exception outside this file: a broken frame or a command out of place
closes this connection (as in Apache Pulsar), a failed request gets its typed error as reply, and any other exception is
logged as a bug and gets the reply UnknownError without details.

Back-pressure: the connection does not read while there is a reason against it (publishes in flight, output that the
peer does not read). The broker checks `is_writable` before it sends more messages to a consumer.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
from typing import TYPE_CHECKING, Any, cast

import structlog

from magnetar.broker.errors import ConnectionFatalError
from magnetar.broker.handlers.request_turns import FEW_REQUESTS, LARGE_COMMAND_BYTES, cost_of
from magnetar.broker.handlers.table import BEFORE_HANDSHAKE, HANDLERS, OPENING
from magnetar.broker.memory_account import WAITING_COMMANDS
from magnetar.broker.network.client_memory import ClientMemory
from magnetar.broker.network.early_read import EarlyRead
from magnetar.broker.network.foreign_peers import hint
from magnetar.broker.network.keep_alive import KeepAlive
from magnetar.broker.network.leaving import Leaving
from magnetar.broker.network.output import WEIGHED_BYTES, Output
from magnetar.broker.network.publish_gate import PublishGate
from magnetar.broker.network.read_buffer import PART_FIELDS, ReadBuffer, memory_of
from magnetar.broker.network.request_tasks import RequestTasks
from magnetar.broker.network.window_halves import WindowHalves
from magnetar.broker.slices import IN_SLICES, PUBLISH_RATE, stop_commands
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import replies
from magnetar.protocol.errors import TooManyPartsError
from magnetar.protocol.runs import EntryRun
from magnetar.protocol.texts import repair_texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.auth.provider import PeerCertificate
    from magnetar.broker.auth.sessions import AuthSession
    from magnetar.broker.consumers.consumer import Consumer
    from magnetar.broker.handlers.client import ClientServices
    from magnetar.broker.memory_account import MemoryShare
    from magnetar.broker.network.connection_resources import ConnectionResources
    from magnetar.broker.network.seats import Seat
    from magnetar.broker.topics.list_watcher import TopicListWatcher
    from magnetar.broker.topics.producer import Producer
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.interfaces import NextMessage

log = structlog.get_logger(__name__)

ITEMS_A_TURN = 256
"""The commands and runs of SENDs that a connection handles before other connections get a turn."""
MAX_COMMAND_BYTES = 1 << 20
"""Largest command without the entry of a SEND; the largest commands have a schema or a thousand acknowledgements."""
CLOSE_WITHIN_S = 10  # the time that the peer of a closing connection has to read the written bytes
CONNECTION_BYTES = 8 * 1024  # the assumed memory of a connection
_SMALL_READ_BYTES = 16 * 1024
"""A producer whose reads are smaller may wait for its turn (`ReadTurns`): the next read brings more."""
_FRAME_UNIT = 12  # parts of frames are counted in pages, so that a stream of small rests costs no call
PROTOCOL_VERSION = 21
_connection_ids = itertools.count(1)


class Connection(asyncio.BufferedProtocol):
    """Server side of one TCP connection; also the `Outbox` of its producers and consumers."""

    def __init__(
        self,
        resources: ConnectionResources,
        services: ClientServices,
        *,
        tls: bool = False,
        seat: Seat | None = None,
    ) -> None:
        self.services, self.tls, self._seat = services, tls, seat
        self.connection_id, self.loop = next(_connection_ids), asyncio.get_running_loop()
        self._resources, self._settings = resources, resources.settings
        self.producers: dict[int, Producer | asyncio.Future[Producer]] = {}
        self.consumers: dict[int, Consumer | asyncio.Future[Consumer]] = {}
        self.sought_consumers: dict[int, Consumer] = {}
        self.recently_closed_producers: dict[int, float] = {}
        self.watchers: dict[int, TopicListWatcher] = {}
        self.lists, self.matching = asyncio.Lock(), asyncio.Lock()
        self.peer_version, self.client_version = 0, ""
        self.features = pb.FeatureFlags()
        self.auth: AuthSession | None = None
        self.connected, self.closed, self.address = False, False, ""
        self.knows_entry_metadata = self.wants_entry_metadata = False
        self._turns = resources.turns
        self._halves, self._rounds = WindowHalves(resources.turns), resources.shared_buffer.rounds
        self._buffer = ReadBuffer(resources.shared_buffer, resources.max_frame_bytes)
        self._transport: asyncio.Transport | None = None
        self._read_holds: set[str] = set()
        self._frame_pages, self._rest_waits = 0, False
        self._rest: list[Any] = []  # items of the read bytes that are not handled yet
        self._rest_error: str | None = None
        self.gate: PublishGate
        self.output: Output
        self.early_read: NextMessage | None
        self.requests: RequestTasks
        self._share: MemoryShare
        self._clients: ClientMemory
        self._keep_alive: KeepAlive

    # --- the socket's life ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.address = f"/{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)
        host = peer[0] if isinstance(peer, tuple) else ""
        self._share = self._resources.memory.share(host, lambda: self.release_reading("memory"))
        self._share.set("connection", CONNECTION_BYTES)
        settings, budget = self._settings, self._resources.publish_budget
        self.gate = PublishGate(self, budget, settings.max_pending_publish_requests_per_connection)
        self._clients = ClientMemory(self, self._share)
        self.output = Output(transport, self._share)
        self.early_read = EarlyRead(self, self._buffer, transport).function
        self.requests = RequestTasks(self, self._share)
        self._keep_alive = KeepAlive(self, self._buffer, self.output, self.loop)
        if self._seat is not None:
            self._seat.idle(lambda: self.lost("no handshake, and others want its place"))
        refusal = self._resources.connections.admit(self, host)
        if refusal is not None:
            self.write(replies.error(-1, pb.NotAllowedError, refusal))
            self.close()
            return
        self._keep_alive.start(lambda: settings.keep_alive_interval_seconds)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio calls it so
        self.closed = True
        self._keep_alive.stop()
        self._resources.connections.forget(self)
        if self._seat is not None:
            self._seat.leave()
        if self.auth is not None:
            self.auth.close()
        self.gate.close()
        watchers, self.watchers = self.watchers, {}
        for watcher in watchers.values():
            watcher.stop()
        entries = (*self.producers.values(), *self.consumers.values())
        self.producers, self.consumers = {}, {}
        leaving = [each for each in entries if not isinstance(each, asyncio.Future)]
        Leaving(leaving, self.services.request_turns, self.loop).begin()
        for entry in entries:  # last: a producer that waits for one of those that leave uses up its turn
            if isinstance(entry, asyncio.Future):
                entry.cancel()
        self._transport = self.early_read = None
        self._rest.clear()
        self.output.close()
        self._share.close()
        self._clients.close()
        self.requests.close()
        if len(self.requests):
            self._resources.tasks.spawn(self.requests.settle(), "connection.settle")

    def close(self) -> None:
        """Close after the written bytes are sent, or when that takes too long; safe to call twice."""
        if self._transport is not None and not self._transport.is_closing():
            self.closed = True
            if self.tls or self.output.waiting_bytes:
                self.loop.call_later(CLOSE_WITHIN_S, self._transport.abort)
            self.output.end()

    def abort(self) -> None:
        """Close at once, for a peer that does not read."""
        if self._transport is not None:
            self.closed = True
            self._transport.abort()

    def refuse(self, reason: str) -> None:
        """Close a connection whose peer broke the rules."""
        meant = None if self.connected else hint(reason)
        report = log.info if meant is None else log.warning
        report("connection.refused", conn=self.connection_id, address=self.address, reason=meant or reason)
        self.close()

    def lost(self, reason: str) -> None:
        """Close at once a connection whose peer is gone or stuck."""
        log.info("connection.lost", conn=self.connection_id, address=self.address, reason=reason)
        self.abort()

    # --- bytes in ------------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio calls it so
        if self.services.request_turns.waiting:  # further items may wait, too, at ten times their bytes
            return self._buffer.room()[: max(_SMALL_READ_BYTES, self._buffer.missing_bytes)]
        half_bytes = self._halves.half_bytes
        if half_bytes and self._turns.is_idle and not self.gate.pending_entries:
            return self._buffer.room()[:half_bytes]
        return self._buffer.room()

    def buffer_updated(self, nbytes: int, *, later: bool = False) -> None:
        self._keep_alive.heard = True
        entries, (items, error) = self.gate.pending_entries, self._buffer.received(nbytes)
        number, waited, turns, rounds = len(items), len(self._rest), self.services.request_turns, self._rounds
        many = number > FEW_REQUESTS and (number > ITEMS_A_TURN or turns.count(self.loop, number))
        wait = later or (rounds.reads >= rounds.few and rounds.is_crowded(self.loop))
        if self._rest or many or (items and (wait or (self._read_holds and stop_commands(self._read_holds)))):
            self._rest += items
            self._rest_error = error
            self._buffer.keep_refused()
            self.hold_reading("turn")
            self._wait_with_rest()
        elif not self._on_items(items, error):
            return
        elif nbytes < _SMALL_READ_BYTES and self._turns.is_held and self.gate.pending_entries:
            self._turns.wait(lambda: self.release_reading("pace"))
            self.hold_reading("pace")
        elif nbytes >= _SMALL_READ_BYTES and self._halves.received(nbytes, entries, self.gate.pending_entries):
            self.hold_reading("half")
            self.loop.call_soon(self.release_reading, "half")
        if nbytes >= _SMALL_READ_BYTES:
            rounds.received(self, nbytes)
        if self._rest:
            self._share.add(WAITING_COMMANDS, memory_of(items if waited else self._rest))
        pages = self._buffer.held_bytes >> _FRAME_UNIT
        if pages != self._frame_pages:
            self._frame_pages = pages
            self._share.set("frame", pages << _FRAME_UNIT)
            self._wait_for_memory()

    def _on_items(self, items: list[Any], error: str | None) -> bool:
        """Handle these items, then the fault behind them; returns whether the connection continues."""
        try:
            for number, item in enumerate(items, 1):
                if self.closed:
                    return False
                if len(item) == 2:
                    if len(item[1]) >= LARGE_COMMAND_BYTES and not self._has_turn(item[1]):
                        return self._put_back(items[number - 1 :], error)
                    self._on_command(item[0], item[1])
                else:
                    run, done = (EntryRun(*item), 0) if len(item) > PART_FIELDS else item[:2]
                    if (done := self._on_run(run, done)) < run.count:
                        return self._put_back([(run, done, run.data), *items[number:]], error)
                if self._read_holds and number < len(items) and stop_commands(self._read_holds):
                    return self._put_back(items[number:], error)
            if error is None:
                return not self.closed
            if self._buffer.may_cut_again and self.connected and not self.closed:
                return self._on_items(*self._buffer.again())  # the handshake ended meanwhile
        except ConnectionFatalError as e:
            error = str(e)
        except Exception:
            log.exception("connection.failed", conn=self.connection_id, address=self.address)
            self.close()
            return False
        self.refuse(error)
        return False

    def _has_turn(self, data: bytes) -> bool:
        """Count a large command; false when it has to wait for a later round of the event loop, or for a place."""
        return self.services.request_turns.takes(self.loop, len(data)) and self.requests.may_parse(len(data))

    def _put_back(self, items: list[Any], error: str | None) -> bool:
        """Keep items that wait for a command in slices, or for a round; returns whether the connection continues."""
        self._rest = items + self._rest
        self._rest_error = error or self._rest_error
        self._buffer.keep_refused()
        self.hold_reading("turn")
        if IN_SLICES not in self._read_holds:
            self._wait_with_rest()
        return not self.closed

    def _wait_with_rest(self) -> None:
        """Go on with the kept items in a later round of the event loop."""
        if not self._rest_waits:
            self._rest_waits = True
            items = self._rest[:ITEMS_A_TURN]
            self.services.request_turns.count(self.loop, len(items))
            self.services.request_turns.wait(self._on_rest, cost_of(items), self)

    def _on_rest(self) -> None:
        """Handle up to ITEMS_A_TURN of the kept items, as far as only a turn, or memory of others, holds reading."""
        self._rest_waits = False
        own = self.waits_for_memory and self._share.is_over_own
        if not self._rest or own or self._read_holds - {"memory"} != {"turn"}:
            self.requests.leave_place()
            return
        items, self._rest = self._rest[:ITEMS_A_TURN], self._rest[ITEMS_A_TURN:]
        error, self._rest_error = (None, self._rest_error) if self._rest else (self._rest_error, None)
        if not self._on_items(items, error):
            self._rest.clear()
        elif self._rest:
            self._wait_with_rest()
        else:
            self._share.set(WAITING_COMMANDS, 0)
            self.release_reading("turn")

    def _wait_for_memory(self) -> None:
        """Read no more while this connection, its address or the broker is over its share. A connection that has not
        proved its role is closed instead.
        """
        if self.waits_for_memory or self.closed or not self._clients.are_over():
            return
        if not self.connected:
            self._share.refused()
            self.refuse("no memory for peers that are not authenticated")
            return
        self._share.wait()
        self.hold_reading("memory")

    def _on_run(self, run: EntryRun, start: int) -> int:
        """Publish the entries of a run from `start` on; return the end of those that a publish rate let pass."""
        if not self.connected:
            raise ConnectionFatalError("SEND before the handshake")
        producer = self.producers.get(run.producer_id)
        if producer is not None and not isinstance(producer, asyncio.Future):
            end = producer.publish(run, start)
            self._buffer.gap = run.wanted_gap or self._buffer.gap
            return end
        closed_at = self.recently_closed_producers.get(run.producer_id)
        keep_alive_s = self._settings.keep_alive_interval_seconds
        if closed_at is None or self.loop.time() - closed_at > keep_alive_s:
            raise ConnectionFatalError(f"SEND for the unknown producer {run.producer_id}")
        return run.count

    def _on_command(self, command_type: int, data: bytes) -> None:
        if not self.connected and command_type not in BEFORE_HANDSHAKE:
            raise ConnectionFatalError(f"command {command_type} before the handshake")
        row = HANDLERS.get(command_type)
        if row is None:
            raise ConnectionFatalError(f"command {command_type} is not for a broker")
        if len(data) > MAX_COMMAND_BYTES:
            raise ConnectionFatalError(f"command {command_type} of {len(data)} bytes")
        try:
            base = pb.BaseCommand.FromString(data)
        except Exception as e:
            raise ConnectionFatalError(f"command {command_type} does not parse") from e
        if base.type != command_type and base.HasField("type"):  # the type came twice: the last counts
            self._on_command(base.type, base.SerializePartialToString())
            return
        if not base.HasField(cast("Any", row.field)) or not base.IsInitialized():  # which the parser does not check
            raise ConnectionFatalError(f"command {command_type} lacks a required field")
        command = getattr(base, row.field)
        if command_type != pb.BaseCommand.ACK:  # the broker does not read texts of an ACK
            try:
                repair_texts(command)
            except TooManyPartsError as e:
                raise ConnectionFatalError(f"command {command_type} {e}") from e
        try:
            if command_type in OPENING:
                self._clients.require_room(command)
            result = row.handler(self, command)
        except Exception as e:  # noqa: BLE001 - a door: every error of a handler becomes a reply
            self.requests.failed(row.fail, command, e)
            return
        if result is not None and inspect.iscoroutine(result) and self.requests.begin(result, row, command, len(data)):
            self._wait_for_memory()

    # --- bytes out (Outbox) --------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send bytes; the event loop joins them with all other bytes written in this turn."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if len(data) < WEIGHED_BYTES and self.output.writable:
            transport.write(data)
        elif not self.output.write(data):
            self.lost("does not read its answers")

    def is_writable(self) -> bool:
        """Whether messages reach the peer; not those of a closed connection, whose consumers leave in turns."""
        return self.output.writable and not self.closed

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, as soon as the peer has read enough (or is gone)."""
        self.output.when_writable(callback)

    def pause_writing(self) -> None:
        self.output.paused()
        self.hold_reading("output")  # no further requests of a peer that does not read its answers

    def resume_writing(self) -> None:
        self.release_reading("output")
        self.output.resumed()

    def close_notice(self, frame: bytes, since_version: int) -> None:
        """Write a CLOSE_*, or close the connection of a peer too old to know it (protocol version 5)."""
        if self.peer_version >= since_version:
            self.write(frame)
        else:
            self.close()

    # --- flow control --------------------------------------------------------------------------------------------

    def hold_reading(self, reason: str) -> None:
        if not self._read_holds and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._read_holds.add(reason)

    def spend(self, commands: int) -> None:
        """Count the work of so many commands; handle the next in a later round when the round has much."""
        turns = self.services.request_turns
        if turns.count(self.loop, commands) and IN_SLICES not in self._read_holds:
            self.hold_reading(IN_SLICES)
            turns.wait(lambda: self.release_reading(IN_SLICES), commands, self)

    def release_reading(self, reason: str) -> None:
        self._read_holds.discard(reason)
        if self._rest and reason.startswith(PUBLISH_RATE):
            self._buffer.narrow()
            if self.output.peer_has_left():
                self.lost("left while its commands waited for a publish rate")
        if self._rest:
            self._wait_with_rest()
        if not self._read_holds and self._transport is not None and not self._transport.is_closing():
            self._keep_alive.heard = True  # bytes that wait in the socket count as a sign of life
            self._transport.resume_reading()

    @property
    def is_reading(self) -> bool:
        return not self._read_holds

    @property
    def waits_for_memory(self) -> bool:
        return "memory" in self._read_holds

    # --- keep-alive ----------------------------------------------------------------------------------------------

    def admit(self) -> None:
        """End the handshake: accept every command, and frames as large as messages."""
        self.connected = True
        if self._seat is not None:
            self._seat.busy()
        self._buffer.admit(self._resources.max_frame_bytes)
        self.output.admit()

    def refresh(self) -> None:
        """Remove outdated state; called once per keep-alive interval."""
        if self.waits_for_memory and not self._share.is_over:
            self.release_reading("memory")
        horizon = self.loop.time() - self._settings.keep_alive_interval_seconds
        self.recently_closed_producers = {k: t for k, t in self.recently_closed_producers.items() if t >= horizon}
        self._clients.recount()

    def require_memory(self, kept_bytes: int) -> None:
        """Count memory of a watcher that opens. Raises TooManyRequestsError when there is no room."""
        self._clients.require(kept_bytes)

    def require_output(self, size: int) -> None:
        """Raise TooManyRequestsError when the connection has no memory for an answer of that size."""
        self._clients.require_output(size)

    def on_pong(self) -> None:
        self._keep_alive.on_pong()

    async def check_alive(self) -> bool:
        """PING the peer; False (connection closed) without an answer in connectionLivenessCheckTimeoutMillis."""
        return await self._keep_alive.check(self._settings.connection_liveness_check_timeout_millis)

    # --- roles ---------------------------------------------------------------------------------------------------

    @property
    def role(self) -> str | None:
        return self.auth.role if self.auth is not None else None

    @property
    def is_super_user(self) -> bool:
        """Whether this connection may do everything, as every client may without authorization."""
        return self.auth is None or self.auth.is_super_user

    @property
    def negotiated_version(self) -> int:
        return min(self.peer_version, PROTOCOL_VERSION)

    def peer_certificate(self) -> PeerCertificate | None:
        """The verified certificate of a TLS client, as `ssl` describes it; None without."""
        ssl_object = self._transport.get_extra_info("ssl_object") if self._transport is not None else None
        return ssl_object.getpeercert() if ssl_object is not None else None

    def authorize(self, command_type: int, name: TopicName, subscription: str = "") -> None:
        """Raise AuthorizationError unless this connection's role may use the command on the topic."""
        if self.auth is not None:
            self.auth.require_topic(command_type, name, subscription)

    def may(self, command_type: int, name: TopicName, subscription: str = "") -> bool:
        """Whether a right this connection used still stands."""
        return self.auth is None or self.auth.may(command_type, name, subscription)

    def authorize_namespace(self, command_type: int, namespace: str) -> None:
        if self.auth is not None:
            self.auth.require_namespace(command_type, namespace)

    def may_namespace(self, command_type: int, namespace: str) -> bool:
        """Whether a right to a namespace this connection used still stands."""
        return self.auth is None or self.auth.may_namespace(command_type, namespace)
