"""Subscriptions: created, deleted, moved, expired, described."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from itertools import chain
from typing import Any

from starlette.responses import Response

from magnetar.broker.admin.api import MessagePosition, Start
from magnetar.broker.admin.call import Call, topic_of
from magnetar.broker.admin.elsewhere import called_elsewhere, is_elsewhere, of_each, together
from magnetar.broker.admin.policy_table import EMPTY_BODY
from magnetar.broker.admin.responses import conflict, done, json_response
from magnetar.broker.admin.routes import TOPIC, RouteTable
from magnetar.broker.admin.topic_calls import (
    COMPACTION,
    MessageIdBody,
    bounded,
    check_all_subscriptions,
    check_subscriptions,
    existing_parts,
    load_partition,
    loadable,
    refuse_missing_parts,
    single_topic,
    topic_parts,
    without_nulls,
)
from magnetar.broker.auth.table import TOPIC_CONSUME
from magnetar.broker.compat import rest_refusals, wire_refusals
from magnetar.broker.compat.java_order import java_order
from magnetar.broker.errors import BrokerError, NotAllowedError, RestError, SubscriptionNotFoundError
from magnetar.broker.limits import MAX_SUBSCRIPTION_PROPERTIES_BYTES, check_subscription_name
from magnetar.broker.slices import in_turns
from magnetar.broker.topics.lifecycle import ConflictError
from magnetar.protocol.topic_name import TopicName

routes = RouteTable()
SUBSCRIPTION = TOPIC + "/subscription/{subscription}"
_LATEST_ID, _EARLIEST_ID = 2**63 - 1, -1


@routes.get(TOPIC + "/subscriptions", TOPIC_CONSUME)
async def list_subscriptions(call: Call) -> Response:
    found = await of_each(call, await existing_parts(call), call.subscriptions.subscriptions)
    names: list[str] = list(chain.from_iterable(found))
    return json_response(java_order(names, concurrent=True))


@routes.put(SUBSCRIPTION, TOPIC_CONSUME)
async def create(call: Call) -> Response:
    """Create the subscription. The body is a message id, "earliest", "latest" or empty (latest); ?replicated=."""
    if not call.topic_name().persistent:
        raise rest_refusals.SUBSCRIPTION_NEEDS_CLIENT.error()
    name, subscription = call.topic(), call.param("subscription")
    check_subscription_name(subscription)
    start, properties = _start_of(await call.body(str | MessageIdBody))  # type: ignore[arg-type]
    bounded(properties, MAX_SUBSCRIPTION_PROPERTIES_BYTES)
    beyond = name.is_partition and name.partition >= (call.topics.partition_count(name.base) or 0)
    if beyond and not call.topics.exists(name):
        try:
            await call.topics.partitions_for_clients(name, auto_create=True)
        except BrokerError as e:
            raise rest_refusals.TOPIC_NOT_CREATABLE.error() from e
        raise rest_refusals.PARTITION_METADATA_MISSING.error(topic=name)
    if call.topics.partition_count(name) is None and not call.topics.exists(name):
        await _create_topic(call, name)

    async def create_on(part: TopicName) -> None:
        if is_elsewhere(call, part):
            await _create_elsewhere(call, part)
        else:
            replicated = call.flag("replicated")
            await call.subscriptions.create_subscription(part, subscription, start, properties, replicated=replicated)

    parts = topic_parts(call)
    async with call.walks.place(call.request, len(parts)):
        await _create_on_each(parts, create_on)
    return done()


async def _create_elsewhere(call: Call, part: TopicName) -> None:
    """Send the request to the broker of the partition. Raises ConflictError, RestError."""
    try:
        await called_elsewhere(call, part)
    except RestError as error:
        if error.status == HTTPStatus.CONFLICT:
            raise ConflictError(error.reason) from error
        raise


async def _create_on_each(parts: list[TopicName], create_on: Callable[[TopicName], Awaitable[None]]) -> None:
    """Create the subscription on every topic that lacks the subscription and has room for it; raises the conflict of
    the last topic when there is no such topic.
    """
    known = 0
    async for part in in_turns(parts):
        try:
            await create_on(part)
        except (ConflictError, NotAllowedError) as e:  # NotAllowedError: the limit of subscriptions or of topics
            known += 1
            if known == len(parts):
                raise conflict(str(e)) from e


async def _create_topic(call: Call, name: TopicName) -> None:
    """Create a missing topic where auto creation allows it, as for a client; else raise RestError."""
    try:
        if await call.topics.partitions_for_clients(name, auto_create=True) == 0:
            await call.lifecycle.create(name, {})
    except NotAllowedError as e:  # the limit of topics
        raise conflict(str(e)) from e
    except BrokerError as e:
        raise rest_refusals.TOPIC_NOT_CREATABLE.error() from e


def _start_of(body: str | MessageIdBody | None) -> tuple[Start | MessagePosition, dict[str, str]]:
    if body is None:
        return "latest", {}
    if isinstance(body, str):
        if body not in ("earliest", "latest"):
            raise RestError(400, f"a subscription cannot start at {body!r}")
        return ("earliest" if body == "earliest" else "latest"), {}
    properties = body.properties or {}
    if body.ledger_id == _LATEST_ID:  # with another entry it leads to the first entry, as a SEEK
        return ("latest" if body.entry_id == _LATEST_ID else "earliest"), properties
    if body.ledger_id == body.entry_id == _EARLIEST_ID:
        return "earliest", properties
    return body.position(), properties


@routes.delete(SUBSCRIPTION, TOPIC_CONSUME)
async def delete(call: Call) -> Response:
    """Delete the subscription; ?force=true closes its consumers. Without force, 412 for connected consumers of a
    persistent topic.
    """
    subscription, force = call.param("subscription"), call.flag("force")
    try:
        await _each(call, lambda part: call.subscriptions.delete_subscription(part, subscription, force=force))
    except RestError as error:
        if error.status == HTTPStatus.NOT_FOUND and call.topics.partition_count(call.topic()) is not None:
            raise rest_refusals.SUBSCRIPTION_OF_PARTITIONED_UNKNOWN.error() from error
        raise
    return done()


@routes.post(SUBSCRIPTION + "/skip_all", TOPIC_CONSUME)
async def skip_all(call: Call) -> Response:
    subscription = call.param("subscription")
    _refuse_skipping(call, call.topic())
    await _each(call, lambda part: call.subscriptions.skip(part, subscription, None))
    return done()


@routes.post(SUBSCRIPTION + "/skip/{number}", TOPIC_CONSUME)
async def skip(call: Call) -> Response:
    number = call.number("number", bits=32)
    name = single_topic(call, rest_refusals.NO_SKIP_OF_PARTITIONED.error())
    _refuse_skipping(call, name)
    await call.subscriptions.skip(name, call.param("subscription"), number)
    return done()


def _refuse_skipping(call: Call, name: TopicName) -> None:
    known = loadable(call, name) or call.topics.partition_count(name) is not None
    if not name.persistent and known:
        raise RestError(500, "a non-persistent topic has no backlog to skip")


@routes.post(SUBSCRIPTION + "/resetcursor/{timestamp}", TOPIC_CONSUME)
async def reset_to_time(call: Call) -> Response:
    subscription, timestamp_ms = call.param("subscription"), call.number("timestamp")
    if call.request.path_params["domain"] == "non-persistent":
        return await _reset_nothing(call, subscription)
    parts = await existing_parts(call)
    await of_each(call, parts, lambda part: call.subscriptions.reset_to_time(part, subscription, timestamp_ms))
    refuse_missing_parts(call)
    return done()


async def _message_of(call: Call) -> MessageIdBody | None:
    """The body as a message id; "earliest" and "latest" are valid too."""
    body: str | MessageIdBody | None = await call.body(str | MessageIdBody)  # type: ignore[arg-type]
    if not isinstance(body, str):
        return body
    if body not in ("earliest", "latest"):
        raise RestError(400, f"{body!r} is no message id")
    number = _EARLIEST_ID if body == "earliest" else _LATEST_ID
    return MessageIdBody(ledger_id=number, entry_id=number)


async def _reset_nothing(call: Call, subscription: str) -> Response:
    """Check that the subscription exists; no further effect: on a non-persistent topic it has no position."""
    await load_partition(call, call.topic())
    async for part in in_turns(topic_parts(call)):
        if is_elsewhere(call, part):
            await called_elsewhere(call, part)
            continue
        await load_partition(call, part)
        if subscription not in await call.subscriptions.subscriptions(part):
            raise rest_refusals.SUBSCRIPTION_UNKNOWN.error(subscription=subscription, topic=part)
    return done()


@routes.post(SUBSCRIPTION + "/resetcursor", TOPIC_CONSUME)
async def reset_to_message(call: Call) -> Response:
    """Move the subscription to the message of the body; with `excluded`, behind the message."""
    body = await _message_of(call)
    if body is None:
        raise RestError(500, "a message id is required")
    if call.topics.partition_count(call.topic()) is not None:
        raise rest_refusals.NO_RESET_OF_PARTITIONED.error()
    name = single_topic(call)
    if not name.persistent:
        raise RestError(500, "a non-persistent topic has no positions to reset to")
    await call.subscriptions.reset_to_message(name, call.param("subscription"), body.position(), excluded=body.excluded)
    return done()


@routes.post(SUBSCRIPTION + "/expireMessages/{seconds}", TOPIC_CONSUME)
async def expire_older(call: Call) -> Response:
    subscription, seconds = call.param("subscription"), call.number("seconds", bits=32)

    async def expire(part: TopicName) -> None:
        if not await call.subscriptions.expire(part, subscription, seconds):
            raise _nothing_to_expire(part, subscription)

    try:
        parts = await _persistent_parts(call, rest_refusals.NO_EXPIRY_OF_NON_PERSISTENT.error())
        await of_each(call, parts, expire)
    except SubscriptionNotFoundError as error:
        raise rest_refusals.SUBSCRIPTION_UNKNOWN.error(subscription=subscription, topic=call.topic()) from error
    if len(parts) < len(topic_parts(call)):
        raise rest_refusals.SUBSCRIPTION_UNKNOWN.error(subscription=subscription, topic=call.topic())
    return done()


@routes.post(SUBSCRIPTION + "/expireMessages", TOPIC_CONSUME)
async def expire_up_to(call: Call) -> Response:
    """Expire all messages up to and including the message of the body."""
    body = await _message_of(call)
    if body is None:
        raise RestError(500, "a message id is required")
    if call.topic_name().partition != body.partition_index:
        raise rest_refusals.EXPIRY_OF_OTHER_PARTITION.error()
    name = single_topic(call, rest_refusals.NO_EXPIRY_AT_POSITION_OF_PARTITIONED.error())
    if not name.persistent:
        raise RestError(500, "a non-persistent topic has no messages to expire")
    if not await call.subscriptions.expire(name, call.param("subscription"), body.position()):
        subscription = call.param("subscription")
        raise rest_refusals.NOTHING_TO_EXPIRE_UP_TO.error(topic=name, subscription=subscription)
    return done()


@routes.post(TOPIC + "/all_subscription/expireMessages/{seconds}", TOPIC_CONSUME)
async def expire_all_older(call: Call) -> Response:
    seconds = call.number("seconds", bits=32)
    parts = await _persistent_parts(call, rest_refusals.NO_EXPIRY_OF_ALL_OF_NON_PERSISTENT.error())
    by_part = {
        part: await call.subscriptions.subscriptions(part)
        async for part in in_turns(parts)
        if not is_elsewhere(call, part)
    }
    for part, names in by_part.items():
        check_subscriptions(call, part, names, TOPIC_CONSUME)
    if len(by_part) < len(parts):
        check_all_subscriptions(call)

    async def expire(part: TopicName) -> None:
        if part not in by_part:  # elsewhere when the rights were checked
            await called_elsewhere(call, part)
            return
        names = [name for name in java_order(by_part[part], concurrent=True) if name != COMPACTION]
        refused = [name async for name in in_turns(names) if not await call.subscriptions.expire(part, name, seconds)]
        if refused:
            raise _nothing_to_expire(part, refused[0])

    await together(call, parts, expire)
    refuse_missing_parts(call)
    return done()


@routes.get(SUBSCRIPTION + "/properties", TOPIC_CONSUME)
async def get_properties(call: Call) -> Response:
    found: dict[str, str] = {}
    subscription = call.param("subscription")

    async def look(part: TopicName) -> dict[str, str]:
        await _refuse_unknown(call, part)
        return await call.subscriptions.subscription_properties(part, subscription)

    for each in await _each_for_properties(call, look):
        found |= each
    return json_response(found)


async def _refuse_unknown(call: Call, name: TopicName) -> None:
    """Raise SubscriptionNotFoundError for an unknown subscription of a non-persistent topic."""
    subscription = call.param("subscription")
    if not name.persistent and subscription not in await call.subscriptions.subscriptions(name):
        raise wire_refusals.SUBSCRIPTION_OF_TOPIC_UNKNOWN.error(subscription=subscription, topic=name)


async def _each_for_properties(call: Call, do: Callable[[TopicName], Awaitable[object]]) -> list[Any]:
    """Like `_each`, but 500 instead of 409 (a partition that its topic does not have), as in Apache Pulsar."""
    try:
        return await _each(call, do)
    except RestError as e:
        raise RestError(500 if e.status == HTTPStatus.CONFLICT else e.status, e.reason) from e


@routes.put(SUBSCRIPTION + "/properties", TOPIC_CONSUME)
async def set_properties(call: Call) -> Response:
    given = await call.body(dict[str, str | None]) or {}
    subscription = call.param("subscription")

    async def change(part: TopicName) -> None:
        await _refuse_unknown(call, part)
        if None in given.values():  # a missing subscription counts before a null
            await call.subscriptions.subscription_properties(part, subscription)
        properties = bounded(without_nulls(call, call.topic(), given), MAX_SUBSCRIPTION_PROPERTIES_BYTES)
        await call.subscriptions.set_subscription_properties(part, subscription, properties)

    await _each_for_properties(call, change)
    return done()


@routes.post(SUBSCRIPTION + "/analyzeBacklog", TOPIC_CONSUME)
async def analyze_backlog(call: Call) -> Response:
    """Analyze the backlog or, with a message id in the body, all entries from that message on."""
    body = await _message_of(call)
    name = single_topic(call, rest_refusals.NO_ANALYSIS_OF_PARTITIONED.error())
    await _refuse_unknown(call, name)
    if not name.persistent:
        raise RestError(500, "a non-persistent topic has no backlog to analyze")
    start = None if body is None else body.position()
    return json_response(await call.subscriptions.analyze_backlog(name, call.param("subscription"), start))


@routes.get(SUBSCRIPTION + "/replicatedSubscriptionStatus", TOPIC_CONSUME)
async def replicated(call: Call) -> Response:
    """Show by topic, or by partition of a partitioned topic, whether the subscription is marked as replicated."""
    subscription = call.param("subscription")
    _refuse_replicated(call, rest_refusals.NO_REPLICATED_SUBSCRIPTION_TO_SHOW.error())

    async def look(part: TopicName) -> dict[str, bool]:
        return {str(part): await call.subscriptions.replicated(part, subscription)}

    found: dict[str, bool] = {}
    for each in await of_each(call, await existing_parts(call), look):
        found |= each
    refuse_missing_parts(call)
    return json_response(found)


@routes.post(SUBSCRIPTION + "/replicatedSubscriptionStatus", TOPIC_CONSUME)
async def set_replicated(call: Call) -> Response:
    """Store and show the mark, without further effect: there is no other cluster."""
    subscription = call.param("subscription")
    if not (await call.raw_body()).strip():
        raise RestError(400, EMPTY_BODY)
    on = bool(await call.body(bool))
    _refuse_replicated(call, rest_refusals.NO_REPLICATED_SUBSCRIPTION.error())
    parts = await existing_parts(call)
    try:
        await of_each(call, parts, lambda part: call.subscriptions.set_replicated(part, subscription, on=on))
    except SubscriptionNotFoundError as error:
        if call.topics.partition_count(call.topic()) is None:
            raise
        raise rest_refusals.SUBSCRIPTION_TO_MARK_UNKNOWN.error() from error
    return done()


def _refuse_replicated(call: Call, refusal: RestError) -> None:
    if call.request.path_params["domain"] == "non-persistent" and topic_of(call.request.path_params) is not None:
        raise refusal


async def _each(call: Call, do: Callable[[TopicName], Awaitable[object]]) -> list[Any]:
    """The result of `do` for every part, or the answer of the part's broker. Raises 404 when a part lacks the
    subscription, after the call for the other parts.
    """
    parts = await existing_parts(call)

    async def one(part: TopicName) -> tuple[Any, ...]:
        elsewhere = is_elsewhere(call, part)  # the call may give the bundle of the partition to this broker
        try:
            return (await (called_elsewhere(call, part) if elsewhere else do(part)),)
        except SubscriptionNotFoundError:
            return ()
        except RestError as error:
            if error.status != HTTPStatus.NOT_FOUND or not elsewhere:
                raise
            return ()

    found = [each[0] for each in await together(call, parts, one) if each]
    wanted = topic_parts(call) if call.topic().persistent else parts
    if not found or len(found) < len(wanted):
        raise rest_refusals.SUBSCRIPTION_UNKNOWN.error(subscription=call.param("subscription"), topic=call.topic())
    return found


async def _persistent_parts(call: Call, refusal: RestError) -> list[TopicName]:
    parts = await existing_parts(call)
    if call.request.path_params["domain"] == "non-persistent":
        raise refusal
    return parts


def _nothing_to_expire(name: TopicName, subscription: str) -> RestError:
    return rest_refusals.NOTHING_TO_EXPIRE.error(topic=name, subscription=subscription)
