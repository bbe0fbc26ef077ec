"""Producers: PRODUCER and CLOSE_PRODUCER. SENDs never come here: `connection` hands their runs to the producer."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from magnetar.broker.compat import wire_refusals
from magnetar.broker.errors import (
    AuthorizationError,
    BrokerError,
    ConnectionFatalError,
    TopicNotFoundError,
)
from magnetar.broker.handlers.client import Client
from magnetar.broker.handlers.lookup import parse_topic, read_schema_ahead, refuse_foreign
from magnetar.broker.handlers.schema import version_without_schema
from magnetar.broker.limits import (
    MAX_PRODUCER_METADATA_BYTES,
    check_client_name,
    check_properties,
    check_subscription_name,
    kept_bytes,
)
from magnetar.broker.tasks import awaited
from magnetar.broker.topics.producer import Producer, ProducerRequest
from magnetar.broker.topics.producer_ports import ProducerConnection
from magnetar.broker.topics.subscribe_request import SubscribeRequest
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import replies

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from magnetar.broker.topics.served_topic import ServedTopic
    from magnetar.protocol.topic_name import TopicName


class Requests(Protocol):
    """The requests of a connection in progress."""

    def set_aside(self, request: asyncio.Task[Any] | None) -> None:
        """Read on however long this request, which has a first answer, still takes."""


class PublishingClient(Client, ProducerConnection, Protocol):
    """A connection that may have producers."""

    producers: dict[int, Producer | asyncio.Future[Producer]]

    @property
    def requests(self) -> Requests: ...


def unique_metadata(pairs: object) -> dict[str, str]:
    """The key-values as a dict. Raises ConnectionFatalError when a key occurs twice."""
    out: dict[str, str] = {}
    for pair in pairs:  # type: ignore[attr-defined]
        if pair.key in out:
            raise ConnectionFatalError(f"metadata key {pair.key!r} twice")
        out[pair.key] = pair.value
    return out


async def on_producer(conn: PublishingClient, command: pb.CommandProducer) -> None:
    """Create a producer, or answer again for an existing producer."""
    name = parse_topic(command.topic)
    existing = conn.producers.get(command.producer_id)
    if existing is not None:
        _check(conn, command, name)
        _answer_again(conn, command, existing)
        return
    pending: asyncio.Future[Producer] = conn.loop.create_future()
    conn.producers[command.producer_id] = pending
    try:
        may = partial(conn.may, pb.BaseCommand.PRODUCER, name)
        if (news := conn.services.news.of_topic(name, may_create=True, may=may)) is not None:
            await news
        producer = await _create(conn, command, name, _check(conn, command, name), pending)
    except BaseException as e:
        if conn.producers.get(command.producer_id) is pending:
            del conn.producers[command.producer_id]
        if pending.cancelled():
            if isinstance(e, asyncio.CancelledError | BrokerError):
                return  # the client closed the producer meanwhile and has the answer
        elif not pending.done():
            pending.cancel()
        raise
    if pending.cancelled() or conn.closed:
        await producer.close()
        return
    pending.set_result(producer)
    conn.producers[command.producer_id] = producer
    conn.write(_success(command.request_id, producer, ready=True))


def _check(conn: PublishingClient, command: pb.CommandProducer, name: TopicName) -> dict[str, str]:
    """Check that the producer may exist and return its metadata. Raises the BrokerError that answers the client."""
    conn.authorize(pb.BaseCommand.PRODUCER, name)
    if command.initial_subscription_name:
        _authorize_subscription(conn, name, command.initial_subscription_name)
    metadata = unique_metadata(command.metadata)
    check_properties("Producer metadata", metadata, MAX_PRODUCER_METADATA_BYTES)
    check_client_name("Producer name", command.producer_name)
    check_subscription_name(command.initial_subscription_name)
    return metadata


def _authorize_subscription(conn: PublishingClient, name: TopicName, subscription: str) -> None:
    """Require the right to subscribe too; a role without this right may not produce, in the words of Apache Pulsar."""
    try:
        conn.authorize(pb.BaseCommand.SUBSCRIBE, name, subscription)
    except AuthorizationError as e:
        if str(e) == wire_refusals.DENIED_COMMANDS[pb.BaseCommand.SUBSCRIBE]:
            raise wire_refusals.denied(pb.BaseCommand.PRODUCER) from e
        raise


def _answer_again(
    conn: PublishingClient, command: pb.CommandProducer, existing: Producer | asyncio.Future[Producer]
) -> None:
    if isinstance(existing, asyncio.Future):
        raise wire_refusals.PRODUCER_PRESENT.error()
    # the repeated answer carries neither the topic epoch nor the last sequence id
    conn.write(
        replies.producer_success(
            command.request_id,
            existing.name,
            last_sequence_id=-1,
            schema_version=existing.schema_version,
            topic_epoch=None,
            producer_ready=True,
        )
    )


def _success(request_id: int, producer: Producer, *, ready: bool) -> bytes:
    return replies.producer_success(
        request_id,
        producer.name,
        last_sequence_id=producer.publishing.deduplication.table.last_sequence_id(producer.name),
        schema_version=producer.schema_version,
        topic_epoch=producer.topic_epoch if ready else None,
        producer_ready=ready,
    )


async def _create(
    conn: PublishingClient,
    command: pb.CommandProducer,
    name: TopicName,
    metadata: dict[str, str],
    pending: asyncio.Future[Producer],
) -> Producer:
    services = conn.services
    refuse_foreign(services, name)
    read_schema_ahead(services, name, command)
    try:
        topic = await services.topics.get(name, create=True)
    except TopicNotFoundError as e:
        raise wire_refusals.TOPIC_UNKNOWN.error(topic=name) from e
    request = ProducerRequest(
        producer_id=command.producer_id,
        name=command.producer_name if command.HasField("producer_name") else services.new_producer_name(),
        user_provided_name=command.user_provided_producer_name,
        epoch=command.epoch,
        access_mode=command.producer_access_mode,
        topic_epoch=command.topic_epoch if command.HasField("topic_epoch") else None,
        encrypted=command.encrypted,
        metadata=metadata,
        kept_bytes=kept_bytes(command),
    )
    topic.check_new_producer(request)
    request.schema_version = await _schema_version(conn, command, topic)
    if command.initial_subscription_name:
        await _initial_subscription(topic, command.initial_subscription_name)
    producer, task = topic.new_producer(conn, request), asyncio.current_task()

    def on_queued() -> None:
        conn.write(_success(command.request_id, producer, ready=False))
        conn.requests.set_aside(task)

    admission = awaited(topic.add_producer(producer, on_queued), "producer.admission")
    pending.add_done_callback(partial(_give_up, admission))
    try:
        await admission
    finally:
        del admission  # the error of a refusal would be in a cycle with this frame
    _check_admitted(producer, name)
    return producer


def _give_up(admission: asyncio.Task[None], pending: asyncio.Future[Producer]) -> None:
    """End the admission of a producer whose creation was cancelled."""
    if pending.cancelled():
        admission.cancel()


def _check_admitted(producer: Producer, name: TopicName) -> None:
    """Refuse a producer whose topic was closed in the round of the event loop in which the producer was admitted.

    As in Apache Pulsar 4.2.4, a role that lost its right while its producer waited for its turn keeps the producer
    until the next change of rights.
    """
    if producer.closed:
        raise wire_refusals.TOPIC_UNAVAILABLE.error(topic=name)


async def _schema_version(conn: PublishingClient, command: pb.CommandProducer, topic: ServedTopic) -> bytes:
    if command.HasField("schema"):
        return await conn.services.schemas.for_producer(topic, command.schema)
    return await version_without_schema(conn, topic)


async def _initial_subscription(topic: ServedTopic, name: str) -> None:
    if not topic.persistent or name in topic.subscriptions.by_name:
        return
    if not topic.config.allow_auto_subscription_creation:
        raise wire_refusals.NO_INITIAL_SUBSCRIPTION.error()
    await topic.subscriptions.create(SubscribeRequest(subscription=name, from_earliest=True))


def on_close_producer(conn: PublishingClient, command: pb.CommandCloseProducer) -> Coroutine[Any, Any, None]:
    """Close the producer after the receipts of all sent entries; an unknown producer counts as closed."""
    entry = conn.producers.get(command.producer_id)
    if isinstance(entry, asyncio.Future):
        entry.cancel()
        conn.producers.pop(command.producer_id, None)
        entry = None
    elif entry is not None:
        entry.closing = True  # now, not in the task: the next SEND may be in the same read
    return _close(conn, command.request_id, entry)


async def _close(conn: PublishingClient, request_id: int, producer: Producer | None) -> None:
    if producer is not None:
        await producer.close()
    conn.write(replies.success(request_id))
