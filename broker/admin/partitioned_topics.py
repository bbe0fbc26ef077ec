"""Partitioned topics: created, grown, deleted, looked up; lists of topics."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from magnetar.broker.admin.call import Call, topic_of
from magnetar.broker.admin.elsewhere import sent_to_owner, together
from magnetar.broker.admin.listed_topics import listed_order, names_everywhere
from magnetar.broker.admin.namespace_routes import in_bundle, without_system_topics
from magnetar.broker.admin.policy_table import EMPTY_BODY
from magnetar.broker.admin.responses import done, json_response, list_response, precondition
from magnetar.broker.admin.routes import ADMIN, TOPIC, RouteTable
from magnetar.broker.admin.stats_json import Json, partitioned_stats, stats_of_nothing, topic_stats
from magnetar.broker.admin.topic_calls import bounded, load_partition, refuse_in_use, topic_missing, topic_parts
from magnetar.broker.admin.topic_routes import as_asked, internal_stats
from magnetar.broker.admin.wide_answers import OF_LEDGERS, OF_PARTITIONS
from magnetar.broker.auth.table import NAMESPACE_ADMIN, NAMESPACE_USE, TOPIC_POLICY, TOPIC_USE
from magnetar.broker.compat import rest_refusals, wire_refusals
from magnetar.broker.compat.jackson_body import Int32
from magnetar.broker.compat.java_numbers import fits
from magnetar.broker.compat.java_order import slot_of, table_slots
from magnetar.broker.errors import NotAllowedError, RestError, TopicNotFoundError
from magnetar.broker.limits import most_partitions
from magnetar.broker.ownership.ownership import Here
from magnetar.broker.slices import in_turns, sliced, sorted_in_slices
from magnetar.protocol.topic_name import TopicName

routes = RouteTable()
_PARTITION: Final = "-partition-"
_FLAGS_OF_A_PARTITION: Final = ("getEarliestTimeInBacklog", "excludePublishers", "excludeConsumers")
LIST = ADMIN + "/{domain:domain}/{tenant}/{namespace}"


class PartitionedBody(msgspec.Struct):
    """The second form of the body: a number of partitions with properties."""

    partitions: Int32 = 0
    properties: dict[str, str | None] | None = None


@routes.get(LIST, NAMESPACE_USE)
async def list_topics(call: Call) -> Response:
    """?bundle= selects the topics of a bundle."""
    if call.request.path_params["domain"] == "persistent":
        call.policies()
    else:
        call.local_policies()
    bundle = call.query("bundle")
    names = await names_everywhere(call, call.request.path_params["domain"], bundle)
    if bundle:
        names = await in_bundle(call, names, bundle)
    return await list_response(await listed_order(call, await _shown(call, names)))


@routes.get(LIST + "/partitioned", NAMESPACE_USE)
async def list_partitioned(call: Call) -> Response:
    call.policies()
    names = call.topics.partitioned_names(call.namespace, call.request.path_params["domain"])
    return await list_response(await sorted_in_slices(await _shown(call, names)))


async def _shown(call: Call, names: list[str]) -> list[str]:
    return names if call.flag("includeSystemTopic") else await without_system_topics(names)


@routes.get(TOPIC + "/partitions", TOPIC_USE)
async def get_partitions(call: Call) -> Response:
    """Answer the number of partitions, 0 for a plain topic. Raises 404 for an unknown topic, unless
    ?checkAllowAutoCreation=true: then a missing topic is treated as in a client's request, where auto creation allows:
    a partitioned topic is created, a plain topic answers 0.
    """
    name = call.topic()
    count = call.topics.partition_count(name)
    if count is None:
        if not name.persistent and call.namespaces.exists(name.namespace):  # only the owner knows of the topic
            elsewhere = await sent_to_owner(call, name)
            if elsewhere is not None:
                return elsewhere
        if not call.topics.exists(name) and not call.flag("checkAllowAutoCreation"):
            raise topic_missing(name)
        try:
            count = await call.topics.partitions_for_clients(name, auto_create=call.flag("checkAllowAutoCreation"))
        except TopicNotFoundError as error:
            raise topic_missing(name) from error
    if call.topics.partition_count(name) is None:
        return json_response({"partitions": count, "deleted": False})
    return json_response(await _metadata(call, name, count))


async def _metadata(call: Call, name: TopicName, count: int) -> dict[str, Any]:
    """PartitionedTopicMetadata; without the member `properties` when the topic was created without properties."""
    properties = await call.logs.properties(name)
    given = {} if properties is None else {"properties": properties}
    return {"partitions": count, "deleted": call.topics.is_ending(name)} | given


@routes.put(TOPIC + "/partitions", NAMESPACE_ADMIN)
async def create_partitioned(call: Call) -> Response:
    given = await _partitions_of_body(call) if (await call.raw_body()).strip() else None
    name = call.new_topic()
    _refuse_name(name)
    body = given or await _partitions_of_body(call)
    if body.partitions <= 0:
        raise rest_refusals.NO_PARTITIONS.error()
    most = most_partitions(call.api.settings.max_num_partitions_per_partitioned_topic)
    if body.partitions > most:
        raise rest_refusals.TOO_MANY_PARTITIONS_TO_CREATE.error(most=most)
    known = call.topics.partition_count(name)
    if known is not None and known <= body.partitions and call.flag("createLocalTopicOnly"):
        await call.lifecycle.create_missed_partitions(name, body.partitions)
        return done()
    if known is not None or call.topics.exists(name):
        raise _too_many_topics(call, name, body.partitions) or rest_refusals.TOPIC_EXISTS.error()
    try:
        properties = {key: value for key, value in (body.properties or {}).items() if value is not None}
        await call.lifecycle.create_partitioned(name, body.partitions, bounded(properties))
    except NotAllowedError as e:
        raise precondition(str(e)) from e
    return done()


def _refuse_name(name: TopicName) -> None:
    """Refuse a name that no partitioned topic may have."""
    if name.is_partition or (name.persistent and _PARTITION in name.local_name):
        raise rest_refusals.PARTITIONED_TOPIC_NAME_INVALID.error()
    if name.persistent and name.is_of_transactions:
        raise rest_refusals.TOPIC_OF_TRANSACTIONS.error()


def _too_many_topics(call: Call, name: TopicName, more: int) -> RestError | None:
    """The refusal of `more` topics beyond the limit of the namespace, which Apache Pulsar checks before names."""
    return None if call.topics.has_room(name, more) else precondition(wire_refusals.TOO_MANY_TOPICS.text)


@routes.post(TOPIC + "/partitions", TOPIC_POLICY)
async def grow(call: Call) -> Response:
    body = await _partitions_of_body(call)
    known = topic_of(call.request.path_params)
    if known is not None and known.is_partition:
        raise rest_refusals.PARTITIONED_TOPIC_NAME_INVALID.error()
    if known is not None and call.topics.partition_count(known) is None:
        raise rest_refusals.TOPIC_NOT_PARTITIONED.error(topic=known)
    name = call.topic(anywhere=True)
    count = call.topics.partition_count(name)
    if count is None:
        raise rest_refusals.TOPIC_NOT_PARTITIONED.error(topic=name)
    if body.partitions < count:
        raise rest_refusals.FEWER_PARTITIONS.error(wanted=body.partitions, count=count)
    call.namespaces.require_local(name.namespace)
    most = most_partitions(call.api.settings.max_num_partitions_per_partitioned_topic)
    if body.partitions > most:
        raise rest_refusals.TOO_MANY_PARTITIONS.error(most=most)
    if body.partitions > count:
        await call.lifecycle.grow(name, body.partitions)
    return done()


@routes.delete(TOPIC + "/partitions", TOPIC_POLICY)
async def delete_partitioned(call: Call) -> Response:
    name = call.topic_name()
    if name.is_partition:
        raise rest_refusals.PARTITIONED_TOPIC_NAME_INVALID.error()
    if call.topics.partition_count(name) is None:
        if call.topics.exists(name):
            raise rest_refusals.TOPIC_TO_DELETE_NOT_PARTITIONED.error(topic=name)
        raise rest_refusals.TOPIC_TO_DELETE_UNKNOWN.error(topic=name)
    if not call.flag("force"):
        refuse_in_use(call, name)
    await call.lifecycle.delete_partitioned(name, force=call.flag("force"))
    await call.namespaces.delete_topic(name)
    return done()


@routes.get(TOPIC + "/partitioned-stats", TOPIC_USE, is_wide=True)
async def get_partitioned_stats(call: Call) -> Response:
    """Show the sum over all partitions; ?perPartition=true (default) adds the figures of each partition."""
    if call.topic_name().is_partition:
        raise rest_refusals.PARTITIONED_TOPIC_NAME_INVALID.error()
    name = call.topic()
    count = call.topics.partition_count(name)
    if count is None:
        if not name.persistent:
            raise rest_refusals.PARTITIONED_NON_PERSISTENT_UNKNOWN.error(topic=name)
        raise rest_refusals.PARTITIONED_TOPIC_UNKNOWN.error(topic=name)
    each = await _figures(call, _stats_of) or {str(name): stats_of_nothing()}
    per_partition = call.flag("perPartition", default=True)
    metadata = await _metadata(call, name, count)
    async for stats in in_turns(tuple(each.values())):
        as_asked(stats, call)
    out = await partitioned_stats(each, metadata, per_partition=per_partition)
    out["partitions"] = await _by_hash(out["partitions"])
    return await call.long_answers.json(out, OF_PARTITIONS)


@routes.get(TOPIC + "/partitioned-internalStats", TOPIC_USE, is_wide=True)
async def get_partitioned_internal_stats(call: Call) -> Response:
    name = call.topic()
    count = call.topics.partition_count(name)
    if count is None:
        raise rest_refusals.PARTITIONED_TOPIC_UNKNOWN.error(topic=name)
    each = await _figures(call, _internal_stats_of)
    out = {"metadata": await _metadata(call, name, count), "partitions": await _by_hash(each)}
    return await call.long_answers.json(out, OF_LEDGERS)


async def _figures(call: Call, figures_of: Callable[[Call, TopicName], Awaitable[Json]]) -> Json:
    """The figures of the partitions by their names. A partition that is deleted meanwhile is left out."""

    async def known(part: TopicName) -> Json | None:
        try:
            return await figures_of(call, part)
        except TopicNotFoundError:
            return None
        except RestError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    parts = await _parts(call)
    found = zip(parts, await together(call, parts, known), strict=True)
    return {str(part): figures for part, figures in found if figures is not None}


async def _by_hash(parts: Json) -> Json:
    """The partitions in the order of the hash table in which Apache Pulsar keeps them."""
    slots, found = table_slots(len(parts)), {}
    async for some in sliced(list(parts)):
        found.update({part: slot_of(part, slots) for part in some})
    return {part: parts[part] for part in sorted(found, key=found.__getitem__)}


async def _stats_of(call: Call, part: TopicName) -> Json:
    """The statistics of a partition; calls the broker that serves the partition if another broker does."""
    if await _is_elsewhere(call, part):
        flags = "&".join(f"{key}={str(call.flag(key)).lower()}" for key in _FLAGS_OF_A_PARTITION)
        found: Json = await call.peers.call("GET", f"{_path(part)}/stats?{flags}")
        return found
    stats = await call.logs.stats(part, earliest_in_backlog=call.flag("getEarliestTimeInBacklog"))
    return await topic_stats(stats, call.namespaces.effective(part), owner=call.api.urls.broker_id)


async def _internal_stats_of(call: Call, part: TopicName) -> Json:
    if await _is_elsewhere(call, part):
        found: Json = await call.peers.call("GET", f"{_path(part)}/internalStats")
        return found
    return await internal_stats(call, part)


async def _is_elsewhere(call: Call, part: TopicName) -> bool:
    """Whether another broker serves the partition. The lookup may assign an unowned partition to this broker."""
    return call.api.peers is not None and not isinstance(
        await call.api.ownership.lookup(part, authoritative=False), Here
    )


def _path(part: TopicName) -> str:
    return f"{ADMIN}/{part.domain}/{part.namespace}/{quote(part.local_name, safe='')}"


async def _parts(call: Call) -> list[TopicName]:
    """The partitions that have statistics; loads the partitions of a non-persistent topic that this broker serves."""
    parts = []
    async for part in in_turns(topic_parts(call)):
        if not part.persistent and await _is_elsewhere(call, part):
            parts.append(part)
            continue
        if not part.persistent:
            await load_partition(call, part)
        if call.topics.exists(part):
            parts.append(part)
    return parts


async def _partitions_of_body(call: Call) -> PartitionedBody:
    """Read a number, or, for the content type of partitioned metadata, an object with partitions and properties."""
    kind = call.request.headers.get("content-type", "")
    if "partitioned-topic-metadata" in kind or (call.request.method == "PUT" and not kind):
        given = await call.body(PartitionedBody | int)  # type: ignore[arg-type]
        if given is None:
            raise RestError(500, "a number of partitions is required")
        return PartitionedBody(given) if isinstance(given, int) else given
    if not (await call.raw_body()).strip():
        raise RestError(400, EMPTY_BODY)
    partitions = await call.body(int) or 0
    if not fits(partitions, 32):
        raise RestError(500, f"{partitions} is out of range of 32 bits")
    return PartitionedBody(partitions)
