"""Gaps in the coverage of the index: entries that no bucket has are examined, however often the index closes before."""

from magnetar.delayed.position_ranges import PositionRanges
from magnetar.storage.errors import StorageUnavailableError
from magnetar.storage.position import Position
from tests.delayed.world import World


class UnreadableLog:
    """A cursor of a log that cannot be read at present."""

    def read(self, *_):
        raise StorageUnavailableError("no answer")

    def close(self):
        """Do nothing."""


def test_a_gap_whose_scan_a_close_cuts_off_is_examined_at_the_next_load():
    world = World()
    world.subscribe("sub")
    positions = []
    for _ in range(4):
        positions += world.publish(*range(60_000, 60_008))
        world.settle()
    assert len(world.buckets) > 2
    record = world.buckets[1].record
    del world.ledgers._ledgers[record.ledger_id]
    first, last = record.range
    world.crash()
    world.log.new_read_cursor, readable = lambda _start: UnreadableLog(), world.log.new_read_cursor
    world.start(turn=False)
    world.turn(100)
    world.run(world.index.close())
    world.crash()
    world.log.new_read_cursor = readable
    world.start()
    for position in positions:
        assert world.run(world.index.cancel(position)), f"{position} of {first} to {last}"
    world.close()


def test_the_positions_between_ranges_and_behind_them_are_gaps():
    ranges = PositionRanges([(Position(1, 2), Position(1, 4)), (Position(1, 8), Position(2, 3))])
    assert ranges.gaps_up_to(Position(3, 0)) == ((Position(1, 5), Position(1, 7)), (Position(2, 4), Position(3, 0)))
    assert ranges.gaps_up_to(Position(2, 3)) == ((Position(1, 5), Position(1, 7)),)
    assert PositionRanges().gaps_up_to(Position(2, 3)) == ()


def test_the_last_entry_of_a_scan_that_a_close_cuts_off_is_examined_at_the_next_load():
    """The index is live from the last entry on and counted that entry as covered: no later load examined the entry."""
    world = World()
    world.subscribe("sub")
    world.publish(*range(60_000, 60_008))
    world.settle()
    positions = world.publish(*range(60_000, 60_003))
    world.crash()
    world.log.new_read_cursor, readable = lambda _start: UnreadableLog(), world.log.new_read_cursor
    world.start(turn=False)
    world.turn(100)
    assert world.index.stats().coverage_gap_entries == 2
    world.run(world.index.close())
    world.crash()
    world.log.new_read_cursor = readable
    world.start()
    assert world.index.stats().coverage_gap_entries == 0
    for position in positions:
        assert world.run(world.index.cancel(position)), position
    world.close()


def test_entries_of_a_gap_that_were_examined_are_not_examined_after_each_crash():
    """Only the entries behind the stored coverage made the index store its coverage."""
    world = World(uncovered_entries=5)
    world.subscribe("sub")
    for _ in range(4):
        world.publish(*range(60_000, 60_002), *[600_000] * 6)
        world.settle()
    del world.ledgers._ledgers[world.buckets[1].record.ledger_id]
    scans, readable = [], world.log.new_read_cursor
    world.log.new_read_cursor = lambda start: scans.append(start) or readable(start)
    world.clock.now += 100_000  # some entries are due: the others are too few for a seal
    world.restart()
    assert len(scans) == 1
    world.advance(5_000)
    for _ in range(3):
        world.restart()
    assert len(scans) == 1
    world.close()
