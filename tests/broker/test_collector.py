"""Survivors of full collections are frozen; walks through all objects come when they are due."""

import gc
import itertools
import weakref

import pytest

from magnetar.broker import collector as module
from magnetar.broker.collector import LOOK_S, NEW_OBJECTS, Collector

STOP = "stop", {"generation": 2}


class Garbage:
    def __init__(self, objects=0):
        self.calls, self.objects = [], objects

    def freeze(self):
        self.calls.append("freeze")

    def unfreeze(self):
        self.calls.append("unfreeze")

    def collect(self):
        self.calls.append("collect")
        return 1

    def get_freeze_count(self):
        return self.objects


def collector(garbage, part=0.0):
    times = itertools.count(step=part * LOOK_S)
    return Collector(garbage, lambda: next(times))


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
    garbage = Garbage(objects=100 * NEW_OBJECTS)
    made = collector(garbage, part=0.5)
    full_collections(made, module._MANY)
    made.look()
    full_collections(made, 399)
    made.look()
    assert garbage.calls.count("unfreeze") == 1
    full_collections(made, 1)
    made.look()
    assert garbage.calls.count("unfreeze") == 2


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
    made = Collector(cpu_s=lambda: 0.0)
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
