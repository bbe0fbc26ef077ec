"""Requests about topics in progress at a time."""

import pytest

from magnetar.broker.errors import TooManyRequestsError
from magnetar.broker.handlers.client import LookupCounters


def test_one_too_many_is_refused_and_places_come_back():
    lookups = LookupCounters()
    with lookups.slot(2), lookups.slot(2):
        with pytest.raises(TooManyRequestsError, match="too many pending lookup requests"):
            lookups.slot(2).__enter__()
        assert lookups.in_progress == 2
    with pytest.raises(KeyError), lookups.slot(1):
        raise KeyError
    assert lookups.in_progress == 0
