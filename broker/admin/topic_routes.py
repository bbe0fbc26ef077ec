"""Plain topics and single partitions: created, deleted, unloaded, terminated; their statistics and properties."""

import re
from http import HTTPStatus
from typing import Final

from starlette.responses import Response

from magnetar.broker.admin.call import Call, target_of, topic_of
from magnetar.broker.admin.elsewhere import of_each
from magnetar.broker.admin.responses import conflict, done, json_response
from magnetar.broker.admin.routes import TOPIC, RouteTable
from magnetar.broker.admin.stats_json import Json, topic_stats
from magnetar.broker.admin.topic_calls import (
    bounded,
    check_tenant,
    delete_unused,
    existing_parts,
    load_partition,
    loadable,
    refuse_missing_parts,
    topic_missing,
    topic_parts,
    topic_unloadable,
    without_nulls,
)
from magnetar.broker.admin.wide_answers import OF_A_LOG, OF_LEDGERS
from magnetar.broker.auth.table import NAMESPACE_ADMIN, TOPIC_ADMIN, TOPIC_POLICY, TOPIC_USE
from magnetar.broker.compat import rest_refusals
from magnetar.broker.errors import NotAllowedError, RestError
from magnetar.protocol.topic_name import TopicName

routes = RouteTable()
_PARTITION: Final = "-partition-"
_INDEX: Final = re.compile("-?[0-9]+")
_NO_ENTRIES: Final = {
    "entriesAddedCounter": 0,
    "numberOfEntries": 0,
    "totalSize": 0,
    "currentLedgerEntries": 0,
    "currentLedgerSize": 0,
    "waitingCursorsCount": 0,
    "pendingAddEntriesCount": 0,
}
_NO_CURSOR: Final = {
    "waitingReadOp": False,
    "pendingReadOps": 0,
    "messagesConsumedCounter": 0,
    "cursorLedger": 0,
    "cursorLedgerLastEntry": 0,
    "numberOfEntriesSinceFirstNotAckedMessage": 0,
    "totalNonContiguousDeletedMessagesRange": 0,
    "subscriptionHavePendingRead": False,
    "subscriptionHavePendingReplayRead": False,
    "active": False,
}


async def internal_stats(call: Call, name: TopicName) -> Json:
    """ManagedLedgerInternalStats; for a non-persistent topic a blank form with the names of its subscriptions."""
    if name.persistent:
        return await call.logs.internal_stats(name)
    got = (await call.logs.stats(name, earliest_in_backlog=False)).unstored_entries_in
    return _NO_ENTRIES | {
        "entriesAddedCounter": got,
        "cursors": dict.fromkeys(await call.subscriptions.subscriptions(name), _NO_CURSOR),
    }


@routes.get(TOPIC + "/stats", TOPIC_USE)
async def get_stats(call: Call) -> Response:
    name = await _loadable(call)
    async with call.crowds.place(call.request, call.logs.client_count(name)):
        stats = await call.logs.stats(name, earliest_in_backlog=call.flag("getEarliestTimeInBacklog"))
        config = call.namespaces.effective(name)
        shown = as_asked(await topic_stats(stats, config, owner=call.api.urls.broker_id), call)
        return await call.long_answers.json(shown)


@routes.get(TOPIC + "/internalStats", TOPIC_USE)
async def get_internal_stats(call: Call) -> Response:
    try:
        name = await _loadable(call)
    except RestError as e:
        name = call.topic() if call.request.path_params["domain"] == "persistent" else call.topic_name()
        if not name.persistent and e.status == HTTPStatus.NOT_FOUND:
            if name.is_partition:
                raise RestError(500, rest_refusals.PARTITION_METADATA_MISSING.error(topic=name).reason) from e
            raise rest_refusals.TOPIC_OF_INTERNAL_STATS_UNKNOWN.error() from e
        raise RestError(500 if e.status == HTTPStatus.CONFLICT else e.status, e.reason) from e
    async with call.crowds.place(call.request, call.logs.client_count(name)):
        return await call.long_answers.json(await internal_stats(call, name), OF_A_LOG)


@routes.get(TOPIC + "/internal-info", TOPIC_USE)
async def get_internal_info(call: Call) -> Response:
    """Show ledgers and cursors as they are stored; for a partitioned topic those of its partitions."""
    name = call.topic()
    if not name.persistent:
        raise RestError(500, f"{name}: a non-persistent topic stores nothing")
    if call.topics.partition_count(name) is None:
        if not call.topics.exists(name):
            raise RestError(500, f"{name} has no ledgers")
        async with call.crowds.place(call.request, call.logs.client_count(name)):
            return await call.long_answers.json(await call.logs.internal_info(name), OF_A_LOG)
    # Another broker, which holds a place, may wait for the answer about a partition: such a request needs no place.
    return await call.wide_answers.made(call.request, lambda: _internal_info_of_partitions(call))


async def _internal_info_of_partitions(call: Call) -> Response:
    parts = await existing_parts(call)
    if len(parts) < len(topic_parts(call)):
        raise RestError(500, f"{call.topic()}: a partition has no ledgers")
    found = await of_each(call, parts, call.logs.internal_info)
    out = {"version": 0, "partitions": dict(zip(map(str, parts), found, strict=True))}
    return await call.long_answers.json(out, OF_LEDGERS)


@routes.get(TOPIC + "/properties", TOPIC_USE)
async def get_properties(call: Call) -> Response:
    return json_response(await call.logs.properties(_any_topic(call)))


@routes.put(TOPIC + "/properties", TOPIC_ADMIN)
async def add_properties(call: Call) -> Response:
    more = await call.body(dict[str, str | None])
    if not more and call.request.path_params["domain"] == "persistent":
        return done()  # without a check that the topic exists
    if (name := _topic_to_change(call)) is None:
        return done(404)
    if more:
        given = without_nulls(call, name, more)
        await call.logs.change_properties(name, lambda now: bounded(now | given))
    return done()


@routes.delete(TOPIC + "/properties", TOPIC_ADMIN)
async def remove_property(call: Call) -> Response:
    """Remove the property that ?key= names."""
    if (name := _topic_to_change(call)) is None:
        return done(404)
    key = call.query("key")
    properties = await call.logs.properties(name) or {}
    if "key" not in call.request.query_params and call.topics.partition_count(name) is None:
        raise RestError(500, "key is required")
    if key in properties or call.topics.partition_count(name) is None:  # writes the broker's own properties too
        await call.logs.change_properties(name, lambda now: {k: v for k, v in now.items() if k != key})
    return done()


@routes.put(TOPIC + "/unload", TOPIC_ADMIN)
async def unload(call: Call) -> Response:
    await existing_parts(call)
    await call.lifecycle.unload(call.topic())
    refuse_missing_parts(call)
    return done()


@routes.delete(TOPIC + "/truncate", TOPIC_USE)
async def truncate(call: Call) -> Response:
    """Delete all messages; requires the right to administer the topic."""
    if not call.may(TOPIC_ADMIN, target_of(call.request.path_params)):
        raise rest_refusals.TENANT_ADMINISTRATION_DENIED.error()
    if call.request.path_params["domain"] == "non-persistent":
        raise rest_refusals.NO_TRUNCATION_OF_NON_PERSISTENT.error()
    if call.topic_name().is_partition:
        check_tenant(call)
    await of_each(call, await existing_parts(call), call.logs.truncate)
    refuse_missing_parts(call)
    return done()


@routes.put(TOPIC, NAMESPACE_ADMIN)
async def create(call: Call) -> Response:
    name = call.new_topic()
    given = await call.body(dict[str, str | None])
    if name.is_of_transactions:
        raise rest_refusals.TOPIC_OF_TRANSACTIONS.error()
    _refuse_like_partition(call, name)
    if loadable(call, name) or call.topics.partition_count(name) is not None:
        raise rest_refusals.TOPIC_EXISTS.error()
    properties = bounded(without_nulls(call, name, given))
    try:
        await call.lifecycle.create(name, properties)
    except NotAllowedError as e:  # the limit of topics
        raise conflict(str(e)) from e
    return done()


def _refuse_like_partition(call: Call, name: TopicName) -> None:
    """Refuse the name of a partition that its partitioned topic does not have."""
    base, _, index = name.local_name.partition(_PARTITION)
    if not base or _INDEX.fullmatch(index) is None:
        if base and name.is_partition:  # a partition of a partition, which no topic has
            raise rest_refusals.PARTITION_METADATA_MISSING.error(topic=name)
        return
    count = call.topics.partition_count(TopicName.parse(str(name)[: len(base) - len(name.local_name)]))
    if count is None:
        raise rest_refusals.TOPIC_LIKE_PARTITION.error(topic=name.local_name, base=base)
    if not index.startswith("-") and (not name.is_partition or name.partition >= count):
        raise rest_refusals.TOPIC_LIKE_PARTITION_BEYOND.error(topic=name.local_name, base=base)


@routes.delete(TOPIC, TOPIC_POLICY)
async def delete(call: Call) -> Response:
    """Delete a topic; ?force=true disconnects its clients."""
    name = topic_of(call.request.path_params)
    known = name is not None and (call.topics.exists(name) or call.topics.partition_count(name) is not None)
    if name is not None and not name.persistent and not known:
        return done()  # the topic is already absent
    if name is not None and not call.namespaces.exists(name.namespace):
        raise topic_missing(name)
    name = call.topic(anywhere=True)
    if call.topics.partition_count(name) is not None:
        raise rest_refusals.TOPIC_PARTITIONED.error(topic=name)
    if not call.topics.exists(name):
        if not name.is_partition:  # a schema may exist without its topic
            await call.api.schemas.forget(name)
        raise topic_missing(name)
    await (call.lifecycle.delete(name) if call.flag("force") else delete_unused(call, name))
    if not name.is_partition:
        await call.namespaces.delete_topic(name)
    return done()


async def _loadable(call: Call) -> TopicName:
    """Return a plain topic or an existing partition; a partitioned topic as a whole has no statistics."""
    name = call.topic()
    if not name.persistent:
        await load_partition(call, name)
    if not call.topics.exists(name):
        raise topic_unloadable(call, name)
    return name


def _any_topic(call: Call) -> TopicName:
    if call.request.path_params["domain"] == "non-persistent" and topic_of(call.request.path_params) is not None:
        raise rest_refusals.NOT_PERSISTENT.error()
    name = call.topic_name()
    if call.topics.partition_count(name) is None:
        if not call.topics.exists(name):
            raise topic_missing(name)
        call.namespaces.require_local(name.namespace)
    return name


def _topic_to_change(call: Call) -> TopicName | None:
    """The topic whose properties change; None when the topic does not exist, for a refusal without a text."""
    try:
        return _any_topic(call)
    except RestError as refusal:
        if refusal.status != HTTPStatus.NOT_FOUND:
            raise
        return None


def as_asked(stats: Json, call: Call) -> Json:
    """Statistics without the parts that ?subscriptionBacklogSize, ?excludePublishers and ?excludeConsumers exclude."""
    persistent = call.request.path_params["domain"] == "persistent"
    if call.flag("excludePublishers"):
        stats["publishers"] = []
    for each in stats["subscriptions"].values():
        if persistent and not call.flag("subscriptionBacklogSize", default=True):
            each["backlogSize"] = -1
        if call.flag("excludeConsumers"):
            each["consumers"] = []
    return stats
