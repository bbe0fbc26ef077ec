"""The log of a topic as a picture: ledgers, mark-delete positions, and the part that may be trimmed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Box", "LogPicture", "Mark", "log_picture"]

WIDTH: Final = 960
_LEAST_BOX: Final = 6.0
_MOST_LEDGERS: Final = 60
_MOST_CURSORS: Final = 40


@dataclass(frozen=True, slots=True)
class Box:
    """One ledger, or the older ledgers of a log with too many to draw. x and width in units of the picture."""

    x: float
    width: float
    label: str
    entries: int
    is_free: bool
    """Whether each subscription has acknowledged all entries of the box: then retention alone keeps them."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A cursor: where its mark-delete position lies, and the line on which its name stands."""

    x: float
    name: str
    position: str
    line: int


@dataclass(frozen=True, slots=True)
class LogPicture:
    """Everything that the template draws."""

    boxes: tuple[Box, ...]
    marks: tuple[Mark, ...]
    hidden_cursors: int
    width: int = WIDTH

    @property
    def height(self) -> int:
        """The height of the whole picture."""
        return 70 + 18 * len(self.marks)


def log_picture(internal_stats: dict[str, Any]) -> LogPicture | None:
    """The picture of a topic's ``internalStats``; None for a topic without ledgers."""
    ledgers = [(int(each["ledgerId"]), int(each["entries"])) for each in internal_stats.get("ledgers", ())]
    if not ledgers:
        return None
    last = ledgers[-1]
    if last[1] == 0:  # the open ledger: its entries are counted apart
        ledgers[-1] = (last[0], int(internal_stats.get("currentLedgerEntries", 0)))
    found = internal_stats.get("cursors", {})
    cursors = {name: _position(each.get("markDeletePosition", "")) for name, each in found.items()}
    slowest = min(cursors.values(), default=None)
    boxes = _boxes(_grouped(ledgers), slowest)
    shown = sorted(cursors.items(), key=lambda item: item[1])[:_MOST_CURSORS]
    marks = tuple(
        Mark(_place(position, ledgers, boxes), name, f"{position[0]}:{position[1]}", line)
        for line, (name, position) in enumerate(shown)
    )
    return LogPicture(tuple(box for _, _, box in boxes), marks, len(cursors) - len(shown))


def _position(text: str) -> tuple[int, int]:
    ledger, _, entry = text.partition(":")
    try:
        return int(ledger), int(entry)
    except ValueError:
        return -1, -1


_Group = tuple[int, int, int]
"""First ledger id, last ledger id, entries."""


def _grouped(ledgers: list[tuple[int, int]]) -> list[_Group]:
    """The ledgers as groups of one; if there are too many ledgers, the oldest are one group."""
    spare = len(ledgers) - _MOST_LEDGERS
    if spare <= 0:
        return [(ledger, ledger, entries) for ledger, entries in ledgers]
    old, new = ledgers[: spare + 1], ledgers[spare + 1 :]
    together = (old[0][0], old[-1][0], sum(entries for _, entries in old))
    return [together, *((ledger, ledger, entries) for ledger, entries in new)]


def _boxes(groups: list[_Group], slowest: tuple[int, int] | None) -> list[tuple[int, int, Box]]:
    total = sum(entries for _, _, entries in groups) or 1
    room = WIDTH - _LEAST_BOX * len(groups)
    out: list[tuple[int, int, Box]] = []
    x = 0.0
    for first, last, entries in groups:
        width = _LEAST_BOX + room * entries / total
        label = str(first) if first == last else f"{first} to {last}"
        is_free = slowest is not None and entries > 0 and slowest >= (last, entries - 1)
        out.append((first, last, Box(round(x, 2), round(width, 2), label, entries, is_free)))
        x += width
    return out


def _place(position: tuple[int, int], ledgers: list[tuple[int, int]], boxes: list[tuple[int, int, Box]]) -> float:
    """The right edge of the mark-delete entry; for a position before the log, the begin of the log."""
    ledger, entry = position
    for first, last, box in boxes:
        if ledger < first:
            return box.x
        if ledger <= last:
            before = sum(count for other, count in ledgers if first <= other < ledger)
            part = (before + entry + 1) / box.entries if box.entries else 0.0
            return round(box.x + box.width * min(1.0, max(0.0, part)), 2)
    return float(WIDTH)
