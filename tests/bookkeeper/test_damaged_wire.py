"""Bytes that change on the way from one bookie: entries stay correct, and only the connections of this bookie suffer."""

from __future__ import annotations

import asyncio
import contextlib
import struct

import pytest

from magnetar.bookkeeper.errors import DamagedEntryError, NoSuchEntryError, ReadFailedError
from magnetar.bookkeeper.options import LedgerOptions
from magnetar.bookkeeper.wire.frames import READ, Code
from tests.bookkeeper.sim_cluster import SimCluster, simulated
from tests.twins.damaged_answers import KINDS

E3 = LedgerOptions(ensemble_size=3, write_quorum=3, ack_quorum=2)
ADDS = 200
ONE_IN = 20
"""A bookie damages one of so many answers."""
SPECULATION_S = 1.0
READ_TIMEOUT_S = 5.0
LATE_READS = 12
"""Reads that may wait for another replica until the connection ends: one a second, for twice the timeout of a read."""


class Damage:
    """Damages answers of bookies and counts them."""

    def __init__(self, kind, chance, bookies):
        self.count = 0
        self._kind, self._chance = kind, chance
        for bookie in bookies:
            bookie.damage = self

    def __call__(self, frame):
        if self._chance.randrange(ONE_IN):
            return frame
        self.count += 1
        return self._kind(self._chance, frame)


async def timed(times, work):
    began = asyncio.get_running_loop().time()
    try:
        return await work
    finally:
        times.append(asyncio.get_running_loop().time() - began)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("seed", range(4))
@simulated
async def test_one_bookie_costs_moments_and_no_entry(kind, seed):
    cluster, times = SimCluster(3, seed), []
    options = {"speculative_read_s": SPECULATION_S, "read_timeout_s": READ_TIMEOUT_S}
    writer = await cluster.join(**options).client.create(E3)
    first_of_readers = writer.metadata.last_segment.bookies[writer.ledger_id % 3]
    damage = Damage(kind, cluster.chance, [cluster.network.bookies[first_of_readers]])
    entries = [str(number).encode() * 10 for number in range(ADDS)]
    for entry in entries[: ADDS // 2]:
        await timed(times, writer.append(entry))
    for at in range(ADDS // 2, ADDS, 10):
        await asyncio.gather(*(timed(times, writer.append(entry)) for entry in entries[at : at + 10]))
    assert max(times) < SPECULATION_S / 2, "adds need two bookies of three"
    reader = await timed(times, cluster.join(**options).client.open(writer.ledger_id))
    assert reader.last_add_confirmed == ADDS - 1
    for number, entry in enumerate(entries):
        (found,) = await timed(times, reader.read(number, number))
        assert (found.entry_id, bytes(found.payload)) == (number, entry)
    at = 0
    while at < ADDS:
        for found in await timed(times, reader.read(at, min(at + 10, ADDS - 1))):
            assert (found.entry_id, bytes(found.payload)) == (at, entries[at])
            at += 1
    assert max(times) < 2 * SPECULATION_S
    assert sum(each > SPECULATION_S / 2 for each in times) <= damage.count + LATE_READS
    await cluster.close()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("seed", range(2))
@simulated
async def test_three_bookies_delay_entries_and_change_none(kind, seed):
    cluster = SimCluster(3, seed)
    writer = await cluster.join().client.create(E3)
    Damage(kind, cluster.chance, cluster.bookies)
    entries = [str(number).encode() * 10 for number in range(ADDS)]
    for entry in entries:
        await writer.append(entry)
    reader = await cluster.join().client.open(writer.ledger_id)
    assert reader.last_add_confirmed == ADDS - 1
    at = 0
    while at < ADDS:
        with contextlib.suppress(ReadFailedError, DamagedEntryError, NoSuchEntryError):
            for found in await reader.read(at, ADDS - 1):
                assert (found.entry_id, bytes(found.payload)) == (at, entries[at])
                at += 1
    await cluster.close()


def absent(frame):
    """The answer to a read, with one other bit: its code is NO_ENTRY."""
    return frame[:8] + struct.pack(">I", Code.NO_ENTRY) + frame[12:] if frame[5] == READ else frame


@simulated
async def test_a_damaged_code_is_no_absent_entry_of_a_recovery():
    cluster = SimCluster(3)
    owner = cluster.join()
    writer = await owner.client.create(E3)
    slow, damaged, lacking = (cluster.network.bookies[each] for each in writer.metadata.last_segment.bookies)
    await writer.append(b"first")
    lacking.crash()
    await writer.append(b"second")
    owner.party.pause()
    lacking.start()
    slow.suspend()
    damaged.damage = absent
    opening = asyncio.ensure_future(cluster.join().client.open(writer.ledger_id))
    await asyncio.sleep(20)
    assert not opening.done(), "no bookie with an undamaged answer has the entry"
    slow.go_on()
    reader = await opening
    assert [bytes(each.payload) for each in await reader.read(0, 1)] == [b"first", b"second"]
    await cluster.close()
