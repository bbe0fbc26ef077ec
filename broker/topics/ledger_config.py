"""The broker's settings and a topic's policies as the storage room takes them: plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.storage.embedded.engine_settings import EngineSettings
from magnetar.storage.managed.config import UNLIMITED, ManagedLedgerConfig

if TYPE_CHECKING:
    from magnetar.broker.entry_interceptors import LoadedInterceptors
    from magnetar.broker.policies.effective import TopicConfig
    from magnetar.broker.settings import Settings

_MINUTE_MS = 60_000
_SHORTEST_SAVE_MS = 10
_LEAST_POLLING_PROCESSORS = 2
"""One processor for the broker, and one for its clients: a smaller control group stops a process that polls."""
_ENGINE_DEFAULTS = EngineSettings()
_LEAST_UNWRITTEN_MEMORY_BYTES = 8 << 20
RECORD_PADDING_BYTES = 64 * 1024
"""Room for the parts of a frame beyond maxMessageSize, and for Magnetar's headers."""


def ledger_config(settings: Settings, config: TopicConfig, interceptors: LoadedInterceptors) -> ManagedLedgerConfig:
    """Compute the configuration of the topic's managed ledger."""
    return ManagedLedgerConfig(
        max_entries_per_ledger=settings.managed_ledger_max_entries_per_ledger,
        max_size_per_ledger_bytes=settings.managed_ledger_max_size_per_ledger_mbytes << 20,
        min_rollover_ms=settings.managed_ledger_min_ledger_rollover_time_minutes * _MINUTE_MS,
        max_rollover_ms=settings.managed_ledger_max_ledger_rollover_time_minutes * _MINUTE_MS,
        inactive_rollover_ms=settings.managed_ledger_inactive_ledger_rollover_time_seconds * 1000,
        retention_time_ms=_scaled(config.retention.time_in_minutes, _MINUTE_MS),
        retention_size_bytes=_scaled(config.retention.size_in_mb, 1 << 20),
        entry_timestamp=interceptors.timestamp,
        entry_index=interceptors.index,
        entry_metadata=interceptors.users,
        cursor_save_interval_ms=_save_interval_ms(
            config.persistence.managed_ledger_max_mark_delete_rate,
            settings.managed_ledger_default_mark_delete_rate_limit,
        ),
        cursor_max_entries_per_ledger=settings.managed_ledger_cursor_max_entries_per_ledger,
    )


def _save_interval_ms(rate: float, default_rate: float) -> int:
    """Return the interval of a rate of saves. A negative rate selects `default_rate`, 0 the shortest interval."""
    rate = default_rate if rate < 0 else rate
    return max(_SHORTEST_SAVE_MS, round(1000 / rate)) if rate > 0 else _SHORTEST_SAVE_MS


def _scaled(value: int, unit: int) -> int:
    return UNLIMITED if value < 0 else value * unit


def engine_settings(settings: Settings, ledger_files: int, processors: float) -> EngineSettings:
    """Return the settings of the storage engine, with the given number of open ledger files at most, on so many
    processors.
    """
    cache_bytes = settings.managed_ledger_cache_size_mb << 20
    return EngineSettings(
        busy_polling=settings.busy_polling_enabled and processors >= _LEAST_POLLING_PROCESSORS,
        max_open_files=ledger_files,
        cache_bytes=cache_bytes,
        metadata_large_bytes=settings.metadata_large_values_in_mb << 20,
        unwritten_memory_bytes=_unwritten_memory_bytes(cache_bytes),
        max_record_bytes=settings.max_message_size + RECORD_PADDING_BYTES,
        watches_disk_usage=True,
        disk_usage_threshold=settings.disk_usage_threshold,
        disk_usage_warn_threshold=min(settings.disk_usage_warn_threshold, settings.disk_usage_threshold),
    )


def _unwritten_memory_bytes(cache_bytes: int) -> int:
    """Return the bytes that may await write-behind in memory: the engine's default, or less with a smaller entry cache.

    A small cache means that the process is to stay small, and entries that await write-behind use memory as well.
    """
    return min(max(cache_bytes, _LEAST_UNWRITTEN_MEMORY_BYTES), _ENGINE_DEFAULTS.unwritten_memory_bytes)
