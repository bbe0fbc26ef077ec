"""The count of calls is that of the counted work."""

import gc
from collections import Counter

import pytest

from tests.calls import PYTHON, C, Calls, calls_of


@pytest.fixture
def collections_everywhere():
    """Each allocation collects garbage and calls a function, as hypothesis does."""
    before, seen = gc.get_threshold(), []

    def seen_by_others(_phase, _info):
        seen.append(len(seen))

    gc.callbacks.append(seen_by_others)
    gc.set_threshold(1, 1, 1)
    yield seen
    gc.set_threshold(*before)
    gc.callbacks.remove(seen_by_others)


def work():
    return [Counter() for _ in range(50)]


def test_collections_of_garbage_are_no_calls_of_the_work(collections_everywhere):
    gc.disable()
    alone = calls_of(work)
    gc.enable()
    before = len(collections_everywhere)
    assert calls_of(work) == alone
    work()
    assert len(collections_everywhere) > before + 2
    assert gc.isenabled()


def test_the_collector_stays_off_where_it_was_off():
    gc.disable()
    try:
        calls_of(work)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_calls_are_counted_by_kind():
    def own():
        return len([])

    assert calls_of(own, PYTHON) == calls_of(len_of_none, PYTHON) == 1
    assert calls_of(own, C) - calls_of(len_of_none, C) == 1


def len_of_none():
    return None


def test_calls_are_counted_by_file():
    with Calls(PYTHON, file="collections") as calls:
        len_of_none()
    assert calls.count == 0
    with Calls(PYTHON, file="collections") as calls:
        Counter()
    assert calls.count > 0


def test_an_error_ends_the_count():
    with pytest.raises(ZeroDivisionError), Calls() as calls:
        raise ZeroDivisionError
    counted = calls.count
    len_of_none()
    assert calls.count == counted
    assert gc.isenabled()
