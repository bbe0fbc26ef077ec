"""Damage of the metadata files: bits, cuts at every byte, lost, repeated and misdirected sectors.

After each, a start finds everything that was acknowledged, or refuses; it never finds less. ``verify`` sees every
flipped bit. ``make test`` takes a seeded sample, ``MAGNETAR_CRASH_LONG=1`` one 80 times as large: every byte of each file
for cuts, some 20,000 bits.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from magnetar.storage.embedded.layout import Layout
from magnetar.storage.embedded.metadata.salvage import inspect_metadata
from magnetar.storage.errors import MetadataDamagedError
from tests.crash.metadata_scenario import FOLDER, MetadataRun, MetadataWorld, Told, state_of
from tests.storage.engine_for_tests import ROOT, run_until_crash
from tests.twins.sim_files import SECTOR_BYTES, SimulatedCrash

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG = bool(os.environ.get("MAGNETAR_CRASH_LONG"))
PAGE = 4096


def stored(*, clean: bool) -> tuple[MetadataWorld, dict[str, bytes]]:
    """The disk and the nodes after a run: ``clean`` for a closed store, else killed right after a group was answered."""
    world, told = MetadataWorld(), Told()
    if not clean:
        run = MetadataRun(world, told, rounds=20)

        async def main() -> None:
            run.store = world.open()
            for number in range(run.rounds):
                await run.group(number)
            world.disk.crashed = True
            raise SimulatedCrash

        run_until_crash(world.disk, main())
    else:
        run_until_crash(world.disk, MetadataRun(world, told, rounds=20).run())
    world = world.after_crash("nothing")
    return world, told.states[-1]


def outcome(world: MetadataWorld) -> tuple[dict[str, bytes] | None, bool]:
    """(nodes, whether the start reported damage); (None, True) for a refused start."""
    found: list[tuple[dict[str, bytes], bool]] = []

    async def main() -> None:
        store = world.open()
        found.append((await state_of(store), bool(store.found_damage)))
        await store.close()

    before = {path: world.disk.content(path) for path in world.disk.paths()}
    try:
        run_until_crash(world.disk, main())
    except MetadataDamagedError:
        assert {path: world.disk.content(path) for path in world.disk.paths()} == before, "a refusal changes nothing"
        return None, True
    return found[0]


def used(world: MetadataWorld, path: str) -> int:
    """The size of the file without the zeros at its end."""
    return len(world.disk.content(path).rstrip(b"\0"))


def sample(numbers: range, count: int, seed: int) -> Iterator[int]:
    count *= 80 if LONG else 1
    yield from sorted(random.Random(seed).sample(numbers, min(count, len(numbers))))


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_flipped_bit_costs_nothing(clean: bool):
    """One flipped bit, anywhere: the second copy or the other snapshot has the same data intact."""
    pristine, expected = stored(clean=clean)
    noticed = 0
    for path in pristine.files():
        for bit in sample(range(len(pristine.disk.content(path)) * 8), 260, len(path)):
            world = pristine.after_crash()
            world.disk.flip_bit(path, bit)
            found, reported = outcome(world)
            assert found == expected, f"{path} bit {bit}"
            noticed += reported
    assert noticed


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_verify_sees_every_flipped_bit(clean: bool):
    pristine, _ = stored(clean=clean)
    whole = inspect_metadata(pristine.disk, Layout(ROOT))
    assert whole.complete
    assert not whole.damage
    assert not whole.remarks
    for path in pristine.files():
        for bit in sample(range(len(pristine.disk.content(path)) * 8), 120, len(path) + 1):
            disk = pristine.disk.copy()
            disk.flip_bit(path, bit)
            seen = inspect_metadata(disk, Layout(ROOT))
            assert seen.damage or seen.remarks or path.endswith("/spare"), f"{path} bit {bit}"
            assert all(error.path == path for error in [*seen.damage, *seen.remarks])


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_files_cut_at_every_byte(clean: bool):
    """A log that was cut is not taken for a complete log: the start is refused, unless the end of the log is still
    visible.
    """
    pristine, expected = stored(clean=clean)
    refused = 0
    for path in pristine.files():
        for size in sample(range(len(pristine.disk.content(path))), 200, 7):
            world = pristine.after_crash()
            world.disk.put(path, pristine.disk.content(path)[:size])
            found, reported = outcome(world)
            assert found in (None, expected), f"{path} cut at {size}"
            refused += found is None
            if found is not None and path.endswith(".log") and size > used(pristine, path) + PAGE:
                newest = path == max(name for name in pristine.files() if name.endswith(".log"))
                assert reported or not newest
    assert refused


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("unit", [SECTOR_BYTES, PAGE])
def test_a_lost_sector_or_page_costs_nothing(clean: bool, unit: int):
    """Zeros, or bytes of another place of the same file, instead of a sector."""
    pristine, expected = stored(clean=clean)
    chance = random.Random(unit)
    for path in pristine.files():
        data = pristine.disk.content(path)
        places = range(0, used(pristine, path) // unit * unit + 1, unit)
        for at in places if LONG else chance.sample(places, min(len(places), 60)):
            for source in (None, chance.choice(places)):
                world = pristine.after_crash()
                filler = bytes(unit) if source is None else data[source : source + unit]
                damaged = bytearray(data)
                damaged[at : at + unit] = filler[: len(damaged) - at]
                world.disk.put(path, bytes(damaged))
                found, _ = outcome(world)
                assert found == expected, f"{path} at {at} from {source}"


def test_a_misdirected_sector_of_another_log_is_never_taken():
    """A page of an older log lands in a newer log, and the other way round."""
    pristine, expected = stored(clean=False)
    logs = [path for path in pristine.files() if path.endswith(".log")]
    chance = random.Random(3)
    for _ in range(2000 if LONG else 150):
        source, target = chance.sample(logs, 2)
        at = chance.randrange(0, len(pristine.disk.content(target)), PAGE)
        begin = chance.randrange(0, used(pristine, source), PAGE)
        damaged = bytearray(pristine.disk.content(target))
        damaged[at : at + PAGE] = pristine.disk.content(source)[begin : begin + PAGE]
        world = pristine.after_crash()
        world.disk.put(target, bytes(damaged))
        assert outcome(world)[0] == expected


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_both_copies_of_a_change_lost_is_refused(clean: bool):
    """The device acknowledged a write and never made it, or made it elsewhere: a later change shows that the write is
    missing.
    """
    pristine, _ = stored(clean=clean)
    newest = max(path for path in pristine.files() if path.endswith(".log"))
    data = pristine.disk.content(newest)
    for at in range(2 * PAGE, used(pristine, newest) - 4 * PAGE, 2 * PAGE):
        world = pristine.after_crash()
        world.disk.put(newest, data[:at] + bytes(2 * PAGE) + data[at + 2 * PAGE :])
        assert outcome(world) == (None, True)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_missing_file_is_refused_or_costs_nothing(clean: bool):
    pristine, expected = stored(clean=clean)
    newest_snapshot = max(path for path in pristine.files() if path.endswith(".snapshot"))
    for path in pristine.files():
        world = pristine.after_crash()
        world.disk.remove(path)
        found, _ = outcome(world)
        assert found in (None, expected), path
        needed = path.endswith(".log") and path[:-4] >= newest_snapshot[: -len(".snapshot")]
        assert (found is None) == needed, path


def test_both_snapshots_damaged_is_refused():
    world, _ = stored(clean=True)
    for path in world.files():
        if path.endswith(".snapshot"):
            world.disk.flip_bit(path, 1000)
    assert outcome(world) == (None, True)


def test_a_damaged_snapshot_is_replaced_soon():
    world, expected = stored(clean=True)
    newest = max(path for path in world.files() if path.endswith(".snapshot"))
    world.disk.flip_bit(newest, 1000)
    before = set(world.files())
    found, reported = outcome(world)
    assert (found, reported) == (expected, True)
    assert {path for path in set(world.files()) - before if path.endswith(".snapshot")}
    assert FOLDER in newest
