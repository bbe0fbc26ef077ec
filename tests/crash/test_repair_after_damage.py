"""A power loss, a single flipped bit in any file, and then a repair, which another power loss may cut off.

The start behind the repair finds every acknowledged entry but the damaged entry, no deleted ledger, and `verify` has
named the damage. A repair that was cut off may be repeated, and need not be.
"""

from __future__ import annotations

import os
import random

import pytest

from magnetar.storage.embedded.verify.command import REPAIRS, verify_store
from tests.crash.engine_scenario import Promise
from tests.crash.test_damage_after_crash import last_frame, outcome
from tests.crash.test_engine_random import History
from tests.storage.engine_for_tests import ROOT, World, run_until_crash
from tests.twins.sim_files import SimDisk, SimulatedCrash

SEEDS = range(int(os.environ.get("MAGNETAR_REPAIRS", "1000" if os.environ.get("MAGNETAR_CRASH_LONG") else "25")))
BITS = 6


def places(disk: SimDisk, chance: random.Random) -> list[tuple[str, int]]:
    """Bits of the used part of files, in each folder as often."""
    used = [(path, len(disk.content(path).rstrip(b"\0"))) for path in disk.paths() if not path.endswith("/LOCK")]
    folders: dict[str, list[tuple[str, int]]] = {}
    for path, size in used:
        if size:
            folders.setdefault(path.rpartition("/")[0], []).append((path, size))
    chosen = [chance.choice(folders[chance.choice(sorted(folders))]) for _ in range(BITS)]
    return [(path, chance.randrange(size * 8)) for path, size in chosen]


def repaired(disk: SimDisk, chance: random.Random) -> tuple[SimDisk, bool]:
    """The disk behind a repair, which a power loss may cut off, and whether ``verify`` found damage before."""
    parts = [name for name in sorted(REPAIRS) if chance.random() < 0.7]
    named = verify_store(ROOT, files=disk.copy()).damaged
    disk.crash_at = disk.operations + chance.choice([0, 1, 2, 4, 8, 16, 1 << 40])
    try:
        verify_store(ROOT, files=disk, repair=parts)
    except SimulatedCrash:
        disk = disk.after_crash(chance.choice(["nothing", "everything", "some"]), chance.randrange(1 << 30))
        if chance.random() < 0.5:
            verify_store(ROOT, files=disk, repair=parts)
    disk.crash_at = -1
    return disk, named


@pytest.mark.parametrize("seed", SEEDS)
def test_a_repair_costs_no_entry_but_the_damaged(seed: int):
    chance = random.Random(f"repair {seed}")
    world, promise = World(), Promise()
    world.disk.crash_at = chance.choice([-1, chance.randint(100, 900)])
    ended = run_until_crash(world.disk, History(world, promise, chance).live(chance.randint(40, 200)))
    assert ended is None or isinstance(ended, SimulatedCrash)
    mode, loss = chance.choice(["nothing", "everything", "some"]), chance.randint(0, 10**6)
    crashed = world.after_crash(mode, loss)
    unconfirmed = last_frame(crashed)
    for path, bit in places(crashed.disk, chance) if crashed.disk.paths() else ():
        disk = crashed.disk.copy()
        disk.flip_bit(path, bit)
        disk, named = repaired(disk, chance)
        damaged = World(disk)
        found: list[tuple[list[tuple[int, int]], bool]] = []

        async def look(damaged: World = damaged, found: list[tuple[list[tuple[int, int]], bool]] = found) -> None:
            found.append(await outcome(damaged, promise))

        error = run_until_crash(damaged.disk, look())
        where = f"{path} bit {bit} ({mode}, {loss}): {error!r}"
        assert error is None, where
        lost, noticed = found[0]
        gone = promise.deleting - promise.deleted
        lost = [each for each in lost if each[0] not in gone]
        where = f"{path} bit {bit} ({mode}, {loss}): {lost}, named {named}"
        if path == unconfirmed[0] and unconfirmed[1] <= bit // 8 < unconfirmed[2]:
            continue
        assert len(lost) <= 1, where
        assert named or not lost, where
        assert named or not noticed, where
