"""The shared empty queue reads as an empty queue, and stays empty."""

from collections import deque

import pytest

from magnetar.storage.empty_queue import NO_ITEMS


def test_the_queue_reads_as_any_empty_queue():
    assert (list(NO_ITEMS), len(NO_ITEMS), bool(NO_ITEMS), deque() == NO_ITEMS) == ([], 0, False, True)


@pytest.mark.parametrize("add", ["append", "appendleft", "extend", "extendleft"])
def test_no_owner_can_give_an_item_to_the_others(add):
    with pytest.raises(AssertionError, match="takes no items"):
        getattr(NO_ITEMS, add)([1])
    assert not NO_ITEMS
