"""Delays that are switched off and on again: two subscriptions of a topic share the index."""

from __future__ import annotations

import pytest

from magnetar.delayed.bucket_view import BucketDelayView
from magnetar.delayed.delay_settings import DelayPolicy
from magnetar.delayed.firing import Firing
from tests.broker.dispatch_fakes import KEY_SHARED, SHARED, Bench, Cursor, Log, entry, got

DUE_MS = 50_000


class Topic:
    """Two subscriptions that read the same entries, with a view of one index each."""

    def __init__(self) -> None:
        self.now = 0
        self.firing = Firing(DelayPolicy(tick_ms=1, strict=True), lambda: self.now, 8)
        self.benches = [self._bench(name) for name in "ab"]

    def _bench(self, name: str) -> Bench:
        log = Log()
        cursor = Cursor(log)
        view = self.firing.views[name] = BucketDelayView(self.firing, cursor, lambda: None, 100)
        bench = Bench(delay=view, cursor=cursor)
        bench.log = log
        return bench

    def switch(self, *, on: bool) -> None:
        self.firing.policy = DelayPolicy(tick_ms=1, strict=True, active=on)
        self.go_on()

    def go_on(self) -> None:
        while self.firing.fire():
            pass
        for bench in self.benches:
            bench.subscription.wake()
            bench.clock.run()

    def pass_time(self) -> None:
        self.now = DUE_MS
        self.go_on()


async def read_while_off(sub_type):
    """Subscription a reads an entry while delays are off; b reads it after they are on again, so that it waits."""
    topic = Topic()
    a, b = topic.benches
    first = await a.join(sub_type, permits=10)
    topic.switch(on=False)
    positions = a.publish(entry(key="k", deliver_at_time=DUE_MS), entry(key="l", deliver_at_time=DUE_MS))
    assert got(first) == [0, 1]
    topic.switch(on=True)
    second = await b.join(sub_type, permits=10)
    b.publish(*(entry(key=key, deliver_at_time=DUE_MS) for key in "kl"))
    assert got(second) == []
    return topic, first, second, positions


@pytest.mark.parametrize("sub_type", [SHARED, KEY_SHARED])
async def test_an_entry_that_a_consumer_holds_does_not_come_again_when_it_becomes_due(sub_type):
    topic, first, second, _ = await read_while_off(sub_type)
    topic.pass_time()
    assert got(second) == [0, 1]
    assert got(first) == []
    assert len(first.pending_acks) == first.permits.unacked == 2


@pytest.mark.parametrize("sub_type", [SHARED, KEY_SHARED])
async def test_an_entry_that_its_consumer_gives_back_comes_when_it_is_due(sub_type):
    topic, first, _, positions = await read_while_off(sub_type)
    topic.benches[0].redeliver(first, positions[1])
    assert got(first) == [], "delays are on: the entry waits again"
    topic.pass_time()
    assert got(first) == [1]
    topic.benches[0].redeliver(first)
    assert got(first) == [0, 1]


@pytest.mark.parametrize("sub_type", [SHARED, KEY_SHARED])
async def test_entries_of_a_consumer_that_leaves_go_to_another(sub_type):
    topic, first, _, _ = await read_while_off(sub_type)
    heir = await topic.benches[0].join(sub_type, permits=10)
    topic.pass_time()
    topic.benches[0].leave(first)
    topic.go_on()
    assert got(heir) == [0, 1]


@pytest.mark.parametrize("sub_type", [SHARED, KEY_SHARED])
@pytest.mark.parametrize("permits", [1, 2, 10])
async def test_due_entries_behind_many_that_a_consumer_holds_come_at_once(sub_type, permits):
    """A turn took as many due entries as there were permits, of which the consumer held all, and ended: the entries
    behind them waited for another event, without end on a quiet topic.
    """
    topic = Topic()
    a, b = topic.benches
    first, second = await a.join(sub_type, permits=5), await b.join(sub_type, permits=100)
    topic.switch(on=False)
    early = [entry(key=f"{k}", deliver_at_time=DUE_MS) for k in range(5)]
    late = [entry(key=f"{k}", deliver_at_time=DUE_MS + 1) for k in range(2)]
    a.publish(*early)
    assert got(first) == [0, 1, 2, 3, 4]
    topic.switch(on=True)
    a.flow(first, permits)
    a.publish(*late)
    b.publish(*early, *late)
    assert got(first) == got(second) == []
    topic.now = DUE_MS + 1
    topic.go_on()
    assert got(second) == [0, 1, 2, 3, 4, 5, 6]
    assert got(first) == [5, 6][:permits]


async def test_due_entries_are_compared_with_those_of_consumers_only_where_an_entry_may_repeat(monkeypatch):
    topic = Topic()
    consumer = await topic.benches[0].join(permits=10)
    held, compared = topic.benches[0].subscription.dispatcher.held, []
    monkeypatch.setattr(held, "_without_held", lambda positions: (compared.append(positions), positions)[1])
    topic.benches[0].publish(entry(deliver_at_time=DUE_MS))
    topic.pass_time()
    assert got(consumer) == [0]
    assert compared == []
    topic.firing.pending._lost = frozenset({7})
    topic.benches[0].publish(entry(deliver_at_time=DUE_MS + 1))
    topic.now += 1
    topic.go_on()
    assert got(consumer) == [1]
    assert len(compared) == 1
