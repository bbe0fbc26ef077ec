"""Requests below /ws/v2 that ask for no WebSocket: there is nothing to read or change."""

from starlette.responses import Response

from magnetar.broker.admin.call import Call
from magnetar.broker.admin.routes import RouteTable
from magnetar.broker.auth.table import OPEN
from magnetar.broker.compat.jetty_http import page

routes = RouteTable()
_KINDS = ("producer", "consumer", "reader")


async def _no_session(call: Call) -> Response:
    """405, or 404 where there is no such kind of session, or none at all."""
    served = call.api.web_sockets is not None and call.param("kind") in _KINDS
    return page(405 if served else 404, call.request.method)


for _register in (routes.get, routes.post):
    _register("/ws/v2/{kind}/{rest:path}", OPEN)(_no_session)
