"""Survivors of full collections are frozen; walks through all objects come when they are due."""

import gc
import itertools
import weakref

import pytest

from magnetar.broker import collector as module
from magnetar.broker.collector import LONGEST_S, LOOK_S, NEW_OBJECTS, Collector, Meter

STOP = "stop", {"generation": 2}


class Garbage:
    def __init__(self, objects=0, freed=1):
        self.calls, self.objects, self.freed = [], objects, freed

    def freeze(self):
        self.calls.append("freeze")

    def unfreeze(self):
        self.calls.append("unfreeze")

    def collect(self):
        self.calls.append("collect")
        return self.freed

    def get_freeze_count(self):
        return self.objects


class Process:
    """A process whose walks take a fixed time for each memory block."""

    def __init__(self, part=0.0, blocks=1, block_s=0.0):
        self.part, self.blocks, self.block_s = part, blocks, block_s
        self.cpu_s = itertools.count(step=part * LOOK_S).__next__
        self.now_s = 0.0

    def loop_s(self):
        """The time before and behind a walk, in turns."""
        self.now_s += self.blocks * self.block_s
        return self.now_s

    def meter(self):
        return Meter(self.cpu_s, self.loop_s, lambda: self.blocks)


def collector(garbage, part=0.0):
    return Collector(garbage, Process(part).meter())


def full_collections(made, count):
    for _ in range(count):
        made.on_collection("start", {"generation": 2})
        made.on_collection(*STOP)


def test_survivors_of_full_collections_alone_are_frozen():
    garbage = Garbage()
    made = collector(garbage)
    for generation in (0, 1):
        made.on_collection("start", {"generation": generation})
        made.on_collection("stop", {"generation": generation})
    assert garbage.calls == []
    full_collections(made, 1)
    assert garbage.calls == ["freeze"]


@pytest.mark.parametrize(("part", "due"), [(0.0, module._FEW), (0.5, module._MANY)], ids=["idle", "busy"])
def test_a_walk_is_due_behind_some_full_collections(part, due):
    garbage = Garbage()
    made = collector(garbage, part)
    full_collections(made, due - 1)
    made.look()
    assert "unfreeze" not in garbage.calls
    full_collections(made, 1)
    made.look()
    assert garbage.calls[due:] == ["unfreeze", "collect", "freeze", "collect"]
    made.look()
    assert garbage.calls.count("unfreeze") == 1


def test_a_busy_process_walks_when_it_has_grown_to_five_times_its_objects():
    garbage = Garbage(objects=100 * NEW_OBJECTS, freed=2 * NEW_OBJECTS)
    made = collector(garbage, part=0.5)
    full_collections(made, module._MANY)
    made.look()
    full_collections(made, 399)
    made.look()
    assert garbage.calls.count("unfreeze") == 1
    full_collections(made, 1)
    made.look()
    assert garbage.calls.count("unfreeze") == 2


def is_due_behind(made, garbage, count):
    """Whether the next walk is due behind so many full collections, and not one before."""
    garbage.calls.clear()
    full_collections(made, count - 1)
    made.look()
    is_early = "unfreeze" in garbage.calls
    full_collections(made, 1)
    made.look()
    return "unfreeze" in garbage.calls and not is_early


def test_walks_of_a_busy_process_that_free_next_to_nothing_come_later_each_time():
    garbage = Garbage(objects=1_000, freed=10)
    made = collector(garbage, part=0.5)
    for factor in (1, 4, 16, 64, 256, 256):
        assert is_due_behind(made, garbage, module._MANY * factor)
    garbage.freed = 11
    assert is_due_behind(made, garbage, module._MANY * 256)
    assert is_due_behind(made, garbage, module._MANY)


def test_an_idle_process_walks_as_before():
    garbage = Garbage(objects=1_000, freed=0)
    made = collector(garbage)
    for _ in range(6):
        assert is_due_behind(made, garbage, module._FEW)


@pytest.mark.parametrize("part", [0.0, 0.5], ids=["idle", "busy"])
def test_no_walk_begins_that_holds_the_loop_for_longer_than_the_bound(part):
    """A process with thousands of namespaces and topics held its loop for 792 ms."""
    garbage, process = Garbage(), Process(part, blocks=int(LONGEST_S / module._BLOCK_S), block_s=100e-9)
    made = Collector(garbage, process.meter())

    def walks():
        garbage.calls.clear()
        full_collections(made, module._MANY * module._LATEST)
        made.look()
        return "unfreeze" in garbage.calls

    assert walks()
    process.blocks *= 2
    assert walks(), "the first walk has taken half the expected time"
    process.blocks += 1000
    assert not walks()
    process.blocks -= 1000
    assert walks()
    process.block_s *= 2
    assert walks()
    assert not walks(), "the last walk has taken twice the bound"
    process.blocks //= 2
    assert walks()


def test_a_process_that_cycles_may_fill_walks_once_for_each_doubling():
    garbage, process = Garbage(), Process(0.5, blocks=int(LONGEST_S / module._BLOCK_S), block_s=module._BLOCK_S)
    made, walked = Collector(garbage, process.meter()), []
    for times in (1, 2, 7.9, 8.1, 8.1, 16.1, 16.3, 32, 32.7, 7, 0.9):
        process.blocks = int(times * LONGEST_S / module._BLOCK_S)
        garbage.calls.clear()
        full_collections(made, module._MANY * module._LATEST)
        made.look()
        if "unfreeze" in garbage.calls:
            walked.append(times)
    assert walked == [1, 8.1, 16.3, 32.7, 0.9]


@pytest.mark.parametrize(("block_s", "again"), [(LONGEST_S, True), (2 * LONGEST_S, False)])
def test_without_a_count_of_the_blocks_the_time_of_the_last_walk_bounds_the_next(block_s, again):
    """As with PYTHONMALLOC=malloc."""
    garbage, process = Garbage(), Process(blocks=1, block_s=block_s)
    made = Collector(garbage, process.meter()._replace(blocks=lambda: 0))
    for walks in (True, again):
        garbage.calls.clear()
        full_collections(made, module._MANY)
        made.look()
        assert ("unfreeze" in garbage.calls) == walks


class Node:
    pass


def cycle():
    node = Node()
    node.itself = node
    return node


@pytest.fixture
def settings_of_the_interpreter():
    before, enabled = gc.get_threshold(), gc.isenabled()
    gc.disable()
    yield
    gc.freeze()
    gc.set_threshold(*before)
    if enabled:
        gc.enable()


@pytest.mark.usefixtures("settings_of_the_interpreter")
async def test_a_frozen_cycle_stays_until_the_next_walk(monkeypatch):
    monkeypatch.setattr(module, "_FEW", 1)
    made = Collector(meter=Process().meter())
    made.start()
    try:
        node = cycle()
        weak = weakref.ref(node)
        gc.collect()
        assert gc.get_objects(2) == []
        del node
        gc.collect()
        assert weak() is not None
        made.look()
        assert weak() is None
    finally:
        made.stop()
    made.stop()
    assert made.on_collection not in gc.callbacks
