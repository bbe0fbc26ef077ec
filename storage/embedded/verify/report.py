"""The findings of ``verify``, ready for JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["DAMAGE", "NOTE", "WARNING", "Finding", "VerifyReport"]

DAMAGE = "damage"
"""Bytes of the disk differ from the bytes that were written, or are gone."""
WARNING = "warning"
"""The store lost nothing, but an operator should look."""
NOTE = "note"
"""A crash explains the finding; the next start repairs it."""
_NOTES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding at one place."""

    severity: str
    kind: str
    """Stable word: version, metadata, checkpoint, segment, frame, torn-tail, missing-frames, header, entry, lost-entry,
    index, missing-file, short-file, unreadable, unknown-file, set-aside."""
    file: str
    offset: int
    detail: str
    ledger_id: int | None = None
    entry_id: int | None = None
    last_entry_id: int | None = None
    """The last entry of the finding, which begins at ``entry_id``."""


@dataclass(slots=True)
class VerifyReport:
    """All findings, and the amount of data examined."""

    path: str
    store_id: str = ""
    ledgers: int = 0
    entries: int = 0
    """Intact entries in ledger files."""
    bytes_read: int = 0
    segments: int = 0
    frames: int = 0
    """Journal frames that the next start will replay."""
    findings: list[Finding] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)

    @property
    def damaged(self) -> bool:
        """Whether anything was lost or altered."""
        return any(finding.severity == DAMAGE for finding in self.findings)

    def to_text(self) -> str:
        """Return a line for each finding, of the notes of a kind the first few and their number, and a last line with
        the figures.
        """
        lines, notes = [], Counter[str]()
        for each in self.findings:
            notes[each.kind] += each.severity == NOTE
            if each.severity != NOTE or notes[each.kind] <= _NOTES_SHOWN:
                lines.append(f"{each.severity}: {each.file} at {each.offset}: {each.kind}: {each.detail}")
        for kind, count in notes.items():
            if count > _NOTES_SHOWN:
                lines.append(f"{NOTE}: {kind}: {count - _NOTES_SHOWN} more of this kind (--json shows all)")
        lines += [f"repaired: {each}" for each in self.repaired]
        verdict = "DAMAGED" if self.damaged else "intact"
        lines.append(f"{verdict}: {self.ledgers} ledgers, {self.entries} entries, {self.bytes_read} bytes read")
        return "\n".join(lines) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "damaged": self.damaged}
