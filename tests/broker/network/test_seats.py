import pytest

from magnetar.broker.descriptors import DescriptorShares, process_limit, raise_limit
from magnetar.broker.network.seats import Seats


def taken(seats, closed, name):
    """Take a seat for an idle connection, which leaves the seat when it is closed."""
    seat = seats.take()

    def close():
        closed.append(name)
        seat.leave()

    seat.idle(close)
    return seat


def test_the_connection_that_is_idle_for_longest_gives_way():
    seats, closed = Seats(2), []
    first, second = taken(seats, closed, "first"), taken(seats, closed, "second")
    first.idle(lambda: (closed.append("first"), first.leave()))  # idle again, so for less time than the second
    taken(seats, closed, "third")
    assert closed == ["second"] and seats.taken == 2 and seats.evicted == 1
    assert not second.is_extra


def test_a_seat_that_is_being_left_is_free_already():
    """A closed socket ends its connection a turn of the event loop later, so the seat is still taken then."""
    seats, closed = Seats(2), []
    first, second = seats.take(), seats.take()
    first.idle(lambda: closed.append(first))
    second.busy()
    third = seats.take()
    assert closed == [first] and not third.is_extra and seats.taken == 3 and seats.left == 0
    first.idle(lambda: closed.append("again"))
    assert seats.take().is_extra and closed == [first]
    first.leave()
    assert seats.taken == 3 and seats.left == -1


def test_a_busy_connection_keeps_its_seat():
    seats, closed = Seats(1), []
    seat = taken(seats, closed, "a")
    seat.busy()
    extra = seats.take()
    assert closed == [] and extra.is_extra and seats.taken == 2 and not seats.evict()
    seat.leave()
    seat.leave()
    extra.leave()
    assert seats.taken == 0


def test_a_waiter_for_a_seat_is_called_once():
    seats, called = Seats(1), []
    seat = seats.take()
    seats.when_room(lambda: called.append(1))
    seat.leave()
    seats.take().leave()
    assert called == [1]


def test_a_seat_that_was_left_is_never_idle():
    seats = Seats(1)
    seat = seats.take()
    seat.leave()
    seat.idle(lambda: 1 / 0)
    assert not seats.evict()


def used(shares):
    """The descriptors of a process whose shares are all in use, without the files that an idle broker has open."""
    return 2 * shares.ledger_files + shares.web_connections + shares.connections + 2 * shares.extra


@pytest.mark.parametrize("limit", [64, 256, 1024, 4096, 20_000, 1 << 20])
@pytest.mark.parametrize(("web", "most"), [(2048, 0), (10, 100)])
def test_descriptors_are_shared_out_and_never_twice(limit, web, most):
    shares = DescriptorShares.of_limit(limit, web, most)
    assert min(shares) >= 1
    assert 2 * shares.ledger_files + shares.web_connections + shares.connections <= limit - min(limit // 16, 64)
    assert shares.web_connections <= web
    assert not most or shares.connections <= most


@pytest.mark.parametrize("limit", [64, 100, 128, 256, 512, 1024, 1 << 16])
def test_the_shares_leave_descriptors_for_the_files_of_an_idle_broker(limit):
    assert used(DescriptorShares.of_limit(limit, 2048, 0)) <= limit - 40


def test_the_usual_limit():
    assert DescriptorShares.of_limit(1024, 2048, 0) == (1024, 204, 128, 384, 32)


def test_the_process_asks_for_all_it_may_have():
    assert raise_limit() == process_limit() > 0
