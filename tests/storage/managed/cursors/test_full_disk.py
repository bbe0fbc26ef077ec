"""Random acknowledgements of a cursor while writes find no space: a second without faults makes all of them durable.

No earlier acknowledgement may be lost while later acknowledgements of the cursor are durable, whatever write failed, and
no failure ends the saves by the timer.
"""

from __future__ import annotations

import dataclasses
import os
import random

import pytest

from magnetar.storage.errors import StorageError, StorageFullError, StorageUnavailableError
from tests.storage.managed_for_tests import KEEP, Ground, append, settle

SEEDS = range(int(os.environ.get("MAGNETAR_FULL_DISKS", "2000" if os.environ.get("MAGNETAR_CRASH_LONG") else "20")))
ENTRIES = 120
STEPS = 60


class Fate:
    """Which writes of the ground fail: appends, creations of ledgers, records."""

    def __init__(self, ground: Ground, chance: random.Random) -> None:
        self._ground, self._chance = ground, chance
        self._create, self._put = ground.ledgers.create, ground.metadata.put
        self.creations = self.records = 0.0
        ground.ledgers.create = self.create
        ground.metadata.put = self.put

    def set(self) -> None:
        chance = self._chance
        self.creations, self.records = chance.choice([0, 0.5, 1]), chance.choice([0, 0, 0.5, 1])
        self._ground.ledgers.fail_appends = self.error() if chance.random() < 0.6 else None

    def end(self) -> None:
        self.creations = self.records = 0.0
        self._ground.ledgers.fail_appends = None

    def error(self) -> StorageError:
        return self._chance.choice([StorageFullError("full"), StorageFullError("full"), StorageUnavailableError("few")])

    async def create(self, properties):
        if self._chance.random() < self.creations:
            raise self.error()
        return await self._create(properties)

    async def put(self, *arguments, **more):
        """A write that fails may be carried out all the same, as a frame of which a full disk has taken one copy."""
        fails = self._chance.random() < self.records
        version = await self._put(*arguments, **more) if not fails or self._chance.random() < 0.3 else -1
        if fails:
            raise self.error()
        return version


def acked(cursor, every):
    return {place for place in every if cursor.is_deleted(place)}, dict(cursor._acks.partial)


def acknowledge(cursor, every, chance):
    """One ACK of a client: the chunks of a message, an entry, a part of a batch, or everything up to an entry."""
    at = chance.randrange(len(every))
    kind = chance.random()
    if kind < 0.6:
        by_ledger: dict[int, list[int]] = {}
        for ledger_id, entry_id in every[at : at + chance.choice([1, 2, 5, 12])]:
            by_ledger.setdefault(ledger_id, []).append(entry_id)
        for ledger_id, entry_ids in by_ledger.items():
            cursor.ack_entries(ledger_id, entry_ids)
    elif kind < 0.8:
        cursor.ack(every[at], [chance.choice([0b0111, 0b1011, 0b0001])])
    elif kind < 0.83:
        cursor.ack_cumulative(every[at // 3])
    else:
        cursor.ack(every[at])


@pytest.mark.parametrize("seed", SEEDS)
async def test_acknowledgements_are_durable_a_second_after_the_disk_has_space(seed):
    chance = random.Random(seed)
    config = dataclasses.replace(
        KEEP,
        max_entries_per_ledger=chance.choice([7, 1000]),
        cursor_max_entries_per_ledger=chance.choice([1, 3, 50_000]),
        cursor_inline_bytes=chance.choice([0, 60, 4096]),
        cursor_chunk_bytes=chance.choice([40, 1 << 20]),
        cursor_save_acks=chance.choice([3, 1000]),
    )
    ground = Ground()
    ledger = await ground.open(config)
    every = await append(ledger, [b"%d" % k for k in range(ENTRIES)])
    cursor = await ledger.open_cursor("s", "earliest")
    fate = Fate(ground, chance)
    known = acked(cursor, every)
    for _ in range(STEPS):
        if chance.random() < 0.4:
            fate.set()
        for _ in range(chance.choice([0, 1, 1, 4])):
            acknowledge(cursor, every, chance)
        if chance.random() < 0.1:
            before = acked(cursor, every)
            try:
                await cursor.flush()
                known = before
            except StorageError:
                pass
        ground.scheduler.advance(chance.choice([0.1, 0.6, 1.1]))
        await settle()
        if chance.random() < 0.25:
            fate.end()
            known = acked(cursor, every)
            ground.scheduler.advance(1.01)
            await settle()
        if chance.random() < 0.3:
            again = (await (ground.after_crash()).open(config)).cursors["s"]
            found = acked(again, every)
            assert known[0] <= found[0] <= acked(cursor, every)[0]
            for place, left in known[1].items():
                assert place in found[0] or not found[1][place] & ~left
