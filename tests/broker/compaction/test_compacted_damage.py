"""A damaged entry of the compacted ledger: a compaction replaces the ledger, and loses an entry only where the log has
dropped the original.
"""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from magnetar.broker.compaction.compacted_damage import CompactedDamage
from magnetar.storage.errors import CorruptEntryError, StorageError
from magnetar.storage.position import EARLIEST, Position
from tests.broker.compaction_for_tests import Bench, entries_of, read_on, single
from tests.storage.managed_for_tests import Ground, MemoryLedgerStore

KEYS = "abcdef"


def damage(bench: Bench, *entry_ids: int) -> int:
    """Damage entries of the present compacted ledger; return its id."""
    ledger_id = bench.compaction.current().ledger.ledger_id
    bench.ground.ledgers.corrupt |= {Position(ledger_id, entry_id) for entry_id in entry_ids}
    return ledger_id


async def compacted(*, dropped: bool = False, publish_more: bool = True) -> Bench:
    """A topic with six keys and a deleted key, compacted, and perhaps a newer message."""
    bench = await Bench(Ground(MemoryLedgerStore(cached=False))).open()
    await bench.publish(single("gone", b"0"), *[single(key, b"1") for key in KEYS], single("gone", b""))
    await bench.compact()
    if dropped:
        await bench.drop_consumed()
    if publish_more:
        await bench.publish(single("f", b"2"), single("g", b"2"))
    return bench


async def left(bench: Bench) -> dict[str, bytes]:
    return {key: value for _, _, key, value in await bench.values()}


@pytest.mark.parametrize("damaged", [(1,), (5,), (2, 3), (1, 4)])
async def test_an_entry_that_the_log_still_has_is_taken_from_there(damaged: tuple[int, ...]):
    bench = await compacted()
    damage(bench, *damaged)
    await bench.compact()
    assert await left(bench) == {**dict.fromkeys("abcde", b"1"), "f": b"2", "g": b"2"}
    assert bench.compaction.stats().lost_entries == 0


@pytest.mark.parametrize("restarts", [False, True])
async def test_the_first_entry_is_taken_from_a_log_that_dropped_nothing(restarts: bool):
    bench = await compacted()
    await bench.compact()
    if restarts:
        await bench.restart()
    damage(bench, 0)
    await bench.publish(single("h", b"3"))
    await bench.compact()
    assert await left(bench) == {**dict.fromkeys("abcde", b"1"), "f": b"2", "g": b"2", "h": b"3"}
    assert bench.compaction.stats().lost_entries == 0


@pytest.mark.parametrize("skip", [False, True])
async def test_an_entry_that_the_log_has_dropped_is_lost_where_the_setting_allows_it(skip: bool):
    bench = await compacted(dropped=True)
    damage(bench, 2)
    bench.settings.skip_damaged = skip
    assert bench.compaction.start()
    with capture_logs() as logs:
        await bench.compaction.wait()
    lost = [line for line in logs if line["event"] == "compacted_entry.lost"]
    if skip:
        assert bench.compaction.status().status == "SUCCESS"
        assert await left(bench) == {**dict.fromkeys("abde", b"1"), "f": b"2", "g": b"2"}
    else:
        assert "entry" in bench.compaction.status().last_error
        bench.ground.ledgers.corrupt.clear()
        assert (await left(bench))["c"] == b"1", "the old ledger stays"
    assert len(lost) == bench.compaction.stats().lost_entries == skip


async def test_entries_of_dropped_ledgers_come_from_the_compacted_ledger():
    """The log has half of the originals."""
    bench = await compacted(dropped=True, publish_more=False)
    await bench.publish(single("b", b"2"), single("h", b"2"), single("gone", b"2"), single("gone", b""))
    await bench.compact()
    await bench.publish(single("f", b"3"))
    # a1 c1 d1 e1 f1 are in the compacted ledger alone, b2 h2 in the log too
    damage(bench, 6)
    await bench.compact()
    found = {**dict.fromkeys("acde", b"1"), "b": b"2", "h": b"2", "f": b"3"}
    assert await left(bench) == found
    assert bench.compaction.stats().lost_entries == 0


async def test_a_reader_at_the_entry_goes_on_behind_a_compaction_that_it_starts():
    bench = await compacted(publish_more=False)
    damage(bench, 2)
    reader = bench.reader()
    assert len(entries_of(await reader.read(100, 1 << 20))) == 2
    with pytest.raises(StorageError):
        await reader.read(100, 1 << 20)
    assert bench.compaction.is_running
    await bench.compaction.wait()
    assert len(await read_on(reader)) == 4
    assert await left(bench) == dict.fromkeys(KEYS, b"1")


async def test_the_last_message_of_a_damaged_ledger_starts_a_compaction():
    bench = await compacted(dropped=True, publish_more=False)
    damage(bench, 5)
    bench.settings.skip_damaged = True
    with pytest.raises(CorruptEntryError):
        await bench.compaction.last_entry()
    await bench.compaction.wait()
    assert (await bench.compaction.last_entry()) is not None
    assert await left(bench) == dict.fromkeys("abcde", b"1")


async def test_readers_start_no_compaction_that_cannot_help():
    bench = await compacted(dropped=True)
    damage(bench, 0)
    for runs in (1, 1):
        with pytest.raises(StorageError):
            await bench.reader().read(100, 1 << 20)
        await bench.compaction.wait()
        assert bench.compaction.stats().runs_failed == runs


async def test_a_ledger_that_the_log_drops_meanwhile_ends_the_run():
    """Neither the compacted ledger nor the log would give the entries of that ledger."""
    bench = await compacted(publish_more=False)
    await bench.log.roll()
    await bench.publish(single("f", b"2"), single("g", b"2"))
    damage(bench, 3)
    bench.settings.skip_damaged = True
    read, drops = bench.ground.ledgers.read, [bench.drop_consumed]

    async def read_and_drop(ledger_id: int, *rest: int):
        if ledger_id == bench.log.ledgers[0].ledger_id and drops:
            await drops.pop()()
        return await read(ledger_id, *rest)

    bench.ground.ledgers.read = read_and_drop
    assert bench.compaction.start()
    await bench.compaction.wait()
    assert not drops
    assert bench.compaction.status().status == "ERROR"
    bench.ground.ledgers.corrupt.clear()
    assert (await left(bench)).keys() == set("abcdefg")


async def test_the_damage_is_forgotten_with_the_ledger():
    bench = await compacted(publish_more=False)
    damage(bench, 1)
    with pytest.raises(StorageError):
        await read_on(bench.reader(EARLIEST))
    await bench.compaction.wait()
    before = bench.compaction.ledger_json()
    await bench.compact()
    assert bench.compaction.ledger_json() == before, "a run without new messages writes nothing"


def test_a_minute_lies_between_two_starts_for_readers():
    known = CompactedDamage()
    assert known.may_begin(7, 100.0)
    assert not known.may_begin(7, 159.0)
    assert known.may_begin(7, 160.0)
    known.stays()
    assert not known.may_begin(7, 500.0)
    assert known.may_begin(8, 500.0)
