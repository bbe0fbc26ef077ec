from magnetar.broker.foreign_entries.failures import FailureBook
from magnetar.converters.outcome import ConversionFailure, FailureReason
from magnetar.storage.position import Position

FAILURE = ConversionFailure(FailureReason.EXCEPTION, "c", "no")


def test_a_failure_stands_longer_each_time():
    now = [0]
    book = FailureBook(lambda: now[0])
    at = Position(1, 1)
    assert book.standing(at) is None
    for attempt, delay_ms in ((1, 1000), (2, 2000), (3, 4000)):
        assert book.add(at, FAILURE).attempts == attempt
        now[0] += delay_ms - 1
        assert book.standing(at).retry_at_ms == now[0] + 1
        now[0] += 1
        assert book.standing(at) is None
        assert book.last(at).attempts == attempt
        assert at in book
    book.remove(at)
    assert at not in book
    assert book.add(at, FAILURE).attempts == 1


def test_of_too_many_the_oldest_are_forgotten():
    book = FailureBook(lambda: 0, limit=2)
    for entry_id in (0, 1, 0, 2):
        book.add(Position(1, entry_id), FAILURE)
    assert [Position(1, e) in book for e in range(3)] == [True, False, True]
    assert len(book) == 2
