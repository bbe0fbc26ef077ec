"""Families of routes for missing features, with the answers of an Apache Pulsar that has them switched off."""

from collections.abc import Iterator
from typing import Final

import msgspec
from starlette.responses import Response

from magnetar.broker.admin.call import Call, topic_of
from magnetar.broker.admin.routes import RouteTable
from magnetar.broker.auth.authorizer import Target
from magnetar.broker.auth.table import NAMESPACE_PACKAGES, OPEN, TOPIC_USE
from magnetar.broker.compat import rest_refusals
from magnetar.broker.compat.jackson_body import Int32
from magnetar.broker.compat.jetty_http import media_type
from magnetar.broker.errors import RestError

routes = RouteTable()
_V2, _V3 = "/admin/v2", "/admin/v3"
_IN: Final = "/{tenant}/{namespace}"
_ONE: Final = _IN + "/{name}"
_FORM: Final = "multipart/form-data"

# --- functions and connectors -----------------------------------------------------------------------------------

_COMMON: Final = (
    ("GET", _IN),
    *((method, _ONE) for method in ("GET", "DELETE")),
    *(("GET", _ONE + part) for part in ("/status", "/{instance}/status")),
    *(("POST", _ONE + part + verb) for part in ("", "/{instance}") for verb in ("/restart", "/stop")),
)
_STARTED: Final = (("POST", _ONE + "/start"), ("POST", _ONE + "/{instance}/start"))
_FUNCTIONS_V2: Final = (("GET", "/connectors"), ("GET", "/download"), *_COMMON, ("GET", _ONE + "/state/{key}"))
_FUNCTIONS_V3: Final = (
    *(("GET", "/builtins"), ("POST", "/builtins/reload"), *_FUNCTIONS_V2, *_STARTED),
    *(("GET", _ONE + part) for part in ("/stats", "/{instance}/stats", "/download")),
)
_WORKER: Final = (
    *(("GET", f"/{path}") for path in ("assignments", "cluster", "cluster/leader", "cluster/leader/ready")),
    *(("GET", f"/{path}") for path in ("connectors", "drain", "leader/drain")),
    *(("PUT", f"/{path}") for path in ("drain", "leader/drain", "rebalance")),
)


def _connectors(kind: str) -> Iterator[tuple[str, str]]:
    yield "GET", f"/builtin{kind}s"
    yield "GET", f"/builtin{kind}s/{{name}}/configdefinition"
    yield "POST", f"/reloadBuiltIn{kind.capitalize()}s"
    yield from (*_COMMON, *_STARTED)


_OFF: Final[tuple[tuple[str, tuple[tuple[str, str], ...]], ...]] = (
    (_V2 + "/functions", _FUNCTIONS_V2),
    (_V3 + "/functions", _FUNCTIONS_V3),
    *((f"{_V3}/{kind}{plural}", tuple(_connectors(kind))) for kind in ("sink", "source") for plural in ("", "s")),
    (_V2 + "/worker", _WORKER),
    (_V2 + "/worker-stats", (("GET", "/functionsmetrics"), ("GET", "/metrics"))),
)
# Routes whose body is a form with the code of a function.
_UPLOADS: Final = (
    *(("POST", f"{base}/functions/upload") for base in (_V2, _V3)),
    *(("POST", f"{base}/functions{_ONE}/trigger") for base in (_V2, _V3)),
    ("POST", f"{_V3}/functions{_ONE}/state/{{key}}"),
    ("PUT", f"{_V3}/functions/leader{_ONE}"),
    *((method, f"{_V2}/functions{_ONE}") for method in ("POST", "PUT")),
    *(
        (method, f"{_V3}/{family}{_ONE}")
        for family in ("functions", "sink", "sinks", "source", "sources")
        for method in ("POST", "PUT")
    ),
)


async def _no_functions(_call: Call) -> Response:
    raise rest_refusals.FUNCTIONS_DISABLED.error()


async def _no_uploads(call: Call) -> Response:
    """A form of any other type is refused for its type, as is a body without a form."""
    kind = media_type(call.request.headers.get("content-type"))
    raise RestError(415 if kind not in ("", _FORM) else 400, f"the body must be {_FORM}")


for _prefix, _rows in _OFF:
    for _method, _path in _rows:
        routes.add(_method, _prefix + _path, OPEN, _no_functions)
for _method, _path in _UPLOADS:
    routes.add(_method, _path, OPEN, _no_uploads)

# --- packages ---------------------------------------------------------------------------------------------------

_PACKAGES: Final = _V3 + "/packages/{type}" + _IN
_VERSION: Final = _PACKAGES + "/{name}/{version}"
_KINDS: Final = ("function", "sink", "source")


async def _no_packages(call: Call) -> Response:
    kind = call.param("type")
    if kind not in _KINDS:
        raise rest_refusals.PACKAGE_KIND_INVALID.error(kind=kind)
    raise rest_refusals.PACKAGES_DISABLED.error()


@routes.get(_PACKAGES, NAMESPACE_PACKAGES)
async def list_packages(call: Call) -> Response:
    if call.param("type") not in _KINDS:
        raise rest_refusals.PACKAGE_DOMAIN_INVALID.error(kind=call.param("type"))
    return await _no_packages(call)


class PackageMetadata(msgspec.Struct):
    """The metadata of a package. The broker stores no package and only judges the body."""

    description: str | None = None
    contact: str | None = None
    create_time: int | None = msgspec.field(default=None, name="createTime")
    modification_time: int | None = msgspec.field(default=None, name="modificationTime")
    properties: dict[str, str] | None = None


@routes.put(_VERSION + "/metadata", NAMESPACE_PACKAGES)
async def update_metadata(call: Call) -> Response:
    if await call.body(PackageMetadata) is None:
        raise rest_refusals.PACKAGE_METADATA_MISSING.error()
    return await _no_packages(call)


for _method, _path in (
    *(("GET", path) for path in (_PACKAGES + "/{name}", _VERSION, _VERSION + "/metadata")),
    ("DELETE", _VERSION),
):
    routes.add(_method, _path, NAMESPACE_PACKAGES, _no_packages)
routes.add("POST", _VERSION, OPEN, _no_uploads)

# --- transactions -----------------------------------------------------------------------------------------------

_TRANSACTIONS: Final = _V3 + "/transactions"
_OF_TOPIC: Final = _IN + "/{topic}"
_OF_SUBSCRIPTION: Final = _OF_TOPIC + "/{subscription}"
_READ: Final = (
    *("/coordinators", "/coordinatorStats", "/coordinatorInternalStats/{coordinator}", "/slowTransactions/{timeout}"),
    *(f"/{what}{_OF_SUBSCRIPTION}" for what in ("pendingAckStats", "pendingAckInternalStats")),
    f"/transactionInPendingAckStats{_OF_SUBSCRIPTION}/{{most}}/{{least}}",
    f"/transactionBufferStats{_OF_TOPIC}",
    f"/transactionInBufferStats{_OF_TOPIC}/{{most}}/{{least}}",
    "/transactionMetadata/{most}/{least}",
)


async def _no_transactions(_call: Call) -> Response:
    raise rest_refusals.TRANSACTIONS_DISABLED.error()


@routes.get(_TRANSACTIONS + f"/positionStatsInPendingAck{_OF_SUBSCRIPTION}/{{ledger}}/{{entry}}", OPEN)
async def position_in_pending_acks(call: Call) -> Response:
    call.number("ledger")
    call.number("entry")
    return await _no_transactions(call)


@routes.get(_TRANSACTIONS + f"/transactionBufferInternalStats{_OF_TOPIC}", OPEN)
async def transaction_buffer(call: Call) -> Response:
    """Answer the only request about transactions that succeeds: no topic has a snapshot. A role without a right to the
    topic gets the same answer, whether the topic exists or not.
    """
    name = topic_of(call.request.path_params)
    if name is None:
        raise rest_refusals.TOPIC_NAME_INVALID.error()
    if call.may(TOPIC_USE, Target.of_topic(name)) and not call.topics.exists(name):
        raise rest_refusals.TOPIC_OF_LOOKUP_UNKNOWN.error(topic=name)
    raise rest_refusals.TRANSACTION_SNAPSHOT_MISSING.error()


@routes.post(_TRANSACTIONS + "/transactionCoordinator/replicas", OPEN)
async def scale_coordinators(call: Call) -> Response:
    await call.required_body(Int32)
    return await _no_transactions(call)


for _path in _READ:
    routes.add("GET", _TRANSACTIONS + _path, OPEN, _no_transactions)
routes.add("POST", _TRANSACTIONS + "/abortTransaction/{most}/{least}", OPEN, _no_transactions)
