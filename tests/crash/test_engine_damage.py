"""Damage of every single bit of every file, and tails cut at every byte: detected, and only the entries that it hit are
lost.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.storage.engine_for_tests import ROOT, TINY, World, append, found_entries, run_until_crash, settle

if TYPE_CHECKING:
    from magnetar.storage.embedded.engine import EngineSettings

LONG = bool(os.environ.get("MAGNETAR_CRASH_LONG"))

ONE_SEGMENT = replace(TINY, journal_first_segment_bytes=32 << 10, journal_segment_bytes=32 << 10)
"""All frames in one segment; TINY spreads them over several."""

SEALED = [b"one", b"two" * 20, b"three", b""]
OPEN = [b"a" * 40, b"b", b"c" * 33, b"d", b"e" * 90]


async def _fill(world: World, settings: EngineSettings, *, checkpoint: bool) -> None:
    """A sealed ledger 0, an open ledger 1; then the process dies a while after the last acknowledgement."""
    storage = await world.open(settings)
    first, second = await storage.ledgers.create(), await storage.ledgers.create()
    await append(first, SEALED[:2])
    await append(second, OPEN[:2])
    await append(first, SEALED[2:])
    await first.close()
    if checkpoint:
        await storage.checkpoint()
    await append(second, OPEN[2:3])
    await append(second, OPEN[3:])
    world.scheduler.advance(1.5)
    await settle()
    world.scheduler.advance(1.5)
    await settle()


def small_store(*, checkpoint: bool, settings: EngineSettings = ONE_SEGMENT) -> World:
    """The disk after the death of the process; ledger files as far as they were synced."""
    world = World()
    run_until_crash(world.disk, _fill(world, settings, checkpoint=checkpoint))
    return world.after_crash("nothing")


async def survivors(world: World) -> tuple[dict[int, list[bytes | None]], bool]:
    """Entries per ledger, None for a damaged entry; and whether the start reported damage."""
    storage = await world.open()
    report = storage.recovery
    noticed = bool(report.damaged_files or report.damaged_entries or report.missing_frames or report.torn_frame)
    found = await found_entries(storage.ledgers)  # a wrong position in an error would shift the following entries
    noticed |= any(None in entries for entries in found.values())
    await storage.close()
    return found, noticed


def outcome(world: World) -> tuple[dict[int, list[bytes | None]], bool]:
    found: list[tuple[dict[int, list[bytes | None]], bool]] = []

    async def main() -> None:
        found.append(await survivors(world))

    run_until_crash(world.disk, main())
    return found[0]


def bits_of(world: World, path: str) -> list[int]:
    """Bits to flip: those of written bytes and of zeros within 16 bytes of them; without ``LONG`` a sample of 120."""
    data = world.disk.content(path)
    used = [byte for byte in range(len(data)) if any(data[max(0, byte - 16) : byte + 16])]
    bits = [byte * 8 + bit for byte in used for bit in range(8)]
    if LONG:
        return bits
    chance = random.Random(len(data))
    return sorted(chance.sample(bits, min(len(bits), 120)))


FILES = [
    "VERSION",
    "journal/checkpoint",
    "journal/00000000.journal",
    "journal/00000001.journal",
    "journal/00000002.journal",
    "journal/00000003.journal",
    "ledgers/000000000000.ledger",
    "ledgers/000000000001.ledger",
]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_the_small_store_is_whole(checkpoint: bool):
    found, noticed = outcome(small_store(checkpoint=checkpoint))
    assert found == {0: SEALED, 1: OPEN}
    assert not noticed


@pytest.mark.timeout(600)
@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("settings", [ONE_SEGMENT, TINY], ids=["one segment", "several segments"])
@pytest.mark.parametrize("name", FILES)
def test_every_flipped_bit_costs_at_most_the_entry_it_hit(name: str, settings: EngineSettings, checkpoint: bool):
    pristine = small_store(checkpoint=checkpoint, settings=settings)
    path = f"{ROOT}/{name}"
    if path not in pristine.disk.paths():
        # Without a checkpoint no ledger file is durable yet; some runs need a single journal segment.
        assert (not checkpoint and "ledgers" in name) or "journal" in name
        return
    harmed = 0
    for bit in bits_of(pristine, path):
        world = pristine.after_crash("nothing")
        world.disk.flip_bit(path, bit)
        found, noticed = outcome(world)
        lost = [
            (ledger_id, entry)
            for ledger_id, bodies in ((0, SEALED), (1, OPEN))
            for entry, body in enumerate(bodies)
            if entry >= len(found.get(ledger_id, [])) or found[ledger_id][entry] != body
        ]
        assert {k: len(v) for k, v in found.items()} == {0: len(SEALED), 1: len(OPEN)}, f"bit {bit}: {found}"
        assert len(lost) <= 1, f"bit {bit}: lost {lost}"
        assert all(found[ledger_id][entry] is None for ledger_id, entry in lost), f"bit {bit}: invented bytes"
        assert noticed or not lost, f"bit {bit} was not noticed"
        harmed += bool(lost) or noticed
    needed = not name.endswith(".journal") or (name == FILES[2] and not checkpoint)
    assert harmed or not needed, "no flipped bit of this file was ever noticed"


@pytest.mark.parametrize("checkpoint", [False, True])
def test_tail_of_the_journal_cut_at_every_byte(checkpoint: bool):
    """A torn end: all entries acknowledged before the last frame exist, and of the torn frame the entries before the
    cut.
    """
    world = World()

    async def run() -> None:
        storage = await world.open(ONE_SEGMENT)
        writer = await storage.ledgers.create()
        await append(writer, OPEN[:2])
        if checkpoint:
            await storage.checkpoint()
        await append(writer, OPEN[2:])

    run_until_crash(world.disk, run())
    path = f"{ROOT}/journal/00000000.journal"
    disk = world.after_crash("nothing").disk
    data = disk.content(path)
    end = len(data.rstrip(b"\0"))
    start = end - end % 4096
    for cut in range(start, end):
        torn = world.after_crash("nothing")
        torn.disk.put(path, data[:cut] + bytes(len(data) - cut))
        found, _ = outcome(torn)
        entries = found[0]
        assert 2 <= len(entries) < len(OPEN)
        assert entries == OPEN[: len(entries)]


def test_ledger_file_cut_at_every_byte_after_its_checkpoint():
    """Each lost entry is reported; entries before the cut are read."""
    pristine = small_store(checkpoint=True)
    path = f"{ROOT}/ledgers/000000000000.ledger"
    data = pristine.disk.content(path)
    for cut in range(0, len(data), 1 if LONG else 5):
        world = pristine.after_crash("nothing")
        world.disk.put(path, data[:cut])
        found, _ = outcome(world)
        assert len(found[0]) == len(SEALED)
        assert found[1] == OPEN
        whole = [entry for entry, body in enumerate(found[0]) if body is not None]
        assert whole == list(range(len(whole)))
        assert found[0][: len(whole)] == SEALED[: len(whole)]


def test_an_entry_damaged_in_the_journal_is_taken_from_its_ledger_file():
    """Write-behind has already written the entry to the ledger file: no entry is lost, and the start reports the
    damage.
    """
    world = World()
    run_until_crash(world.disk, _fill(world, ONE_SEGMENT, checkpoint=False))
    after = world.after_crash("everything")
    path = f"{ROOT}/journal/00000000.journal"
    for body in (SEALED[1], OPEN[4]):
        after.disk.flip_bit(path, after.disk.content(path).index(body) * 8 + 1)
    found, noticed = outcome(after)
    assert found == {0: SEALED, 1: OPEN}
    assert noticed


def test_a_lost_checkpoint_costs_nothing():
    """Both copies are damaged, or the file is missing: recovery replays every frame of the journal and finds all other
    entries in the ledger files.
    """
    for checkpoint in (False, True):
        for data in (None, b"", b"garbage" * 50):
            world = small_store(checkpoint=checkpoint)
            path = f"{ROOT}/journal/checkpoint"
            if data is None:
                world.disk.remove(path)
                world.disk.sync_dir(f"{ROOT}/journal")
            else:
                world.disk.put(path, data)
            found, noticed = outcome(world)
            assert found == {0: SEALED, 1: OPEN}
            assert noticed
