"""The settings of the embedded engine."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EngineSettings"]

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Sizes in bytes, times in seconds. Raises ValueError, which names the field, when a value is out of range."""

    journal_segment_bytes: int = 64 * _MIB
    """Full size of a journal segment; the first segments of a store are smaller."""
    journal_first_segment_bytes: int = 1 * _MIB
    journal_zeroed_bytes: int = 8 * _MIB
    """The engine fills segments up to this size with zeros even when it needs them at once: that takes some 10 ms."""
    journal_max_frame_bytes: int = 8 * _MIB
    """A frame holds at most this many bytes of appends, or a single larger append."""
    checkpoint_bytes: int = 384 * _MIB
    """A checkpoint begins when this many bytes were appended since the last checkpoint began."""
    checkpoint_interval_s: float = 30.0
    """A checkpoint begins at the latest this long after a write."""
    max_unwritten_bytes: int = 512 * _MIB
    """Appends wait while more than this many confirmed bytes are not in ledger files."""
    unwritten_memory_bytes: int = 16 * _MIB
    """Confirmed bytes that stay in memory until they are in ledger files. Beyond them the oldest slabs are parked: only
    the journal has their bytes.
    """
    write_behind_bytes: int = 256 << 10
    """Confirmed entries go to their ledger files when they have this many bytes together, or 50 ms later."""
    writeback_lag_bytes: int = 128 * _MIB
    """Written-behind bytes that may stay in the system's cache before a write to the device begins."""
    cache_bytes: int = 20 * _MIB
    """Size of the entry cache (recent slabs and read-ahead)."""
    read_piece_bytes: int = 1 * _MIB
    """Size of a sequential read from a ledger file."""
    read_threads: int = 2
    max_open_files: int = 256
    """The most ledger files that the engine keeps open."""
    max_record_bytes: int = 16 * _MIB
    """Size of the largest record that an append may have."""
    disk_usage_threshold: float = 1.0
    """Appends fail once more than this part of the file system is used; 1: only when the file system is full."""
    disk_usage_warn_threshold: float = 1.0
    """The engine takes appends again when the disk is used up to this share; above this share the engine logs a
    warning.
    """
    disk_usage_check_s: float = 10.0
    watches_disk_usage: bool = False
    """Whether the engine measures the used part even without a threshold, for metrics."""
    busy_polling: bool = False
    """Whether the loop polls instead of sleeping while producers that wait for each receipt send quickly."""
    metadata_log_bytes: int = 1 * _MIB
    """Size of a metadata log; a snapshot is due after changes of three quarters of this size, or of the size of the
    last snapshot if that is larger.
    """
    metadata_large_bytes: int = 512 * _MIB
    """Beyond so many bytes of large values in the metadata owners with more than an even share add none."""
    full_probe_s: float = 0.1
    """First wait before trying again after the disk was full; doubles up to 5 s."""

    def __post_init__(self) -> None:
        minimum = {
            "journal_segment_bytes": 12 << 10,
            "journal_first_segment_bytes": 12 << 10,
            "journal_zeroed_bytes": 0,
            "journal_max_frame_bytes": 4 << 10,
            "checkpoint_bytes": 1 << 10,
            "max_unwritten_bytes": 1 << 10,
            "unwritten_memory_bytes": 0,
            "write_behind_bytes": 1,
            "writeback_lag_bytes": 0,
            "cache_bytes": 0,
            "read_piece_bytes": 4 << 10,
            "read_threads": 1,
            "max_open_files": 4,
            "max_record_bytes": 1 << 10,
            "metadata_log_bytes": 32 << 10,
            "metadata_large_bytes": 0,
        }
        if not 0 < self.disk_usage_warn_threshold <= self.disk_usage_threshold <= 1:
            raise ValueError(
                "disk_usage_warn_threshold must be above 0 and at most disk_usage_threshold, both at most 1"
            )
        for name, least in minimum.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}, the least is {least}")
