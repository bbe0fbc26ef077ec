"""A connection to the broker that owns the topic: lookup and redirects, then producers on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from magnetar.client.errors import InputError, RefusedError
from magnetar.client.lookup import find_owner, partitions
from magnetar.client.pool import OneConnection
from magnetar.client.producers import Producers
from magnetar.importing.import_producer import ImportProducer

if TYPE_CHECKING:
    from magnetar.client.address import Address, Credentials
    from magnetar.client.connection import BrokerConnection
    from magnetar.protocol.topic_name import TopicName

_NO_NAMESPACE = "Namespace not found"
"""The words of Apache Pulsar and of this broker; the code of the error is also that of a missing topic."""


class Target(NamedTuple):
    """The topic, the address of the service and the credentials for it."""

    service: Address
    credentials: Credentials
    topic: TopicName


class TopicSession:
    """One connection to the owner of the topic. Open it with `open_session`."""

    def __init__(self, connection: BrokerConnection, topic: str) -> None:
        self.connection = connection
        self.topic = topic
        self._producers = Producers(connection)

    async def open_producer(self, name: str) -> ImportProducer:
        """Open the only producer of this name. Raises: RefusedError, RetryError."""
        producer = ImportProducer(self._producers, name)
        await producer.open(self.topic)
        return producer

    def close(self) -> None:
        self.connection.close()


async def open_session(target: Target) -> TopicSession:
    """Find the owner of the topic and connect to it.

    Raises: InputError for a partitioned topic, RefusedError, RetryError.
    """
    one = OneConnection(target.credentials)
    try:
        await _ensure_not_partitioned(await one.get(target.service), target.topic)
        connection = await one.get(await find_owner(one, target.service, str(target.topic)))
    except RefusedError as error:
        one.close()
        if _NO_NAMESPACE not in str(error):
            raise
        raise RefusedError(f"{error}: create it with `magnetar namespaces create {target.topic.namespace}`") from error
    except BaseException:
        one.close()
        raise
    return TopicSession(connection, str(target.topic))


async def _ensure_not_partitioned(connection: BrokerConnection, topic: TopicName) -> None:
    if topic.is_partition:
        return
    count = await partitions(connection, str(topic), absent_ok=True)
    if count > 0:
        raise InputError(
            f"{topic} has {count} partitions; a file keeps its order in one of them only: "
            f"import into {topic}-partition-N with N from 0 to {count - 1}"
        )
