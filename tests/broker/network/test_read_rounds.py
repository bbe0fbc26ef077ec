"""The bytes that all connections together read in a round of the event loop."""

from unittest.mock import Mock

import pytest

from magnetar.broker.network.read_rounds import READ_IN_ONE_ROUND, READS_IN_ONE_ROUND, ReadRounds
from tests.broker.handlers.test_request_turns import Loop

MOST = 1 << 20
FEW = 16 * 1024


class Reader:
    """A connection with endless bytes: it reads in each round until it has to wait."""

    def __init__(self, loop, rounds):
        self._loop, self._rounds = loop, rounds
        self.may_read, self.read = True, 0

    def round(self):
        """Read as a socket does whose buffer was full: at most 32 times."""
        for _ in range(32 if self.may_read else 0):
            size = self._rounds.share
            self.read += size
            if self._rounds.count(self._loop, size):
                self.may_read = False
                self._rounds.wait(self.go_on)
                return

    def go_on(self):
        self.may_read = True


@pytest.mark.parametrize("number", [9, 100, 500, 3000])
def test_many_connections_share_the_bytes_of_a_round_evenly(number):
    """A round read a MiB of each connection: 0.2 s of processor time beside a hundred of them."""
    loop, rounds = Loop(), ReadRounds(MOST)
    readers = [Reader(loop, rounds) for _ in range(number)]
    before, sizes, begun = 0, [], []
    for number_of_round in range(60):
        if number_of_round == 2:  # a connection may read the whole of the first round
            begun = [reader.read for reader in readers]
        for reader in readers:
            reader.round()
        read = sum(reader.read for reader in readers)
        sizes.append(read - before)
        before = read
        loop.run_round()
    assert sizes[0] <= READ_IN_ONE_ROUND + MOST + number * FEW
    assert max(sizes[1:]) <= READ_IN_ONE_ROUND + MOST
    assert min(sizes) >= READ_IN_ONE_ROUND // 2, "the round is used"
    later = [reader.read - least for reader, least in zip(readers, begun, strict=True)]
    assert max(later) <= 1.5 * min(later), "evenly"


def test_few_connections_read_whole_buffers():
    loop, rounds = Loop(), ReadRounds(MOST)
    for _ in range(20):
        for _ in range(7):
            assert rounds.share == MOST
            assert not rounds.count(loop, MOST)
        loop.run_round()
    loop.run_round()
    assert not loop.due


def test_connections_that_stop_leave_their_shares_to_others():
    loop, rounds = Loop(), ReadRounds(MOST)
    for _ in range(100):
        rounds.count(loop, rounds.share)
    assert rounds.share == FEW
    loop.run_round()
    assert rounds.share == READ_IN_ONE_ROUND // 100
    assert not rounds.count(loop, FEW), "less than its share"
    loop.run_round()
    loop.run_round()
    assert rounds.share == MOST
    assert not loop.due


def test_a_connection_that_cannot_read_on_keeps_no_other_waiting():
    loop, rounds = Loop(), ReadRounds(MOST)
    reported, readers = [], [Reader(loop, rounds) for _ in range(3)]
    loop.call_exception_handler = reported.append
    rounds.count(loop, READ_IN_ONE_ROUND)
    readers[1].may_read = readers[2].may_read = False
    error = RuntimeError("the transport is gone")
    rounds.wait(readers[0].go_on)
    rounds.wait(Mock(side_effect=error))
    rounds.wait(readers[1].go_on)
    rounds.wait(Mock(side_effect=error))
    rounds.wait(readers[2].go_on)
    loop.run_round()
    assert readers[1].may_read
    assert readers[2].may_read
    assert [report["exception"] for report in reported] == [error, error]


def test_a_round_handles_a_bounded_number_of_reads_however_small():
    loop, rounds = Loop(), ReadRounds(MOST)

    def handled(reads):
        """How many of these reads a round handles."""
        found = 0
        for _ in range(reads):
            rounds.reads += 1
            found += not (rounds.reads >= rounds.few and rounds.is_crowded(loop))
        loop.run_round()
        return found

    for _ in range(10):
        assert handled(100) == 100
    assert not loop.due
    for _ in range(3):
        assert READS_IN_ONE_ROUND <= handled(5000) <= rounds.few + READS_IN_ONE_ROUND
    assert handled(500) == 500
