"""Families of routes for what is not here, with the answers of an Apache Pulsar that has it switched off."""

from typing import Final

from starlette.responses import Response

from magnetar.broker.admin.call import Call
from magnetar.broker.admin.responses import RestError
from magnetar.broker.admin.routes import RouteTable
from magnetar.broker.auth.table import OPEN

routes = RouteTable()
_METHODS: Final = ("GET", "PUT", "POST", "DELETE")
_NO_FUNCTIONS: Final = (
    *("/admin/v2/functions", "/admin/v2/worker", "/admin/v2/worker-stats"),
    *(f"/admin/v3/{family}" for family in ("functions", "sink", "sinks", "source", "sources")),
)
_FUNCTIONS_OFF: Final = "Functions worker service is not enabled, probably functionsWorkerEnabled is false"
_OFF: Final = {
    "/admin/v3/transactions": (503, "This Broker is not configured with transactionCoordinatorEnabled=true."),
    "/admin/v3/packages": (503, "Package Management Service is not enabled in the broker."),
} | dict.fromkeys(_NO_FUNCTIONS, (409, _FUNCTIONS_OFF))


def _declare(prefix: str, status: int, reason: str) -> None:
    async def refuse(_call: Call) -> Response:
        raise RestError(status, reason)

    for method in _METHODS:
        routes.add(method, prefix + "/{rest:path}", OPEN, refuse)


for _prefix, (_status, _reason) in _OFF.items():
    _declare(_prefix, _status, _reason)
