"""Chances of bookies by their free space: the weights, and when the client reads them."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookkeeper.bookies.disk_weights import DiskWeights, weights
from magnetar.bookkeeper.bookies.placement import PlacementRules, choose_ensemble
from magnetar.bookkeeper.options import ClientOptions
from tests.bookkeeper.sim_cluster import simulated

OPTIONS = ClientOptions(disk_weights=True, disk_info_interval_s=1000.0, disk_info_retry_s=10.0, connect_timeout_s=1.0)


def test_weights_are_relative_to_the_median_and_have_a_bound():
    assert weights({"a": 100, "b": 200, "c": 300}) == {"a": 0.5, "b": 1.0, "c": 1.5}
    assert weights({"a": 100, "b": 100, "c": 10_000}) == {"a": 1.0, "b": 1.0, "c": 3.0}
    assert weights({"a": 0, "b": 50, "c": 100}) == {"a": 1.0, "b": 1.0, "c": 2.0}
    assert weights({"a": 0, "b": 0, "c": 7}) == {"a": 1.0, "b": 1.0, "c": 1.0}
    assert weights({"a": 0}) == {"a": 1.0}
    assert weights({}) == {}


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 1 << 62), max_size=9))
def test_every_bookie_has_a_chance(free):
    found = weights(free)
    assert found.keys() == free.keys()
    assert all(0 < each <= 3.0 for each in found.values())


def test_a_bookie_of_twice_the_weight_is_chosen_about_twice_as_often():
    chance, weight = random.Random(1), {"a": 2.0, "b": 1.0, "c": 1.0}
    drawn = [choose_ensemble("abc", 1, 1, PlacementRules(), lambda _: "/r", chance, weight.get) for _ in range(4000)]
    assert 0.46 < drawn.count(("a",)) / len(drawn) < 0.54
    assert 0.22 < drawn.count(("b",)) / len(drawn) < 0.28


def test_racks_come_before_weights():
    racks, weight = {"a": "/1", "b": "/1", "c": "/2"}, {"a": 3.0, "b": 3.0, "c": 0.01}
    for seed in range(20):
        chosen = choose_ensemble("abc", 2, 2, PlacementRules(), racks.get, random.Random(seed), weight.get)
        assert "c" in chosen


class Bookies:
    """A registry whose addresses are the names, and the answers of the bookies."""

    def __init__(self, **free):
        self.free, self.asked, self.changed = free, [], []

    @property
    def writable(self):
        return {name: name for name in self.free}

    def address(self, name):
        return name

    def on_change(self, callback):
        self.changed.append(callback)
        return lambda: self.changed.remove(callback)

    async def ask(self, name):
        self.asked.append(name)
        answer = self.free[name]
        if answer is None:
            raise ConnectionError("down")
        if answer == "no host":
            raise UnicodeError("label empty or too long")
        if answer == "silent":
            await asyncio.Event().wait()
        return answer


async def begun(bookies):
    disks = DiskWeights(bookies, OPTIONS, bookies.ask)
    task = asyncio.create_task(disks.run())
    await asyncio.sleep(2.0)
    return disks, task


async def ended(task, bookies):
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert bookies.changed == []


@simulated
async def test_the_figures_are_read_again_after_the_interval():
    bookies = Bookies(a=100, b=100)
    disks, task = await begun(bookies)
    assert (disks.weight("a"), disks.weight("unknown")) == (1.0, 1.0)
    bookies.free["a"] = 300
    await asyncio.sleep(900.0)
    assert sorted(bookies.asked) == ["a", "b"]
    await asyncio.sleep(200.0)
    assert (disks.weight("a"), disks.weight("b")) == (1.5, 0.5)
    await ended(task, bookies)


@simulated
async def test_a_bookie_without_an_answer_is_asked_again_soon():
    bookies = Bookies(a=100, b=None, c="silent", d="no host")
    disks, task = await begun(bookies)
    assert disks.weight("b") == disks.weight("c") == disks.weight("d") == 1.0
    bookies.free |= {"b": 300, "c": 200}
    await asyncio.sleep(15.0)
    assert [disks.weight(each) for each in "abc"] == [0.5, 1.5, 1.0]
    await ended(task, bookies)


@simulated
async def test_a_new_bookie_is_asked_at_once_and_a_lost_one_is_forgotten():
    bookies = Bookies(a=100, b=100)
    disks, task = await begun(bookies)
    bookies.free["c"] = 300
    del bookies.free["b"]
    for callback in bookies.changed:
        callback()
    await asyncio.sleep(2.0)
    assert (disks.weight("a"), disks.weight("b"), disks.weight("c")) == (0.5, 1.0, 1.5)
    assert sorted(bookies.asked) == ["a", "b", "c"]
    await ended(task, bookies)
