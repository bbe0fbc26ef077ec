"""Crashes at any file operation and any metadata write of a managed ledger's life, recovery included."""

from __future__ import annotations

import copy
import functools
import os
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from tests.crash.managed_ledger_scenario import Promise, Work, check
from tests.storage.engine_for_tests import World, run_until_crash
from tests.twins.sim_files import SimulatedCrash

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS = 40
LONG = bool(os.environ.get("MAGNETAR_CRASH_LONG"))
MODES = ("nothing", "some", "everything")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Capture the log: tracebacks of the dying process are expected."""
    with capture_logs():
        yield


@functools.cache
def operations_of(seed: int) -> int:
    """How many operations the work of this seed takes without a crash."""
    world, promise = World(), Promise()
    assert run_until_crash(world.disk, Work(world, promise, seed).run(STEPS)) is None
    return world.disk.operations


def crashed(seed: int, crash_at: int) -> tuple[World, Promise]:
    """The world and the promises of work that ended at an operation; a check changes copies of them alone."""
    world, promise = World(), Promise()
    world.disk.crash_at = crash_at
    assert isinstance(run_until_crash(world.disk, Work(world, promise, seed).run(STEPS)), SimulatedCrash)
    return world, promise


def check_after(crash: tuple[World, Promise], seed: int, mode: str, second_at: int = -1) -> None:
    """Check the start behind a crash, perhaps behind another crash at an operation of the recovery."""
    world, promise = crash[0].after_crash(mode, seed), copy.deepcopy(crash[1])
    if second_at >= 0:
        world.disk.crash_at = second_at
        run_until_crash(world.disk, check(world, promise))
        world = world.after_crash(mode, seed + 1)
    world.disk.crash_at = -1
    assert run_until_crash(world.disk, check(world, promise)) is None


@pytest.mark.parametrize("seed", range(3))
def test_clean_run(seed: int) -> None:
    world, promise = World(), Promise()
    assert run_until_crash(world.disk, Work(world, promise, seed).run(STEPS)) is None
    assert run_until_crash(world.disk, check(world, promise)) is None


@pytest.mark.parametrize("seed", range(3))
def test_crash_anywhere(seed: int) -> None:
    total = operations_of(seed)
    for crash_at in range(seed, total, 17):
        crash = crashed(seed, crash_at)
        for mode in MODES:
            check_after(crash, seed, mode)


@pytest.mark.parametrize("seed", range(2))
def test_crash_in_recovery(seed: int) -> None:
    total = operations_of(seed)
    for crash_at in range(seed + 5, total, 41):
        crash = crashed(seed, crash_at)
        for second_at in range(0, 60, 7):
            check_after(crash, seed, "some", second_at)


@pytest.mark.parametrize("seed", range(3))
def test_disk_full_at_any_write_then_a_crash(seed: int) -> None:
    total = operations_of(seed)
    times_full = 0
    for full_at in range(seed, total, 11):
        world, promise = World(), Promise()
        world.disk.full_at = full_at
        world.disk.crash_at = full_at + 40
        work = Work(world, promise, seed)
        work.may_fail = True
        run_until_crash(world.disk, work.run(STEPS))
        times_full += work.times_full
        world = world.after_crash("nothing", seed)
        assert run_until_crash(world.disk, check(world, promise)) is None
        check_refused(work)
    assert times_full


def full_then_crash(seed: int, full_at: int, crash_at: int, mode: str) -> None:
    """Run the work with no space at one operation and a power loss at a later operation; then check the promises."""
    world, promise = World(), Promise()
    world.disk.full_at, world.disk.crash_at = full_at, crash_at
    work = Work(world, promise, seed)
    work.may_fail = True
    run_until_crash(world.disk, work.run(STEPS))
    world = world.after_crash(mode, seed)
    assert run_until_crash(world.disk, check(world, promise)) is None
    check_refused(work)


def check_refused(work: Work) -> None:
    """Check that no refused start lost anything that was promised before."""
    for world, promise in work.refused:
        assert run_until_crash(world.disk, check(world, promise)) is None


@pytest.mark.parametrize("seed", range(6 if LONG else 1))
def test_a_start_without_room_is_refused_and_loses_nothing(seed: int) -> None:
    refused = 0
    for full_at in range(0, operations_of(seed), 1 if LONG else 5):
        world, promise = World(), Promise()
        world.disk.full_at = full_at
        work = Work(world, promise, seed)
        work.may_fail = True
        assert run_until_crash(world.disk, work.run(STEPS)) is None
        if work.refused:
            refused += 1
            check_refused(work)
            after = world.after_crash("some", full_at)
            assert run_until_crash(after.disk, check(after, promise)) is None
    assert refused


@pytest.mark.parametrize(
    ("seed", "full_at", "crash_at", "mode"),
    [(563117, 53, 98, "nothing"), (218694, 41, 84, "nothing"), (168318, 75, 91, "some"), (941655, 224, 264, "some")],
)
def test_a_name_left_unsynced_by_the_process_before_is_made_durable(
    seed: int, full_at: int, crash_at: int, mode: str
) -> None:
    """A store closed while the disk is full leaves ledger files whose names were never synced; the next start relies on
    them.
    """
    full_then_crash(seed, full_at, crash_at, mode)


@pytest.mark.parametrize("mode", MODES)
def test_confirmed_after_a_full_disk_and_a_crash(mode: str) -> None:
    """The history of seed 580896 with a full disk at operation 221 and a crash at any later operation."""
    for crash_at in range(222, 420, 1 if LONG else 9):
        full_then_crash(580896, 221, crash_at, mode)
