"""Settings of the storage engine that follow from those of the broker."""

import pytest

from magnetar.broker.settings import Settings
from magnetar.broker.topics.ledger_config import engine_settings
from magnetar.storage.embedded.engine_settings import EngineSettings

MIB = 1 << 20


def unwritten_bytes(**values):
    return engine_settings(Settings(**values), ledger_files=10).max_unwritten_bytes


def test_the_bound_of_unwritten_bytes_is_that_of_the_engine():
    assert unwritten_bytes() == EngineSettings().max_unwritten_bytes


@pytest.mark.parametrize(("cache_mb", "bound"), [(0, 16), (4, 16), (8, 32), (47, 188), (48, 256), (1024, 256)])
def test_a_smaller_entry_cache_bounds_the_unwritten_bytes_too(cache_mb, bound):
    assert unwritten_bytes(managed_ledger_cache_size_mb=cache_mb) == bound * MIB
