"""Figures of a topic's compaction: the status of its last run, the figures of the last run that ended."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class CompactionStatus:
    """The state of the last run since the topic was loaded."""

    status: Literal["NOT_RUN", "RUNNING", "SUCCESS", "ERROR"] = "NOT_RUN"
    last_error: str = ""


@dataclass(frozen=True, slots=True)
class CompactionStats:
    """Figures of the last compaction; a time of 0: never. Times in ms since 1970, the duration in ms."""

    removed_events: int = 0
    succeeded_ms: int = 0
    failed_ms: int = 0
    duration_ms: int = 0
    removed_events_total: int = 0
    """Of all runs since the topic was loaded; the next field too."""
    duration_total_ms: int = 0
    runs_succeeded: int = 0
    """Runs since the topic was loaded; the next field too."""
    runs_failed: int = 0
    lost_entries: int = 0
    """Damaged entries of compacted ledgers that runs since the topic was loaded passed over."""
    read_bytes: int = 0
    """The bytes that the last successful run read; a run without new messages leaves the figure unchanged."""
    entries: int = 0
    """The entries in the compacted ledger now; the next field is their size."""
    size_bytes: int = 0
