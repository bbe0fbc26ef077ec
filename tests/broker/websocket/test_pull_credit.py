"""Permits of a session in pull mode."""

import random

import pytest

from magnetar.broker.websocket.pull_credit import PullCredit


class Reads:
    """The counts of Apache Pulsar's handler: each read ends with a message, and begins the next while messages are due."""

    def __init__(self):
        self.pending = self.reads = 0

    def permit(self, permits):
        found, self.pending = self.pending, self.pending - permits
        if found >= 0:
            self.reads += 1

    def message(self):
        """Whether a message that comes now is delivered."""
        if not self.reads:
            return False
        self.pending += 1
        if self.pending >= 0:
            self.reads -= 1
        return True


def room_of(reads):
    end, count = Reads(), 0
    end.pending, end.reads = reads.pending, reads.reads
    while end.message():
        count += 1
    return count


@pytest.mark.parametrize("seed", range(200))
def test_the_room_is_that_of_apache_pulsar(seed):
    chance = random.Random(seed)
    credit, reads = PullCredit(), Reads()
    for _ in range(30):
        if chance.random() < 0.5:
            permits, before = chance.choice([0, 0, 1, 1, 2, 5, -1, -3]), credit.room
            grown = credit.permit(permits)
            reads.permit(permits)
            assert grown == max(credit.room - before, 0)
        elif reads.message():
            credit.delivered()
        assert credit.room == room_of(reads)


def test_permits_have_a_limit():
    credit = PullCredit()
    for _ in range(3):
        credit.permit(2**31 - 1)
    assert credit.room == 2**31 - 1
