"""One connection of the web port: uvicorn's, with a seat, deadlines, and the answers that Apache Pulsar's clients
expect (`compat/jetty_http.py`).

    state                                  how long                          gives its seat to a newer connection
    no request has begun, or all ended     httpServerIdleTimeout             yes
    a request's head is arriving           the same, however slowly          yes
    a body is arriving                     PROGRESS_BYTES in that time       no
    a request is being worked on           as its handler takes              no
    an answer is being sent                some of it is read in that time   no

On a connection beyond the seats the broker serves probes alone (/status, /metrics, ready), so that probes succeed while
other clients hold the seats.
"""

import asyncio
import contextlib
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import h11
import structlog
import uvicorn
from starlette.responses import Response
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol
from uvicorn.server import ServerState

from magnetar.broker.admin.http_turns import EVENTS_IN_ONE_TURN, read_turns, turns_of_body, turns_of_head
from magnetar.broker.admin.upgrades import PREFIX, Upgrades, headers_of
from magnetar.broker.compat.jetty_http import (
    BAD_REQUEST,
    SERVER_ERROR,
    CorkedTransport,
    begins_no_request,
    page,
    phrase,
)
from magnetar.broker.errors import RestError
from magnetar.broker.network.seats import Seat
from magnetar.broker.network.tls_gate import unsent_bytes

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from magnetar.broker.network.round_turns import RoundTurns

log = structlog.get_logger(__name__)

STATUS_PHRASES[HTTPStatus.INTERNAL_SERVER_ERROR] = SERVER_ERROR.encode()  # uvicorn has no setting for the phrase
CERTIFICATE: Final = "magnetar.certificate"
PROGRESS_BYTES: Final = 64 * 1024
_FRAMINGS: Final = frozenset({b"content-length", b"transfer-encoding"})
_VERSIONS: Final = frozenset({b"1.0", b"1.1"})
_MOST_HEAD_BYTES: Final = 64 * 1024
PROBES: Final = frozenset({"/status", "/status.html", "/metrics", "/metrics/", "/admin/v2/brokers/ready"})


class _Events(h11.Connection):
    """Bounds the events in a turn of the loop: one read may have tens of thousands of chunks of a byte each. Refuses a
    request with a length and chunks, as Apache Pulsar does: a proxy that goes by the length takes the rest for another
    request. Refuses other versions of HTTP, too; `refused` is the status of such a refusal. `fault` is the last error.
    """

    left = EVENTS_IN_ONE_TURN
    refused: HTTPStatus | None = None
    fault = ""

    def next_event(self) -> Any:
        if not self.left:
            return h11.NEED_DATA
        self.left -= 1
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:  # a frame of h11 has it as `self`: a cycle with this connection
            self.fault = str(error).partition(":")[0]  # behind it are bytes of the peer, for example a token
            raise error.with_traceback(None)  # noqa: B904 - the same error
        if isinstance(event, h11.Request):
            if event.http_version not in _VERSIONS:
                is_second = event.http_version == b"2.0"  # the preface of a client that expects HTTP/2
                self.refused = HTTPStatus.UPGRADE_REQUIRED if is_second else HTTPStatus.HTTP_VERSION_NOT_SUPPORTED
                self.fault = "another version of HTTP"
                raise h11.RemoteProtocolError(self.fault)
            if {name for name, _ in event.headers} >= _FRAMINGS:
                self.fault = "a length and chunks"
                raise h11.RemoteProtocolError(self.fault)
        return event


class _Flow(FlowControl):
    """Pauses reading while parsed events wait for their turn, even if the application resumes reading."""

    held = False

    def hold(self) -> None:
        self.held = True
        self._transport.pause_reading()

    def release(self) -> None:
        self.held = False
        if not self.read_paused:
            self._transport.resume_reading()

    def resume_reading(self) -> None:
        if self.held:
            self.read_paused = False
        else:
            super().resume_reading()


class HttpConnection(H11Protocol):
    """Passes the client's verified certificate to the application. When the bytes behind a request cannot begin another
    request (the rest of an unannounced body), the connection sends a 400 directly behind the answer and closes.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        app_state: dict[str, Any],
        seat: Seat,
        upgrades: Upgrades | None = None,
        turns: "RoundTurns | None" = None,
    ) -> None:
        """turns: those of the received bytes of all connections; None: the connection has turns of its own."""
        super().__init__(config, state, app_state)
        self._turns = turns or read_turns()
        self._awaits_turn = False
        self._events = self.conn = _Events(h11.SERVER, config.h11_max_incomplete_event_size or _MOST_HEAD_BYTES)
        self.flow: _Flow
        self._seat = seat
        self._upgrades = upgrades
        self._certificate: dict[str, Any] | None = None
        self._socket: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._received = 0
        self._unsent = 0

    # --- the socket's life ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._socket = transport
        super().connection_made(CorkedTransport(transport, self.loop))  # type: ignore[arg-type]
        self.flow = _Flow(self.transport)
        tls = transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert() if tls is not None else None
        if certificate:
            self._certificate = {"subject": certificate["subject"]}  # the rest may have thousands of names
            self.app = _WithCertificate(self.app, self._certificate)
        if self._seat.is_extra:
            self.app = _ProbesAlone(self.app)
        self._rest()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._seat.leave()
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        super().data_received(data)
        self._look_at_events()

    def handle_events(self) -> None:
        """Handle events now, or read nothing until the head or the chunks that have arrived have their turn."""
        if self._awaits_turn:
            return
        cost = self._cost()
        if not cost or self._turns.at_once(cost):
            self._handle_events()
        else:
            self._await_turn()

    def _cost(self) -> int:
        """The turns that the received bytes count as: the next head, or chunks; 0 before the end of a head."""
        received = self.conn.trailing_data[0]
        return turns_of_head(received) if self.conn.their_state is h11.IDLE else turns_of_body(received)

    def _await_turn(self) -> None:
        self._awaits_turn = True
        self.flow.hold()
        self._turns.add(self._on_turn, self._address)

    def _on_turn(self) -> int:
        self._awaits_turn = False
        if self.transport.is_closing():
            return 0
        cost = self._cost()
        self.flow.release()
        self._handle_events()
        self._look_at_events()
        return cost

    def _handle_events(self) -> None:
        """Handle up to EVENTS_IN_ONE_TURN events; pause reading until later turns have handled the rest."""
        self._events.left = EVENTS_IN_ONE_TURN
        super().handle_events()
        if not self._events.left and not self._awaits_turn and not self.transport.is_closing():
            self._await_turn()

    def _look_at_events(self) -> None:
        if self.conn.their_state is h11.IDLE:
            self._close_behind_garbage()
        if self._in_progress and not self._working:
            self._work()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._handed_over:  # the bytes behind the request were a request for a WebSocket
            return
        self._close_behind_garbage()
        if not self._in_progress:
            self.headers = []  # an idle connection keeps no head
            self.scope = self.cycle.scope = {}  # type: ignore[typeddict-item]
            self._rest()

    def cut_short(self) -> None:
        """Give up an answer that has begun, or that no client reads; its request is about to be cancelled."""
        if self._in_progress and (self.cycle.response_started or self.flow.write_paused):
            self.cycle.disconnected = True
            self.transport.close()

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP/1, and close the connection. A request in progress ends, and an answer that
        has begun stays incomplete.
        """
        log.info("request.refused", address=self._address, reason=self._events.fault or msg)
        if self._in_progress:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        elif self._events.refused is not None:
            self._answer(page(self._events.refused, "GET"))
            return
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            with contextlib.suppress(h11.LocalProtocolError):  # an answer to HEAD has no body
                super().send_400_response(msg)
        self.transport.close()

    def _close_behind_garbage(self) -> None:
        if begins_no_request(self.conn.trailing_data[0]) and not self.transport.is_closing():
            self.transport.write(BAD_REQUEST)
            self.transport.close()

    # --- WebSockets ----------------------------------------------------------------------------------------------

    _handed_over = False

    def _should_upgrade(self) -> bool:
        if self._upgrades is None or self._seat.is_extra or self._get_upgrade() != b"websocket":
            return False
        return bool(self.scope["raw_path"].startswith(PREFIX))

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection over to a WebSocket session, or answer with a refusal and close it."""
        assert self._upgrades is not None, "it requested the upgrade"
        headers = headers_of(event)
        refused = self._upgrades.refusal(event, headers, self._address)
        try:
            if refused is None:
                protocol = self._upgrades.serve(self._socket, event, headers, self._certificate, self._seat.leave)
        except RestError as e:
            refused = page(e.status, "GET")
        if refused is not None:
            self._answer(refused)
            return
        self._handed_over = True
        self.connections.discard(self)
        self._seat.busy()
        if self._timer is not None:
            self._timer.cancel()
        self._unset_keepalive_if_required()
        self._socket.set_protocol(protocol)

    def _answer(self, response: Response) -> None:
        """Send an answer without the application, and close the connection."""
        lines = [f"HTTP/1.1 {response.status_code} {phrase(response.status_code)}", "connection: close"]
        lines += [f"{name.decode()}: {value.decode()}" for name, value in response.raw_headers]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + bytes(response.body))
        self.transport.close()

    # --- seat and deadlines --------------------------------------------------------------------------------------

    _working = False

    @property
    def _in_progress(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _rest(self) -> None:
        """Mark the connection as idle: it may lose its seat, and `_look` ends it without a further request."""
        self._working = False
        if not self._socket.is_closing():
            self._seat.idle(self._socket.abort)
        self._look_later()

    def _work(self) -> None:
        self._working = True
        if not self._seat.is_extra:
            self._seat.busy()
        self._received = 0
        self._look_later()

    def _look_later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(self.timeout_keep_alive, self._look)

    def _look(self) -> None:
        """End a connection that makes no progress."""
        received, self._received = self._received, 0
        before, self._unsent = self._unsent, unsent_bytes(self._socket)
        if self._unsent and (self._unsent >= before > 0 or self._socket.is_closing()):
            self._socket.abort()  # the peer has read nothing
        elif not self._working and not self._unsent:
            self._socket.abort()  # no request
        elif self._in_progress and self.cycle.more_body and received < PROGRESS_BYTES and not self.flow.read_paused:
            self._socket.abort()  # a body that does not arrive
        else:
            self._look_later()


class _ProbesAlone:
    """The application of a connection beyond the seats: probes, and 503 for any other request."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["path"] in PROBES:
            await self._app(scope, receive, send)
        else:
            await Response(status_code=503, headers={"Connection": "close", "Retry-After": "1"})(scope, receive, send)


class _WithCertificate:
    """The application of a connection with a client certificate, which it adds to the scope."""

    def __init__(self, app: Any, certificate: dict[str, Any]) -> None:
        self._app = app
        self._certificate = certificate

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        extensions = {**(scope.get("extensions") or {}), CERTIFICATE: self._certificate}
        await self._app({**scope, "extensions": extensions}, receive, send)
