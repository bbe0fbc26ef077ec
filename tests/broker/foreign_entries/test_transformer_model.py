"""Under failures of every kind each entry is delivered once it can be, in the order that its subscription promises."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.converters.outcome import ConversionFailure, Converted, FailureReason
from tests.broker.dispatch_fakes import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED, entry
from tests.broker.foreign_entries.converting_for_tests import foreign, rounds
from tests.broker.foreign_entries.test_transformer import Sub

KEYS = st.sampled_from(["a", "b", "c"])
OUTCOMES = st.lists(st.sampled_from(list(FailureReason)), max_size=2)
"""The failures of an entry, in order, before a conversion succeeds."""
ENTRIES = st.lists(st.tuples(st.sampled_from(["plain", "here", "far"]), KEYS, OUTCOMES), min_size=1, max_size=12)


def publishable(number, kind, key):
    payload = b"%d" % number
    if kind == "plain":
        return entry(payload, key=key)
    return foreign(payload, "bytes" if kind == "here" else "far", partition_key=key)


async def deliver_all(kind, plan, bursts, ordered):
    """Positions in the order of delivery."""
    sub = Sub("far", park_ordered=ordered)
    consumer = await sub.join(kind, permits=1000)
    failures = {number: list(outcomes) for number, (_, _, outcomes) in enumerate(plan)}
    bodies = [publishable(number, how, key) for number, (how, key, _) in enumerate(plan)]
    for start in range(0, len(bodies), bursts):
        sub.publish(*bodies[start : start + bursts])
    delivered = []
    for _ in range(2000):
        while sub.world.pool.jobs:
            _, _, stored, _ = sub.world.pool.jobs[0]
            number = bodies.index(stored)
            if failures[number]:
                reason = failures[number].pop()
                await sub.world.pool.answer(ConversionFailure(reason, "far", "no"))
            else:
                await sub.world.pool.answer(Converted(entry(b"%d" % number, key=plan[number][1]), 1))
        await rounds(3)
        sub.clock.run()
        delivered += [m.position.entry_id for m in consumer.outbox.take()]
        if len(delivered) >= len(plan) and not sub.world.pool.jobs:
            break
        sub.world.now_ms += 50
        sub.clock.advance(0.05)
    await sub.subscription.close()
    return delivered


@pytest.mark.parametrize("ordered", ["block", "pass"])
@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED])
@settings(max_examples=25, deadline=None)
@given(plan=ENTRIES, bursts=st.integers(1, 5))
def test_every_entry_once_and_in_its_order(kind, ordered, plan, bursts):
    delivered = asyncio.run(deliver_all(kind, plan, bursts, ordered))
    assert sorted(delivered) == list(range(len(plan)))
    if ordered == "block" and kind in (EXCLUSIVE, FAILOVER):
        assert delivered == sorted(delivered)
    if ordered == "block" and kind == KEY_SHARED:
        for key in "abc":
            of_key = [number for number in delivered if plan[number][1] == key]
            assert of_key == sorted(of_key)
