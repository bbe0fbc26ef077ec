"""The engine's threads meet at every file operation, in many orders, and the power fails in the middle.

``make test`` runs some seeds, ``MAGNETAR_CRASH_LONG=1`` 2,000, ``MAGNETAR_INTERLEAVINGS`` as many as it says.
"""

from __future__ import annotations

import os
import random
from functools import partial

import pytest

from magnetar.storage.embedded.layout import Layout
from magnetar.storage.embedded.ledger_files import LedgerFiles
from tests.crash.engine_scenario import Promise, Scenario, check
from tests.crash.metadata_scenario import MetadataRun, MetadataWorld, Told
from tests.crash.metadata_scenario import check as check_metadata
from tests.storage.engine_for_tests import ROOT, ManualClock, World, run_until_crash, settle
from tests.twins.interleaving import InterleavingThreads
from tests.twins.sim_files import SimDisk

LONG = bool(os.environ.get("MAGNETAR_CRASH_LONG"))
SEEDS = range(int(os.environ.get("MAGNETAR_INTERLEAVINGS", "2000" if LONG else "20")))


def interleaved(seed: int) -> World:
    world = World()
    world.threads = partial(InterleavingThreads, world.disk, seed)
    world.has_frame_writer = seed % 3 != 0
    world.has_direct_reader = seed % 5 != 0
    return world


def test_a_seed_decides_the_order_and_seeds_differ():
    logs = []
    for seed in (1, 1, 2, 3):
        world = interleaved(seed)
        assert run_until_crash(world.disk, Scenario(world, Promise()).run()) is None
        logs.append(world.disk.log)
    assert logs[0] == logs[1]
    assert len({tuple(log) for log in logs}) == 3


@pytest.mark.parametrize("seed", SEEDS)
def test_a_crash_while_threads_are_between_their_operations(seed: int):
    probe = interleaved(seed)
    assert run_until_crash(probe.disk, Scenario(probe, Promise()).run()) is None
    chance = random.Random(seed)
    for operation in chance.sample(range(probe.disk.operations), 6):
        world, promise = interleaved(seed), Promise()
        world.disk.crash_at = operation
        run_until_crash(world.disk, Scenario(world, promise).run())
        for mode in ("nothing", "some", "everything"):
            after = world.after_crash(mode, seed)
            assert run_until_crash(after.disk, check(after, promise)) is None, (seed, operation, mode)


@pytest.mark.parametrize("seed", SEEDS)
def test_metadata_snapshots_and_log_meet(seed: int):
    probe = MetadataWorld()
    probe.threads = partial(InterleavingThreads, probe.disk, seed)
    assert run_until_crash(probe.disk, MetadataRun(probe, Told(), seed).run()) is None
    chance = random.Random(seed)
    for operation in chance.sample(range(probe.disk.operations), 6):
        world, told = MetadataWorld(), Told()
        world.threads = partial(InterleavingThreads, world.disk, seed)
        world.disk.crash_at = operation
        run = MetadataRun(world, told, seed)
        run.atomic = False
        run_until_crash(world.disk, run.run())
        for mode in ("nothing", "some", "everything"):
            after = MetadataWorld(world.disk.after_crash(mode, seed))
            assert run_until_crash(after.disk, check_metadata(after, told)) is None, (seed, operation, mode)


@pytest.mark.parametrize("seed", range(20))
async def test_names_are_durable_whichever_thread_asks(seed: int):
    """Two threads call ``sync_names`` at once: neither call may return before the folder is synced, else journal frames
    would be released early.
    """
    disk, layout = SimDisk(), Layout(ROOT)
    disk.make_dir(layout.ledgers)
    files = LedgerFiles(disk, layout, b"s" * 16, ManualClock(), max_open=8)
    files.write(7, [b"record"], 64)
    files.sync(7)
    pool = InterleavingThreads(disk, seed).pool("both", 2)
    durable: list[bool] = []

    def done(_result: None, error: BaseException | None) -> None:
        assert error is None
        durable.append(layout.ledger(7) in disk.after_crash("nothing").paths())

    pool.run(files.sync_names, done)
    pool.run(files.sync_names, done)
    while len(durable) < 2:
        await settle(1)
    assert durable == [True, True]
