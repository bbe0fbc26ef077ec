"""Requests for a WebSocket: the rules of every request of the web port apply, then the session serves the connection.

A page in a browser can open a WebSocket to any host without a preflight. So an upgrade counts as a change: the broker
refuses a foreign `Origin`, and a name in `Host` that may be rebound (`browser_rules`).
"""

from typing import TYPE_CHECKING, Any, Final

import h11
import structlog
from starlette.responses import Response

from magnetar.broker.admin.browser_rules import BrowserRules
from magnetar.broker.admin.call import Call
from magnetar.broker.admin.request_limits import RequestRate
from magnetar.broker.admin.routes import RouteTable
from magnetar.broker.auth.table import OPEN
from magnetar.broker.compat.jetty_http import page, plain_path
from magnetar.broker.errors import RestError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from magnetar.broker.settings import Settings
    from magnetar.broker.websocket.web_socket_service import WebSocketService


log = structlog.get_logger(__name__)
PREFIX: Final = b"/ws/"
_CHANGE: Final = "POST"
routes = RouteTable()
_TOPICS = "topics"
_KINDS = ("producer", "consumer", "reader", _TOPICS)


class Upgrades:
    """Checks requests for WebSocket sessions, and starts the sessions."""

    def __init__(self, service: "WebSocketService", settings: "Settings", now_s: "Callable[[], float]") -> None:
        self._service = service
        self._rules = BrowserRules.of(settings)
        self._rate = RequestRate.of(settings, now_s)
        self._most_head_bytes = settings.http_max_request_header_size

    def refusal(self, request: h11.Request, headers: dict[str, str], address: str) -> "Response | None":
        """The refusal of a request for a session; None for an allowed request. `address` is for the log."""
        if self._rate is not None and not self._rate.admits():
            return page(429, "GET")
        head_bytes = len(request.target) + sum(len(key) + len(value) + 4 for key, value in request.headers)
        if head_bytes > self._most_head_bytes:
            return page(431, "GET")
        reason = self._rules.refusal(_CHANGE, headers, probe=False)
        if reason is not None:
            path = request.target.partition(b"?")[0].decode("latin-1")
            log.info("request.refused", address=address, path=path, reason=reason)
            return page(403, "GET")
        return None

    def serve(
        self,
        transport: "asyncio.Transport",
        request: h11.Request,
        headers: dict[str, str],
        certificate: dict[str, Any] | None,
        on_gone: "Callable[[], None]",
    ) -> "asyncio.Protocol":
        """The protocol for the rest of the connection. Raises RestError for a path that cannot be read."""
        target, _, query = request.target.partition(b"?")
        path = plain_path(target.decode("latin-1"))
        if target.endswith(b"/"):
            path += "/"
        head = b"".join(
            [
                b"%s %s HTTP/%s\r\n" % (request.method, request.target, request.http_version),
                *(b"%s: %s\r\n" % each for each in request.headers),
                b"\r\n",
            ]
        )
        protocol: asyncio.Protocol = self._service.serve(
            transport, head, path, query.decode("latin-1"), headers, certificate, on_gone
        )
        return protocol


def headers_of(request: h11.Request) -> dict[str, str]:
    """Headers by lower-case name; of a repeated header the last value."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in request.headers}


async def _no_session(call: Call) -> Response:
    """Answer a request without an upgrade: 405, or 404 for an unknown kind of session or when WebSockets are off."""
    served = call.api.web_sockets is not None and call.request.path_params.get("kind", _TOPICS) in _KINDS
    return page(405 if served else 404, call.request.method)


for _register in (routes.get, routes.post):
    _register("/ws/v2/{kind}/{rest:path}", OPEN)(_no_session)
    _register("/ws/v3/consumer", OPEN)(_no_session)
    _register("/ws/v3/consumer/{rest:path}", OPEN)(_no_session)


__all__ = ["PREFIX", "RestError", "Upgrades", "headers_of"]
