"""The client against simulated bookies: each fault by itself. Random histories of them: ``test_histories``."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.bookkeeper.errors import (
    AddTimeoutError,
    DamagedEntryError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataUnavailableError,
    NotEnoughBookiesError,
    ReadFailedError,
    RecoveryFailedError,
)
from magnetar.bookkeeper.ledgers.writer import LedgerWriter
from magnetar.bookkeeper.options import LedgerOptions
from magnetar.bookkeeper.wire.frames import Code
from tests.bookkeeper.sim_cluster import SimCluster, simulated
from tests.twins.sim_bookies import ADD, BATCH

E3 = LedgerOptions(3, 3, 2)


async def add(writer, count, tag="x"):
    payloads = [f"{tag}{number}".encode() for number in range(count)]
    await asyncio.gather(*(writer.append(payload) for payload in payloads))
    return payloads


async def contents(reader):
    return [bytes(entry.payload) async for entry in reader.entries()]


def on_ensemble(cluster, writer):
    return [cluster.network.bookies[name] for name in writer.metadata.last_segment.bookies]


@simulated
async def test_a_crashed_bookie_is_replaced_from_the_first_unconfirmed_entry_on():
    cluster = SimCluster(5)
    one = cluster.join()
    writer = await one.client.create(E3)
    entries = await add(writer, 50)
    victim = on_ensemble(cluster, writer)[1]
    victim.crash()
    cluster.refresh()
    entries += await add(writer, 50)
    await asyncio.sleep(1)
    entries += await add(writer, 50)
    first, second = writer.metadata.segments
    assert victim.bookie_id in first.bookies
    assert victim.bookie_id not in second.bookies
    assert second.first >= 50
    assert await contents(await cluster.join().client.open(writer.ledger_id)) == entries
    await cluster.close()


@simulated
async def test_without_a_replacement_the_ledger_goes_on_with_its_quorum_and_takes_the_bookie_back():
    cluster = SimCluster(3)
    one = cluster.join()
    writer = await one.client.create(E3)
    entries = await add(writer, 20)
    cluster.bookies[0].crash()
    cluster.refresh()
    entries += await add(writer, 20)
    cluster.bookies[0].start()
    cluster.refresh()
    await asyncio.sleep(5)
    cluster.bookies[1].crash()
    cluster.refresh()
    entries += await add(writer, 20)
    assert len(writer.metadata.segments) == 1
    cluster.bookies[1].start()
    cluster.refresh()
    assert await contents(await cluster.join().client.open(writer.ledger_id)) == entries
    await cluster.close()


@simulated
async def test_adds_wait_for_their_quorum_and_resume():
    cluster = SimCluster(3)
    writer = await cluster.join().client.create(E3)
    entries = await add(writer, 5)
    for bookie in cluster.bookies[:2]:
        bookie.crash()
    cluster.refresh()
    waiting = asyncio.ensure_future(add(writer, 5, "late"))
    await asyncio.sleep(10)
    assert not waiting.done()
    cluster.bookies[0].start()
    cluster.refresh()
    entries += await waiting
    cluster.bookies[1].start()
    cluster.refresh()
    await writer.close()
    assert await contents(await cluster.join().client.open(writer.ledger_id)) == entries
    await cluster.close()


@simulated
async def test_adds_without_a_quorum_fail_and_confirmed_entries_are_sealed():
    cluster = SimCluster(3)
    writer = await cluster.join(add_quorum_timeout_s=20).client.create(E3)
    entries = await add(writer, 5)
    for bookie in cluster.bookies[:2]:
        bookie.crash()
    cluster.refresh()
    with pytest.raises(NotEnoughBookiesError):
        await writer.append(b"late")
    assert (await writer.close()).last_entry_id == 4
    for bookie in cluster.bookies[:2]:
        bookie.start()
    assert await contents(await cluster.join().client.open(writer.ledger_id)) == entries
    await cluster.close()


@simulated
async def test_a_bookie_that_hangs_delays_nothing_and_is_replaced():
    cluster = SimCluster(4)
    one = cluster.join()
    writer = await one.client.create(E3)
    entries = await add(writer, 5)
    hung = on_ensemble(cluster, writer)[0]
    hung.suspend()
    began = asyncio.get_running_loop().time()
    entries += await add(writer, 5)
    assert asyncio.get_running_loop().time() - began < 0.1
    await asyncio.sleep(8)
    assert hung.bookie_id not in writer.metadata.last_segment.bookies
    assert await contents(await cluster.join().client.open(writer.ledger_id)) == entries
    await cluster.close()


async def fenced_and_forgotten(cluster):
    """A writer without entries. Another client has recovered its ledger as empty, and every bookie has forgotten the
    fence.
    """
    cluster.service.reports_changes = False
    writer = await cluster.join().client.create(E3)
    await asyncio.sleep(1)
    reader = await cluster.join().client.open(writer.ledger_id)
    assert reader.last_add_confirmed == -1
    for bookie in cluster.bookies:
        bookie.crash()
        bookie.start()
    return writer


@simulated
async def test_a_fence_that_the_bookies_forgot_is_found_in_the_metadata():
    cluster = SimCluster(3)
    writer = await fenced_and_forgotten(cluster)
    with pytest.raises(LedgerFencedError):
        await writer.append(b"lost for every reader")
    await cluster.close()


@simulated
async def test_without_confirmations_that_add_would_be_acknowledged():
    """Without confirmations the writer acknowledges the add, so the test above can fail."""
    cluster = SimCluster(3)
    writer = await fenced_and_forgotten(cluster)

    async def trust(self):
        self._confirming = False
        for acks in self.delivered():
            acks.trusted = True
        self._drain()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LedgerWriter, "_confirm", trust)
        assert await writer.append(b"lost for every reader") == 0
    await cluster.close()


@simulated
async def test_a_suspended_owner_finds_itself_fenced():
    cluster = SimCluster(3)
    owner = cluster.join()
    writer = await owner.client.create(E3)
    entries = await add(writer, 10)
    owner.party.pause()
    late = asyncio.ensure_future(writer.append(b"late"))
    await asyncio.sleep(0)
    reader = await cluster.join().client.open(writer.ledger_id)
    assert await contents(reader) == entries
    owner.party.resume()
    with pytest.raises(LedgerFencedError):
        await late
    await cluster.close()


@simulated
async def test_unacknowledged_entries_may_be_kept_and_are_whole():
    """A torn tail: entries on one bookie only are recovered, those behind a hole are not."""
    cluster = SimCluster(3)
    owner = cluster.join()
    writer = await owner.client.create(E3)
    await add(writer, 3)
    only = cluster.bookies[2]
    for bookie in cluster.bookies:
        if bookie is not only:
            cluster.network.part(owner.party, bookie)
    late = [asyncio.ensure_future(writer.append(b"late%d" % k)) for k in range(3)]
    await asyncio.sleep(0.1)
    assert not any(task.done() for task in late)
    for task in late:
        task.cancel()
    reader = await cluster.join().client.open(writer.ledger_id)
    found = await contents(reader)
    assert found[:3] == [b"x0", b"x1", b"x2"]
    assert found[3:] in ([], [b"late0", b"late1", b"late2"])
    if found[3:]:
        assert all(sum(b.holds(writer.ledger_id, e) for b in cluster.bookies) >= 2 for e in (3, 4, 5))
    await cluster.close()


@simulated
async def test_silence_is_never_taken_for_the_end():
    cluster = SimCluster(3)
    writer = await cluster.join().client.create(E3)
    entries = await add(writer, 10)
    for bookie in cluster.bookies[:2]:
        bookie.suspend()
    other = cluster.join(recovery_timeout_s=15)
    with pytest.raises(RecoveryFailedError):
        await other.client.open(writer.ledger_id)
    for bookie in cluster.bookies[:2]:
        bookie.go_on()
    assert await contents(await other.client.open(writer.ledger_id)) == entries
    await cluster.close()


@pytest.mark.parametrize("batched", [True, False])
@simulated
async def test_a_damaged_replica_costs_nothing_and_three_are_reported(batched):
    cluster = SimCluster(3)
    one = cluster.join(batch_reads=batched)
    writer = await one.client.create(E3)
    entries = await add(writer, 20)
    await writer.close()
    for bookie in cluster.bookies:
        bookie.damaged.add((writer.ledger_id, 7))
    reader = await one.client.open(writer.ledger_id)
    assert [bytes(e.payload) for e in await reader.read(0, 6)] == entries[:7]
    with pytest.raises(DamagedEntryError):
        await reader.read(7, 19)
    cluster.bookies[1].damaged.clear()
    assert await contents(reader) == entries
    await cluster.close()


@simulated
async def test_a_slow_replica_is_not_waited_for():
    cluster = SimCluster(3)
    one = cluster.join(speculative_read_s=0.1)
    writer = await one.client.create(E3)
    entries = await add(writer, 20)
    await writer.close()
    reader = await one.client.open(writer.ledger_id)
    for bookie in cluster.bookies[:2]:
        bookie.suspend()
    began = asyncio.get_running_loop().time()
    assert await contents(reader) == entries
    assert asyncio.get_running_loop().time() - began < 2
    cluster.bookies[2].crash()
    with pytest.raises(ReadFailedError):
        await reader.read(0, 0)
    await cluster.close()


@simulated
async def test_adds_over_known_connections_go_on_without_the_metadata_service():
    cluster = SimCluster(3)
    writer = await cluster.join().client.create(E3)
    entries = await add(writer, 5)
    await asyncio.sleep(1)
    cluster.service.up = False
    entries += await add(writer, 5)
    cluster.bookies[0].crash()
    entries += await add(writer, 5)  # two connections are trusted
    cluster.bookies[0].start()
    cluster.bookies[1].crash()
    await asyncio.sleep(2)
    late = asyncio.ensure_future(add(writer, 5))
    await asyncio.sleep(10)
    assert not late.done()  # two bookies have them, but one connection is new: it proves nothing yet
    cluster.service.up = True
    entries += await late
    cluster.bookies[1].start()
    assert await contents(await cluster.join().client.open(writer.ledger_id)) == entries
    await cluster.close()


@simulated
async def test_a_change_of_the_ensemble_whose_answer_is_lost_is_known_by_its_content():
    cluster = SimCluster(5)
    writer = await cluster.join().client.create(E3)
    entries = await add(writer, 5)
    cluster.service.lost_answers = 0.7
    on_ensemble(cluster, writer)[0].crash()
    cluster.refresh()
    entries += await add(writer, 5)
    cluster.service.lost_answers = 0.0
    await writer.close()
    assert len(writer.metadata.segments) == 2
    assert await contents(await cluster.join().client.open(writer.ledger_id)) == entries
    await cluster.close()


@pytest.mark.parametrize("code", [Code.READ_ONLY, Code.IO_ERROR, Code.TOO_MANY_REQUESTS, Code.BAD_REQUEST])
@simulated
async def test_a_bookie_that_refuses_is_replaced(code):
    cluster = SimCluster(4)
    one = cluster.join()
    writer = await one.client.create(E3)
    entries = await add(writer, 5)
    refusing = on_ensemble(cluster, writer)[2]
    refusing.answer_codes[ADD] = code
    entries += await add(writer, 5)
    await asyncio.sleep(1)
    assert refusing.bookie_id not in writer.metadata.last_segment.bookies
    assert await contents(await cluster.join().client.open(writer.ledger_id)) == entries
    await cluster.close()


@simulated
async def test_replicas_moved_under_an_open_ledger_are_no_fence():
    """BookKeeper's auto-recovery moves replicas of earlier segments."""
    cluster = SimCluster(5)
    one = cluster.join()
    writer = await one.client.create(E3)
    entries = await add(writer, 5)
    on_ensemble(cluster, writer)[0].crash()
    cluster.refresh()
    entries += await add(writer, 5)
    await asyncio.sleep(1)
    other = cluster.join()
    found, version = await other.store.read(writer.ledger_id, latest=True)
    names = [b.bookie_id for b in cluster.bookies if b.up and b.bookie_id not in found.segments[0].bookies]
    moved = found.segments[0]._replace(bookies=(names[0], *found.segments[0].bookies[1:]))
    from dataclasses import replace

    await other.store.write(writer.ledger_id, replace(found, segments=(moved, *found.segments[1:])), version)
    on_ensemble(cluster, writer)[1].crash()
    cluster.refresh()
    entries += await add(writer, 5)
    await asyncio.sleep(1)
    entries += await add(writer, 5)
    await writer.close()
    assert writer.metadata.segments[0] == moved
    assert writer.last_add_confirmed == len(entries) - 1
    await cluster.close()


@simulated
async def test_a_recovery_replaces_a_bookie_that_refuses_its_adds():
    cluster = SimCluster(5)
    owner = cluster.join()
    writer = await owner.client.create(E3)
    entries = await add(writer, 20) + await add(writer, 10)
    bookies = on_ensemble(cluster, writer)
    bookies[0].answer_codes[ADD] = Code.IO_ERROR
    bookies[1].answer_codes[ADD] = Code.IO_ERROR
    reader = await cluster.join().client.open(writer.ledger_id)
    assert await contents(reader) == entries
    assert len(reader.metadata.segments) == 2
    last = reader.last_add_confirmed
    holding = sum(cluster.network.bookies[b].holds(writer.ledger_id, last) for b in reader.metadata.write_set(last))
    assert holding >= 2
    await cluster.close()


@simulated
async def test_striped_entries_of_a_slow_bookie_are_not_late_by_those_of_others():
    """A bookie that has answered all adds of its own entries does not count as silent while other bookies get adds."""
    cluster = SimCluster(4)
    writer = await cluster.join(add_timeout_s=2).client.create(LedgerOptions(4, 2, 2))
    for _ in range(40):
        await writer.append(b"x")
        await asyncio.sleep(0.5)
    assert len(writer.metadata.segments) == 1
    await cluster.close()


@simulated
async def test_one_bookie_without_batches_is_read_from_the_next():
    cluster = SimCluster(3)
    one = cluster.join()
    writer = await one.client.create(E3)
    entries = await add(writer, 20)
    await writer.close()
    for bookie in cluster.bookies[:2]:
        bookie.answer_codes[BATCH] = Code.BAD_REQUEST
    assert await contents(await one.client.open(writer.ledger_id)) == entries
    await cluster.close()


@simulated
async def test_append_waits_while_too_much_is_unacknowledged():
    cluster = SimCluster(3)
    writer = await cluster.join(max_in_flight_bytes=10_000).client.create(E3)
    for bookie in cluster.bookies:
        bookie.suspend()
    adding = [asyncio.ensure_future(writer.append(bytes(1000))) for _ in range(100)]
    await asyncio.sleep(1)
    assert writer.last_add_pushed < 15
    for bookie in cluster.bookies:
        bookie.go_on()
    assert sorted(await asyncio.gather(*adding)) == list(range(100))
    await cluster.close()


@simulated
async def test_a_bookie_that_falls_behind_is_replaced_before_its_entries_fill_the_memory():
    cluster = SimCluster(4)
    one = cluster.join(write_buffer_bytes=5_000, max_lag_bytes=20_000, add_timeout_s=1000)
    writer = await one.client.create(E3)
    slow = on_ensemble(cluster, writer)[0]
    slow.suspend()
    kept = []
    for number in range(100):
        await writer.append(number.to_bytes(1000, "big"))
        kept.append(writer.queue.kept_bytes)
    assert 15_000 < max(kept) <= 20_000, "the bound"
    assert slow.bookie_id not in writer.metadata.last_segment.bookies
    await writer.close()
    assert kept[-1] < 5_000
    assert await contents(await one.client.open(writer.ledger_id)) == [n.to_bytes(1000, "big") for n in range(100)]
    await cluster.close()


@simulated
async def test_a_bookie_that_takes_its_bytes_again_gets_those_it_lacks():
    cluster = SimCluster(3)
    one = cluster.join(write_buffer_bytes=5_000, add_timeout_s=1000)
    writer = await one.client.create(E3)
    slow = on_ensemble(cluster, writer)[0]
    slow.suspend()
    for _ in range(50):
        await writer.append(bytes(1000))
    assert sum(slow.holds(writer.ledger_id, entry) for entry in range(50)) == 0
    slow.go_on()
    await asyncio.sleep(1)
    assert all(slow.holds(writer.ledger_id, entry) for entry in range(50))
    assert len(writer.metadata.segments) == 1
    await writer.close()
    await cluster.close()


@simulated
async def test_a_deadline_ends_adds_that_the_metadata_service_cannot_confirm():
    cluster = SimCluster(3)
    writer = await cluster.join(add_quorum_timeout_s=20).client.create(E3)
    cluster.service.up = False
    with pytest.raises(AddTimeoutError):
        await writer.append(b"x")
    cluster.service.up = True
    await writer.close()
    await cluster.close()


@pytest.mark.parametrize("mending", [False, True])
@simulated
async def test_a_close_that_the_metadata_service_does_not_take_has_a_deadline(mending):
    cluster = SimCluster(4)
    writer = await cluster.join(close_timeout_s=20).client.create(E3)
    entries = await add(writer, 5)
    cluster.service.up = False
    if mending:
        on_ensemble(cluster, writer)[0].crash()
        await asyncio.sleep(5)  # the replacement of the bookie is under way
    closing = [asyncio.ensure_future(writer.close()) for _ in range(2)]
    for each in closing:
        with pytest.raises(MetadataUnavailableError):
            await each
    with pytest.raises(LedgerClosedError):
        await writer.append(b"late")
    cluster.service.up = True
    reader = await cluster.join().client.open(writer.ledger_id)
    assert await contents(reader) == entries
    await cluster.close()
