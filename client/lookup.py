"""Finding the broker that serves a topic, and the number of its partitions."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Protocol

from magnetar.client.address import Address
from magnetar.client.connection import refusal
from magnetar.client.errors import InputError, RetryError
from magnetar.client.pool import OneConnection
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests

if TYPE_CHECKING:
    from magnetar.client.address import Credentials
    from magnetar.client.connection import BrokerConnection

_MAX_REDIRECTS = 20
_PARTITION = re.compile(r"-partition-\d+$")
_LOOKUP = pb.CommandLookupTopicResponse


async def partitions(connection: BrokerConnection, topic: str, *, absent_ok: bool = False, create: bool = False) -> int:
    """Number of partitions of the topic, 0 when it is not partitioned.

    Args:    absent_ok: return 0 for a topic that does not exist, too.
             create: the broker may create an absent topic, with the number of partitions in its settings.
    Raises:  RefusedError, RetryError.
    """
    answer = await connection.ask(lambda request: requests.partitioned_metadata(request, topic, create=create))
    response = answer.partitionMetadataResponse
    if response.response == pb.CommandPartitionedTopicMetadataResponse.Failed:
        if absent_ok and response.error == pb.TopicNotFound:
            return 0
        raise refusal(response.error, response.message or f"Topic {topic} does not exist")
    return response.partitions


async def topics_like(connection: BrokerConnection, pattern: str) -> list[str]:
    """Return the persistent topics of the pattern's namespace whose whole name matches; partitions come by their own
    names.

    As in the client for Java, the match ignores the domain, and the topic's name decides for its partitions.

    Raises: InputError for a pattern that names no namespace or is no regular expression, RefusedError, RetryError.
    """
    rest = pattern.removeprefix("persistent://")
    if "://" in rest:
        raise InputError(f"{pattern}: patterns are of persistent topics")
    tenant, _, more = rest.partition("/")
    namespace, _, local = more.partition("/")
    if not local:
        if more:
            raise InputError(f"{pattern}: give a whole name, for example public/default/orders-.*")
        tenant, namespace, rest = "public", "default", f"public/default/{rest}"
    try:
        wanted = re.compile(rest)
    except re.error as error:
        raise InputError(f"{pattern} is no regular expression: {error}") from error
    mode = pb.CommandGetTopicsOfNamespace.PERSISTENT
    answer = await connection.ask(partial(requests.topics_of_namespace, namespace=f"{tenant}/{namespace}", mode=mode))
    found = answer.getTopicsOfNamespaceResponse.topics
    return [name for name in found if wanted.fullmatch(_PARTITION.sub("", name).removeprefix("persistent://"))]


class Connections(Protocol):
    """The source of a lookup's connections: a `ConnectionPool`, or `OneConnection`."""

    async def get(self, address: Address) -> BrokerConnection:
        """Raises: RefusedError, RetryError, InputError for TLS files."""
        ...


async def find_owner(connections: Connections, service: Address, topic: str) -> Address:
    """The address of the broker that serves the topic. Raises: RefusedError, RetryError, InputError for TLS files."""
    here, authoritative = service, False
    seen: list[str] = []
    for _ in range(_MAX_REDIRECTS):
        connection = await connections.get(here)
        answer = await connection.ask(partial(requests.lookup, topic=topic, authoritative=authoritative))
        found = answer.lookupTopicResponse
        there = _next_broker(found, here, tls=service.tls)
        if found.response == _LOOKUP.Connect:
            return there
        here, authoritative = there, found.authoritative
        seen.append(str(there))
    raise RetryError(f"lookup of {topic} goes in circles: {', '.join(dict.fromkeys(seen))}")


def _next_broker(found: pb.CommandLookupTopicResponse, here: Address, *, tls: bool) -> Address:
    """Return the broker to which the answer of a lookup points. Raises: RefusedError, RetryError, InputError."""
    if found.response == _LOOKUP.Failed:
        raise refusal(found.error, found.message)
    if found.proxy_through_service_url:
        return here
    return Address.parse(found.brokerServiceUrlTls if tls else found.brokerServiceUrl)


async def open_at_owner(
    service: Address, credentials: Credentials, topic: str, *, entry_metadata: bool = False
) -> BrokerConnection:
    """A connection to the broker that serves the topic; `entry_metadata` as of `open_connection`.

    Raises: RefusedError, RetryError, InputError for TLS files.
    """
    one = OneConnection(credentials, entry_metadata=entry_metadata)
    try:
        return await one.get(await find_owner(one, service, topic))
    except BaseException:
        one.close()
        raise
