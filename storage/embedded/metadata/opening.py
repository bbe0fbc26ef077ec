"""Opening the metadata of a data directory: a new store, a store of format 1 (SQLite), or the store of the last run.

A start repairs this damage: one damaged copy of two, a torn frame (replaced by zeros), a file of which only unused
bytes at the end are missing (the file gets its size back). ``LoadedMetadata.damage`` lists the damage of copies and of
sizes; a torn frame is no damage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.storage.embedded.file_header import FORMAT_VERSION
from magnetar.storage.embedded.layout import metadata_log_of, repair_of, snapshot_of
from magnetar.storage.embedded.metadata.load import LoadedMetadata, load_metadata, metadata_names
from magnetar.storage.embedded.metadata.log_format import END, FIRST_FRAME_AT, encode_frame, encode_log_header
from magnetar.storage.embedded.metadata.log_scan import LogEnd
from magnetar.storage.embedded.metadata.log_writer import make_log
from magnetar.storage.embedded.metadata.snapshot_writer import SnapshotJob, write_snapshot
from magnetar.storage.embedded.store_version import STORE_NODE, store_id_of, stored_format
from magnetar.storage.errors import DamagedFileError, MetadataDamagedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.files import File, FileSystem
    from magnetar.storage.embedded.layout import Layout
    from magnetar.storage.embedded.metadata.log_scan import LogScan
    from magnetar.storage.embedded.metadata.log_writer import LogEnvironment
    from magnetar.storage.embedded.metadata.node_tree import NodeTree

__all__ = ["keep_format_1", "newest_number", "open_metadata", "remove_unended_repair", "write_fresh"]

_FORMAT_1 = 1


def open_metadata(world: LogEnvironment, read_format_1: Callable[[str], NodeTree]) -> LoadedMetadata:
    """Load the metadata, complete and ready for appends. Makes them in a new directory, and migrates format 1.

    Raises MetadataDamagedError (before any change), UnsupportedFormatError, OSError.
    """
    files, layout = world.files, world.layout
    version = stored_format(files, layout)
    if version is not None and version > FORMAT_VERSION:
        raise AssertionError("a newer VERSION was refused")
    old = files.exists(layout.sqlite)
    loaded = None
    if not (old and version == _FORMAT_1):
        loaded = load_metadata(files, layout)
    if loaded is None:
        if old:
            _migrate(world, read_format_1)
        elif version is not None or files.exists(layout.version) or _has_data(files, layout):
            raise MetadataDamagedError(layout.root, [f"{layout.metadata} is missing or empty"])
        else:
            files.make_dir(layout.metadata)
            files.sync_dir(layout.root)
            remove_unended_repair(files, layout)
            make_log(world, world.entropy(16), 1, 0)
        loaded = load_metadata(files, layout)
        assert loaded is not None
    files.sync_dir(layout.metadata)
    _heal(world, loaded)
    _remove_unfinished(files, layout)
    return loaded


def keep_format_1(files: FileSystem, layout: Layout) -> None:
    """Rename the SQLite database of format 1, which the store keeps but no longer reads. Call once VERSION names the
    new format.
    """
    if files.exists(layout.sqlite) and not files.exists(layout.sqlite_kept):
        files.rename(layout.sqlite, layout.sqlite_kept)
        files.sync_dir(layout.root)


def write_fresh(world: LogEnvironment, store_id: bytes, tree: NodeTree, number: int, first_sequence: int) -> None:
    """Write the tree as snapshots and logs ``number`` and ``number + 1``, durable on return.

    A start fails until the last file exists; afterwards no start needs older files. There are two snapshots, so that
    damage of one costs nothing. Raises OSError, StorageFailedError.
    """
    nodes, sequences = tree.durable()
    now_ms = world.clock.now_ms()
    for each in (0, 1):
        job = SnapshotJob(store_id, number + each, first_sequence + each, nodes, sequences)
        write_snapshot(world.files, world.layout, job, now_ms)
    header = make_log(world, store_id, number, first_sequence)
    file = world.files.open(world.layout.metadata_log(number))
    try:
        file.write(encode_frame(header, first_sequence, END, b"", now_ms), FIRST_FRAME_AT, durable=True)
    finally:
        file.close()
    make_log(world, store_id, number + 1, first_sequence + 1)


def _migrate(world: LogEnvironment, read_format_1: Callable[[str], NodeTree]) -> None:
    """Migrate from format 1. The result counts once VERSION names the new format; until then each start migrates again.

    Raises MetadataDamagedError when the database is damaged, UnsupportedFormatError, OSError, StorageFailedError.
    """
    files, layout = world.files, world.layout
    try:
        tree = read_format_1(layout.sqlite)
    except DamagedFileError as error:
        raise MetadataDamagedError(layout.root, [str(error)]) from error
    store_id = store_id_of(tree.get(STORE_NODE))
    if store_id is None:
        if files.exists(layout.version) or _has_data(files, layout):
            raise MetadataDamagedError(layout.root, [f"{layout.sqlite} does not know the store"])
        store_id = world.entropy(16)
    files.make_dir(layout.metadata)
    for name in files.list_dir(layout.metadata):
        files.remove(f"{layout.metadata}/{name}")
    files.sync_dir(layout.metadata)
    files.sync_dir(layout.root)
    write_fresh(world, store_id, tree, 1, 1)


def _has_data(files: FileSystem, layout: Layout) -> bool:
    folders = (layout.journal, layout.ledgers)
    return any(files.exists(folder) and files.list_dir(folder) for folder in folders)


def _heal(world: LogEnvironment, loaded: LoadedMetadata) -> None:
    """Repair the logs in use: write damaged copies again from the intact copy, write a missing end frame, and sync the
    last two logs, which may have the last change.

    A killed process may have written the last change without a sync. The checkpoint of this start records that change
    as durable, so a power loss after the start must not lose it.
    """
    for number, scan in enumerate(loaded.scans):
        file = world.files.open(scan.path)
        try:
            changed = _heal_log(file, scan)
            if loaded.unsaid_end and number == len(loaded.scans) - 2:
                copies = encode_frame(scan.header, scan.next_sequence, END, b"", world.clock.now_ms())
                file.write(copies, scan.end_offset)
                changed = True
            if changed or number >= len(loaded.scans) - 2:
                file.sync()
        finally:
            file.close()


def _heal_log(file: File, scan: LogScan) -> bool:
    changed = False
    if file.size() != scan.header.size_bytes:
        file.truncate(scan.header.size_bytes)
        changed = True
    if scan.damaged_header:
        file.write([encode_log_header(scan.header)], 0)
        changed = True
    for item in scan.frames:
        if item.damaged_copy is not None:
            frame = item.frame
            copies = encode_frame(scan.header, frame.sequence, frame.kind, frame.payload, frame.written_ms)
            file.write([copies[item.damaged_copy]], item.offset + item.damaged_copy * frame.size_bytes)
            changed = True
    if scan.end is LogEnd.TORN:
        file.write([bytes(scan.torn_end - scan.end_offset)], scan.end_offset)
        changed = True
    return changed


def _remove_unfinished(files: FileSystem, layout: Layout) -> None:
    """Remove files that a crash left unfinished, and a spare log, which may lack some of its zeros."""
    remove_unended_repair(files, layout)
    for name in files.list_dir(layout.metadata):
        path = f"{layout.metadata}/{name}"
        if path == layout.spare_log or name.endswith(".new"):
            files.remove(path)


def remove_unended_repair(files: FileSystem, layout: Layout) -> None:
    """Remove the files of a repair that has not ended, and then its mark. Raises OSError."""
    names = files.list_dir(layout.metadata)
    marks = [number for name in names if (number := repair_of(name)) is not None]
    if not marks:
        return
    for name in names:
        numbers = (metadata_log_of(name), snapshot_of(name))
        if any(number is not None and number >= min(marks) for number in numbers):
            files.remove(f"{layout.metadata}/{name}")
    files.sync_dir(layout.metadata)
    for number in marks:
        files.remove(layout.repair(number))
    files.sync_dir(layout.metadata)


def newest_number(files: FileSystem, layout: Layout) -> int:
    """Return the newest number of all files in the folder; 0 for an empty folder."""
    names = metadata_names(files, layout)
    return max([0, *names.logs, *names.snapshots])
