"""Crash at every file operation of the engine's life, with every kind of loss; and crash again during recovery.

``make test`` takes a fixed seeded sample, ``MAGNETAR_CRASH_LONG=1`` takes all.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.crash.engine_scenario import Promise, Scenario, check
from tests.storage.engine_for_tests import World, run_until_crash
from tests.twins.sim_files import SimulatedCrash

LONG = bool(os.environ.get("MAGNETAR_CRASH_LONG"))
LOSSES = [("nothing", 0), ("everything", 0), *(("some", seed) for seed in range(1, 17 if LONG else 4))]


def world_with(has_frame_writer: bool) -> World:
    world = World()
    world.has_frame_writer = has_frame_writer
    return world


def count_operations(has_frame_writer: bool) -> int:
    world = world_with(has_frame_writer)
    assert run_until_crash(world.disk, Scenario(world, Promise()).run()) is None
    return world.disk.operations


def crashed_at(operation: int, has_frame_writer: bool) -> tuple[World, Promise]:
    world, promise = world_with(has_frame_writer), Promise()
    world.disk.crash_at = operation
    assert isinstance(run_until_crash(world.disk, Scenario(world, promise).run()), SimulatedCrash)
    return world, promise


def points(has_frame_writer: bool, sample: int) -> list[tuple[int, bool]]:
    """(operation at which the power fails, whether the disk has a frame writer)."""
    everywhere = range(count_operations(has_frame_writer))
    chosen = everywhere if LONG else sorted(random.Random(3).sample(everywhere, min(len(everywhere), sample)))
    return [(operation, has_frame_writer) for operation in chosen]


POINTS = points(has_frame_writer=True, sample=60) + points(has_frame_writer=False, sample=30)


def test_the_scenario_reaches_every_kind_of_operation():
    world = World()
    run_until_crash(world.disk, Scenario(world, Promise()).run())
    assert set(world.disk.log) >= {"write", "sync", "create", "rename", "remove", "sync_dir"}
    assert count_operations(has_frame_writer=True) > 120
    assert count_operations(has_frame_writer=False) > 120


def test_uninterrupted_run_keeps_everything():
    world, promise = World(), Promise()
    run_until_crash(world.disk, Scenario(world, promise).run())
    run_until_crash(world.disk, check(world, promise))


@pytest.mark.parametrize(("operation", "has_frame_writer"), POINTS)
def test_crash_in_life(operation: int, has_frame_writer: bool):
    world, promise = crashed_at(operation, has_frame_writer)
    for mode, seed in LOSSES:
        after = world.after_crash(mode, seed * 1000 + operation)
        assert run_until_crash(after.disk, check(after, promise)) is None


@pytest.mark.parametrize(("operation", "has_frame_writer"), POINTS if LONG else POINTS[::6])
def test_crash_in_recovery(operation: int, has_frame_writer: bool):
    """Recovery itself is interrupted at each of its operations, and the files that it leaves are recovered again."""
    world, promise = crashed_at(operation, has_frame_writer)
    chance = random.Random(operation)
    for mode, seed in LOSSES if LONG else LOSSES[:3]:
        once = world.after_crash(mode, seed * 1000 + operation)
        probe = world.after_crash(mode, seed * 1000 + operation)
        run_until_crash(probe.disk, probe.open())
        steps = range(probe.disk.operations)
        for point in steps if LONG else chance.sample(steps, min(len(steps), 4)):
            once = world.after_crash(mode, seed * 1000 + operation)
            once.disk.crash_at = point
            run_until_crash(once.disk, once.open())
            twice = once.after_crash(("nothing", "everything", "some")[point % 3], point)
            assert run_until_crash(twice.disk, check(twice, promise, go_on=False)) is None
