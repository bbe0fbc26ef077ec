"""Settings of the storage engine that follow from those of the broker."""

import pytest

from magnetar.broker.settings import Settings
from magnetar.broker.topics.ledger_config import engine_settings
from magnetar.storage.embedded.engine_settings import EngineSettings

MIB = 1 << 20


def unwritten_memory_bytes(**values):
    return engine_settings(Settings(**values), ledger_files=10, processors=2).unwritten_memory_bytes


def test_the_bound_of_unwritten_bytes_in_memory_is_that_of_the_engine():
    assert unwritten_memory_bytes() == EngineSettings().unwritten_memory_bytes


@pytest.mark.parametrize(("cache_mb", "bound"), [(0, 8), (4, 8), (8, 8), (15, 15), (16, 16), (1024, 16)])
def test_a_smaller_entry_cache_bounds_the_unwritten_bytes_too(cache_mb, bound):
    assert unwritten_memory_bytes(managed_ledger_cache_size_mb=cache_mb) == bound * MIB


@pytest.mark.parametrize(
    ("is_enabled", "processors", "polls"),
    [(True, 2.0, True), (True, 8.0, True), (True, 1.5, False), (True, 1.0, False), (False, 8.0, False)],
)
def test_the_loop_polls_where_a_processor_remains_for_the_clients(is_enabled, processors, polls):
    settings = Settings(busy_polling_enabled=is_enabled)
    assert engine_settings(settings, ledger_files=10, processors=processors).busy_polling is polls
