"""Entries to the owners of their hashes: the compiled function and its twin agree, and both keep the order of keys."""

from __future__ import annotations

import random
from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.dispatchers import picking
from magnetar.broker.dispatchers.key_shared_plan import plan_by_key
from magnetar.broker.dispatchers.picking import Hand, pure_pick

LEDGER, FIRST = 7, 100
PICKS = [pytest.param(pure_pick, id="pure")]
if picking.COMPILED:
    PICKS.append(pytest.param(picking.pick, id="compiled"))


class Case:
    """Consumers with room, owners of hashes, and earlier entries that wait. All from a seed."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.consumers = [f"c{number}" for number in range(rng.choice((1, 2, 3, 40)))]
        self.rooms = {each: rng.choice((0, 1, 3, 100)) for each in self.consumers}
        self.in_order = rng.random() < 0.7
        self.owners = {
            murmur: (
                1 + murmur % 9,
                rng.choice([*self.consumers, None]) if rng.random() < 0.2 else self._steady(murmur),
            )
            for murmur in range(rng.choice((1, 5, 30)))
        }
        self.waiting = {
            key_hash: (rng.choice((LEDGER - 1, LEDGER, LEDGER, LEDGER + 1)), rng.randrange(FIRST, FIRST + 20))
            for key_hash in rng.sample(range(1, 10), rng.randrange(4))
        }
        self.hashes = dict.fromkeys([*self.waiting, *rng.sample(range(1, 10), 2)])
        self.murmurs = array("q", [rng.randrange(len(self.owners)) for _ in range(rng.randrange(30))])
        self.parts = []
        at = 0
        while at < len(self.murmurs):
            end = rng.randint(at, len(self.murmurs))
            self.parts.append((at, end))
            at = end + rng.randrange(3)
        self.known = {murmur: owner for murmur, owner in self.owners.items() if rng.random() < 0.5}

    def _steady(self, murmur: int) -> str:
        return self.consumers[(1 + murmur % 9) % len(self.consumers)]

    def play(self, pick: Any) -> Any:
        """The picks of two slabs of one read, and the state of the hand after them."""
        calls: list[Any] = []

        def owner_of(murmur: int) -> Any:
            calls.append(("owner", murmur))
            hand.owners[murmur] = self.owners[murmur]
            return self.owners[murmur]

        def room_of(consumer: Any) -> int:
            calls.append(("room", consumer))
            return self.rooms[consumer]

        def first_of_hash(key_hash: int) -> Any:
            calls.append(("first", key_hash))
            return self.waiting.get(key_hash)

        hand = Hand(dict(self.known), owner_of, room_of, self.hashes, first_of_hash, in_order=self.in_order)
        given = [pick(self.murmurs.tobytes(), self.parts, ledger, FIRST, hand) for ledger in (LEDGER, LEDGER + 1)]
        return given, list(given[0][0]), calls, hand.left, hand.refused, hand.earlier, hand.owners


@given(seed=st.integers(0, 2**60))
@settings(max_examples=300, deadline=None)
def test_twins_agree(seed: int):
    case = Case(seed)
    assert case.play(picking.pick) == case.play(pure_pick)


@pytest.mark.parametrize("pick", PICKS)
@given(seed=st.integers(0, 2**60))
@settings(max_examples=200, deadline=None)
def test_the_picks_are_those_of_the_plan(pick: Any, seed: int):
    case = Case(seed)
    indexes = [k for i, j in case.parts for k in range(i, j)]
    keyed = [((LEDGER, FIRST + k), case.owners[case.murmurs[k]][0]) for k in indexes]
    owner_of_hash = {case.owners[murmur][0]: case.owners[murmur][1] for murmur in case.owners}
    case.owners = {murmur: (key_hash, owner_of_hash[key_hash]) for murmur, (key_hash, _) in case.owners.items()}
    case.known = {}

    class Blocks:
        def drains(self, key_hash: int, consumer: object) -> bool:
            return False

        def waits_behind(self, key_hash: int, position: tuple[int, int]) -> bool:
            first = case.waiting.get(key_hash)
            return first is not None and first <= position

    plan = plan_by_key(keyed, owner_of_hash.get, case.rooms.__getitem__, Blocks() if case.in_order else None)
    if not case.in_order:
        case.waiting = {}
    wanted: dict[Any, list[int]] = {}
    for consumer, index in plan.given:
        wanted.setdefault(consumer, []).append(indexes[index])
    picked, waiting, hashes = case.play(pick)[0][0]
    assert {each: memoryview(picks).cast("q").tolist() for each, (picks, _) in picked.items()} == wanted
    assert waiting == [FIRST + indexes[index] for index in plan.refused]
    assert hashes == [keyed[index][1] for index in plan.refused]
    for picks, of_picks in picked.values():
        expected = [case.owners[case.murmurs[k]][0] for k in memoryview(picks).cast("q")]
        assert memoryview(of_picks).cast("q").tolist() == expected


@pytest.mark.parametrize("pick", PICKS)
@pytest.mark.parametrize("part", [(-1, 1), (1, 0), (0, 3)], ids=str)
def test_ranges_outside_of_the_hashes_are_refused(pick: Any, part: tuple[int, int]):
    hand = Hand({0: (1, None)}, lambda _: (1, None), lambda _: 1, {}, lambda _: None, in_order=True)
    with pytest.raises(ValueError, match="no such entries"):
        pick(bytes(16), [part], LEDGER, FIRST, hand)


@pytest.mark.parametrize("pick", PICKS)
def test_errors_of_the_selector_reach_the_caller(pick: Any):
    def fails(_: int) -> Any:
        raise LookupError("no selector")

    for hand in (
        Hand({}, fails, lambda _: 1, {}, fails, in_order=True),
        Hand({0: (1, "c")}, fails, fails, {}, fails, in_order=True),  # type: ignore[dict-item, arg-type]
        Hand({0: (1, "c")}, fails, lambda _: 1, {1: None}, fails, in_order=True),  # type: ignore[dict-item]
    ):
        with pytest.raises(LookupError):
            pick(bytes(8), [(0, 1)], LEDGER, FIRST, hand)
