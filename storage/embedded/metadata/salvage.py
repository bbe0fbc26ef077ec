"""Salvages damaged metadata: every intact block of snapshots and frame of logs, for ``verify`` and repair."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magnetar.storage.embedded.layout import metadata_log_of, repair_of, snapshot_of
from magnetar.storage.embedded.metadata.changes import decode_changes
from magnetar.storage.embedded.metadata.load import load_metadata, metadata_names, read_whole
from magnetar.storage.embedded.metadata.log_format import CHANGES
from magnetar.storage.embedded.metadata.log_scan import LogEnd, LogScan, scan_log
from magnetar.storage.embedded.metadata.node_tree import NodeTree
from magnetar.storage.embedded.metadata.snapshot_format import decode_snapshot, intact_changes
from magnetar.storage.errors import DamagedFileError, MetadataDamagedError

if TYPE_CHECKING:
    from magnetar.storage.embedded.files import FileSystem
    from magnetar.storage.embedded.layout import Layout

__all__ = ["InspectedMetadata", "inspect_metadata"]


@dataclass(slots=True)
class InspectedMetadata:
    """The content and the damage of all files in the metadata folder."""

    tree: NodeTree = field(default_factory=NodeTree)
    complete: bool = False
    """Whether a start accepts the metadata; if not, the tree holds the readable part."""
    last_sequence: int = 0
    damage: list[DamagedFileError] = field(default_factory=list)
    remarks: list[DamagedFileError] = field(default_factory=list)
    """Findings that a crash explains."""
    strangers: list[str] = field(default_factory=list)
    bytes_read: int = 0


def inspect_metadata(files: FileSystem, layout: Layout) -> InspectedMetadata:
    """Read every file of the metadata folder as a whole, without any change. Raises UnsupportedFormatError, OSError."""
    found = InspectedMetadata()
    names = metadata_names(files, layout)
    for number in sorted({*names.snapshots, *names.logs}):
        if number in names.snapshots:
            _snapshot(files, layout.snapshot(number), number, found)
        if number in names.logs:
            _log(files, layout.metadata_log(number), number, found)
    try:
        loaded = load_metadata(files, layout)
    except MetadataDamagedError as error:
        cause = error.__cause__
        if isinstance(cause, DamagedFileError) and not any(_same(cause, each) for each in found.damage):
            found.damage.append(cause)
    else:
        if loaded is None:
            found.damage.append(DamagedFileError(layout.metadata, 0, "missing or empty"))
        else:
            found.tree, found.complete, found.last_sequence = loaded.tree, True, loaded.last_sequence
    for name in files.list_dir(layout.metadata) if files.exists(layout.metadata) else ():
        path = f"{layout.metadata}/{name}"
        known = metadata_log_of(name) is not None or snapshot_of(name) is not None
        if repair_of(name) is not None:
            found.remarks.append(DamagedFileError(path, 0, "of a repair that has not ended"))
        elif not known and path != layout.spare_log and not name.endswith(".new"):
            found.strangers.append(path)
    return found


def _same(one: DamagedFileError, other: DamagedFileError) -> bool:
    return (one.path, one.offset) == (other.path, other.offset)


def _snapshot(files: FileSystem, path: str, number: int, found: InspectedMetadata) -> None:
    data = read_whole(files, path)
    found.bytes_read += len(data)
    try:
        snapshot = decode_snapshot(path, data)
    except DamagedFileError as error:
        found.damage.append(error)
        for changes in intact_changes(data, number):
            found.tree.apply(changes)
        return
    found.tree = NodeTree()
    found.tree.apply(snapshot.changes)
    found.last_sequence = max(found.last_sequence, snapshot.next_sequence - 1)


def _log(files: FileSystem, path: str, number: int, found: InspectedMetadata) -> None:
    data = read_whole(files, path)
    found.bytes_read += len(data)
    try:
        scan = scan_log(path, data, number)
    except DamagedFileError as error:
        found.damage.append(error)
        return
    found.damage += scan.damage
    _remarks(scan, data, found)
    for item in [*scan.frames, *scan.behind]:
        found.last_sequence = max(found.last_sequence, item.frame.sequence)
        if item.frame.kind == CHANGES:
            try:
                found.tree.apply(decode_changes(item.frame.payload))
            except ValueError as error:
                found.damage.append(DamagedFileError(path, item.offset, f"a change does not parse: {error}"))


def _remarks(scan: LogScan, data: bytes, found: InspectedMetadata) -> None:
    at = scan.end_offset
    if scan.end is LogEnd.LOST:
        found.damage.append(DamagedFileError(scan.path, at, f"change {scan.next_sequence} is lost, later ones exist"))
    elif scan.end is LogEnd.TORN:
        found.remarks.append(DamagedFileError(scan.path, at, "unfinished last change, never acknowledged"))
    elif scan.end is LogEnd.CONTINUED and data.count(0, at) != len(data) - at:
        found.remarks.append(DamagedFileError(scan.path, at, "bytes behind the last change are not zero"))
    last = scan.frames[-1] if scan.frames else None
    if last is not None and last.damaged_copy is not None and scan.end is not LogEnd.LOST:
        where = last.offset + last.damaged_copy * last.frame.size_bytes
        found.remarks.append(DamagedFileError(scan.path, where, "one copy of the last change is not intact"))
