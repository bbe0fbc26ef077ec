"""A dispatch of whole reads gives each consumer the same messages as a decision for each entry."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.dispatchers.key_shared import KeySharedDispatcher
from tests.broker.dispatch_fakes import KEY_SHARED, Bench, KeySharedPolicy, entry, got


class Careful(KeySharedDispatcher):
    """A dispatcher that decides for each entry, without the shortcut for whole reads."""

    @property
    def _is_simple(self) -> bool:
        return False

    def _first_of_owners(self, limit: int) -> None:
        return None


KEYS = [f"key-{number}" for number in range(9)]
OPERATIONS = st.one_of(
    st.tuples(st.just("publish"), st.lists(st.sampled_from([*KEYS, None]), min_size=1, max_size=12)),
    st.tuples(st.just("batch"), st.sampled_from(KEYS)),
    st.tuples(st.just("flow"), st.integers(0, 2), st.integers(1, 9)),
    st.tuples(st.just("ack"), st.integers(0, 2), st.integers(1, 40)),
    st.tuples(st.just("redeliver"), st.integers(0, 2)),
    st.tuples(st.just("leave"), st.integers(0, 2)),
    st.tuples(st.just("join"), st.integers(0, 2)),
)


async def play(script: list[Any], careful: bool, out_of_order: bool) -> list[Any]:
    """The messages of every consumer after each operation, and the waiting messages."""
    bench = Bench()
    policy = KeySharedPolicy(allow_out_of_order=out_of_order)
    members: list[Any] = [await bench.join(KEY_SHARED, f"c{number}", key_shared=policy) for number in range(3)]
    dispatcher: Any = bench.subscription.dispatcher
    if careful:
        dispatcher.__class__ = Careful
    held: dict[Any, list[Any]] = {}
    history: list[Any] = []
    for name, *rest in script:
        member = members[rest[0]] if name in ("flow", "ack", "redeliver", "leave") else None
        if name == "publish":
            bench.publish(*[entry(key=key) for key in rest[0]])
        elif name == "batch":
            bench.publish(entry(key=rest[0], batch=2))
        elif name == "join" and members[rest[0]] is None and any(members):
            members[rest[0]] = await bench.join(KEY_SHARED, f"c{rest[0]}", key_shared=policy)
        elif member is None:
            continue
        elif name == "flow":
            bench.flow(member, rest[1])
        elif name == "ack":
            mine = held.get(member, [])
            bench.ack(member, *mine[: rest[1]])
            held[member] = mine[rest[1] :]
        elif name == "redeliver":
            bench.redeliver(member)
            held[member] = []
        elif sum(each is not None for each in members) > 1:
            bench.leave(member)
            members[rest[0]] = None
        await bench.settle()
        got = []
        for each in members:
            sent = [] if each is None else each.outbox.take()
            held.setdefault(each, []).extend(message.position for message in sent)
            got.append([(message.position, message.count) for message in sent])
        books = [None if each is None else (each.permits.usable, len(each.pending_acks)) for each in members]
        history.append((got, books, list(dispatcher.held.replay), dispatcher.held.unacked.total))
    return history


@settings(max_examples=150, deadline=None)
@given(st.lists(OPERATIONS, max_size=25), st.booleans())
def test_both_ways_give_the_same(script: list[Any], out_of_order: bool):
    short, long = (asyncio.run(play(script, careful, out_of_order)) for careful in (False, True))
    assert short == long


def test_the_short_way_is_taken():
    taken = 0
    original = KeySharedDispatcher._hand_out

    def counting(self: KeySharedDispatcher, *arguments: Any) -> int:
        nonlocal taken
        taken += 1
        return original(self, *arguments)

    script = [("flow", 0, 9), ("flow", 1, 9), ("flow", 2, 9), ("publish", KEYS), ("flow", 0, 9)]
    KeySharedDispatcher._hand_out = counting  # type: ignore[method-assign]
    try:
        history = asyncio.run(play(script, careful=False, out_of_order=False))
    finally:
        KeySharedDispatcher._hand_out = original  # type: ignore[method-assign]
    assert taken
    assert sum(len(got) for got in history[3][0]) == len(KEYS)


async def test_an_entry_that_comes_back_during_a_cold_read_goes_first():
    bench = Bench(cold=True)
    low = await bench.join(KEY_SHARED, permits=1, key_shared=KeySharedPolicy(sticky=True, ranges=((0, 32767),)))
    await bench.join(KEY_SHARED, permits=9, key_shared=KeySharedPolicy(sticky=True, ranges=((32768, 65535),)))
    for _ in range(2):
        bench.publish(entry(key="k1"))  # hash 24618
        await bench.settle()
    assert got(low) == [0]
    bench.flow(low, 1)  # begins to read entry 1
    bench.redeliver(low)
    await bench.settle()
    assert got(low) == [0]
    bench.flow(low, 1)
    await bench.settle()
    assert got(low) == [1]


async def test_chosen_entries_do_not_overtake_an_entry_that_comes_into_the_queue_meanwhile():
    bench = Bench(cold=True)
    low = await bench.join(KEY_SHARED, permits=1, key_shared=KeySharedPolicy(sticky=True, ranges=((0, 32767),)))
    await bench.join(KEY_SHARED, permits=9, key_shared=KeySharedPolicy(sticky=True, ranges=((32768, 65535),)))
    for _ in range(2):
        bench.publish(entry(key="k1"))  # hash 24618
        await bench.settle()
    assert got(low) == [0]
    bench.flow(low, 1)  # begins to read entry 1
    dispatcher: Any = bench.subscription.dispatcher
    dispatcher.held.replay.add(7, 0, 24618)
    dispatcher._replay_grew()
    await bench.settle()
    assert got(low) == [0]
