"""The socket of one session: the opening handshake, frames, deadlines, the closing handshake.

    deadline                                          after
    the session opens                                 OPEN_WITHIN_S
    no bytes in either direction                      webSocketSessionIdleTimeoutMillis
    output that the peer does not read                two keep-alive intervals (`network.keep_alive`)
    a message that does not arrive whole              the idle timeout
    a wait for memory, of received bytes or publishes a keep-alive interval (``account``)
    closing                                           CLOSE_WITHIN_S

The sans-I/O part of `websockets` reads and writes frames. A message may have webSocketMaxTextFrameSize bytes, in any
number of frames. The broker does not offer compression of frames, which costs 300 KiB a session.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, cast

import structlog
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from magnetar.broker.compat.jetty_http import phrase
from magnetar.broker.network.output import WRITE_HIGH_BYTES
from magnetar.broker.network.pieces import ENCRYPTED_HIGH_BYTES, PIECE_BYTES, Pieces
from magnetar.broker.network.round_turns import host_of
from magnetar.broker.websocket.errors import INTERNAL_ERROR, BadMessageError, SessionRefusedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from magnetar.broker.memory_account import MemoryShare
    from magnetar.broker.network.round_turns import RoundTurns
    from magnetar.broker.websocket.link import Link
    from magnetar.broker.websocket.session import Session

log = structlog.get_logger(__name__)
OPEN_WITHIN_S: Final = 60.0
CLOSE_WITHIN_S: Final = 10.0
_OPENING: Final = "opening"
_TRY_AGAIN_LATER: Final = 1013
_HELD_UNIT: Final = 16
"""The account counts received bytes in steps of 2^16 (64 KiB)."""
_GOING_AWAY: Final = 1001
_MOST_REASON_BYTES: Final = 120
_LEAST_WAIT_S: Final = 0.001
"""uvloop makes no timer for less than half a millisecond: its handle has no time."""
_FRAMES_A_TURN: Final = 128
_PIECE: Final = 4096
"""Bytes that `websockets` cuts into frames in one call: up to 700 frames."""
_TURN_BYTES: Final = 8192
"""Bytes of a text that count as a turn of a session: their JSON takes a millisecond at most."""
_quiet = logging.getLogger("magnetar.websocket.frames")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


class WebSocket(asyncio.Protocol):
    """See the module.

    idle_s, ping_s: with 0 or less, no idle timeout and no pings. turns: the turns of all sessions.
    on_gone: called once, when the connection is lost.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        most_bytes: int,
        idle_s: float,
        ping_s: float,
        turns: RoundTurns,
        on_gone: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._address = host_of(transport)
        self._is_encrypted = transport.get_extra_info("sslcontext") is not None
        self._rest = Pieces()
        self._frames = ServerProtocol(max_size=most_bytes, logger=_quiet)
        self._idle_s = idle_s
        self._ping_s = ping_s
        self._turns = turns
        self._awaits_turn = False
        self._when_gone = [on_gone]
        self._loop = asyncio.get_running_loop()
        self._session: Session | None = None
        self._begun = bytearray()  # the frames so far of an incomplete text
        self._in_text = False
        self._holds: set[str] = set()
        self._waiting: list[bytes] = []  # received bytes for later turns
        self._timers: list[asyncio.TimerHandle] = []
        self._last_traffic = self._loop.time()
        self._gone = False
        self._is_ending = False
        self.link: Link | None = None
        self.is_writable = True
        self._share: MemoryShare | None = None
        self._held_units = 0
        self._memory_within_s = 0.0
        self._memory_waits = 0

    @property
    def transport(self) -> asyncio.Transport:
        return self._transport

    @property
    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size() + self._rest.size

    def limit_output(self, high: int | None, low: int | None) -> None:
        if self._is_encrypted:
            high = ENCRYPTED_HIGH_BYTES if high is None else min(high, ENCRYPTED_HIGH_BYTES)
            low = high // 4
        self._transport.set_write_buffer_limits(high, low)

    @property
    def is_gone(self) -> bool:
        """Whether the connection is lost: `connection_lost` ends nothing that begins later."""
        return self._gone

    # --- the handshake -------------------------------------------------------------------------------------------

    async def open(self, head: bytes, open_session: Callable[[WebSocket], Awaitable[Session]]) -> None:
        """Answer the request with this head: with 101, and begin the session, or with the status of the refusal. The
        socket is not read meanwhile: a client must wait for the answer, and no account counts earlier bytes.
        """
        self.hold_reading(_OPENING)
        self._frames.receive_data(head)
        found = next(iter(self._frames.events_received()), None)
        if not isinstance(found, Request):  # a body, too many headers, a long line
            self._frames = ServerProtocol(logger=_quiet)  # the other answers no request that it cannot read
            self._refuse(self._frames.reject(400, "no WebSocket handshake\n"))
            return
        response = self._frames.accept(found)
        if response.status_code != 101:
            self._refuse(response)
            return
        try:
            async with asyncio.timeout(OPEN_WITHIN_S):  # `wait_for` would leave the error in a cycle with its frames
                session = await open_session(self)
        except SessionRefusedError as e:
            self._refuse(self._frames.reject(e.status, e.reason + "\n"))
            return
        except TimeoutError:
            self._refuse(self._frames.reject(504, "the session did not open in time\n"))
            return
        except BaseException:
            self._transport.abort()
            raise
        if self._gone or self.link is None or self.link.closed:
            session.close()
            self._transport.abort()
            return
        self._session = session
        self._frames.send_response(response)
        self._flush()
        self._last_traffic = self._loop.time()
        self._later(self._idle_s, self._look)
        self._later(self._ping_s, self._ping)
        session.start()
        self.release_reading(_OPENING)

    def _refuse(self, response: Response) -> None:
        if self._gone:
            return
        response.reason_phrase = phrase(response.status_code)
        self._frames.send_response(response)
        self._flush()
        self._close_transport()

    # --- the socket ----------------------------------------------------------------------------------------------

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = True
        for timer in self._timers:
            timer.cancel()
        self._waiting.clear()
        self._begun.clear()
        self._rest.take_all()
        session, self._session = self._session, None  # session, link and socket refer to each other
        link, self.link = self.link, None
        callbacks, self._when_gone = self._when_gone, []
        if session is not None:
            session.close()
        if link is not None:
            link.lost(exc)
        for callback in callbacks:
            callback()

    def data_received(self, data: bytes) -> None:
        self._last_traffic = self._loop.time()
        if self._holds or self._waiting:
            self._waiting.append(data)
        elif self._turns.at_once(self._cost(len(data))):
            self._take(data)
        else:
            self._waiting.append(data)
            self._wait_with_rest()
        self._weigh()

    def _cost(self, size: int) -> int:
        """The turns that so many received bytes count as: they may complete a text of which much has arrived before."""
        return 1 + (len(self._begun) + len(self._frames.reader.buffer) + size) // _TURN_BYTES

    def _weigh(self) -> None:
        """Account for the received bytes of an incomplete message and of frames that wait for a later turn."""
        held = len(self._begun) + len(self._frames.reader.buffer) + sum(map(len, self._waiting))
        units = held >> _HELD_UNIT
        if units == self._held_units or self._share is None:
            return
        grows, self._held_units = units > self._held_units, units
        self._share.set("text", units << _HELD_UNIT)
        if grows and self._share.is_over:
            self.wait_for_memory()

    def _take(self, data: bytes) -> None:
        """Handle some frames now and the rest in later turns, of which all sessions together have a few in a round of
        the event loop; do not read the socket before that.
        """
        at = frames = 0
        while at < len(data) and frames < _FRAMES_A_TURN and not self._holds and not self._gone:
            self._frames.receive_data(data[at : at + _PIECE])
            frames += self._on_events()
            at += _PIECE
        if at >= len(data) or self._gone:
            return
        self._waiting.insert(0, data[at:])
        if not self._holds:
            self._wait_with_rest()

    def _wait_with_rest(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()
        self._await_turn()

    def eof_received(self) -> bool:
        self._frames.receive_eof()
        self._flush()
        return False

    def pause_writing(self) -> None:
        self.is_writable = False
        if self.link is not None:
            self.link.paused()

    def resume_writing(self) -> None:
        self.is_writable = True
        self._write_rest()
        if not self.is_writable:
            return
        if self.link is not None:
            self.link.resumed()
        if self._session is not None:
            self._session.on_writable()

    def _on_events(self) -> int:
        """Handle the received frames, write the answers, and return how many frames there were."""
        events = self._frames.events_received()
        for event in events:
            if self._gone or self._frames.state is not OPEN:
                break
            try:
                self._on_frame(cast("Frame", event))
            except BadMessageError as e:
                self.end(e.code, e.reason)
            except Exception:
                log.exception("websocket.failed")
                self.end(INTERNAL_ERROR, "internal error")
        self._flush()
        if self._frames.close_expected():
            self._close_transport()
        return len(events)

    def _on_frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.TEXT:
            self._in_text = True
        elif frame.opcode is not Opcode.CONT:
            if frame.opcode not in (Opcode.PING, Opcode.PONG):
                self._in_text = False  # Apache Pulsar's sessions do nothing with binary messages
            return
        if not self._in_text or self._session is None:
            return
        self._begun += frame.data
        if not frame.fin:
            return
        whole, self._begun = self._begun, bytearray()
        try:
            text = whole.decode()
        except UnicodeDecodeError as e:
            raise BadMessageError(1007, "a text that is not UTF-8") from e
        self._session.on_text(text)

    def keep(self, on_gone: Callable[[], None]) -> None:
        """Call `on_gone` too when the connection is lost."""
        self._when_gone.append(on_gone)

    # --- for the session and its link ----------------------------------------------------------------------------

    def account(self, share: MemoryShare, within_s: float) -> None:
        """Count received bytes in this share from now on; a session that waits for memory longer than `within_s`
        ends.
        """
        self._share, self._memory_within_s = share, within_s
        self.keep(share.close)

    def wait_for_memory(self) -> None:
        """Stop reading until no share of the account is exceeded. Precondition: a call of `account`."""
        if self._share is None or "memory" in self._holds:
            return
        self._share.wait()
        self.hold_reading("memory")
        self._memory_waits += 1
        number = self._memory_waits
        self._later(self._memory_within_s, lambda: self._end_of_wait(number))

    def _end_of_wait(self, number: int) -> None:
        if "memory" in self._holds and number == self._memory_waits:
            self.end(_TRY_AGAIN_LATER, "no memory for what was sent; see maxClientMemoryInMB")

    def write_text(self, data: bytes) -> None:
        if not self._gone and self._frames.state is OPEN:
            self._frames.send_text(data)
            self._flush()
            self._last_traffic = self._loop.time()

    def end(self, code: int, reason: str) -> None:
        """Begin the closing handshake; safe to call twice."""
        if self._gone or self._transport.is_closing():
            return
        if self._session is None:  # still opening: `open` answers
            return
        if self._frames.state is OPEN:
            self._frames.send_close(code, reason.encode()[:_MOST_REASON_BYTES].decode(errors="ignore"))
            self._flush()
            self._later(CLOSE_WITHIN_S, self._transport.abort)

    def hold_reading(self, reason: str) -> None:
        if not self._holds and not self._transport.is_closing():
            self._transport.pause_reading()
        self._holds.add(reason)

    def release_reading(self, reason: str) -> None:
        self._holds.discard(reason)
        if self._holds or self._gone:
            return
        if self._waiting:
            self._await_turn()
        elif not self._transport.is_closing():
            self._transport.resume_reading()

    def _await_turn(self) -> None:
        if not self._awaits_turn:
            self._awaits_turn = True
            self._turns.add(self._on_turn, self._address)

    def _on_turn(self) -> int:
        self._awaits_turn = False
        if not self._waiting or self._holds or self._gone:
            return 0
        data = b"".join(self._waiting)
        self._waiting.clear()
        cost = self._cost(len(data))
        self._take(data)
        self._weigh()
        if not self._waiting and not self._holds and not self._transport.is_closing():
            self._transport.resume_reading()
        return cost

    def _flush(self) -> None:
        data = b"".join(self._frames.data_to_send())
        if not data or self._transport.is_closing():
            return
        if self._is_encrypted and (len(data) > PIECE_BYTES or not self.is_writable):
            for start in range(0, len(data), PIECE_BYTES):  # copies, so that the text does not stay for its end
                self._rest.add(data[start : start + PIECE_BYTES])
            self._write_rest()
        else:
            self._transport.write(data)

    def _write_rest(self) -> None:
        """Pass pieces on to TLS as long as the peer takes them."""
        while self._rest.size and self.is_writable and not self._transport.is_closing():
            self._transport.write(self._rest.take())

    def _close_transport(self) -> None:
        if self._transport.is_closing() or self._is_ending:
            return
        self._is_ending = True
        size, rest = self._rest.size, self._rest.take_all()
        if size <= WRITE_HIGH_BYTES:
            self._transport.writelines(rest)
        self._later(CLOSE_WITHIN_S, self._transport.abort)
        if self._session is not None and self._frames.close_rcvd is None and self._transport.can_write_eof():
            self._transport.write_eof()  # closing with unread input sends a reset, which may overtake the close frame
        else:
            self._transport.close()

    # --- deadlines -----------------------------------------------------------------------------------------------

    def _later(self, seconds: float, callback: Callable[[], object]) -> None:
        if seconds > 0 and not self._gone:
            self._timers = [timer for timer in self._timers if timer.when() > self._loop.time()]
            self._timers.append(self._loop.call_later(seconds, callback))

    def _look(self) -> None:
        quiet_s = self._loop.time() - self._last_traffic
        if self._holds:
            self._later(self._idle_s, self._look)
        elif quiet_s < self._idle_s:
            self._later(max(self._idle_s - quiet_s, _LEAST_WAIT_S), self._look)
        else:
            self.end(_GOING_AWAY, "Connection Idle Timeout")

    def _ping(self) -> None:
        if self._frames.state is OPEN:
            self._frames.send_ping(b"PING")
            self._flush()
            self._later(self._ping_s, self._ping)
