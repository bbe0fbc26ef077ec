"""Operations on a topic: terminate, compact, and the state of a compaction."""

import dataclasses
import time
from typing import Final

from starlette.responses import Response

from magnetar.broker.admin.api import MessagePosition
from magnetar.broker.admin.call import Call
from magnetar.broker.admin.elsewhere import of_each
from magnetar.broker.admin.responses import done, json_response
from magnetar.broker.admin.routes import TOPIC, RouteTable
from magnetar.broker.admin.topic_calls import (
    MessageIdBody,
    existing_parts,
    loadable,
    refuse_missing_parts,
    shown_position,
    single_topic,
    topic_missing,
    topic_parts,
    topic_unloadable,
)
from magnetar.broker.auth.authorizer import Target
from magnetar.broker.auth.table import NAMESPACE_ADMIN, TOPIC_ADMIN, TOPIC_CONSUME, TOPIC_USE
from magnetar.broker.compat import rest_refusals
from magnetar.broker.errors import RestError
from magnetar.protocol.topic_name import TopicName

routes = RouteTable()
_NOWHERE: Final = MessagePosition(-1, -1)
_NO_OFFLOADER: Final = (
    "org.apache.bookkeeper.mledger.ManagedLedgerException: [NullLedgerOffloader] does not support offload"
)


@routes.post(TOPIC + "/terminate", TOPIC_ADMIN)
async def terminate(call: Call) -> Response:
    if not call.topic_name().persistent:
        raise rest_refusals.NOT_PERSISTENT.error()
    last = await call.logs.terminate(single_topic(call, rest_refusals.NO_TERMINATION_OF_PARTITIONED.error()))
    return json_response(shown_position(dataclasses.replace(last, partition=-1)))


@routes.post(TOPIC + "/terminate/partitions", TOPIC_ADMIN)
async def terminate_partitions(call: Call) -> Response:
    if call.topic_name().is_partition:
        raise rest_refusals.NO_TERMINATION_OF_NON_PARTITIONED.error()
    name = call.topic()
    if call.topics.partition_count(name) is None:
        raise rest_refusals.NO_TERMINATION_OF_NON_PARTITIONED.error()
    parts = topic_parts(call)

    async def end(part: TopicName) -> dict[str, int]:
        if part.persistent and not call.topics.exists(part):
            raise rest_refusals.PARTITION_TO_TERMINATE_MISSING.error()
        return shown_position(dataclasses.replace(await call.logs.terminate(_persistent(part)), partition=-1))

    ended = await of_each(call, parts, end, "terminate")
    return json_response({str(part.partition): each for part, each in zip(parts, ended, strict=True)})


@routes.put(TOPIC + "/compaction", TOPIC_ADMIN)
async def compact(call: Call) -> Response:
    parts = await existing_parts(call)
    if call.topics.partition_count(call.topic()) is not None:
        _persistent(call.topic())  # also where no partition is loaded
    await of_each(call, parts, lambda part: call.logs.compact(_persistent(part)))
    refuse_missing_parts(call)
    return done()


@routes.get(TOPIC + "/compaction", TOPIC_ADMIN)
async def compaction_status(call: Call) -> Response:
    status = await call.logs.compaction_status(_persistent(_own_topic(call)))
    return json_response({"status": status.status, "lastError": status.last_error})


@routes.put(TOPIC + "/offload", TOPIC_ADMIN)
async def offload(call: Call) -> Response:
    """Accept the request, which fails at once: there is no storage to offload to. The status shows the error."""
    if await call.body(dict[str, object]) is None:
        raise rest_refusals.OFFLOAD_POSITION_MISSING.error()
    call.topics.offloads_asked.add(_persistent(_own_topic(call)))
    return done()


@routes.get(TOPIC + "/offload", TOPIC_ADMIN)
async def offload_status(call: Call) -> Response:
    name = _persistent(_own_topic(call))
    nowhere = shown_position(_NOWHERE)
    if name in call.topics.offloads_asked:
        return json_response({"status": "ERROR", "lastError": _NO_OFFLOADER, "firstUnoffloadedMessage": nowhere})
    return json_response({"status": "NOT_RUN", "lastError": "", "firstUnoffloadedMessage": nowhere})


def _own_topic(call: Call) -> TopicName:
    """A plain topic or a partition; a partitioned topic itself does not count as existing."""
    name = call.topic_name()
    if not loadable(call, name):
        raise topic_unloadable(call, name)
    call.namespaces.require_local(name.namespace)
    return name


def _persistent(name: TopicName) -> TopicName:
    if not name.persistent:
        raise RestError(500, f"{name}: not for a non-persistent topic")
    return name


# --- stored entries ---------------------------------------------------------------------------------------------


@routes.put(TOPIC + "/backlogSize", TOPIC_CONSUME)
async def backlog_size(call: Call) -> Response:
    """Show the bytes behind the message of the body."""
    message = await call.body(MessageIdBody)
    name = single_topic(call, rest_refusals.NO_BACKLOG_SIZE_OF_PARTITIONED.error())
    if message is None or not name.persistent:
        raise RestError(500, "a message id of a persistent topic is required")
    return json_response(await call.logs.bytes_after(name, message.position()))


@routes.get(TOPIC + "/backlog", TOPIC_CONSUME)
async def stored(call: Call) -> Response:
    """PersistentOfflineTopicStats: figures of the stored entries, without the topic's clients."""
    name = call.topic()
    stats = None
    if name.persistent and call.topics.exists(name):
        stats = await call.logs.stats(name, earliest_in_backlog=False)
    backlog = max((each.msg_backlog for each in stats.subscriptions.values()), default=0) if stats else 0
    answer = {
        "storageSize": stats.storage_bytes if stats else 0,
        "totalMessages": stats.msg_in_counter if stats else 0,
        "messageBacklog": backlog,
        "brokerName": call.api.urls.broker_id.partition(":")[0],
        "topicName": f"{name.namespace}/{name.domain}/{name.local_name}",
        "dataLedgerDetails": [],
        "cursorDetails": {},
        "statGeneratedAt": int(time.time() * 1000),
    }
    return json_response(answer)


@routes.get(TOPIC + "/getMessageIdByIndex", TOPIC_CONSUME)
async def message_by_index(call: Call) -> Response:
    """Show the id of the message with the broker index ?index=; 0 when absent."""
    index = call.query_number("index") or 0
    if index < 0:
        raise rest_refusals.MESSAGE_INDEX_NEGATIVE.error(index=index)
    name = single_topic(call, rest_refusals.NO_INDEX_OF_PARTITIONED.error())
    if not name.persistent:
        raise rest_refusals.NO_INDEX_OF_NON_PERSISTENT.error()
    found = await call.logs.message_by_index(name, index)
    if found is None:
        if (await call.logs.last_message(name)).entry_id < 0:
            raise rest_refusals.MESSAGES_OF_TOPIC_MISSING.error(topic=name)
        raise rest_refusals.MESSAGE_INDEX_UNKNOWN.error(index=index)
    return json_response(shown_position(found))


@routes.post(TOPIC + "/trim", TOPIC_ADMIN)
async def trim(call: Call) -> Response:
    if not call.topic_name().persistent:
        raise rest_refusals.NO_TRIM_OF_NON_PERSISTENT.error()
    if not call.namespaces.exists(call.namespace):
        raise topic_unloadable(call, call.topic_name())
    name = call.topic(anywhere=True)
    if not name.is_partition and call.topics.partition_count(name) is None and not call.topics.exists(name):
        raise topic_missing(name)
    await of_each(call, await existing_parts(call), call.logs.trim)
    refuse_missing_parts(call)
    return done(200)


@routes.post(TOPIC + "/createMissedPartitions", TOPIC_USE)
async def create_missed_partitions(call: Call) -> Response:
    """Create missing partitions of a partitioned topic, for example after their deletion; requires the right to create
    topics.
    """
    if call.topic_name().is_partition:
        raise rest_refusals.PARTITIONED_TOPIC_NAME_INVALID.error()
    name = call.topic()
    if call.topics.partition_count(name) is None:
        raise rest_refusals.TOPIC_TO_COMPLETE_UNKNOWN.error(topic=name)
    namespace = Target(tenant=call.param("tenant"), namespace=name.namespace)
    if not call.api.authorizer.allows(call.identity, NAMESPACE_ADMIN, namespace):
        raise rest_refusals.NAMESPACE_OPERATION_DENIED.error(operation="CREATE_TOPIC", namespace=name.namespace)
    await call.lifecycle.create_missed_partitions(name)
    return done()
