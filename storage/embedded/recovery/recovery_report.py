"""The findings and actions of a recovery."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.storage.errors import DamagedFileError
    from magnetar.storage.position import Position

__all__ = ["RecoveryReport"]


@dataclass(slots=True)
class RecoveryReport:
    """The findings and actions of recovery."""

    frames: int = 0
    entries: int = 0
    """Entries replayed into ledger files."""
    unknown_records: int = 0
    """Records of ledgers that the metadata do not list, because they were deleted."""
    torn_frame: int | None = None
    """Sequence of the unfinished last frame."""
    missing_frames: list[tuple[int, int]] = field(default_factory=list)
    """Sequences (first, last) of frames that no segment holds."""
    damaged_entries: list[Position] = field(default_factory=list)
    damaged_files: list[DamagedFileError] = field(default_factory=list)
    set_aside: list[str] = field(default_factory=list)
    duration_s: float = 0.0
    newest_ledger_id: int = -1
    """The newest id of the ledgers that exist."""
    greatest_ledger_id: int = -1
    """The greatest id of all ledgers that ever existed, as far as files and metadata show."""
