"""Bugs of Apache Pulsar's bucket tracker, by their numbers there, second part: seals, merges and trims under way.

Where the others are shown: #8703 and #20233 (Key_Shared) in tests/blackbox/test_delayed.py; #20099, #22716, #23991 and
#24380 (acknowledged holes) in tests/blackbox/test_kill.py and tests/storage/managed/cursors/test_state.py. Races between threads
(#23190, #24542, #25346, #25681) have no counterpart: all state changes on one loop.
"""

import asyncio

import msgspec
import pytest
from structlog.testing import capture_logs

from magnetar.delayed import bucket_keeper, bucket_merge, snapshot_format
from magnetar.delayed.pending_entries import PendingEntries, bitmap_bytes
from magnetar.delayed.sorted_run import Columns
from magnetar.storage.position import Position
from tests.delayed.world import World


def seal_under_way(*delays, subscription="sub", **settings):
    """A world whose index has frozen the delayed entries and not yet stored them."""
    world = World(**settings)
    sub = world.subscribe(subscription)
    world.publish(*delays)
    for _ in range(50):
        if world.firing.mutable._frozen:
            return world, sub
        world.turn()
    raise AssertionError("no seal began")


def drained(world, sub, count):
    world.advance(100_000)
    assert len(sub.outstanding) == count and not sub.twice and not sub.early and not world.problems
    world.close()


def test_5391_due_entries_may_be_gone_when_they_are_taken():
    world = World()
    sub = world.subscribe("sub")
    world.publish(*[1000] * 6)
    sub.poll()
    world.advance(2000, poll=False)
    assert sub.view.has_due()
    sub.view.clear()
    assert sub.view.take_due(10) == []
    world.close()


def test_7836_25990_26053_nothing_waits_for_a_seal():
    world, sub = seal_under_way(*range(5_000, 5_008))
    assert world.index.stats().pending == 8 == world.index.pending_count == sub.view.pending_count
    assert world.index.memory_bytes > 0 and world.index.earliest_ms is not None
    world.publish(100, None)
    assert [world.log.time(p) for p in sub.poll()] == [None]
    world.unload()  # closes while the seal is under way
    drained(world, sub, 10)


def test_14721_entries_that_fire_together_are_in_the_order_of_their_times():
    world = World(slice_indexes=1000)
    sub = world.subscribe("sub")
    world.publish(900, 500, 700, 500, 100, 900)
    sub.poll()
    world.clock.now += 5000
    world.advance(100, poll=False)
    taken = sub.view.take_due(100)
    assert [p.entry_id for p in taken] == [4, 1, 3, 2, 0, 5]
    world.close()


def test_19124_pending_entries_are_not_read_and_others_are():
    world = World()
    sub = world.subscribe("sub")
    offered = []
    world.publish(*[60_000, None] * 20)
    offer = sub.view.offer
    sub.view.offer = lambda time, position: offered.append(position) or offer(time, position)
    assert len(sub.poll()) == 20 and offered == []
    drained(world, sub, 40)


def test_19615_a_merge_in_the_middle_of_a_segment_gives_nothing_twice():
    world = World(max_buckets=2, max_segment_indexes=7)
    sub = world.subscribe("sub")
    for _ in range(2):
        world.publish(*range(40_000, 40_008))
        world.settle()
    sub.poll()
    world.advance(40_003)  # the first segments are partly fired
    world.publish(*range(40_000, 40_008))
    world.settle()
    assert len(world.buckets) <= 2
    drained(world, sub, 24)


def test_19873_delivery_goes_on_while_buckets_are_merged(monkeypatch):
    world = World(max_buckets=1)
    sub = world.subscribe("sub")
    merging = []
    merge = bucket_keeper.BucketKeeper.merge

    async def watched(keeper, sources):
        merging.append(True)
        await merge(keeper, sources)
        merging.pop()

    monkeypatch.setattr(bucket_keeper.BucketKeeper, "merge", watched)
    for _ in range(2):
        world.publish(*range(50_000, 50_008))
        world.turn(3)
    for _ in range(500):
        if merging:
            break
        world.turn()
    assert merging
    world.publish(None, 1)
    world.clock.now += 5
    got = []
    while merging:
        world.turn()
        got += sub.poll() if len(got) < 2 else []
        if len(got) == 2:
            break
    assert len(got) == 2 and merging, "both came before the merge was done"
    drained(world, sub, 18)


@pytest.mark.parametrize("outcome", ["ok", "before", "after"])
def test_20111_every_snapshot_ledger_is_closed(outcome):
    world = World(max_buckets=2)
    world.subscribe("sub")
    for k in range(8):
        world.faults.script = ["ok"] * (k + 2) + [outcome]
        world.publish(*range(40_000 + k, 40_008 + k))
        world.settle()
    world.advance(10_000)
    world.faults.script.clear()
    world.settle()
    assert all(writer.closed for writer in world.ledgers._ledgers.values())
    drained(world, world.subscriptions["sub"], 64)


def test_23611_24429_no_publish_and_no_firing_counts_everything(monkeypatch):
    world = World()
    sub = world.subscribe("sub")

    def count(_self):
        raise AssertionError("counted")

    monkeypatch.setattr(PendingEntries, "__len__", count)
    monkeypatch.setattr(PendingEntries, "memory_bytes", property(count))
    world.publish(*range(1000, 1020))
    sub.poll()
    drained(world, sub, 20)


def test_23699_a_lone_value_is_not_taken_for_four_bytes():
    pending = PendingEntries()
    for ledger_id in range(100):
        pending.add(ledger_id, 5)
    assert pending.memory_bytes >= 100 * 100
    assert bitmap_bytes(pending.of(3)) == pending.memory_bytes // 100


def test_25076_an_entry_that_is_added_again_counts_once():
    world = World(min_index_count=100)
    sub = world.subscribe("sub")
    (position,) = world.publish(5_000)
    for _ in range(5):
        entries = [(position.entry_id, world.log.time(position))]
        assert world.firing.hold_all(position.ledger_id, entries)
        world.firing.found_all(position.ledger_id, entries, repair=True)
    assert world.index.pending_count == 1
    sub.poll()
    drained(world, sub, 1)


def test_buckets_that_are_used_up_when_their_merge_begins_to_read_are_dropped(monkeypatch):
    world = World(max_buckets=1)
    sub = world.subscribe("sub")
    merged = []
    write_merged = bucket_merge.write_merged

    async def late(writer, sources, *others):
        merged.append(len(sources))
        world.clock.now += 100_000
        world.index.clock_moved()
        while not all(source.exhausted for source in sources):  # noqa: ASYNC110 - a turn of the world's loop
            await asyncio.sleep(0)
        return await write_merged(writer, sources, *others)

    monkeypatch.setattr(bucket_keeper, "write_merged", late)
    for _ in range(2):
        world.publish(*range(50_000, 50_008))
        world.settle()
    assert merged == [2] and not world.buckets
    world.poll()
    drained(world, sub, 16)


def test_26251_a_merged_bucket_holds_all_of_its_sources():
    world = World(max_buckets=1, max_segment_indexes=2)
    for k in range(4):
        world.publish(*range(40_000 + k, 40_008 + k))
        world.settle()
    assert [b.record.count for b in world.buckets] == [32]
    world.unload()  # now only the merged snapshot knows
    drained(world, world.subscribe("sub"), 32)


def test_26260_26309_ledgers_are_trimmed_while_their_bucket_is_made():
    world, sub = seal_under_way(*range(50_000, 50_008))
    world.log.roll()
    world.publish(*[60_000] * 3)
    sub.ack([p for p in world.log.positions() if p.ledger_id == 0])
    world.log.trim([sub.cursor.mark_delete])
    world.settle()
    world.advance(31_000)
    assert not world.buckets and not world.stored() and world.index.pending_count == 3
    drained(world, sub, 3)


def test_24603_long_work_is_done_in_small_pieces(monkeypatch):
    sizes = []
    add = snapshot_format.SnapshotEncoder.add

    def watched(encoder, columns):
        sizes.append(columns.rows)
        add(encoder, columns)

    monkeypatch.setattr(snapshot_format.SnapshotEncoder, "add", watched)
    world = World(min_index_count=30_000, max_segment_indexes=5_000, slice_indexes=2_048, max_buckets=1)
    for _ in range(2):
        world.publish(*[60_000 + k % 977 for k in range(30_000)])
        world.settle()
    assert sum(sizes) == 30_000 * 4 and max(sizes) <= bucket_merge.WINDOW_INDEXES
    world.close()


def test_entries_of_a_snapshot_are_bounded(monkeypatch):
    """Reading: with all bitmaps in one entry a large bucket exceeds the limit of an entry."""
    monkeypatch.setattr(snapshot_format, "_MAX_BITMAPS_BYTES", 500)
    encoder = snapshot_format.SnapshotEncoder(100, 1000)
    encoder.add(Columns.of((5, ledger_id, 0) for ledger_id in range(300)))
    entries, directory = encoder.finish()
    assert directory.bitmap_entries > 5 and directory.segments == 3
    found = [pair for e in entries[3:-1] for pair in snapshot_format.decode_bitmaps(e, directory)]
    assert [ledger_id for ledger_id, _ in found] == list(range(300))


@pytest.mark.parametrize("how", ["deleted", "older layout"])
def test_22802_a_snapshot_that_is_gone_costs_its_range_only(how):
    world = World()
    for _ in range(3):
        world.publish(*range(20_000, 20_008))
        world.settle()
    victim = world.buckets[1].record
    if how == "deleted":
        world.run(world.index.close())
        del world.ledgers._ledgers[victim.ledger_id]
    else:
        world.buckets[1].record = type(victim)(*[getattr(victim, f) for f in victim.__struct_fields__[:-1]])
        world.index._keeper.dirty = True
        world.run(world.index.close())
    world.crash()
    world.start()
    assert world.index.stats().rebuilds == 1 and world.index.pending_count == 24
    assert victim.ledger_id not in {b.record.ledger_id for b in world.buckets} and len(world.buckets) >= 2
    drained(world, world.subscribe("sub"), 24)


def test_snapshots_of_an_earlier_version_are_made_again_without_an_error():
    """An upgrade is no damage: its first start logged an error for each bucket."""
    world = World()
    for _ in range(3):
        world.publish(*range(20_000, 20_008))
        world.settle()
    for bucket in world.buckets:
        bucket.record = msgspec.structs.replace(bucket.record, entries=0, bitmap_entries=0)
    world.index._keeper.dirty = True
    world.run(world.index.close())
    with capture_logs() as logs:
        world.restart()
    assert {line["event"] for line in logs if "snapshot" in line["event"]} == {"delayed_index.snapshot_outdated"}
    assert {line["log_level"] for line in logs} == {"info"}
    assert world.index.pending_count == 24
    drained(world, world.subscribe("sub"), 24)


def test_26240_a_bucket_is_kept_while_any_of_its_ledgers_is():
    world = World(min_index_count=16)
    sub = world.subscribe("sub")
    world.publish(*[86_400_000] * 8)
    world.log.roll()
    world.publish(*[86_400_000] * 8)
    world.settle()
    (bucket,) = world.buckets
    assert bucket.record.first == Position(0, 0) and bucket.record.last == Position(1, 7)
    sub.ack([p for p in world.log.positions() if p.ledger_id == 0])
    world.log.trim([sub.cursor.mark_delete])
    world.advance(60_000)
    assert world.buckets == [bucket] and world.index.pending_count == 8
    world.close()
