"""The frames of a metadata log, its end, and its damage. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from magnetar.storage.embedded.metadata.log_format import (
    END,
    FIRST_FRAME_AT,
    PAGE_BYTES,
    LogFrame,
    LogHeader,
    parse_copy,
    parse_log_header,
)
from magnetar.storage.errors import DamagedFileError

__all__ = ["LogEnd", "LogScan", "ScannedFrame", "scan_log"]


class LogEnd(Enum):
    """The bytes behind the last frame."""

    CLEAN = auto()
    """Zeros, or the end of a full file."""
    TORN = auto()
    """A frame whose write did not finish, so it was never acknowledged."""
    CONTINUED = auto()
    """The end frame: the next log continues."""
    CUT = auto()
    """The file is cut off here, so the content behind is unknown."""
    LOST = auto()
    """Neither copy of a frame is intact, and intact frames follow."""


@dataclass(frozen=True, slots=True)
class ScannedFrame:
    """One frame and its place."""

    frame: LogFrame
    offset: int
    damaged_copy: int | None
    """0 or 1: this copy is not intact, and the scan used the other copy. None: both copies are intact."""


@dataclass(slots=True)
class LogScan:
    """One log file."""

    path: str
    header: LogHeader
    frames: list[ScannedFrame] = field(default_factory=list)
    end: LogEnd = LogEnd.CLEAN
    end_offset: int = FIRST_FRAME_AT
    """The end of the last frame, which is the place of the next frame."""
    damage: list[DamagedFileError] = field(default_factory=list)
    """Damage that cost no data: the other copy is intact."""
    damaged_header: bool = False
    """Whether one of the two copies of the header is damaged."""
    torn_end: int = 0
    """With ``TORN``: the offset behind the last byte that is not zero."""
    behind: list[ScannedFrame] = field(default_factory=list)
    """With ``LOST``: the intact frames behind the lost frames, for repair."""

    @property
    def next_sequence(self) -> int:
        return self.frames[-1].frame.sequence + 1 if self.frames else self.header.first_sequence


def scan_log(path: str, data: bytes, number: int) -> LogScan:
    """Scan the file of log ``number``. Raises DamagedFileError when both copies of the header are damaged,
    UnsupportedFormatError.
    """
    header, damage = parse_log_header(path, data, number)
    scan = LogScan(path, header, damage=damage, damaged_header=bool(damage))
    _frames(scan, data)
    if scan.end is not LogEnd.CONTINUED:
        _end(scan, data)
    _copies(scan)
    if len(data) != header.size_bytes:
        detail = f"the file has {len(data)} bytes, it was made with {header.size_bytes}"
        scan.damage.append(DamagedFileError(path, min(len(data), header.size_bytes), detail))
    return scan


def _frames(scan: LogScan, data: bytes) -> None:
    at = scan.end_offset
    while (found := _frame_at(data, at, scan.header, scan.next_sequence)) is not None:
        scan.frames.append(found)
        at += 2 * found.frame.size_bytes
        scan.end_offset = min(at, len(data))
        if found.frame.kind == END:
            scan.end = LogEnd.CONTINUED
            return


def _frame_at(data: bytes, at: int, log: LogHeader, sequence: int) -> ScannedFrame | None:
    """The frame of this sequence whose first copy begins at ``at``, from either copy."""
    first = parse_copy(data, at, log)
    if first is not None and first[0] == 0 and first[1].sequence == sequence:
        second = parse_copy(data, at + first[1].size_bytes, log)
        whole = second is not None and second[0] == 1 and second[1].sequence == sequence
        return ScannedFrame(first[1], at, None if whole else 1)
    for page in range(at + PAGE_BYTES, len(data), PAGE_BYTES):
        second = parse_copy(data, page, log)
        if second is not None and second[1].sequence == sequence and second[0] == 1:
            return ScannedFrame(second[1], at, 0) if page - at == second[1].size_bytes else None
    return None


def _end(scan: LogScan, data: bytes) -> None:
    """Distinguish a torn last frame, a lost frame, and a file that was cut; set ``scan.end``."""
    at = scan.end_offset
    scan.behind = _intact_behind(data, at, scan.header, scan.next_sequence)
    if scan.behind:
        scan.end = LogEnd.LOST
        return
    rest = data[at : scan.header.size_bytes]
    torn = rest.count(0) != len(rest)
    if len(data) < scan.header.size_bytes and (torn or len(rest) < PAGE_BYTES):
        scan.end = LogEnd.CUT
    elif torn:
        scan.end, scan.torn_end = LogEnd.TORN, at + len(rest.rstrip(b"\0"))


def _intact_behind(data: bytes, at: int, log: LogHeader, sequence: int) -> list[ScannedFrame]:
    """Intact frames later than the frame expected at ``at``, each once, ascending."""
    found: dict[int, ScannedFrame] = {}
    for page in range(at, len(data), PAGE_BYTES):
        parsed = parse_copy(data, page, log)
        if parsed is not None and parsed[1].sequence >= sequence:
            found.setdefault(parsed[1].sequence, ScannedFrame(parsed[1], page, None))
    return [found[number] for number in sorted(found)]


def _copies(scan: LogScan) -> None:
    """Add damaged copies of frames to the damage, except a copy of the last frame, which a crash may have torn."""
    for number, item in enumerate(scan.frames):
        last = number == len(scan.frames) - 1 and scan.end is not LogEnd.LOST
        if item.damaged_copy is not None and not last:
            offset = item.offset + item.damaged_copy * item.frame.size_bytes
            detail = f"one of the two copies of change {item.frame.sequence} is damaged"
            scan.damage.append(DamagedFileError(scan.path, offset, detail))
