"""A layer between a socket and its `Connection` that passes, delays, drops, repeats or answers frames.

Both directions are lanes: frames keep their order, so a delayed frame delays the frames behind it, as a slow network
does. The broker's own back-pressure stays in effect: frames that wait in a lane count as unsent, and the layer does not
read a socket while a lane is full.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from magnetar.broker.handlers.table import HANDLERS
from magnetar.broker.network.feed import feed
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import replies
from magnetar.testing.frames import FrameStream, Topics, parse_frame
from magnetar.testing.rules import ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.network.connection import Connection
    from magnetar.testing.rules import Rule, Rules

_FULL_BYTES = 4 << 20
_ANSWERS = (pb.BaseCommand.SEND_RECEIPT, pb.BaseCommand.SEND_ERROR)


class Switches:
    """The switches of all connections: the rules, and whether all frames are paused."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.paused = False
        self.open: dict[FaultyConnection, None] = {}

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        for connection in list(self.open):
            connection.go_on()


class Lane:
    """Frames on their way in one direction. `deliver` takes a frame; `full` gets True when the lane becomes full, and
    False when it has room again.
    """

    def __init__(self, switches: Switches, deliver: Callable[[bytes], None], full: Callable[[bool], None]) -> None:
        self._switches = switches
        self._deliver = deliver
        self._tell_full = full
        self._waiting: deque[tuple[bytes, float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._is_full = False
        self.size = 0

    def put(self, frame: bytes, seconds: float = 0.0) -> None:
        self._waiting.append((frame, seconds))
        self.size += len(frame)
        self.go_on()
        self._look()

    def go_on(self) -> None:
        """Deliver the frames at the front whose delay is over, unless all frames are paused."""
        while self._waiting and self._timer is None and not self._switches.paused:
            frame, seconds = self._waiting[0]
            if seconds:
                self._waiting[0] = frame, 0.0
                self._timer = asyncio.get_running_loop().call_later(seconds, self._released)
                return
            self._waiting.popleft()
            self.size -= len(frame)
            self._deliver(frame)
        self._look()

    def _released(self) -> None:
        self._timer = None
        self.go_on()

    def _look(self) -> None:
        is_full = self.size > _FULL_BYTES
        if is_full != self._is_full:
            self._is_full = is_full
            self._tell_full(is_full)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()
        self.size = 0


class Turns:
    """Answers to SENDs keep the order of the SENDs: a SEND that is refused here waits for the answers before it."""

    def __init__(self) -> None:
        self._sent: Counter[int] = Counter()
        self._answered: Counter[int] = Counter()
        self._waiting: dict[int, deque[tuple[int, Callable[[], None]]]] = {}

    def sent(self, producer_id: int, copies: int) -> None:
        self._sent[producer_id] += copies

    def answered(self, producer_id: int) -> None:
        """Count an answer to a SEND of a producer, and send the refusals that waited for it."""
        self._answered[producer_id] += 1
        self._go_on(producer_id)

    def refuse(self, producer_id: int, answer: Callable[[], None]) -> None:
        """Call `answer` when all SENDs so far are answered."""
        self._waiting.setdefault(producer_id, deque()).append((self._sent[producer_id], answer))
        self._go_on(producer_id)

    def _go_on(self, producer_id: int) -> None:
        waiting = self._waiting.get(producer_id)
        while waiting and waiting[0][0] <= self._answered[producer_id]:
            waiting.popleft()[1]()


class FaultyConnection(asyncio.Protocol):
    """The socket's protocol; the connection behind it gets this module's transport."""

    def __init__(self, connection: Connection, switches: Switches) -> None:
        self.connection = connection
        self._switches = switches
        self._topics = Topics()
        self._turns = Turns()
        self._stream = FrameStream()
        self._in = Lane(switches, partial(feed, connection), self._on_full)
        self._transport: asyncio.Transport
        self._own: _FaultyTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._own = _FaultyTransport(self._transport, self._on_output, Lane(self._switches, self._send, lambda _: None))
        self._switches.open[self] = None
        self.connection.connection_made(self._own)

    def connection_lost(self, exc: Exception | None) -> None:
        self._switches.open.pop(self, None)
        self._in.close()
        self._own.lane.close()
        self.connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self.connection.pause_writing()

    def resume_writing(self) -> None:
        self.connection.resume_writing()

    def eof_received(self) -> bool:
        return False

    def go_on(self) -> None:
        """Continue in both directions after a pause."""
        self._in.go_on()
        self._own.lane.go_on()

    def cut(self) -> None:
        """Close the socket at once, as a failing network does."""
        self._transport.abort()

    # --- frames --------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        for frame in self._stream.feed(data):
            rule, command = self._judge(frame)
            if rule is not None and rule.action == "reject" and command is not None:
                self._refuse(command, rule)
            elif rule is None or rule.action != "drop":
                copies = 2 if rule is not None and rule.action == "duplicate" else 1
                if command is not None and command.type == pb.BaseCommand.SEND:
                    self._turns.sent(command.send.producer_id, copies)
                for _ in range(copies):
                    self._in.put(frame, rule.seconds if rule is not None else 0.0)

    def _refuse(self, command: pb.BaseCommand, rule: Rule) -> None:
        if command.type == pb.BaseCommand.SEND:
            answer = _send_error(command.send, rule)
            self._turns.refuse(command.send.producer_id, lambda: self._own.lane.put(answer))
            return
        row = HANDLERS[command.type]
        assert row.fail is not None, "rules for others are refused"
        self._own.lane.put(row.fail(getattr(command, row.field), ERRORS[rule.error], rule.message))

    def _on_output(self, frame: bytes) -> None:
        rule, command = self._judge(frame)
        self._pass_on(frame, rule)
        if command is not None and command.type in _ANSWERS:
            self._turns.answered(_body(command).producer_id)

    def _pass_on(self, frame: bytes, rule: Rule | None) -> None:
        lane = self._own.lane
        if rule is None or rule.action == "delay":
            lane.put(frame, rule.seconds if rule is not None else 0.0)
        elif rule.action == "duplicate":
            lane.put(frame)
            lane.put(frame)

    def _judge(self, frame: bytes) -> tuple[Rule | None, pb.BaseCommand | None]:
        command = parse_frame(frame)
        if command is None:
            return None, None
        body = _body(command)
        topic = None if body is None else self._topics.of(command, body)
        return self._switches.rules.decide(command.type, topic), command

    def _send(self, frame: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(frame)

    def _on_full(self, is_full: bool) -> None:
        self._own.hold("lane") if is_full else self._own.release("lane")


class _FaultyTransport(asyncio.Transport):
    """Sends the connection's writes through a lane. Reading pauses on the connection's request or for a full lane."""

    def __init__(self, transport: asyncio.Transport, on_frame: Callable[[bytes], None], lane: Lane) -> None:
        super().__init__()
        self._transport = transport
        self._on_frame = on_frame
        self._stream = FrameStream()
        self._holds: set[str] = set()
        self.lane = lane

    def write(self, data: Any) -> None:
        for frame in self._stream.feed(data):
            self._on_frame(frame)

    def get_write_buffer_size(self) -> int:
        return self.lane.size + self._transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":
            return default  # no answer passes the rules and the lane by
        return self._transport.get_extra_info(name, default)

    def hold(self, reason: str) -> None:
        if not self._holds and not self._transport.is_closing():
            self._transport.pause_reading()
        self._holds.add(reason)

    def release(self, reason: str) -> None:
        self._holds.discard(reason)
        if not self._holds and not self._transport.is_closing():
            self._transport.resume_reading()

    def pause_reading(self) -> None:
        self.hold("broker")

    def resume_reading(self) -> None:
        self.release("broker")

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()


def _body(command: pb.BaseCommand) -> Any:
    """The message of the command's type (CommandSend, CommandAck, ...) within a BaseCommand."""
    for descriptor, value in command.ListFields():
        if descriptor.message_type is not None:
            return value
    return None


def _send_error(send: pb.CommandSend, rule: Rule) -> bytes:
    high = send.highest_sequence_id if send.HasField("highest_sequence_id") else send.sequence_id
    return replies.send_error(send.producer_id, high, ERRORS[rule.error], rule.message)
