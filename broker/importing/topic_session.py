"""A connection to the broker that owns the topic: lookup and redirects, then producers on it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from magnetar.broker.importing.address import Address
from magnetar.broker.importing.connection import BrokerConnection, open_connection, refusal
from magnetar.broker.importing.errors import InputError, RefusedError, RetryError
from magnetar.broker.importing.import_producer import ImportProducer
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests

if TYPE_CHECKING:
    from magnetar.broker.importing.address import Credentials
    from magnetar.protocol.topic_name import TopicName

_MAX_REDIRECTS = 20
_LOOKUP = pb.CommandLookupTopicResponse


class Target(NamedTuple):
    """Which topic, and how to come to it."""

    service: Address
    credentials: Credentials
    topic: TopicName


class TopicSession:
    """One connection to the owner of the topic. Open it with `open_session`."""

    def __init__(self, connection: BrokerConnection, topic: str) -> None:
        self.connection = connection
        self.topic = topic
        self._last_producer_id = 0

    async def open_producer(self, name: str) -> ImportProducer:
        """A producer of this name; only one can be there at a time. Raises: RefusedError, RetryError."""
        self._last_producer_id += 1
        producer_id = self._last_producer_id
        answer = await self.connection.ask(lambda request: requests.producer(request, producer_id, self.topic, name))
        success = answer.producer_success
        if answer.type != pb.BaseCommand.PRODUCER_SUCCESS or success.producer_name != name:
            raise RefusedError(f"the broker did not give the producer the name {name}")
        return ImportProducer(self.connection, producer_id, name, success.last_sequence_id)

    def close(self) -> None:
        self.connection.close()


async def open_session(target: Target) -> TopicSession:
    """Find the owner of the topic and connect to it.

    Raises: InputError for a partitioned topic, RefusedError, RetryError.
    """
    connection = await open_connection(target.service, target.credentials)
    try:
        await _ensure_not_partitioned(connection, target.topic)
        connection = await _at_owner(connection, target)
    except BaseException:
        connection.close()
        raise
    return TopicSession(connection, str(target.topic))


async def _ensure_not_partitioned(connection: BrokerConnection, topic: TopicName) -> None:
    if topic.is_partition:
        return
    answer = await connection.ask(lambda request: requests.partitioned_metadata(request, str(topic)))
    response = answer.partitionMetadataResponse
    if response.response == pb.CommandPartitionedTopicMetadataResponse.Failed:
        raise refusal(response.error, response.message)
    if response.partitions > 0:
        raise InputError(
            f"{topic} has {response.partitions} partitions; a file keeps its order in one of them only: "
            f"import into {topic}-partition-N with N from 0 to {response.partitions - 1}"
        )


async def _at_owner(connection: BrokerConnection, target: Target) -> BrokerConnection:
    """Follow the lookup to the broker that serves the topic; `connection` is closed when that is another one."""
    here, authoritative = target.service, False
    seen: list[str] = []
    for _ in range(_MAX_REDIRECTS):
        request = partial(requests.lookup, topic=str(target.topic), authoritative=authoritative)
        answer = await connection.ask(request)
        found = answer.lookupTopicResponse
        if found.response == _LOOKUP.Failed:
            raise refusal(found.error, found.message)
        there = Address.parse(found.brokerServiceUrlTls if target.service.tls else found.brokerServiceUrl)
        if found.proxy_through_service_url:
            there = here
        if there != here:
            seen.append(str(there))
            connection.close()
            connection = await open_connection(there, target.credentials)
            here = there
        if found.response == _LOOKUP.Connect:
            return connection
        authoritative = found.authoritative
    raise RetryError(f"lookup goes in circles: {', '.join(seen)}")
