"""The process ends, or a call fails, at every step of seal, merge, delete and rebuild: nothing is lost or left."""

import asyncio

import pytest
from pyroaring import BitMap

from magnetar.delayed.catalogue import catalogue_path, decode
from magnetar.delayed.delay_settings import DelayPolicy
from magnetar.storage.errors import StorageClosedError
from magnetar.storage.position import EARLIEST, Position
from tests.delayed.world import NAME, World
from tests.delayed.world_log import Cursor


def record_of(world):
    node = world.metadata._nodes.get(catalogue_path(NAME))
    return None if node is None else decode(node[0])


def seal(world):
    world.publish(*range(20_000, 20_008))
    world.settle()


def merge(world):
    for _ in range(3):
        seal(world)


def delete(world):
    seal(world)
    world.advance(30_000)


def rebuild(world):
    """A bucket in service turns out to be damaged when its next segment is read."""
    seal(world)
    for writer in world.ledgers._ledgers.values():
        for entry in range(1, writer.last_add_confirmed + 1):
            world.ledgers.corrupt.add(Position(writer.ledger_id, entry))
    world.advance(19_000)
    world.advance(15_000)


def thin_out(world):
    """More than half of two buckets fires: the remaining entries become a single bucket."""
    for _ in range(2):
        world.publish(*range(5_000, 5_005), *range(60_000, 60_003))
        world.settle()
    world.advance(6_000)


PROCEDURES = {
    "seal": (seal, 64),
    "merge": (merge, 2),
    "thin out": (thin_out, 64),
    "delete": (delete, 64),
    "rebuild": (rebuild, 64),
}


def calls_of(name):
    """The calls to the stores that the procedure makes."""
    procedure, max_buckets = PROCEDURES[name]
    world = World(max_buckets=max_buckets)
    world.subscribe("sub")
    world.faults.calls.clear()
    procedure(world)
    calls = list(world.faults.calls)
    world.close()
    return calls


STEPS = [(name, k, when) for name in PROCEDURES for k in range(len(calls_of(name))) for when in ("before", "after")]


def finish(world):
    """Heal, wait, and check that all entries came once, and that the stores contain exactly the ledgers of the
    catalogue.
    """
    world.faults.script.clear()
    subscription = world.subscriptions["sub"]
    world.advance(70_000)
    world.advance(70_000)
    assert not subscription.early and not subscription.twice and not world.problems
    assert set(world.log.positions()) == set(subscription.outstanding)
    assert not world.firing.pending and not len(world.firing.mutable)
    world.run(world.index.close())
    record = record_of(world)
    named = set() if record is None else {b.ledger_id for b in record.buckets} | set(record.doomed)
    assert world.stored() <= named
    assert record is None or {b.ledger_id for b in record.buckets} <= world.stored()
    world.close()


@pytest.mark.parametrize(("name", "step", "when"), STEPS)
def test_crash(name, step, when):
    procedure, max_buckets = PROCEDURES[name]
    world = World(max_buckets=max_buckets)
    world.subscribe("sub")
    world.faults.calls.clear()
    world.faults.crash_at = (step, when)
    procedure(world)
    world.restart()
    finish(world)


@pytest.mark.parametrize(("name", "step", "when"), STEPS)
def test_failure(name, step, when):
    procedure, max_buckets = PROCEDURES[name]
    world = World(max_buckets=max_buckets)
    world.subscribe("sub")
    world.faults.calls.clear()
    world.faults.script = ["ok"] * step + [when]
    procedure(world)
    assert world.faults.calls[step] == calls_of(name)[step]
    finish(world)


def test_the_steps_are_those_of_the_documentation():
    assert "create put append close put" in " ".join(calls_of("seal"))
    for name in ("merge", "thin out"):
        merging = calls_of(name)
        assert "read" in merging and "delete" in merging
        assert merging.index("delete") > len(merging) - 1 - merging[::-1].index("close")
    assert "delete" in calls_of("delete") and "read" in calls_of("rebuild")


def test_two_owners_do_not_overwrite_each_other():
    world = World()
    world.subscribe("sub")
    seal(world)
    value, version = world.metadata._nodes[catalogue_path(NAME)]
    world.metadata._nodes[catalogue_path(NAME)] = (value, version + 5)
    seal(world)
    assert world.metadata._nodes[catalogue_path(NAME)] == (value, version + 5)
    world.advance(60_000)
    assert set(world.subscriptions["sub"].outstanding) == set(world.log.positions())
    world.close()


def test_a_store_that_is_away_costs_nothing_but_persistence():
    world = World(policy=DelayPolicy(tick_ms=1, strict=True))
    world.subscribe("sub")
    world.faults.outage = True
    world.publish(*range(5_000, 5_020))
    world.advance(10_000)
    assert len(world.subscriptions["sub"].outstanding) == 20
    world.faults.outage = False
    finish(world)


def test_cancellations_at_the_same_time_are_all_stored():
    world = World()
    world.publish(*[20_000] * 9)
    world.settle()

    async def both():
        return await asyncio.gather(*(world.index.cancel(Position(0, k)) for k in (2, 4)))

    assert world.run(both()) == [True, True]
    assert BitMap.deserialize(record_of(world).cancelled["0"]) == BitMap([2, 4])
    world.close()


def test_cancellations_of_one_entry_at_the_same_time_all_succeed():
    world = World()
    world.publish(*[20_000] * 9)
    world.settle()

    async def cancel():
        return await asyncio.gather(*(world.index.cancel(Position(0, 2)) for _ in range(3)))

    assert world.run(cancel()) == [True, True, True]
    assert BitMap.deserialize(record_of(world).cancelled["0"]) == BitMap([2])
    world.close()


def test_a_repeated_cancellation_acknowledges_the_entry_again():
    """The process ends when the cancellation is stored, and the acknowledgements are not. An Exclusive subscription,
    which does not wait for delays, would deliver the entry behind the answer to the repeated cancellation.
    """
    world = World()
    subscription = world.subscribe("sub")
    (position,) = world.publish(20_000)
    world.settle()
    assert world.run(world.index.cancel(position))
    subscription.cursor = Cursor(world.log, EARLIEST)
    world.restart()
    assert world.run(world.index.cancel(position))
    assert subscription.cursor.is_deleted(position)
    world.close()


@pytest.mark.parametrize("procedure", [seal, merge])
def test_a_cancellation_at_any_step_of_other_work_leaves_every_bucket_stored(procedure):
    for turns in range(0, 24, 2):
        world = World(max_buckets=2)
        if procedure is merge:
            seal(world)
            seal(world)
        (position,) = world.publish(40_000)
        world.publish(*range(20_000, 20_008))
        world.turn(turns)
        cancelling = world.loop.create_task(world.index.cancel(position))
        world.settle()
        assert cancelling.result()
        world.advance(1_000)
        world.settle()
        record = record_of(world)
        assert {b.ledger_id for b in record.buckets} == {b.record.ledger_id for b in world.buckets} == world.stored()
        assert not record.doomed
        assert world.firing.counters.rebuilds == 0
        world.close()


def test_a_cancellation_waits_until_the_buckets_are_in_service():
    world = World()
    (position,) = world.publish(20_000)
    seal(world)
    world.crash()
    world.start(turn=False)
    world.faults.outage = True
    cancelling = world.loop.create_task(world.index.cancel(position))
    world.settle()
    assert not cancelling.done()
    world.faults.outage = False
    world.advance(10_000)
    assert cancelling.result()
    assert BitMap.deserialize(record_of(world).cancelled["0"]) == BitMap([position.entry_id])
    world.close()


def test_a_cancellation_that_waits_for_buckets_ends_with_the_index():
    world = World()
    (position,) = world.publish(20_000)
    seal(world)
    world.crash()
    world.start(turn=False)
    world.faults.outage = True
    cancelling = world.loop.create_task(world.index.cancel(position))
    world.settle()
    assert not cancelling.done()
    world.run(world.index.close())
    world.turn(10)
    with pytest.raises(StorageClosedError):
        cancelling.result()
    with pytest.raises(StorageClosedError):
        world.run(world.index.cancel(position))
    world.close()


def test_a_cancellation_under_way_is_stored_before_the_index_is_closed():
    for turns in range(12):
        world = World()
        first, second, *_ = world.publish(*range(20_000, 20_008))
        world.settle()
        cancelling = [world.loop.create_task(world.index.cancel(each)) for each in (first, second)]
        world.turn(turns)
        world.run(world.index.close())
        stored = world.metadata._nodes[catalogue_path(NAME)]
        world.turn(20)
        assert all(each.done() for each in cancelling)
        assert world.metadata._nodes[catalogue_path(NAME)] == stored, turns
        world.close()
