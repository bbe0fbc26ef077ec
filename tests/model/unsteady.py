"""A topic with random settings, ledgers whose reads wait and fail, and a converter that parks entries, all at random."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from magnetar.broker.consumers.unacked_total import UnackedTotal
from magnetar.broker.dispatchers.ports import Order, Parked, Transformed
from magnetar.storage.errors import StorageError
from magnetar.storage.slab import Span
from tests.broker.topic_for_tests import TopicBench
from tests.storage.managed_for_tests import Ground
from tests.twins.memory_ledgers import MemoryLedgerStore

if TYPE_CHECKING:
    import random

    from magnetar.storage.position import Position


class UnsteadyLedgers(MemoryLedgerStore):
    """Reads miss the cache, wait for some rounds of the event loop and fail, each at random."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self._dice = dice
        self.cold = self.failing = 0.0

    def read_cached(self, ledger_id, first, last, max_bytes):
        if self._dice.random() < self.cold:
            return None
        return super().read_cached(ledger_id, first, last, max_bytes)

    async def read(self, ledger_id, first, last, max_bytes):
        for _ in range(self._dice.choice((0, 1, 3, 10, 50))):
            await asyncio.sleep(0)
        if self._dice.random() < self.failing:
            raise StorageError("a read fails")
        return await super().read(ledger_id, first, last, max_bytes)


class UnsteadyConverter:
    """Converts some reads later, and parks or drops some entries at random, each at most twice."""

    flags = 0

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._parked: dict[Position, int] = {}
        self.done: set[Position] = set()

    def __call__(self, spans, order):
        if self._dice.random() < 0.5:
            return self._converted(spans, order)
        return self._later(spans, order)

    async def _later(self, spans, order):
        for _ in range(self._dice.choice((0, 1, 5))):
            await asyncio.sleep(0)
        return self._converted(spans, order)

    def _converted(self, spans, order):
        dice, out = self._dice, Transformed()
        if dice.random() < 0.5:
            return spans
        for slab, start, end in spans:
            for k in range(start, end):
                one, position = Span(slab, k, k + 1), slab.position(k)
                if out.rest:
                    out.rest.append(one)
                elif dice.random() < 0.2 and self._parked.get(position, 0) < 2:
                    self._parked[position] = self._parked.get(position, 0) + 1
                    out.parked.append(Parked(one, dice.choice((20, 300)), holds_key=order is Order.BY_KEY))
                    if order is Order.TOTAL:
                        out.rest.append(one)
                elif dice.random() < 0.05:
                    out.done.append(position)
                else:
                    out.spans.append(one)
        return out

    def bypass(self, spans) -> None:
        """Nothing is counted."""

    def close(self) -> None:
        """Nothing is to be closed."""


def unsteady_bench(dice: random.Random, ledgers: UnsteadyLedgers) -> TopicBench:
    """A topic on these ledgers whose limits are small or none."""
    limit = dice.choice((0, 3, 8, 50_000))
    tracker = dice.choice(("InMemoryDelayedDeliveryTrackerFactory", "BucketDelayedDeliveryTrackerFactory"))
    bench = TopicBench(
        Ground(ledgers),
        max_unacked_messages_per_consumer=limit,
        max_unacked_messages_per_subscription=dice.choice((0, 6, 20, 200_000)),
        max_unacked_messages_per_broker=dice.choice((0, 0, 15)),
        max_unacked_messages_per_subscription_on_broker_blocked=0.5,
        dispatcher_max_read_batch_size=dice.choice((2, 5, 100)),
        dispatcher_max_round_robin_batch_size=dice.choice((1, 3, 20)),
        subscription_key_shared_use_consistent_hashing=dice.random() < 0.5,
        subscription_key_shared_consistent_hashing_replica_points=4,
        key_shared_look_ahead_msg_in_replay_threshold_per_consumer=dice.choice((1, 4, 2000)),
        active_consumer_failover_delay_time_millis=dice.choice((0, 100)),
        delayed_delivery_tracker_factory_class_name=f"org.apache.pulsar.broker.delayed.{tracker}",
        delayed_delivery_tick_time_millis=100,
        managed_ledger_max_entries_per_ledger=dice.choice((4, 10, 1000)),
        managed_ledger_min_ledger_rollover_time_minutes=0,
        acknowledgment_at_batch_index_level_enabled=True,
        default_retention_time_in_minutes=-1,
        default_retention_size_in_mb=-1,
        auto_skip_non_recoverable_data=True,
    )
    bench.context.unacked_total = UnackedTotal.of(bench.settings)
    return bench
