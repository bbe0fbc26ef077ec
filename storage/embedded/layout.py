"""Names in a data directory::

VERSION               one line of text: "magnetar-store <format version> <store id> <crc32c>"
LOCK                  held (flock) while a process uses the store; holds its pid
metadata/<number>.log, metadata/<number>.snapshot, metadata/spare   MetadataStore
metadata/<number>.repair   the files from this number on belong to a repair that has not ended
metadata.sqlite       metadata of format 1 (and SQLite's -wal, -shm); metadata.sqlite.format-1 after the migration
journal/<segment id>.journal, journal/checkpoint
ledgers/<ledger id>.ledger
lost+found/           unknown files of journal/ and ledgers/, metadata before a repair; the engine never deletes them
"""

from __future__ import annotations

import posixpath

__all__ = ["Layout", "ledger_id_of", "metadata_log_of", "repair_of", "segment_id_of", "snapshot_of"]


class Layout:
    """Absolute paths of one data directory."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.version = posixpath.join(root, "VERSION")
        self.lock = posixpath.join(root, "LOCK")
        self.metadata = posixpath.join(root, "metadata")
        self.spare_log = posixpath.join(self.metadata, "spare")
        self.sqlite = posixpath.join(root, "metadata.sqlite")
        self.sqlite_kept = self.sqlite + ".format-1"
        self.journal = posixpath.join(root, "journal")
        self.checkpoint = posixpath.join(self.journal, "checkpoint")
        self.ledgers = posixpath.join(root, "ledgers")
        self.lost = posixpath.join(root, "lost+found")

    def segment(self, segment_id: int) -> str:
        return posixpath.join(self.journal, f"{segment_id:08d}.journal")

    def metadata_log(self, number: int) -> str:
        return posixpath.join(self.metadata, f"{number:08d}.log")

    def snapshot(self, number: int) -> str:
        return posixpath.join(self.metadata, f"{number:08d}.snapshot")

    def repair(self, number: int) -> str:
        return posixpath.join(self.metadata, f"{number:08d}.repair")

    def ledger(self, ledger_id: int) -> str:
        return posixpath.join(self.ledgers, f"{ledger_id:012d}.ledger")


def _number(name: str, suffix: str) -> int | None:
    stem = name.removesuffix(suffix)
    return int(stem) if stem != name and stem.isascii() and stem.isdigit() else None


def segment_id_of(name: str) -> int | None:
    """The segment id of a file name, None for other files."""
    return _number(name, ".journal")


def ledger_id_of(name: str) -> int | None:
    """The ledger id of a file name, None for other files."""
    return _number(name, ".ledger")


def metadata_log_of(name: str) -> int | None:
    """The number of a metadata log, None for other files."""
    return _number(name, ".log")


def snapshot_of(name: str) -> int | None:
    """The number of a metadata snapshot, None for other files."""
    return _number(name, ".snapshot")


def repair_of(name: str) -> int | None:
    """The number of the first file of a repair of the metadata that has not ended, None for other files."""
    return _number(name, ".repair")
