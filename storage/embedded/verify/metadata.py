"""The metadata as ``verify`` sees them: read from a copy, so that nothing in the data directory is touched."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from magnetar.storage.embedded.ledger_catalog import LedgerNode
from magnetar.storage.embedded.metadata.sqlite_nodes import SqliteNodes

__all__ = ["StoredNodes", "read_sqlite_nodes"]


@dataclass(slots=True)
class StoredNodes:
    """What the metadata say about the engine's files."""

    store_id: bytes | None = None
    ledgers: dict[int, LedgerNode] = field(default_factory=dict)
    half_deleted: set[int] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def add(self, path: str, value: bytes, version: int) -> None:
        """Take note of a node that concerns the engine."""
        try:
            if path == "/store":
                self.store_id = bytes.fromhex(json.loads(value)["id"])
            elif path.startswith("/ledgers/"):
                self.ledgers[int(path.rsplit("/", 1)[1])] = LedgerNode(value, version)
            elif path.startswith("/deleted-ledgers/"):
                self.half_deleted.add(int(path.rsplit("/", 1)[1]))
        except (ValueError, KeyError, TypeError) as error:
            self.problems.append(f"node {path} does not parse: {error!r}")


def read_sqlite_nodes(path: str) -> StoredNodes:
    """Copy the database (and its log) and read the copy. A missing or damaged one is a problem told, not raised."""
    found = StoredNodes()
    source = Path(path)
    if not source.exists():
        found.problems.append("the database is missing")
        return found
    with tempfile.TemporaryDirectory(prefix="magnetar-verify-") as folder:
        copy = Path(folder) / source.name
        for suffix in ("", "-wal"):
            part = Path(path + suffix)
            if part.exists():
                shutil.copyfile(part, f"{copy}{suffix}")
        try:
            nodes = SqliteNodes(str(copy))
        except sqlite3.Error as error:
            found.problems.append(str(error))
            return found
        try:
            found.problems += nodes.problems()
            for row in nodes.rows():
                found.add(*row)
        except sqlite3.Error as error:
            found.problems.append(str(error))
        finally:
            nodes.close()
    return found
