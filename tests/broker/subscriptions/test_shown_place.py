import pytest

from magnetar.broker.subscriptions.shown_place import ShownPlace
from magnetar.storage.position import EARLIEST, Position

PLACE = Position(3, 1)


def test_place_of_a_cursor_that_no_request_moved():
    place = ShownPlace()
    assert not place.was_reset
    assert not place.is_before_first(Position(3, -1))
    assert place.words(PLACE) == ""


def test_reset_to_the_start_holds_until_the_cursor_moves():
    place = ShownPlace()
    place.reset(EARLIEST, Position(3, -1))
    assert place.was_reset
    assert place.is_before_first(Position(3, -1))
    assert not place.is_before_first(PLACE)
    place.reset(Position(3, 0), Position(3, -1))
    assert not place.is_before_first(Position(3, -1))


@pytest.mark.parametrize(
    ("ack_set", "words"),
    [(None, " (ackSet is null)"), ([], " (ackSet is null)"), ([6], " (ackSet with long[] size of 1)")],
)
def test_words_of_a_seek_hold_until_the_cursor_moves(ack_set, words):
    place = ShownPlace()
    place.reset(Position(3, 2), PLACE)
    place.sought(ack_set)
    assert place.words(PLACE) == words
    assert place.words(Position(3, 2)) == ""
    place.reset(Position(3, 2), PLACE)
    assert place.words(PLACE) == ""


def test_first_consumer_ends_the_marks_of_requests():
    place = ShownPlace()
    place.reset(EARLIEST, Position(3, -1))
    place.is_active = True
    place.joined()
    assert place.was_reset
    assert not place.is_active
    assert not place.is_before_first(Position(3, -1))


def test_a_skip_of_nothing_moves_the_cursor():
    place = ShownPlace()
    place.reset(EARLIEST, Position(3, -1))
    place.skipped()
    assert place.was_reset
    assert not place.is_before_first(Position(3, -1))


def test_a_skip_of_nothing_keeps_the_words_of_a_seek():
    place = ShownPlace()
    place.reset(Position(3, 2), PLACE)
    place.sought(None)
    place.skipped()
    assert place.words(PLACE) == " (ackSet is null)"
