"""Figures of all topics at once: /metrics for Prometheus, /admin/v2/broker-stats for tools."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response, StreamingResponse

from magnetar.broker.admin.bundle_stats import topic_in_bundle
from magnetar.broker.admin.call import Call
from magnetar.broker.admin.namespace_figures import NamespaceFigures, connection_group
from magnetar.broker.admin.responses import JSON, json_response, pieces_of
from magnetar.broker.admin.routes import ADMIN, RouteTable
from magnetar.broker.auth.table import PROBE, SUPER
from magnetar.broker.compat import rest_refusals
from magnetar.broker.compat.absent_features import ALLOCATOR_STATS, ALLOCATORS, LEDGER_OPERATIONS
from magnetar.broker.policies.records import bundle_finder
from magnetar.broker.prometheus.exposition import CONTENT_TYPE, PROCESS_LIBRARY, render
from magnetar.broker.slices import give_way, sliced
from magnetar.broker.start_up import import_later

if TYPE_CHECKING:
    from magnetar.broker.topics.topic_stats import TopicStats

routes = RouteTable()
STATS = ADMIN + "/broker-stats"
_CHUNK: Final = 64 * 1024
_TURN: Final = 16 * 1024
"""Characters of the page of metrics made in one turn of the loop."""


@routes.get("/metrics", PROBE, is_wide=True)
async def metrics(call: Call) -> Response:
    """Prometheus text; needs credentials only with authenticateMetricsEndpoint."""
    api = call.api
    if api.settings.authenticate_metrics_endpoint and call.identity.role is None:
        raise rest_refusals.AUTHENTICATION_REQUIRED.error()
    await import_later(PROCESS_LIBRARY)
    parts = render(api.settings, api.metrics(), await api.operations.logs.loaded_stats(), api.namespaces.effective)
    return StreamingResponse(_in_turns(parts), headers={"Content-Type": CONTENT_TYPE})


async def _in_turns(parts: Iterator[str]) -> AsyncIterator[bytes]:
    """Yield the parts in chunks of 64 KiB or more; yield to the loop after every 16 KiB, and at each empty part."""
    waiting: list[str] = []
    size = since = 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        since += len(part)
        if part and since < _TURN:
            continue
        since = 0
        if size >= _CHUNK:
            yield "".join(waiting).encode()
            waiting, size = [], 0
        await give_way()
    yield "".join(waiting).encode()


@routes.get("/metrics/", PROBE, is_wide=True)
async def metrics_with_slash(call: Call) -> Response:
    return await metrics(call)


@routes.get(STATS + "/topics", SUPER, is_wide=True)
async def topics(call: Call) -> Response:
    """Show every loaded topic: namespace -> bundle -> domain -> topic -> figures, written as they are sent."""
    out: dict[str, Any] = {}
    finders: dict[str, Callable[[str], str]] = {}
    for stats in await call.logs.loaded_stats():
        await give_way()
        name = stats.name
        if not call.namespaces.exists(name.namespace):  # deleted meanwhile
            continue
        if name.namespace not in finders:
            finders[name.namespace] = bundle_finder(call.bundles_of(name.namespace))
        bundle = finders[name.namespace](str(name))
        domain = out.setdefault(name.namespace, {}).setdefault(bundle, {}).setdefault(name.domain, {})
        domain[str(name)] = stats
    return StreamingResponse(_in_chunks(_object(out)), media_type=JSON)


async def _object(value: "dict[str, Any] | TopicStats") -> AsyncIterator[bytes]:
    """Yield the parts of a JSON object whose innermost values are the figures of topics."""
    if not isinstance(value, dict):
        for piece in pieces_of(await topic_in_bundle(value)):
            yield piece
        return
    before = b"{"
    for key, inner in value.items():
        yield before + msgspec.json.encode(key) + b":"
        async for piece in _object(inner):
            yield piece
        before = b","
    yield b"}" if value else b"{}"


async def _in_chunks(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the parts in chunks of 16 KiB or more, with a turn of the loop before each."""
    waiting, size = [], 0
    async for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= _TURN:
            await give_way()
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join(waiting)


@routes.get(STATS + "/metrics", SUPER, is_wide=True)
async def json_metrics(call: Call) -> Response:
    """Groups of figures, each with its dimensions: the broker, its connections, each namespace with a loaded topic."""
    found = call.api.metrics()
    figures = {name: value for name, value in found.values().items() if isinstance(value, (int, float))}
    host, cluster = call.api.urls.broker_id.rpartition(":")[0], call.api.settings.cluster_name
    groups: list[dict[str, object]] = [{"metrics": figures, "dimensions": {"broker": host, "cluster": cluster}}]
    groups.append(connection_group(found, host, cluster))
    namespaces: dict[str, NamespaceFigures] = {}
    for stats in await call.logs.loaded_stats():
        await give_way()
        namespaces.setdefault(stats.name.namespace, NamespaceFigures()).add(stats)
    return json_response(groups + [each.group(name) for name, each in namespaces.items()])


@routes.get(STATS + "/bookieops", SUPER, is_wide=True)
async def bookie_operations(call: Call) -> Response:
    """Show namespace -> persistent topic -> operations that wait for bookies; the figures are always 0 here."""
    out: dict[str, dict[str, dict[str, int]]] = {}
    async for names in sliced(call.topics.loaded_names()):
        for name in names:
            if name.persistent:
                out.setdefault(name.namespace, {})[str(name)] = LEDGER_OPERATIONS
    return json_response(out)


@routes.get(STATS + "/mbeans", SUPER)
async def mbeans(_call: Call) -> Response:
    """Show the beans of the process: an empty list."""
    return json_response([])


@routes.get(STATS + "/allocator-stats/{allocator}", SUPER)
async def allocator(call: Call) -> Response:
    """Show the figures of an allocator of Apache Pulsar, without arenas; 406 for an unknown name."""
    if call.param("allocator") not in ALLOCATORS:
        raise rest_refusals.ALLOCATOR_UNKNOWN.error(allocator=call.param("allocator"))
    return json_response(ALLOCATOR_STATS)


@routes.get(STATS + "/broker-resource-availability/{tenant}/{namespace}", SUPER)
async def availability(_call: Call) -> Response:
    raise rest_refusals.RESOURCES_NOT_REPORTED.error()


@routes.get(STATS + "/load-report", SUPER)
async def load_report(call: Call) -> Response:
    """Show the present LocalBrokerData, which the brokers of a cluster write for each other."""
    assert call.api.load_reports is not None, "made before the web port is served"
    return Response(msgspec.json.encode(await call.api.load_reports.current()), media_type="application/json")
