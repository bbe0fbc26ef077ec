"""The context of a topic: plain values and a few functions of the broker, without a reference to the broker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from magnetar.broker.dispatchers.turns import DispatchTurns
from magnetar.broker.meters.distributions import QUOTA_CHECK_S, BucketMeter, LatencyMeter
from magnetar.broker.topics.names_room import NamesRoom
from magnetar.broker.topics.producer import Producer
from magnetar.broker.topics.rates_in_force import BrokerRates
from magnetar.delayed.index_thread import IndexThread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Mapping

    from magnetar.broker.consumers.unacked_total import UnackedTotal
    from magnetar.broker.dispatchers.ports import EntryTransformer
    from magnetar.broker.policies.effective import TopicConfig
    from magnetar.broker.policies.values import BundlesData
    from magnetar.broker.settings import Settings
    from magnetar.broker.topics.producer import ProducedTopic, ProducerRequest
    from magnetar.broker.topics.producer_ports import ProducerConnection
    from magnetar.delayed.bitmap_shelf import BitmapShelf
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.interfaces import CallLater
    from magnetar.storage.managed.managed_ledger import ManagedLedgerConfig
    from magnetar.storage.slab import Slab

T = TypeVar("T", bound="Hashable")
_MOST_SHARED = 256
COMPACTIONS_AT_ONCE = 2
"""The most compactions that run at the same time in a broker; further compactions wait, which bounds their memory."""


class UnstoredConverter(Protocol):
    """Converts the entries of a non-persistent topic."""

    def send(self, slab: Slab) -> None:
        """Publish the entries of a burst, now or when they are converted."""
        ...

    async def close(self) -> None:
        """Drop the waiting entries."""
        ...


class TopicConverter(Protocol):
    """Makes the converters of one topic."""

    def transformer(self, subscription: str) -> EntryTransformer:
        """Make the transformer for the dispatcher of a new subscription."""
        ...

    def unstored(self, publish: Callable[[Slab], None]) -> UnstoredConverter:
        """Make the converter of a non-persistent topic."""
        ...

    def close(self) -> None:
        """End the conversions of the topic, which is closed."""
        ...


class ConvertingService(Protocol):
    """Makes the converters of all topics."""

    def topic(self, name: TopicName, own_properties: Callable[[], Mapping[str, str]]) -> TopicConverter:
        """Make the converter of a loaded topic."""
        ...


@dataclass(slots=True)
class TopicContext:
    """Shared by all topics of a broker."""

    settings: Settings
    now_ms: Callable[[], int]
    monotonic: Callable[[], float]
    call_later: CallLater
    effective: Callable[[TopicName], TopicConfig]
    ledger_config: Callable[[TopicConfig], ManagedLedgerConfig]
    rates: BrokerRates = field(init=False)
    turns: DispatchTurns = field(init=False)
    unacked_total: UnackedTotal | None = None
    """None in a broker without a limit of unacknowledged messages."""
    converting: ConvertingService | None = None
    """None in a broker without converters."""
    serves: Callable[[TopicName], bool] = lambda _: True
    """Whether this broker may load the topic: another broker of the cluster may own it."""
    bundles: Callable[[str], BundlesData | None] = lambda _: None
    """The bundles of a namespace, for refusals that name the bundle; None: one bundle, or not read yet."""
    broker_id: Callable[[], str] = lambda: "localhost"
    """The host and the web port of this broker, for refusals that name the broker."""
    policies_ready: Callable[[TopicName], Awaitable[None] | None] = lambda _: None
    """Return None when the policies of the topic are known, else an awaitable to wait for before `effective`. Raises
    ServiceNotReadyError.
    """
    taken_over: Callable[[TopicName], None] = lambda _: None
    """The broker calls this function when it finds that another broker writes to the topic."""
    make_producer: Callable[[ProducerConnection, ProducedTopic, ProducerRequest, int], Producer] = Producer
    """A producer of a topic, not yet attached; the last argument is the time, ms since 1970."""
    delay_thread: IndexThread = field(default_factory=IndexThread)
    delay_shelf: BitmapShelf | None = None
    publish_latency: LatencyMeter = field(default_factory=LatencyMeter)
    quota_checks: BucketMeter = field(default_factory=lambda: BucketMeter(QUOTA_CHECK_S))
    names_room: NamesRoom = field(default_factory=NamesRoom)
    """The memory of the names of producers that have left, which all topics with deduplication share."""
    compaction_slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(COMPACTIONS_AT_ONCE))

    _shared: dict[Hashable, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rates = BrokerRates(self.monotonic, self.call_later)
        self.turns = DispatchTurns(self.call_later)

    def shared(self, value: T) -> T:
        """Return the equal value that other topics already use, else `value`.

        Idle topics then share objects: every object of an idle topic makes garbage collections longer.
        """
        if len(self._shared) >= _MOST_SHARED:
            self._shared.clear()
        found: T = self._shared.setdefault(value, value)
        return found

    def close(self) -> None:
        """Close after all topics have closed."""
        self.delay_thread.close()
        if self.delay_shelf is not None:
            self.delay_shelf.close()
