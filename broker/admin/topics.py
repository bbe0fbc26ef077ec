"""Plain topics and single partitions: created, deleted, unloaded, terminated; their statistics and properties."""

from typing import Final

from starlette.responses import Response

from magnetar.broker.admin.call import Call
from magnetar.broker.admin.policy_table import EMPTY_BODY
from magnetar.broker.admin.responses import RestError, conflict, done, json_response, precondition
from magnetar.broker.admin.routes import TOPIC, RouteTable
from magnetar.broker.admin.stats_json import topic_stats
from magnetar.broker.admin.topic_calls import existing_parts, single_topic, topic_missing, topic_parts
from magnetar.broker.auth.table import NAMESPACE_ADMIN, TOPIC_ADMIN, TOPIC_USE
from magnetar.protocol.topic_name import TopicName

routes = RouteTable()
_NOTHING_STORED: Final = {
    "entriesAddedCounter": 0,
    "numberOfEntries": 0,
    "totalSize": 0,
    "currentLedgerEntries": 0,
    "currentLedgerSize": 0,
    "waitingCursorsCount": 0,
    "pendingAddEntriesCount": 0,
    "cursors": {},
}


@routes.get(TOPIC + "/stats", TOPIC_USE)
async def get_stats(call: Call) -> Response:
    name = _loadable(call)
    stats = await call.topics.stats(name, earliest_in_backlog=call.flag("getEarliestTimeInBacklog"))
    config = call.namespaces.effective(name)
    return json_response(topic_stats(stats, config, owner=call.api.urls.broker_id))


@routes.get(TOPIC + "/internalStats", TOPIC_USE)
async def get_internal_stats(call: Call) -> Response:
    name = _loadable(call)
    return json_response(await call.topics.internal_stats(name) if name.persistent else _NOTHING_STORED)


@routes.get(TOPIC + "/internal-info", TOPIC_ADMIN)
async def get_internal_info(call: Call) -> Response:
    """Ledgers and cursors as they are stored: a part of the internal statistics."""
    stats = await call.topics.internal_stats(_loadable(call))
    return json_response({"version": 1, "ledgers": stats.get("ledgers", []), "cursors": stats.get("cursors", {})})


@routes.get(TOPIC + "/properties", TOPIC_USE)
async def get_properties(call: Call) -> Response:
    return json_response(await call.topics.properties(_any_topic(call)))


@routes.put(TOPIC + "/properties", TOPIC_ADMIN)
async def add_properties(call: Call) -> Response:
    name = _any_topic(call)
    more = await call.body(dict[str, str])
    if more is None:
        raise RestError(400, EMPTY_BODY)
    await call.topics.set_properties(name, await call.topics.properties(name) | more)
    return done()


@routes.delete(TOPIC + "/properties", TOPIC_ADMIN)
async def remove_property(call: Call) -> Response:
    """?key= names the one to remove; without it nothing is."""
    name = _any_topic(call)
    key = call.query("key")
    properties = await call.topics.properties(name)
    if key in properties:
        await call.topics.set_properties(name, {k: v for k, v in properties.items() if k != key})
    return done()


@routes.put(TOPIC + "/unload", TOPIC_ADMIN)
async def unload(call: Call) -> Response:
    topic_parts(call)
    await call.topics.unload(call.topic())
    return done()


@routes.delete(TOPIC + "/truncate", TOPIC_ADMIN)
async def truncate(call: Call) -> Response:
    for part in existing_parts(call):
        if not part.persistent:
            raise precondition("non-persistent topics have nothing to truncate")
        await call.topics.truncate(part)
    return done()


@routes.put(TOPIC, NAMESPACE_ADMIN)
async def create(call: Call) -> Response:
    name = call.topic()
    properties = await call.body(dict[str, str]) or {}
    if name.is_partition and call.topics.partition_count(name.base) is None:
        raise precondition("A topic that is no partition must not be named like one")
    if call.topics.exists(name) or call.topics.partition_count(name) is not None:
        raise conflict("This topic already exists")
    await call.topics.create(name, properties)
    return done()


@routes.delete(TOPIC, TOPIC_ADMIN)
async def delete(call: Call) -> Response:
    """?force=true disconnects who is there."""
    name = call.topic()
    if call.topics.partition_count(name) is not None:
        raise conflict(f"{name} is a partitioned topic, please call delete-partitioned-topic")
    if not call.topics.exists(name):
        raise topic_missing(name)
    if not call.flag("force") and call.topics.in_use(name):
        raise precondition("Topic has active producers/subscriptions")
    await call.topics.delete(name)
    if not name.is_partition:
        await call.namespaces.delete_topic(name)
    return done()


def _loadable(call: Call) -> TopicName:
    """A plain topic or a partition that exists; a partitioned topic has no statistics of its own."""
    name = call.topic()
    if not call.topics.exists(name):
        raise topic_missing(name)
    return name


def _any_topic(call: Call) -> TopicName:
    name = call.topic()
    return name if call.topics.partition_count(name) is not None else single_topic(call)
