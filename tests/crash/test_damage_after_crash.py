"""A power loss, and then a single flipped bit in the journal or in a ledger file, over random histories.

The bit costs at most the entry that it hits, and the loss is reported; a bit in the last frame of the journal, which no
later frame confirms, may look like a torn write. Each seed is one history with several bits.
"""

from __future__ import annotations

import os
import random

import pytest

from magnetar.storage.embedded.journal.format import PAGE_BYTES, frame_bytes, parse_frame
from magnetar.storage.errors import CorruptEntryError, NoSuchEntryError
from tests.crash.engine_scenario import Promise
from tests.crash.test_engine_random import History
from tests.storage.engine_for_tests import World, run_until_crash
from tests.twins.sim_files import SimulatedCrash

SEEDS = range(
    int(os.environ.get("MAGNETAR_DAMAGED_CRASHES", "1000" if os.environ.get("MAGNETAR_CRASH_LONG") else "25"))
)
BITS = 8


def last_frame(world: World) -> tuple[str, int, int]:
    """Path, begin and end of the newest frame whose header is intact."""
    found = ("", 0, 0)
    newest = -1
    for path in world.disk.paths():
        if not path.endswith(".journal"):
            continue
        data = world.disk.content(path)
        for at in range(PAGE_BYTES, len(data), PAGE_BYTES):
            frame = parse_frame(data, at)
            if frame is not None and frame.sequence > newest:
                newest, found = frame.sequence, (path, at, at + frame_bytes(frame.payload_bytes))
    return found


def places(world: World, chance: random.Random) -> list[tuple[str, int]]:
    """Bits of the used part of journal and ledger files."""
    files = [path for path in world.disk.paths() if path.endswith((".journal", ".ledger"))]
    used = [(path, len(world.disk.content(path).rstrip(b"\0"))) for path in files]
    filled = [(path, size) for path, size in used if size]
    chosen = [chance.choice(filled) for _ in range(BITS)] if filled else []
    return [(path, chance.randrange(size * 8)) for path, size in chosen]


async def outcome(world: World, promise: Promise) -> tuple[list[tuple[int, int]], bool]:
    """Acknowledged entries that are lost, and whether the start or a read reports damage."""
    storage = await world.open()
    report = storage.recovery
    noticed = bool(report.damaged_files or report.damaged_entries or report.missing_frames)
    lost: list[tuple[int, int]] = []
    present = set(await storage.ledgers.list_ledgers())
    for ledger_id, pushed in promise.pushed.items():
        if ledger_id not in present:
            assert ledger_id in promise.deleting or not promise.acked[ledger_id], f"ledger {ledger_id} is lost"
            continue
        info = await storage.ledgers.open_recover(ledger_id)
        assert info.entries <= len(pushed), f"ledger {ledger_id} has {info.entries} entries of {len(pushed)}"
        for entry in range(max(promise.acked[ledger_id], info.entries)):
            try:
                slab = (await storage.ledgers.read(ledger_id, entry, entry, 1))[0]
                body = bytes(slab.span(entry, entry).body(0))
                assert body == pushed[entry], f"{ledger_id}:{entry} has other bytes"
            except (CorruptEntryError, NoSuchEntryError) as error:
                noticed = noticed or isinstance(error, CorruptEntryError)
                if entry < promise.acked[ledger_id]:
                    lost.append((ledger_id, entry))
    await storage.close()
    return lost, noticed


@pytest.mark.parametrize("seed", SEEDS)
def test_a_flipped_bit_after_a_power_loss_costs_at_most_its_entry(seed: int):
    chance = random.Random(seed)
    world, promise = World(), Promise()
    world.disk.crash_at = chance.choice([-1, chance.randint(100, 900)])
    ended = run_until_crash(world.disk, History(world, promise, chance).live(chance.randint(40, 200)))
    assert ended is None or isinstance(ended, SimulatedCrash)
    mode, loss = chance.choice(["nothing", "everything", "some"]), chance.randint(0, 10**6)
    crashed = world.after_crash(mode, loss)
    unconfirmed = last_frame(crashed)
    for path, bit in places(crashed, chance):
        damaged = World(crashed.disk.copy())
        damaged.disk.flip_bit(path, bit)
        found: list[tuple[list[tuple[int, int]], bool]] = []

        async def look(damaged: World = damaged, found: list[tuple[list[tuple[int, int]], bool]] = found) -> None:
            found.append(await outcome(damaged, promise))

        run_until_crash(damaged.disk, look())
        lost, noticed = found[0]
        where = f"{path} bit {bit} ({mode}, {loss}): {lost}"
        if path == unconfirmed[0] and unconfirmed[1] <= bit // 8 < unconfirmed[2]:
            continue
        assert len(lost) <= 1, where
        assert noticed or not lost, where
