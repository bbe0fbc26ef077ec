"""Hands the entries of a non-persistent topic to its subscriptions, to thousands of them in several turns.

A run of 250 entries takes a second for 3,000 subscriptions. The fan-out ends a turn when it has cost ROUND_BYTES and
goes on in a later round of the event loop, among the turns of all dispatchers. Runs that come meanwhile wait for their
receipts, so their connection soon reads no further SENDs (`network.publish_gate`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import structlog

from magnetar.broker.compat.java_order import java_order
from magnetar.broker.dispatchers.turns import ROUND_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from magnetar.broker.dispatchers.turns import DispatchTurns
    from magnetar.broker.subscriptions.non_persistent_subscription import NonPersistentSubscription
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.slab import Slab

log = structlog.get_logger(__name__)
_SUBSCRIPTION_COST_BYTES, _CONSUMER_COST_BYTES = 256, 64
"""Cost of a subscription to which nothing is sent, and of each consumer that is looked at."""
_SUBSCRIPTIONS_OF_A_COMMAND, _CONSUMERS_OF_A_COMMAND = 4, 64
"""Subscriptions to which a run is sent, and consumers that are looked at, in the time of a command."""


class FanOut:
    """The fan-out of one topic. `by_name`: its subscriptions, as they are at any time."""

    def __init__(
        self, topic: TopicName, by_name: Mapping[str, NonPersistentSubscription], turns: Callable[[], DispatchTurns]
    ) -> None:
        self.last_cost = 0
        """Cost of the last slab, in commands of a connection."""
        self._topic = topic
        self._by_name = by_name
        self._turns = turns
        self._slabs: deque[tuple[Slab, Iterator[NonPersistentSubscription]]] = deque()
        """The slabs under way, each with the subscriptions that have not got it yet."""
        self._runs: deque[Callable[[], None]] = deque()
        self._works = self._ended = False
        self._joined: tuple[NonPersistentSubscription, ...] = ()
        self._ordered: tuple[NonPersistentSubscription, ...] = ()
        """The subscriptions of the last slab, as they joined and in order: most slabs go to the same."""

    def begin(self, run: Callable[[], None]) -> None:
        """Call `run`, which may send slabs, once all subscriptions have the slabs that were sent before."""
        if self._slabs or self._runs:
            self._runs.append(run)
        else:
            run()

    def send(self, slab: Slab) -> None:
        """Hand the slab to every subscription behind the slabs under way: at once, or in this and later turns."""
        if self._ended:
            return
        subscriptions = self._in_order()
        consumers = sum(len(each.consumers) for each in subscriptions)
        self.last_cost = len(subscriptions) // _SUBSCRIPTIONS_OF_A_COMMAND + consumers // _CONSUMERS_OF_A_COMMAND
        self._slabs.append((slab, iter(subscriptions)))
        if not self._works and len(self._slabs) == 1:
            self._turn()

    def _in_order(self) -> tuple[NonPersistentSubscription, ...]:
        """Return the subscriptions in the order in which Apache Pulsar sends to them, which a connection with several
        of them sees.
        """
        joined = tuple(self._by_name.values())
        if joined != self._joined:
            self._joined = joined
            self._ordered = tuple(self._by_name[name] for name in java_order(self._by_name, concurrent=True))
        return self._ordered

    def end(self) -> None:
        """Drop the slabs under way. Call the runs that wait, whose slabs are dropped too."""
        self._ended = True
        self._slabs.clear()
        self._begin_waiting()

    def _turn(self) -> int:
        """Go on until all is done or the turn has cost enough; return the cost in bytes."""
        self._works, cost = True, 0
        try:
            while self._slabs and cost < ROUND_BYTES:
                slab, subscriptions = self._slabs[0]
                subscription = next(subscriptions, None)
                if subscription is not None:
                    cost += self._publish(slab, subscription)
                    continue
                self._slabs.popleft()
                self._begin_waiting()
        finally:
            self._works = False
            if self._slabs:
                self._turns().wait(self._turn)
        return cost

    def _begin_waiting(self) -> None:
        """Call the runs that wait, up to the first that sends a slab."""
        while self._runs and not self._slabs:
            try:
                self._runs.popleft()()
            except Exception:  # such as MemoryError: the runs behind it must not wait for ever
                log.exception("dispatch.failed", topic=str(self._topic))

    def _publish(self, slab: Slab, subscription: NonPersistentSubscription) -> int:
        """Hand the slab to one subscription; return the cost in bytes."""
        try:
            queued = subscription.publish(slab)
        except Exception:  # a bug in one subscription must not cost the others their entries
            log.exception("dispatch.failed", topic=str(self._topic), subscription=subscription.name)
            queued = 0
        return queued + _SUBSCRIPTION_COST_BYTES + _CONSUMER_COST_BYTES * len(subscription.consumers)
