"""Declared routes: method, path, handler and the row of the authorization table, together."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from starlette.responses import Response

from magnetar.broker.admin.call import Call
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


class RouteTable:
    """Collects the rows of one module: `@routes.get("/...", TOPIC_ADMIN)` over a handler."""

    def __init__(self) -> None:
        self.rows: list[AdminRoute] = []

    def add(self, method: str, path: str, need: Need, handler: Handler) -> None:
        self.rows.append(AdminRoute(method, path, handler, need))

    def _declare(self, method: str, path: str, need: Need) -> Callable[[Handler], Handler]:
        def keep(handler: Handler) -> Handler:
            self.add(method, path, need, handler)
            return handler

        return keep

    def get(self, path: str, need: Need) -> Callable[[Handler], Handler]:
        return self._declare("GET", path, need)

    def put(self, path: str, need: Need) -> Callable[[Handler], Handler]:
        return self._declare("PUT", path, need)

    def post(self, path: str, need: Need) -> Callable[[Handler], Handler]:
        return self._declare("POST", path, need)

    def delete(self, path: str, need: Need) -> Callable[[Handler], Handler]:
        return self._declare("DELETE", path, need)
