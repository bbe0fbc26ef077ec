"""The large values that a broker of a cluster has seen."""

import pytest

from magnetar.broker.clustering.seen_values import SeenValues
from magnetar.storage.errors import StorageFullError

LARGE = 5 << 10
PATH = "/admin/policies/t/n"


def test_values_of_a_usual_size_and_nodes_of_the_broker_do_not_count():
    seen = SeenValues(1 << 20)
    for path, size in ((PATH, 1 << 10), ("/loadbalance/brokers/b", LARGE)):
        seen.saw(path, size)
    assert not seen.total_bytes and not seen._sizes


def test_a_value_that_is_not_stored_leaves_the_count_as_it_was():
    seen = SeenValues(1 << 20)
    seen.saw(PATH, LARGE)
    for size in (0, 2 * LARGE):
        with pytest.raises(StorageFullError), seen.growing(PATH, size):
            raise StorageFullError("full")
        assert seen.total_bytes == 4 << 10


def test_the_values_read_first_are_forgotten_beyond_the_most_nodes():
    seen = SeenValues(1 << 20, most_nodes=3)
    for number in range(10):
        seen.saw(f"/managed-ledgers/t/n/persistent/t{number}/s", LARGE)
    assert seen.total_bytes == 3 * (4 << 10)
    assert len(seen._sizes) == len(seen._by_log) == 3
