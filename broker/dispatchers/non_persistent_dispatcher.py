"""Dispatch without storage: an entry goes out at once to a consumer with permits, or is dropped.

Consumers join and are chosen by the rules of persistent topics; there is no delay, redelivery, draining or holding of
entries. The dispatcher sends entries with the id (0, 0).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from magnetar.broker.compat import wire_refusals
from magnetar.broker.consumers.consumer import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED
from magnetar.broker.dispatchers.active_consumer import ActiveChoice
from magnetar.broker.dispatchers.admission import refusal_to_join
from magnetar.broker.dispatchers.consumer_selection import RoundRobin
from magnetar.broker.dispatchers.key_ranges import StickySelector
from magnetar.broker.dispatchers.key_shared import make_selector, policy_of
from magnetar.broker.dispatchers.keyed_spans import KeyHashes
from magnetar.broker.dispatchers.single_active import admit_failover

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from magnetar.broker.consumers.consumer import Consumer, KeySharedPolicy
    from magnetar.broker.dispatchers.turns import DispatchTurns
    from magnetar.broker.errors import BrokerError
    from magnetar.broker.policies.subscription_settings import SubscriptionSettings
    from magnetar.storage.slab import Slab


@dataclass(slots=True)
class UnstoredContext:
    """The context of a non-persistent dispatcher; settings may be replaced at any time."""

    topic_name: str
    partition: int
    settings: SubscriptionSettings
    turns: DispatchTurns


class NonPersistentDispatcher(ABC):
    """Consumers of one subscription of a non-persistent topic."""

    sub_type: int

    def __init__(self, context: UnstoredContext) -> None:
        self.context = context

    @property
    @abstractmethod
    def consumers(self) -> Sequence[Consumer]:
        """Connected consumers."""

    @abstractmethod
    def add_consumer(self, consumer: Consumer) -> None:
        """Admit a consumer. Raises the BrokerError that answers the client."""

    @abstractmethod
    def remove_consumer(self, consumer: Consumer) -> None:
        """A consumer left."""

    @abstractmethod
    def remove_all(self) -> None:
        """Remove all consumers; costs less than to remove each of thousands."""

    @abstractmethod
    def choose(self, slab: Slab) -> Iterator[Consumer | None]:
        """Yield for each entry the consumer that gets it, None for a dropped entry. The caller sends each entry, which
        uses permits, before it takes the next.
        """

    def occupant(self, consumer: Consumer) -> Consumer | None:  # noqa: ARG002 - only Exclusive has one
        """The consumer that keeps `consumer` out unless its connection turns out to be dead."""
        return None

    def can_unsubscribe(self, consumer: Consumer) -> bool:
        """Whether this is the only consumer."""
        return len(self.consumers) == 1 and self.consumers[0] is consumer


def can_take(consumer: Consumer) -> bool:
    """Whether a consumer has permits and reads its output."""
    return consumer.permits.available > 0 and consumer.is_writable()


class SingleActiveNonPersistent(NonPersistentDispatcher):
    """Exclusive and Failover."""

    def __init__(self, context: UnstoredContext, sub_type: int) -> None:
        super().__init__(context)
        self.sub_type = sub_type
        self.active: Consumer | None = None
        self._choice: ActiveChoice[Consumer] = ActiveChoice(context.topic_name, context.partition)

    @property
    def consumers(self) -> Sequence[Consumer]:
        return self._choice.consumers

    def occupant(self, consumer: Consumer) -> Consumer | None:
        return self.consumers[0] if consumer.sub_type == EXCLUSIVE and self.consumers else None

    def add_consumer(self, consumer: Consumer) -> None:
        if self.sub_type == FAILOVER:
            admit_failover(self.consumers, self.context.settings.max_consumers)
        self._choice.add(consumer)
        before = self.active
        self._choose()
        if self.active is before and self.sub_type == FAILOVER:
            consumer.tell_active(is_active=False)

    def remove_consumer(self, consumer: Consumer) -> None:
        if consumer in self.consumers:
            self._choice.remove(consumer)
            if self.consumers:
                self._choose()
            else:
                self.active = None

    def remove_all(self) -> None:
        self._choice.clear()
        self.active = None

    def _choose(self) -> None:
        # a change sends no ACTIVE_CONSUMER_CHANGE, except to a new consumer that is not chosen (Apache Pulsar 4.2.4)
        self.active = self._choice.active(consistent_hashing=self.context.settings.failover_consistent_hashing)

    def choose(self, slab: Slab) -> Iterator[Consumer | None]:
        for _ in range(slab.count):
            yield self.active if self.active is not None and can_take(self.active) else None


class SharedNonPersistent(NonPersistentDispatcher):
    """Shared: each entry to the next consumer that can take it."""

    sub_type = SHARED

    def __init__(self, context: UnstoredContext) -> None:
        super().__init__(context)
        self._members: RoundRobin[Consumer] = RoundRobin(by_level=False)

    @property
    def consumers(self) -> Sequence[Consumer]:
        return self._members.consumers

    def add_consumer(self, consumer: Consumer) -> None:
        if 0 < self.context.settings.max_consumers <= len(self._members.consumers):
            raise wire_refusals.TOO_MANY_CONSUMERS_OF_SUBSCRIPTION.error()
        self._members.add(consumer)

    def remove_consumer(self, consumer: Consumer) -> None:
        if consumer in self._members.consumers:
            self._members.remove(consumer)

    def remove_all(self) -> None:
        self._members.clear()

    def choose(self, slab: Slab) -> Iterator[Consumer | None]:
        passed: list[int] = []
        for _ in range(slab.count):
            yield self._members.next(can_take, passed)


class KeySharedNonPersistent(SharedNonPersistent):
    """Key_Shared: each entry to the owner of its hash."""

    sub_type = KEY_SHARED

    def __init__(self, context: UnstoredContext, policy: KeySharedPolicy) -> None:
        super().__init__(context)
        self.sticky = policy.sticky
        self.allow_out_of_order = policy.allow_out_of_order
        self.selector = make_selector(context.settings, policy)

    def add_consumer(self, consumer: Consumer) -> None:
        if isinstance(self.selector, StickySelector):
            self.selector.check(consumer)
        super().add_consumer(consumer)
        self.selector.add(consumer)

    def remove_consumer(self, consumer: Consumer) -> None:
        if consumer in self.consumers:
            super().remove_consumer(consumer)
            self.selector.remove(consumer)

    def remove_all(self) -> None:
        super().remove_all()
        self.selector.clear()

    def choose(self, slab: Slab) -> Iterator[Consumer | None]:
        hashes = KeyHashes(slab, self.selector)
        for k in range(slab.count):
            consumer = cast("Consumer | None", self.selector.select(hashes[k]))
            yield consumer if consumer is not None and can_take(consumer) else None


def make_non_persistent(context: UnstoredContext, consumer: Consumer) -> NonPersistentDispatcher:
    """The dispatcher for the consumer's type."""
    if consumer.sub_type == SHARED:
        return SharedNonPersistent(context)
    if consumer.sub_type == KEY_SHARED:
        return KeySharedNonPersistent(context, policy_of(consumer))
    return SingleActiveNonPersistent(context, consumer.sub_type)


def refusal_of(dispatcher: NonPersistentDispatcher, consumer: Consumer) -> BrokerError | None:
    """The refusal of a consumer that may not join the consumers of the dispatcher; None for a consumer that fits."""
    sharing = dispatcher if isinstance(dispatcher, KeySharedNonPersistent) else None
    return refusal_to_join(dispatcher.sub_type, sharing, consumer)
