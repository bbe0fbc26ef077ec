"""The metadata folder at a start: its content, and whether the content is complete. Changes nothing.

The newest intact snapshot counts, with the logs from its number on. A damaged snapshot costs nothing, because the store
keeps its predecessor and the logs between. A start fails when any other part is missing, or when both copies of a frame
are damaged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from magnetar.storage.embedded.layout import metadata_log_of, repair_of, snapshot_of
from magnetar.storage.embedded.metadata.changes import decode_changes
from magnetar.storage.embedded.metadata.log_format import CHANGES, LogHeader
from magnetar.storage.embedded.metadata.log_scan import LogEnd, LogScan, scan_log
from magnetar.storage.embedded.metadata.node_tree import NodeTree
from magnetar.storage.embedded.metadata.snapshot_format import Snapshot, decode_snapshot
from magnetar.storage.errors import DamagedFileError, MetadataDamagedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.files import FileSystem
    from magnetar.storage.embedded.layout import Layout

__all__ = ["LoadedMetadata", "MetadataNames", "load_metadata", "metadata_names", "read_whole"]


@dataclass(frozen=True, slots=True)
class MetadataNames:
    """Numbers of the files in the folder, ascending."""

    logs: list[int]
    snapshots: list[int]


@dataclass(slots=True)
class LoadedMetadata:
    """The complete metadata of a store."""

    tree: NodeTree
    store_id: bytes
    base: int
    """Number of the snapshot used; 0: the logs hold all changes."""
    scans: list[LogScan] = field(default_factory=list)
    """Scans of the logs from the snapshot on; changes continue in the last log."""
    damage: list[DamagedFileError] = field(default_factory=list)
    """Damage that cost no data."""
    snapshot_bytes: int = 0
    unsaid_end: bool = False
    """The log before the last log lacks its end frame: a crash came after the creation of the last log."""

    @property
    def last_sequence(self) -> int:
        """The sequence of the newest frame."""
        return self.scans[-1].next_sequence - 1

    @property
    def log(self) -> LogHeader:
        """The header of the last log, to which the writer appends."""
        return self.scans[-1].header


def metadata_names(files: FileSystem, layout: Layout) -> MetadataNames:
    """The numbers of logs and snapshots, from the names in the folder, without those of a repair that has not ended;
    empty lists for a missing folder.
    """
    names = files.list_dir(layout.metadata) if files.exists(layout.metadata) else []
    repairs = [number for name in names if (number := repair_of(name)) is not None]

    def numbers(number_of: Callable[[str], int | None]) -> list[int]:
        found = (number for name in names if (number := number_of(name)) is not None)
        return sorted(number for number in found if not repairs or number < min(repairs))

    return MetadataNames(numbers(metadata_log_of), numbers(snapshot_of))


def read_whole(files: FileSystem, path: str) -> bytes:
    """A file's bytes. Raises FileNotFoundError."""
    file = files.open_read_only(path)
    try:
        return file.read(file.size(), 0)
    finally:
        file.close()


def load_metadata(files: FileSystem, layout: Layout) -> LoadedMetadata | None:
    """Load the metadata; None without any log or snapshot.

    Raises MetadataDamagedError, UnsupportedFormatError, OSError.
    """
    names = metadata_names(files, layout)
    if not names.logs and not names.snapshots:
        return None
    return _Load(files, layout, names).run()


class _Load:
    """Loads the metadata for one start."""

    def __init__(self, files: FileSystem, layout: Layout, names: MetadataNames) -> None:
        self._files, self._layout, self._names = files, layout, names
        self._damage: list[DamagedFileError] = []

    def run(self) -> LoadedMetadata:
        snapshot = self._snapshot()
        base = snapshot.number if snapshot is not None else 0
        loaded = LoadedMetadata(NodeTree(), b"", base, damage=self._damage)
        sequence = 0
        if snapshot is not None:
            loaded.store_id, sequence = snapshot.store_id, snapshot.next_sequence
            loaded.tree.apply(snapshot.changes)
            loaded.snapshot_bytes = sum(len(path) + len(value) for _, path, _, value in snapshot.changes)
        wanted = max(base, 1)
        logs = [number for number in self._names.logs if number >= wanted]
        following: LogScan | None = None
        for number in range(wanted, max(logs, default=wanted) + 1):
            if number not in logs:
                self._refuse(DamagedFileError(self._layout.metadata_log(number), 0, "the file is missing"))
            scan = following or self._scan(number)
            following = self._scan(number + 1) if number + 1 in logs else None
            if following is not None and number + 1 == logs[-1]:
                _drop_refused(scan, following)
            self._join(loaded, scan, sequence)
            sequence = scan.next_sequence
        self._check_ends(loaded)
        return loaded

    def _snapshot(self) -> Snapshot | None:
        """The newest intact snapshot; None when the logs hold all changes."""
        for number in reversed(self._names.snapshots):
            path = self._layout.snapshot(number)
            try:
                found = decode_snapshot(path, read_whole(self._files, path))
                if found.number == number:
                    return found
                self._damage.append(DamagedFileError(path, 0, f"holds snapshot {found.number}"))
            except DamagedFileError as error:
                self._damage.append(error)
        return None

    def _scan(self, number: int) -> LogScan:
        path = self._layout.metadata_log(number)
        try:
            return scan_log(path, read_whole(self._files, path), number)
        except DamagedFileError as error:
            self._refuse(error)

    def _join(self, loaded: LoadedMetadata, scan: LogScan, sequence: int) -> None:
        """Check that the log continues the state up to ``sequence``, and apply its changes."""
        header = scan.header
        # Without the end frame in its predecessor, a log that was made ahead begins one sequence later.
        made_ahead = bool(loaded.scans) and loaded.scans[-1].end is not LogEnd.CONTINUED
        if header.first_sequence != sequence + made_ahead:
            detail = f"begins with change {header.first_sequence}, the one before it ends before change {sequence}"
            self._refuse(DamagedFileError(scan.path, 0, detail))
        if loaded.store_id not in {b"", header.store_id}:
            self._refuse(DamagedFileError(scan.path, 0, f"is of store {header.store_id.hex()}"))
        loaded.store_id = header.store_id
        self._damage += scan.damage
        loaded.scans.append(scan)
        for item in scan.frames:
            if item.frame.kind == CHANGES:
                try:
                    loaded.tree.apply(decode_changes(item.frame.payload))
                except ValueError as error:
                    self._refuse(DamagedFileError(scan.path, item.offset, f"a change does not parse: {error}"))

    def _check_ends(self, loaded: LoadedMetadata) -> None:
        for number, scan in enumerate(loaded.scans):
            at = scan.end_offset
            if scan.end is LogEnd.LOST:
                self._refuse(DamagedFileError(scan.path, at, f"change {scan.next_sequence} is lost, later ones exist"))
            if scan.end is LogEnd.CUT:
                self._refuse(DamagedFileError(scan.path, at, f"cut off behind change {scan.next_sequence - 1}"))
            following = loaded.scans[number + 1] if number + 1 < len(loaded.scans) else None
            if following is None and scan.end is LogEnd.CONTINUED:
                path = self._layout.metadata_log(scan.header.number + 1)
                self._refuse(DamagedFileError(path, 0, "the file is missing"))
            if following is not None and scan.end is not LogEnd.CONTINUED:
                if following is not loaded.scans[-1] or following.frames:
                    self._refuse(DamagedFileError(scan.path, at, f"change {scan.next_sequence} is lost"))
                loaded.unsaid_end = True

    def _refuse(self, error: DamagedFileError) -> NoReturn:
        raise MetadataDamagedError(self._layout.root, [str(found) for found in [*self._damage, error]]) from error


def _drop_refused(scan: LogScan, last: LogScan) -> None:
    """Drop the last frame of ``scan`` when its sequence belongs to the end frame.

    A write without space may leave a whole copy of its frame. The writer uses the sequence of that frame again, and
    once the last log exists, its first sequence leaves that sequence to the end frame. A machine that failed
    before the end frame leaves the refused frame, which was never acknowledged.
    """
    refused = scan.frames[-1] if scan.frames else None
    ends = scan.end in {LogEnd.CLEAN, LogEnd.TORN}
    if refused is None or not ends or last.frames or last.header.first_sequence != scan.next_sequence:
        return
    del scan.frames[-1]
    scan.torn_end = max(scan.torn_end, scan.end_offset)
    scan.end, scan.end_offset = LogEnd.TORN, refused.offset
