"""Consumers: SUBSCRIBE, FLOW, ACK, redelivery, SEEK, UNSUBSCRIBE, CLOSE_CONSUMER and queries."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from magnetar.broker.compat import wire_refusals
from magnetar.broker.consumers.consumer import Consumer, Outbox
from magnetar.broker.errors import (
    BrokerError,
    ConnectionFatalError,
    ServiceNotReadyError,
)
from magnetar.broker.handlers.client import Client
from magnetar.broker.handlers.lookup import parse_topic, read_schema_ahead, refuse_foreign
from magnetar.broker.handlers.publish import unique_metadata
from magnetar.broker.handlers.request_turns import request_cost
from magnetar.broker.limits import (
    MAX_ACK_SET_WORDS,
    MAX_SUBSCRIPTION_PROPERTIES_BYTES,
    check_ack_set,
    check_client_name,
    check_key_ranges,
    check_properties,
    check_subscription_name,
)
from magnetar.broker.slices import IN_SLICES
from magnetar.broker.subscriptions.moved_cursors import shown_mark_delete
from magnetar.broker.topics.subscribe_request import SubscribeRequest
from magnetar.broker.topics.topic import Topic
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import replies
from magnetar.protocol.message_id import signed
from magnetar.protocol.texts import MOST_PARTS
from magnetar.storage.position import EARLIEST, Position

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Iterator, Sequence

    from magnetar.broker.consumers.consumer import ServingSubscription
    from magnetar.broker.topics.served_topic import ServedTopic
    from magnetar.protocol.topic_name import TopicName

_INT32_MAX = 2**31 - 1
_SINGLE_ACTIVE = (pb.CommandSubscribe.Exclusive, pb.CommandSubscribe.Failover)
ACKS_IN_ONE_TURN = 5000
"""Message ids of one ACK or one redelivery that are handled in one turn of the event loop: some 5 ms."""
FEW_WORDS = 1024
"""Words of the ack sets of an ACK that are handled at once: parts of batches of 65,536 messages together."""
_WORDS_IN_ONE_TURN = 16_384
_WORDS_OF_AN_ENTRY = 8
"""Words that take about as long as an entry of a request that moves entries."""


class ConsumingClient(Client, Outbox, Protocol):
    """A connection that may have consumers."""

    consumers: dict[int, Consumer | asyncio.Future[Consumer]]
    sought_consumers: dict[int, Consumer]
    """Consumers that a SEEK of the present read has closed."""

    def hold_reading(self, reason: str) -> None: ...
    def release_reading(self, reason: str) -> None: ...


def on_subscribe(conn: ConsumingClient, command: pb.CommandSubscribe) -> Coroutine[Any, Any, None]:
    """Create a consumer, or answer again for an existing consumer.

    The function itself reserves the consumer id, so that a CLOSE_CONSUMER in the same read finds the id; the returned
    coroutine does the rest.
    """
    name = parse_topic(command.topic)
    existing = conn.consumers.get(command.consumer_id) or conn.sought_consumers.get(command.consumer_id)
    if existing is None:
        conn.consumers[command.consumer_id] = pending = conn.loop.create_future()
        return _subscribe(conn, command, name, pending)
    return _answer_again(conn, command, name, existing)


def _check(conn: ConsumingClient, command: pb.CommandSubscribe, name: TopicName) -> dict[str, str]:
    """Check that the consumer may exist and return its metadata. Raises the BrokerError that answers the client."""
    conn.authorize(pb.BaseCommand.SUBSCRIBE, name, command.subscription)
    check_subscription_name(command.subscription)
    check_client_name("Consumer name", command.consumer_name)
    check_key_ranges(len(command.keySharedMeta.hashRanges))
    properties = {p.key: p.value for p in command.subscription_properties}
    check_properties("Subscription properties", properties, MAX_SUBSCRIPTION_PROPERTIES_BYTES)
    metadata = unique_metadata(command.metadata)
    size = sum(len(k.encode()) + len(v.encode()) for k, v in metadata.items())
    if size > conn.services.settings.max_consumer_metadata_size:
        raise wire_refusals.CONSUMER_METADATA_TOO_LARGE.error(most=conn.services.settings.max_consumer_metadata_size)
    return metadata


async def _answer_again(
    conn: ConsumingClient, command: pb.CommandSubscribe, name: TopicName, existing: Consumer | asyncio.Future[Consumer]
) -> None:
    _check(conn, command, name)
    if isinstance(existing, asyncio.Future):
        raise wire_refusals.CONSUMER_PRESENT.error()
    conn.write(replies.success(command.request_id))


async def _subscribe(
    conn: ConsumingClient, command: pb.CommandSubscribe, name: TopicName, pending: asyncio.Future[Consumer]
) -> None:
    try:
        may = partial(conn.may, pb.BaseCommand.SUBSCRIBE, name, command.subscription)
        news = conn.services.news.of_topic(name, may_create=command.force_topic_creation, may=may)
        if news is not None:
            await news
        consumer = await _create(conn, command, name, _check(conn, command, name))
    except BaseException as e:
        if conn.consumers.get(command.consumer_id) is pending:
            del conn.consumers[command.consumer_id]
        if pending.cancelled():
            if isinstance(e, asyncio.CancelledError | BrokerError):
                return
        else:
            pending.cancel()
        raise
    if pending.cancelled() or conn.closed:
        consumer.subscription.remove_consumer(consumer)
        return
    pending.set_result(consumer)
    conn.consumers[command.consumer_id] = consumer
    conn.write(replies.success(command.request_id))


async def _create(
    conn: ConsumingClient, command: pb.CommandSubscribe, name: TopicName, metadata: dict[str, str]
) -> Consumer:
    services = conn.services
    refuse_foreign(services, name)
    read_schema_ahead(services, name, command)
    topic = await services.topics.get(name, create=command.force_topic_creation)
    request = subscribe_request(command)
    topic.subscriptions.check_room()
    topic.subscriptions.require_creatable(request.subscription, durable=request.durable)
    if command.HasField("schema"):
        await services.schemas.for_consumer(topic, command.schema)
    consumer = services.make_consumer(command, conn, name, metadata)
    await topic.subscriptions.subscribe(consumer, request)
    try:
        conn.authorize(
            pb.BaseCommand.SUBSCRIBE, name, request.subscription
        )  # the role may have lost its right meanwhile
    except BrokerError:
        consumer.subscription.remove_consumer(consumer)
        raise
    return consumer


def subscribe_request(command: pb.CommandSubscribe) -> SubscribeRequest:
    """The request of a CommandSubscribe for the subscriptions of a topic."""
    start = None
    if not command.durable and command.HasField("start_message_id"):
        start = Position(signed(command.start_message_id.ledgerId), signed(command.start_message_id.entryId))
    return SubscribeRequest(
        subscription=command.subscription,
        durable=command.durable,
        from_earliest=command.initialPosition == pb.CommandSubscribe.Earliest,
        start=start,
        rollback_s=signed(command.start_message_rollback_duration_sec),
        properties={p.key: p.value for p in reversed(command.subscription_properties)},  # the first of a key counts
        read_compacted=command.read_compacted,
        replicated=command.replicate_subscription_state if command.HasField("replicate_subscription_state") else None,
    )


def _consumer(conn: ConsumingClient, consumer_id: int) -> Consumer | None:
    entry = conn.consumers.get(consumer_id)
    return None if isinstance(entry, asyncio.Future) else entry


def _required(conn: ConsumingClient, consumer_id: int) -> tuple[Consumer, ServingSubscription]:
    consumer = _consumer(conn, consumer_id) or conn.sought_consumers.get(consumer_id)
    if consumer is None:
        raise wire_refusals.CONSUMER_UNKNOWN.error()
    return consumer, consumer.subscription


def on_flow(conn: ConsumingClient, command: pb.CommandFlow) -> None:
    """Add permits, counted in messages; raises ConnectionFatalError below 1. Ignores an unknown consumer."""
    consumer = _consumer(conn, command.consumer_id)
    if consumer is None:
        return
    if not 0 < command.messagePermits <= _INT32_MAX:
        raise ConnectionFatalError(f"FLOW of {command.messagePermits} permits")
    consumer.subscription.on_flow(consumer, command.messagePermits)


async def _until_answered(consumer: Consumer, answering: Awaitable[None]) -> None:
    """Answer an ACK that `unanswered_acks` counts."""
    try:
        await answering
    except BaseException:
        asyncio.get_running_loop().call_soon(consumer.ack_answered)  # behind the answer with the error
        raise
    consumer.ack_answered()


async def _answer_ack(conn: ConsumingClient, command: pb.CommandAck, durable: Awaitable[None]) -> None:
    await durable
    conn.write(replies.ack_response(command.consumer_id, command.request_id))


def on_ack(conn: ConsumingClient, command: pb.CommandAck):  # type: ignore[no-untyped-def]  # noqa: ANN201 - None or a coroutine
    """Acknowledge messages. Answers, once durable, only a command with a request id. Ignores unknown consumers."""
    consumer = _consumer(conn, command.consumer_id)
    if consumer is None:
        if command.consumer_id in conn.sought_consumers and command.HasField("request_id"):
            conn.write(replies.ack_response(command.consumer_id, command.request_id))
        return None
    if len(command.properties) > MOST_PARTS:  # 100,000 fit into a MiB, and an object for each takes 50 ms
        raise ConnectionFatalError(f"ACK with {len(command.properties)} properties, at most {MOST_PARTS} are allowed")
    if command.properties and len({p.key for p in command.properties}) < len(command.properties):
        raise ConnectionFatalError("ACK with a property twice")
    if command.HasField("txnid_least_bits") and command.HasField("txnid_most_bits"):
        shared = consumer.sub_type in (pb.CommandSubscribe.Shared, pb.CommandSubscribe.Key_Shared)
        if not (shared and command.ack_type == pb.CommandAck.Cumulative):
            raise wire_refusals.TRANSACTION_ACKS_DISABLED.error()
    many = len(command.message_id) > ACKS_IN_ONE_TURN
    if not many:
        words = 0
        for ident in command.message_id:
            if (of_set := len(ident.ack_set)) <= MAX_ACK_SET_WORDS:  # a longer set is refused at once
                words += of_set
        many = words > FEW_WORDS
    if many and (command.ack_type == pb.CommandAck.Individual or len(command.message_id) == 1):
        conn.hold_reading(IN_SLICES)
        slices = _ack_in_slices(conn, consumer, command)
        if not command.HasField("request_id"):
            return slices
        consumer.unanswered_acks += 1
        return _until_answered(consumer, slices)
    durable = consumer.subscription.on_ack(consumer, command)
    if not command.HasField("request_id"):
        return None
    if durable is None:
        conn.write(replies.ack_response(command.consumer_id, command.request_id))
        return None
    consumer.unanswered_acks += 1
    return _until_answered(consumer, _answer_ack(conn, command, durable))


async def _ack_in_slices(conn: ConsumingClient, consumer: Consumer, command: pb.CommandAck) -> None:
    """Acknowledge many ids in slices, each in a round of the event loop with few such slices of other connections. The
    connection reads no further command meanwhile, so the order stays.

    Only the last slice has the request id: the messages that an earlier slice makes possible follow at once.
    """
    ids, answered = command.message_id, command.HasField("request_id")
    durable, refused = None, None
    try:
        for start, end, words in _parts_of_acks(ids):
            await _turn(conn, request_cost(max(end - start, words // _WORDS_OF_AN_ENTRY)))
            if not conn.closed and conn.consumers.get(command.consumer_id) is not consumer:
                return  # closed meanwhile, perhaps by a SEEK of another connection, whose place must stay
            part = pb.CommandAck(consumer_id=command.consumer_id, ack_type=command.ack_type)
            part.message_id.extend(ids[start:end])
            if answered and end == len(ids):
                part.request_id = command.request_id
            if not start and command.HasField("validation_error"):  # the first slice alone logs it
                part.validation_error = command.validation_error
            try:
                durable = consumer.subscription.on_ack(consumer, part)
            except BrokerError as error:  # the other ids of the command are acknowledged all the same
                refused = refused or error
    finally:
        conn.release_reading(IN_SLICES)
    if answered and durable is not None:
        await durable
    if refused is not None:
        raise refused
    if answered:
        conn.write(replies.ack_response(command.consumer_id, command.request_id))


def _parts_of_acks(ids: Sequence[pb.MessageIdData]) -> Iterator[tuple[int, int, int]]:
    """Cut the ids into parts of one turn each: where each part starts and ends, and the words of its ack sets. An id
    is an object only while it is looked at: beside a hundred thousand of them the parser takes long to make others.
    """
    start = words = 0
    for at, ident in enumerate(ids):
        more = of_set if (of_set := len(ident.ack_set)) <= MAX_ACK_SET_WORDS else 0
        if at > start and (words + more > _WORDS_IN_ONE_TURN or at == start + ACKS_IN_ONE_TURN):
            yield start, at, words
            start, words = at, 0
        words += more
    yield start, len(ids), words


async def _turn(conn: ConsumingClient, cost: int) -> None:
    """Wait for a round of the event loop in which few other connections have work of such a cost."""
    ready, turns = asyncio.Event(), conn.services.request_turns
    turns.count(conn.loop, 0)
    turns.wait(ready.set, cost, conn)
    await ready.wait()


def on_redeliver_unacknowledged_messages(
    conn: ConsumingClient, command: pb.CommandRedeliverUnacknowledgedMessages
) -> Coroutine[Any, Any, None] | None:
    consumer = _consumer(conn, command.consumer_id)
    if consumer is None:
        return None
    by_id = consumer.sub_type in (pb.CommandSubscribe.Shared, pb.CommandSubscribe.Key_Shared)
    if by_id and len(command.message_ids) > ACKS_IN_ONE_TURN:
        conn.hold_reading(IN_SLICES)
        return _redeliver_in_slices(conn, consumer, command)
    if by_id and not command.message_ids and len(consumer.pending_acks or ()) > ACKS_IN_ONE_TURN:
        conn.hold_reading(IN_SLICES)
        cost = request_cost(consumer.held_entries)
        conn.services.request_turns.count(conn.loop, cost)
        conn.services.request_turns.wait(lambda: _redeliver_in_turn(conn, consumer, command), cost, conn)
    else:
        _redeliver(consumer, command)
    return None


def _redeliver(consumer: Consumer, command: pb.CommandRedeliverUnacknowledgedMessages) -> None:
    epoch = signed(command.consumer_epoch) if command.HasField("consumer_epoch") else None
    consumer.subscription.on_redeliver(consumer, command.message_ids or None, epoch)


def _redeliver_in_turn(
    conn: ConsumingClient, consumer: Consumer, command: pb.CommandRedeliverUnacknowledgedMessages
) -> None:
    """Redeliver up to tens of thousands of held messages, once few other connections do the same in this round.
    The connection has read no further command meanwhile, so the order stays.
    """
    try:
        _redeliver(consumer, command)
    finally:
        conn.release_reading(IN_SLICES)


async def _redeliver_in_slices(
    conn: ConsumingClient, consumer: Consumer, command: pb.CommandRedeliverUnacknowledgedMessages
) -> None:
    """Redeliver many ids in slices, as `_ack_in_slices` acknowledges them."""
    epoch = signed(command.consumer_epoch) if command.HasField("consumer_epoch") else None
    try:
        for start in range(0, len(command.message_ids), ACKS_IN_ONE_TURN):
            await _turn(conn, request_cost(ACKS_IN_ONE_TURN))
            some = command.message_ids[start : start + ACKS_IN_ONE_TURN]
            consumer.subscription.on_redeliver(consumer, some, epoch)
            del some
    finally:
        conn.release_reading(IN_SLICES)


def on_unsubscribe(conn: ConsumingClient, command: pb.CommandUnsubscribe) -> Coroutine[Any, Any, None]:
    """Close the consumers of the subscription at once, before later commands of the same read; the returned coroutine
    deletes the subscription.
    """
    consumer, subscription = _required(conn, command.consumer_id)
    topic = conn.services.topics.loaded.get(str(consumer.topic_name))
    if topic is None:
        raise ServiceNotReadyError("Topic is not loaded")
    subscription.unsubscribe(consumer, force=command.force)
    return _delete(conn, command, consumer, topic)


async def _delete(
    conn: ConsumingClient, command: pb.CommandUnsubscribe, consumer: Consumer, topic: ServedTopic
) -> None:
    subscription = consumer.subscription
    if topic.persistent and topic.life.has_ended:  # an unload came first, and the next load finds the subscription
        conn.loop.call_soon(consumer.close_from_broker)
        raise ServiceNotReadyError("Topic is not loaded")
    try:
        if topic.subscriptions.by_name.get(subscription.name) is subscription:
            await topic.subscriptions.delete(subscription.name)
    except BaseException:  # behind the error the client subscribes again: the subscription has closed its consumers
        conn.loop.call_soon(consumer.close_from_broker)
        raise
    if conn.consumers.get(command.consumer_id) is consumer:
        del conn.consumers[command.consumer_id]
    consumer.when_acks_are_answered(lambda: conn.write(replies.success(command.request_id)))


def on_seek(conn: ConsumingClient, command: pb.CommandSeek) -> Coroutine[Any, Any, None]:
    """Move the subscription. The broker closes its consumers, whose clients subscribe again by themselves.

    A SEEK to a message closes the consumers at once. Later requests of the same read still find the consumer, as in
    Apache Pulsar.
    """
    if not command.HasField("message_id") and not command.HasField("message_publish_time"):
        raise wire_refusals.SEEK_WITHOUT_TARGET.error()
    consumer, subscription = _required(conn, command.consumer_id)
    topic = conn.services.topics.loaded.get(str(consumer.topic_name))
    if topic is None:
        raise ServiceNotReadyError("Topic is not loaded")
    if not isinstance(topic, Topic):
        moving = subscription.seek(EARLIEST)
    elif command.HasField("message_id"):
        ident = command.message_id
        check_ack_set(len(ident.ack_set))
        place = Position(signed(ident.ledgerId), signed(ident.entryId))
        moving = subscription.seek(place, list(ident.ack_set) or None, to_message=True)
        if command.consumer_id not in conn.consumers:
            conn.sought_consumers[command.consumer_id] = consumer
            conn.loop.call_soon(conn.sought_consumers.pop, command.consumer_id, None)
    else:
        moving = _seek_time(subscription, topic, signed(command.message_publish_time))
    return _answer_when_moved(conn, command, moving)


async def _seek_time(subscription: ServingSubscription, topic: Topic, time_ms: int) -> None:
    await subscription.seek(await topic.ledger.position_for_time(time_ms))


async def _answer_when_moved(conn: ConsumingClient, command: pb.CommandSeek, moving: Awaitable[None]) -> None:
    await moving
    conn.write(replies.success(command.request_id))


def on_close_consumer(conn: ConsumingClient, command: pb.CommandCloseConsumer) -> None:
    """Close the consumer at once, even before requests sent earlier are answered; later commands for it are ignored.
    The answer follows those of its ACKs.

    When the round of the event loop has much work, the consumer leaves in a later round; the connection reads no
    further command meanwhile.
    """
    entry = conn.consumers.pop(command.consumer_id, None)
    closed = entry or conn.sought_consumers.get(command.consumer_id)
    if isinstance(closed, Consumer) and closed.sub_type in _SINGLE_ACTIVE and not closed.subscription.serves(closed):
        raise wire_refusals.CONSUMER_NOT_CONNECTED.error()
    if isinstance(entry, asyncio.Future):
        entry.cancel()
    elif entry is not None:
        turns, cost = conn.services.request_turns, request_cost(entry.held_entries)
        if turns.count(conn.loop, cost):
            conn.hold_reading(IN_SLICES)
            turns.wait(lambda: _close_in_turn(conn, command, entry), cost, conn)
            return
        entry.subscription.remove_consumer(entry)
    conn.sought_consumers.pop(command.consumer_id, None)
    _answer_close(conn, command, closed)


def _close_in_turn(conn: ConsumingClient, command: pb.CommandCloseConsumer, consumer: Consumer) -> None:
    try:
        consumer.subscription.remove_consumer(consumer)
        _answer_close(conn, command, consumer)
    finally:
        conn.release_reading(IN_SLICES)


def _answer_close(conn: ConsumingClient, command: pb.CommandCloseConsumer, closed: object) -> None:
    def answer() -> None:
        conn.write(replies.success(command.request_id))

    if isinstance(closed, Consumer):
        closed.when_acks_are_answered(answer)
    else:
        answer()


def on_get_last_message_id(conn: ConsumingClient, command: pb.CommandGetLastMessageId) -> Coroutine[Any, Any, None]:
    """The last message of the topic and how far the subscription has acknowledged."""
    consumer, _ = _required(conn, command.consumer_id)
    return _answer_last_message_id(conn, command, consumer)


async def _answer_last_message_id(
    conn: ConsumingClient, command: pb.CommandGetLastMessageId, consumer: Consumer
) -> None:
    subscription = consumer.subscription
    topic = conn.services.topics.loaded.get(str(consumer.topic_name))
    if topic is None:
        raise ServiceNotReadyError("Topic is not loaded")
    if not isinstance(topic, Topic):
        raise wire_refusals.LAST_MESSAGE_ID_UNSUPPORTED.error()
    last, batch_index = await topic.last_message_id(read_compacted=consumer.read_compacted)
    mark_delete = subscription.mark_delete_for_client()
    own = topic.subscriptions.by_name.get(subscription.name)
    if own is not None and own.loaded_at == mark_delete:
        await topic.ledger.ensure_open_ledger()
        mark_delete = shown_mark_delete(topic.ledger.ledgers, own)
    ledgers = [slot.ledger_id for slot in topic.ledger.ledgers]
    if mark_delete.ledger_id not in ledgers:  # the position before the first entry behind mark-delete
        following = next((ledger_id for ledger_id in ledgers if ledger_id > mark_delete.ledger_id), None)
        ledger_id = (await topic.position_before_first()).ledger_id if following is None else following
        mark_delete = Position(ledger_id, -1)
    conn.write(replies.last_message_id(command.request_id, last, topic.name.partition, batch_index, mark_delete))


def on_consumer_stats(conn: ConsumingClient, command: pb.CommandConsumerStats) -> None:
    from magnetar.broker.subscriptions.subscription_stats import told_stats  # noqa: PLC0415 - not at the start

    consumer = _consumer(conn, command.consumer_id) or conn.sought_consumers.get(command.consumer_id)
    if consumer is None:
        raise ConnectionFatalError(f"CONSUMER_STATS of the unknown consumer {command.consumer_id}")
    conn.write(replies.consumer_stats(command.request_id, told_stats(consumer.subscription, consumer).wire()))
