"""The HTTP listeners: uvicorn servers as tasks of the broker's own loop, without signal handlers and without its
logging.
"""

import asyncio
import contextlib
import socket
import ssl
import string
from typing import TYPE_CHECKING, Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from magnetar.broker.admin.app import build_app
from magnetar.broker.admin.corked import CorkedTransport
from magnetar.broker.listen_error import told_by_setting
from magnetar.broker.network.tls import CertificateWatch, tls_context
from magnetar.broker.tasks import TaskSet

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from magnetar.broker.admin.api import BrokerApi
    from magnetar.broker.settings import Settings

_BACKLOG: Final = 1024
CERTIFICATE: Final = "magnetar.certificate"


class AdminServer:
    """The running listeners. `port` and `port_tls` are None where there is no such listener."""

    def __init__(self) -> None:
        self.port: int | None = None
        self.port_tls: int | None = None
        self._servers: list[_Server] = []
        self._tasks = TaskSet()
        self._serving: list[asyncio.Task[None]] = []
        self._certificates: CertificateWatch | None = None

    async def listen(self, app: "ASGIApp", settings: "Settings", port: int, context: ssl.SSLContext | None) -> int:
        """Bind and serve; the port it has. Raises OSError that says why it cannot be bound."""
        with told_by_setting("webServicePort" if context is None else "webServicePortTls", settings.bind_address, port):
            bound = _bind(settings.bind_address, port)
        server = _Server(_config(app, settings, context))
        self._serving.append(self._tasks.spawn(server.serve([bound]), "admin.http"))
        if context is not None:
            self._certificates = CertificateWatch(context, settings, web=True)
            self._certificates.start(asyncio.get_running_loop())
        self._servers.append(server)
        number: int = bound.getsockname()[1]
        return number

    async def close(self) -> None:
        """Stop listening, end requests in progress, wait for both. Safe to call twice."""
        if self._certificates is not None:
            self._certificates.stop()
        for server in self._servers:
            server.should_exit = True
            server.force_exit = True
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._tasks.close()


class _Server(uvicorn.Server):
    """Leaves signals to the broker."""

    def install_signal_handlers(self) -> None:
        """Called by older uvicorn versions."""

    def capture_signals(self) -> Any:
        """Called by newer ones."""
        return contextlib.nullcontext()


_NO_REQUEST: Final = b"Illegal character"
_BAD_REQUEST: Final = (
    b"HTTP/1.1 400 Bad Request\r\nCache-Control: must-revalidate,no-cache,no-store\r\nContent-Type: text/plain\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(_NO_REQUEST), _NO_REQUEST)
)
_TOKEN: Final = frozenset(b"!#$%&'*+-.^_`|~0123456789" + string.ascii_letters.encode())


class _Protocol(H11Protocol):
    """Puts the client's verified certificate where the application finds it. When bytes follow a request that cannot
    begin another (the rest of a body that was not announced), a 400 follows its answer at once and the connection
    closes.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(CorkedTransport(transport, self.loop))  # type: ignore[arg-type]
        certificate = None
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            certificate = tls.getpeercert()
        if certificate:
            self.app = _WithCertificate(self.app, certificate)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._close_behind_garbage()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._close_behind_garbage()

    def _close_behind_garbage(self) -> None:
        rest = self.conn.trailing_data[0].lstrip(b"\r\n")
        if rest and rest[0] not in _TOKEN and not self.transport.is_closing():
            self.transport.write(_BAD_REQUEST)
            self.transport.close()


class _WithCertificate:
    """The application of one connection."""

    def __init__(self, app: Any, certificate: dict[str, Any]) -> None:
        self._app = app
        self._certificate = certificate

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        extensions = {**(scope.get("extensions") or {}), CERTIFICATE: self._certificate}
        await self._app({**scope, "extensions": extensions}, receive, send)


def _config(app: "ASGIApp", settings: "Settings", context: ssl.SSLContext | None) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="off",
        loop="none",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=settings.max_http_server_connections,
        timeout_keep_alive=settings.http_server_idle_timeout // 1000,
        h11_max_incomplete_event_size=settings.http_max_request_header_size,
        timeout_graceful_shutdown=1,
    )
    config.load()
    config.ssl = context
    return config


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(_BACKLOG)
        bound.setblocking(False)
    except OSError:
        bound.close()
        raise
    return bound


async def start_admin(api: "BrokerApi") -> AdminServer:
    """Open the configured web ports over the broker.

    Raises: OSError when a port cannot be bound or the certificate cannot be read; nothing listens then.
    """
    settings = api.settings
    app = build_app(api)
    server = AdminServer()
    try:
        if settings.web_service_port is not None:
            server.port = await server.listen(app, settings, settings.web_service_port, None)
        if settings.web_service_port_tls is not None:
            context = tls_context(settings, web=True)
            server.port_tls = await server.listen(app, settings, settings.web_service_port_tls, context)
    except OSError:
        await server.close()
        raise
    return server
