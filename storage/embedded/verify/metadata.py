"""Reads the metadata for ``verify``, without any change in the data directory."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magnetar.storage.embedded.ledger_catalog import DELETED_ROOT, LEDGERS_ROOT, LedgerNode
from magnetar.storage.embedded.metadata.load import metadata_names
from magnetar.storage.embedded.metadata.node_tree import NodeTree
from magnetar.storage.embedded.metadata.salvage import inspect_metadata
from magnetar.storage.embedded.recovery.frame_replay import KnownLedgers
from magnetar.storage.embedded.store_version import STORE_NODE, stored_format
from magnetar.storage.errors import DamagedFileError

if TYPE_CHECKING:
    from magnetar.storage.embedded.files import FileSystem
    from magnetar.storage.embedded.layout import Layout

__all__ = ["StoredNodes", "read_stored_nodes"]


@dataclass(slots=True)
class StoredNodes:
    """The nodes of the metadata, and their content about the engine's files."""

    tree: NodeTree = field(default_factory=NodeTree)
    complete: bool = True
    """False: the start fails; the tree holds the readable part."""
    last_sequence: int | None = None
    """The sequence of the last change; None: metadata of format 1, which have no sequence."""
    store_id: bytes | None = None
    ledgers: dict[int, LedgerNode] = field(default_factory=dict)
    half_deleted: set[int] = field(default_factory=set)
    problems: list[DamagedFileError] = field(default_factory=list)
    remarks: list[DamagedFileError] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    bytes_read: int = 0

    def read_tree(self, where: str) -> None:
        """Read the engine's nodes of the tree into the fields; add nodes that do not parse to ``problems``."""
        for path, (value, version) in self.tree.nodes.items():
            try:
                if path == STORE_NODE:
                    self.store_id = bytes.fromhex(json.loads(value)["id"])
                elif path.startswith(LEDGERS_ROOT + "/"):
                    self.ledgers[int(path.rsplit("/", 1)[1])] = LedgerNode(value, version)
                elif path.startswith(DELETED_ROOT + "/"):
                    self.half_deleted.add(int(path.rsplit("/", 1)[1]))
            except (ValueError, KeyError, TypeError) as error:
                self.problems.append(DamagedFileError(where, 0, f"node {path} does not parse: {error!r}"))

    def known_ledgers(self) -> KnownLedgers:
        """The ledgers as a start sees them."""

        def end(ledger_id: int) -> tuple[int, int] | None:
            node = self.ledgers[ledger_id]
            return (node.last_entry_id + 1, node.length_bytes) if node.closed else None

        return KnownLedgers(
            set(self.ledgers),
            self.half_deleted,
            lambda ledger_id: self.ledgers[ledger_id].properties,
            end,
            self.last_sequence or 0,
        )


def read_stored_nodes(files: FileSystem, layout: Layout) -> StoredNodes:
    """Read the metadata of either format. A missing or damaged file is in ``problems``, not an error.

    Raises UnsupportedFormatError, OSError.
    """
    names = metadata_names(files, layout)
    # As at a start: the result of an interrupted migration from format 1 counts only when VERSION names the new format.
    left = not names.logs and not names.snapshots
    if files.exists(layout.sqlite) and (left or _says_format_1(files, layout)):
        return _read_format_1(layout)
    found = inspect_metadata(files, layout)
    nodes = StoredNodes(
        found.tree,
        found.complete,
        found.last_sequence,
        problems=found.damage,
        remarks=found.remarks,
        strangers=found.strangers,
        bytes_read=found.bytes_read,
    )
    nodes.read_tree(layout.metadata)
    return nodes


def _says_format_1(files: FileSystem, layout: Layout) -> bool:
    return stored_format(files, layout) == 1


def _read_format_1(layout: Layout) -> StoredNodes:
    from magnetar.storage.embedded.metadata.format_1 import salvage_format_1  # noqa: PLC0415 - only old stores need SQLite

    tree, problems = salvage_format_1(layout.sqlite)
    nodes = StoredNodes(tree, complete=not problems)
    nodes.problems += [DamagedFileError(layout.sqlite, 0, problem) for problem in problems]
    nodes.read_tree(layout.sqlite)
    return nodes
