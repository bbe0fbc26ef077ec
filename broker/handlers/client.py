"""The interface of a client's connection for handlers of commands, and the services of the broker that they use.

A module of handlers declares its further requirements of the connection next to its functions.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from magnetar.broker.compat import wire_refusals
from magnetar.broker.handlers.request_turns import RequestTurns
from magnetar.broker.meters.operation_meter import OperationMeter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from magnetar.broker.advertised import AdvertisedAddresses
    from magnetar.broker.auth.sessions import AuthServices
    from magnetar.broker.consumers.consumer import Consumer, Outbox
    from magnetar.broker.ownership.ownership import Ownership
    from magnetar.broker.policies.namespace_store import NamespaceStore
    from magnetar.broker.schemas.registry import SchemaRegistry
    from magnetar.broker.settings import Settings
    from magnetar.broker.topics.list_watchers import TopicListWatchers
    from magnetar.broker.topics.news import News
    from magnetar.broker.topics.topic_registry import Topics
    from magnetar.protocol import pulsar_api_pb2 as pb
    from magnetar.protocol.topic_name import TopicName


@dataclass(slots=True)
class LookupCounters:
    """Counts LOOKUPs since the start of the broker, and the requests about topics in progress.

    redirects: LOOKUPs answered with a redirect. durations: of LOOKUPs answered with an address or a redirect.
    """

    redirects: int = 0
    in_progress: int = 0
    durations: OperationMeter = field(default_factory=OperationMeter)

    @contextlib.contextmanager
    def slot(self, most: int) -> Iterator[None]:
        """Count a request in progress. Raises TooManyRequestsError beyond `most` (maxConcurrentLookupRequest)."""
        if self.in_progress >= most:
            raise wire_refusals.TOO_MANY_LOOKUPS.error()
        self.in_progress += 1
        try:
            yield
        finally:
            self.in_progress -= 1


@dataclass(frozen=True, slots=True)
class ClientServices:
    """The services behind the commands of clients."""

    settings: Settings
    auth: AuthServices
    addresses: AdvertisedAddresses
    topics: Topics
    namespaces: NamespaceStore
    news: News
    schemas: SchemaRegistry
    topic_watchers: TopicListWatchers
    lookups: LookupCounters
    ownership: Ownership
    new_producer_name: Callable[[], str]
    """Returns a producer name that no other producer has, before or after a restart."""
    make_consumer: Callable[[pb.CommandSubscribe, Outbox, TopicName, Mapping[str, str]], Consumer]
    """Makes the consumer of a SUBSCRIBE; the subscription has yet to admit it."""
    request_turns: RequestTurns = field(default_factory=RequestTurns)
    long_lists: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the broker encodes a long list: memory has the parts of one list, and a round encodes one part."""


class Client(Protocol):
    """The connection of a client that may use commands on topics."""

    services: ClientServices
    loop: asyncio.AbstractEventLoop
    closed: bool

    def write(self, data: bytes) -> None: ...
    def authorize(self, command_type: int, name: TopicName, subscription: str = "") -> None:
        """Raise AuthorizationError unless the connection's role may use the command on the topic."""
        ...

    def may(self, command_type: int, name: TopicName, subscription: str = "") -> bool:
        """Whether the connection's role may use the command on the topic."""
        ...
