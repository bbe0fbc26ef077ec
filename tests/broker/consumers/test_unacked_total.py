"""The broker's limit of unacknowledged messages over all subscriptions."""

from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.consumers.unacked_total import UnackedTotal
from magnetar.broker.settings import Settings


def test_there_is_none_unless_it_is_set():
    assert UnackedTotal.of(Settings()) is None
    total = UnackedTotal.of(Settings(max_unacked_messages_per_broker=100))
    assert (total.limit, total.per_subscription) == (100, 16)


def test_large_subscriptions_stop_and_small_ones_go_on():
    total, woken = UnackedTotal(20, 0.25), []
    large, small = total.book(0, lambda: woken.append("large")), total.book(0, lambda: woken.append("small"))
    small.add(5)
    large.add(14)
    assert not large.blocked
    large.add(1)
    assert (large.blocked, small.blocked) == (True, False)
    small.add(1)
    assert small.blocked, "beyond its share while the broker is blocked"
    small.remove(4)
    assert not small.blocked, "half of its share is left"
    assert woken == ["small"]
    large.remove(7)
    assert not large.blocked, "half of the broker's limit is left"
    assert not total.blocked
    assert woken == ["small", "large"]


def test_a_subscription_that_leaves_frees_the_others():
    total, woken = UnackedTotal(10, 0.1), []
    gone, other = total.book(0, woken.clear), total.book(0, lambda: woken.append("other"))
    gone.add(6)
    other.add(4)
    assert gone.blocked
    assert other.blocked
    gone.remove(gone.total)
    assert not other.blocked
    assert woken == ["other"]
    assert total.total == 4


def test_its_own_limit_still_stops_it():
    total = UnackedTotal(10, 0.1)
    book = total.book(4, lambda: None)
    book.add(10)
    book.remove(5)
    assert not total.blocked
    assert book.blocked, "5 of 4"
    assert not book.remove(3), "2 of 4 are not below half"
    assert book.remove(1)
    assert not book.blocked


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-20, 20)), max_size=80))
def test_no_consumer_stays_blocked_below_the_limits(steps):
    total = UnackedTotal(50, 0.2)
    books = [total.book(30, lambda: None) for _ in range(4)]
    for i, messages in steps:
        if messages >= 0:
            books[i].add(messages)
        else:
            books[i].remove(-messages)
        assert total.total == sum(book.total for book in books)
        if total.total >= total.limit:
            assert all(book.blocked for book in books if book.total > total.per_subscription)
        if total.total <= total.limit // 2:
            assert not any(book.blocked for book in books if book.total < 15)
