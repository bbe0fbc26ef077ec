"""Declared routes: method, path, handler and the row of the authorization table, together."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from starlette.responses import Response

from magnetar.broker.admin.call import Call
from magnetar.broker.admin.request_limits import MOST_BODY_BYTES
from magnetar.broker.auth.table import Need

Handler = Callable[[Call], Awaitable[Response]]

ADMIN = "/admin/v2"
NAMESPACE = ADMIN + "/namespaces/{tenant}/{namespace}"
TOPIC = ADMIN + "/{domain:domain}/{tenant}/{namespace}/{topic}"


class AdminRoute(NamedTuple):
    """One row. A path may hold `{name}` parts without a slash; `{domain}` is persistent or non-persistent."""

    method: str
    path: str
    handler: Handler
    need: Need
    most_body: int | None = MOST_BODY_BYTES
    """Largest body in bytes; None: only httpMaxRequestSize limits the body."""
    is_wide: bool = False
    """Whether the request walks through all topics, or all partitions of a topic (`wide_answers`)."""


class RouteTable:
    """Collects the rows of one module: a handler has the decorator `@routes.get("/...", TOPIC_ADMIN)`."""

    def __init__(self) -> None:
        self.rows: list[AdminRoute] = []

    def add(
        self, method: str, path: str, need: Need, handler: Handler, most_body: int | None = MOST_BODY_BYTES
    ) -> None:
        self.rows.append(AdminRoute(method, path, handler, need, most_body))

    def _declare(
        self, method: str, path: str, need: Need, most_body: int | None = MOST_BODY_BYTES
    ) -> Callable[[Handler], Handler]:
        def keep(handler: Handler) -> Handler:
            self.add(method, path, need, handler, most_body)
            return handler

        return keep

    def get(self, path: str, need: Need, *, is_wide: bool = False) -> Callable[[Handler], Handler]:
        def keep(handler: Handler) -> Handler:
            self.rows.append(AdminRoute("GET", path, handler, need, is_wide=is_wide))
            return handler

        return keep

    def put(self, path: str, need: Need) -> Callable[[Handler], Handler]:
        return self._declare("PUT", path, need)

    def post(self, path: str, need: Need, *, most_body: int | None = MOST_BODY_BYTES) -> Callable[[Handler], Handler]:
        return self._declare("POST", path, need, most_body)

    def delete(self, path: str, need: Need) -> Callable[[Handler], Handler]:
        return self._declare("DELETE", path, need)
