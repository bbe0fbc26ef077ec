"""The places of readers that have left, kept within a bound."""

import sys

from magnetar.broker.limits import MAX_ACK_SET_WORDS
from magnetar.broker.subscriptions.sought_places import MOST_BYTES, MOST_PLACES, SoughtPlace, SoughtPlaces
from magnetar.storage.position import EARLIEST, Position


def test_a_place_keeps_the_messages_of_a_batch():
    place = SoughtPlace.of(Position(3, 7), Position(3, 7), [-2, 5])
    assert place.ack_set == [-2, 5]
    assert SoughtPlace.of(EARLIEST, Position(3, 7), None).ack_set is None


def test_the_oldest_place_is_forgotten_first():
    places = SoughtPlaces()
    for number in range(MOST_PLACES + 1):
        places.keep(str(number), SoughtPlace.of(EARLIEST, EARLIEST, None))
    assert len(places) == MOST_PLACES
    assert places.take("0") is None
    assert places.take("1") is not None


def test_large_ack_sets_and_names_have_a_bound():
    """A thousand readers that sought parts of huge batches left 180 MiB of numbers with the topic."""
    places = SoughtPlaces()
    for number in range(MOST_PLACES):
        words = [-1 - number] * MAX_ACK_SET_WORDS
        places.keep(f"{number}", SoughtPlace.of(EARLIEST, EARLIEST, words))
        places.keep("again", SoughtPlace.of(EARLIEST, EARLIEST, words))
    kept = sum(sys.getsizeof(place.unread) + sys.getsizeof(name) for name, place in places._places.items())
    assert kept < 2 * MOST_BYTES
    assert places.take(f"{MOST_PLACES - 1}") is not None, "the newest"
    for name in list(places._places):
        places.take(name)
    assert places.used_bytes == 0
