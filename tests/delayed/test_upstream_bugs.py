"""Bugs of Apache Pulsar's trackers that could exist in this design too, each by its number there, first part."""

from magnetar.delayed.catalogue import catalogue_path, decode
from magnetar.delayed.delay_settings import DelayPolicy
from magnetar.delayed.snapshot_format import segment_ends
from magnetar.delayed.sorted_run import Columns
from magnetar.storage.position import Position
from tests.delayed.world import NAME, World


def world_with(*delays, subscription="sub", **settings):
    world = World(**settings)
    world.subscribe(subscription)
    world.publish(*delays)
    world.settle()
    return world, world.subscriptions[subscription]


def test_6403_14740_full_disconnect_gives_no_duplicates():
    world, sub = world_with(*[1000] * 6)
    sub.poll()
    sub.disconnect()
    world.advance(2000)
    sub.connect()
    assert len(sub.poll()) == 6 and not sub.twice
    world.close()


def test_8689_clear_backlog_leaves_nothing_to_deliver():
    world, sub = world_with(*[1000] * 20)
    sub.poll()
    sub.ack(list(world.log.positions()))
    assert sub.view.pending_count == 0
    world.advance(2000)
    assert not sub.outstanding
    world.close()


def test_10078_18098_positions_taken_are_due_again_after_a_rewind():
    world, sub = world_with(*[1000] * 6)
    sub.poll()
    world.advance(2000, poll=False)
    assert len(sub.view.take_due(3)) == 3  # and the read of them fails
    sub.rewind()
    assert len(sub.poll()) == 6
    world.close()


def test_16490_19706_segments_are_bounded_by_number():
    times = Columns.of((5, 1, k) for k in range(10_000)).times
    ends = segment_ends(times, 100, 300_000)
    assert max(b - a for a, b in zip([0, *ends], ends, strict=False)) == 100 and ends[-1] == 10_000


def test_19615_time_steps_are_milliseconds():
    times = Columns.of((k * 1000, 1, k) for k in range(2_000)).times
    assert segment_ends(times, 5_000, 600_000)[0] == 600


def test_19751_26241_any_bucket_limit_holds():
    for limit in (1, 2, 3, 4):
        world = World(max_buckets=limit)
        for _ in range(9):
            world.publish(*[3_600_000 + 7 * k for k in range(8)])
            world.settle()
        assert 1 <= len(world.buckets) <= limit
        assert world.index.pending_count == 72
        world.close()


def test_19801_26420_a_reset_does_not_touch_shared_entries():
    world, sub = world_with(*range(5_000, 5_024))
    world.subscribe("other")
    world.poll()
    sub.seek(Position(0, 3))
    assert world.index.pending_count == 24
    world.advance(6000)
    assert len(world.subscriptions["other"].outstanding) == 24 and len(sub.outstanding) == 21
    world.close()


def test_20136_26117_bitmaps_are_compact():
    world = World(min_index_count=50_000, max_segment_indexes=5_000, slice_indexes=5_000)
    world.publish(*[60_000] * 50_000)
    world.settle()
    assert world.firing.pending.memory_bytes < 500
    world.close()


def test_22367_pending_of_an_unknown_ledger_is_none():
    world, sub = world_with(5)
    assert sub.view.pending(77) is None
    world.close()


def test_22735_26160_one_bad_snapshot_costs_its_range_only():
    world = World()
    for _ in range(3):
        world.publish(*range(20_000, 20_008))
        world.settle()
    victim = world.buckets[1].record.ledger_id
    world.run(world.index.close())
    world.ledgers.corrupt.add(Position(victim, 0))
    world.restart()
    stats = world.index.stats()
    assert stats.rebuilds == 1 and stats.pending == 24
    assert victim not in {b.record.ledger_id for b in world.buckets} and len(world.buckets) >= 2
    world.subscribe("sub")
    world.advance(30_000)
    assert len(world.subscriptions["sub"].outstanding) == 24
    world.close()


def test_22802_26238_every_ledger_is_named_before_it_is_written():
    world = World()
    world.faults.script = ["ok"] * 3
    for step in range(12):
        other = World()
        other.faults.crash_at = (step, "after")
        other.publish(*[50_000] * 8)
        other.settle()
        node = other.metadata._nodes.get(catalogue_path(NAME))
        record = decode(node[0]) if node else None
        named = {b.ledger_id for b in record.buckets} | set(record.doomed) if record else set()
        assert other.stored() <= named
        other.close()
    world.close()


def test_23353_26251_counts_are_those_of_the_structures():
    world, sub = world_with(*[1000] * 10, *[None] * 5)
    sub.poll()
    for position in list(world.firing.pending.positions()):
        ledger_id, entry_id = position
        held = sub.view.offer(ledger_id, [(entry_id, world.log.time(position))])
        assert entry_id in held  # again and again: nothing is counted twice
    assert sub.view.pending_count == 10 == world.index.pending_count
    world.advance(2000)
    assert sub.view.pending_count == 0 == world.index.pending_count
    world.close()


def test_25984_26240_trimmed_ledgers_take_their_buckets_along_and_no_others():
    world, sub = world_with(*[86_400_000] * 8)
    world.log.roll()
    world.publish(*[86_400_000] * 8)
    world.settle()
    sub.ack([p for p in world.log.positions() if p.ledger_id == 0])
    world.log.trim([sub.cursor.mark_delete])
    world.advance(60_000)
    assert [b.record.first[0] for b in world.buckets] == [1]
    assert world.index.pending_count == 8 and len(world.stored()) == 1
    world.close()


def test_25996_26012_strict_delivery_does_not_stall_at_the_edge():
    world = World(policy=DelayPolicy(tick_ms=1000, strict=True))
    sub = world.subscribe("sub")
    world.publish(1, 999, 1000, 1001, 1023, 1024)
    sub.poll()
    world.advance(1100)
    assert len(sub.outstanding) == 6 and not sub.early
    world.close()


def test_26188_nothing_is_given_before_it_may_be():
    world = World(policy=DelayPolicy(tick_ms=1000, strict=False))
    sub = world.subscribe("sub")
    world.publish(3000)
    assert sub.poll() == []
    world.advance(1999)
    assert not sub.view.has_due() and not sub.outstanding
    world.advance(1001)  # a tick early is allowed, not aimed at: the timer is set for the time itself
    assert len(sub.outstanding) == 1 and not sub.early
    world.close()


def test_26103_recovery_holds_no_request():
    world = World()
    world.publish(*[60_000] * 40)
    world.settle()
    world.run(world.index.close())
    world.crash()
    world.start(turn=False)  # nothing of the buckets has been read yet
    sub = world.subscribe("sub")
    world.publish(None)
    assert [p for p in sub.poll() if world.log.time(p) is None]
    world.settle()
    world.advance(70_000)
    assert len(sub.outstanding) == 41 and not sub.twice and not sub.early
    world.close()


def test_26103_dispatch_waits_for_buckets_but_not_for_long():
    for outage in (False, True):
        world = World()
        world.publish(*[60_000] * 40)
        world.settle()
        world.run(world.index.close())
        world.crash()
        world.start(turn=False)
        sub = world.subscribe("sub")
        world.faults.outage = outage
        assert sub.view.pauses_reading and not sub.woken
        world.advance(900, poll=False)
        assert sub.view.pauses_reading == outage and bool(sub.woken) != outage
        world.advance(100, poll=False)
        assert not sub.view.pauses_reading and sub.woken
        world.faults.outage = False
        world.advance(70_000)
        assert len(sub.outstanding) == 40 and not sub.twice
        world.close()


def test_26230_an_entry_that_is_due_when_read_is_not_pending():
    world = World()
    sub = world.subscribe("sub")
    world.publish(10)
    world.clock.now += 50  # due, and the timer has not run
    assert sub.poll() == []  # the bit of the entry is set: the entry fires and is not lost
    world.settle()
    assert len(sub.poll()) == 1
    world.close()


def test_26239_26401_a_failed_merge_leaves_the_sources():
    world = World(max_buckets=1)
    world.publish(*[50_000] * 8)
    world.settle()
    before = world.buckets[0].record.ledger_id
    world.publish(*[50_000] * 8)
    world.turn(1)
    world.faults.script = ["ok"] * 6 + ["before"] * 3
    world.turn(120)
    assert before in world.stored()
    world.faults.script.clear()
    sub = world.subscribe("sub")
    world.advance(100_000)
    assert len(sub.outstanding) == 16
    world.close()


def test_26280_a_segment_whose_tail_is_acknowledged_is_followed_by_the_next():
    world, sub = world_with(*range(10_000, 10_012), max_segment_indexes=3)
    sub.ack([Position(0, k) for k in range(3)])
    world.advance(11_000)
    assert len(sub.outstanding) == 9
    world.close()


def test_policy_switched_off_delivers_everything():
    world, sub = world_with(*[86_400_000] * 20)
    sub.poll()
    world.set_policy(active=False)
    world.advance(100)
    assert len(sub.outstanding) == 20 and world.index.pending_count == 0
    world.advance(60_000)
    assert not world.buckets and not world.stored()
    world.close()


def test_a_cancelled_message_is_never_delivered():
    world, sub = world_with(*[10_000] * 9)
    assert world.run(world.index.cancel(Position(0, 4)))
    assert world.run(world.index.cancel(Position(0, 4)))
    world.restart()
    world.subscribe("late")
    world.advance(20_000)
    assert len(sub.outstanding) == 8 == len(world.subscriptions["late"].outstanding)
    assert not world.run(world.index.cancel(Position(0, 5)))  # the entry has fired
    world.publish(10_000)
    assert not any(world.run(world.index.cancel(Position(0, k))) for k in (-1, 1 << 32, 1 << 63))
    sub.seek(Position(0, 0))
    assert len(sub.poll()) == 8
    world.close()
