"""Figures of a topic's compaction: the status of its last run, the figures of the last that ended."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class CompactionStatus:
    """The state of the last run since the topic was loaded."""

    status: Literal["NOT_RUN", "RUNNING", "SUCCESS", "ERROR"] = "NOT_RUN"
    last_error: str = ""


@dataclass(frozen=True, slots=True)
class CompactionStats:
    """Figures of the last compaction; 0: never. Times in milliseconds since 1970, the duration in milliseconds."""

    removed_events: int = 0
    succeeded_ms: int = 0
    failed_ms: int = 0
    duration_ms: int = 0
    runs_succeeded: int = 0
    """Since the topic was loaded, as the next."""
    runs_failed: int = 0
    read_bytes: int = 0
    """The bytes read by the last run that read anything."""
    entries: int = 0
    """The entries in the compacted ledger now; the next field has their bytes."""
    size_bytes: int = 0
