"""``verify --repair metadata``: makes metadata from their remains, from ledger files and from the journal.

The new files are complete and durable before the old files move to ``lost+found``. Until then a mark excludes the new
files: behind an interruption the old files count, and the operator may repeat the repair.
"""

from __future__ import annotations

import os
import posixpath
from typing import TYPE_CHECKING

from magnetar.storage.embedded.ledger_catalog import IDS_PATH, encode_open_node, ledger_path
from magnetar.storage.embedded.metadata.changes import PUT, SEQUENCE
from magnetar.storage.embedded.metadata.log_writer import LogEnvironment
from magnetar.storage.embedded.metadata.opening import newest_number, remove_unended_repair, write_fresh
from magnetar.storage.embedded.recovery.metadata_check import greatest_ledger_id
from magnetar.storage.embedded.store_version import STORE_NODE, encode_store_node

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from magnetar.storage.embedded.files import FileSystem
    from magnetar.storage.embedded.layout import Layout
    from magnetar.storage.embedded.metadata.node_tree import Node, NodeTree
    from magnetar.storage.embedded.verify.identities import LedgerIdentity
    from magnetar.storage.embedded.verify.metadata import StoredNodes
    from magnetar.storage.interfaces import Clock

__all__ = ["Rebuild", "repair_metadata"]

if TYPE_CHECKING:
    Rebuild = Callable[[Mapping[str, Node], Sequence[LedgerIdentity], int], tuple[list[tuple[str, bytes]], list[str]]]
    """(nodes, ledgers, now in ms) -> (records to write, lines of the report): the lists of the layers above."""
else:
    Rebuild = object

_LOG_BYTES = 1 << 20


def repair_metadata(
    files: FileSystem,
    layout: Layout,
    clock: Clock,
    nodes: StoredNodes,
    store_id: bytes,
    ledgers: Sequence[LedgerIdentity],
    last_sequence: int,
    rebuild: Rebuild | None,
) -> list[str]:
    """Repair the metadata; returns a line of text for each action. ``last_sequence``: the greatest sequence of a change
    in any file. Raises OSError, StorageError.
    """
    tree, said = nodes.tree, list[str]()
    ledgers = [each._replace(was_known=each.ledger_id in nodes.ledgers) for each in ledgers]
    wanted = [each for each in ledgers if each.ledger_id not in nodes.half_deleted]
    added = [each for each in wanted if not each.was_known]
    for each in added:
        _put(tree, ledger_path(each.ledger_id), encode_open_node(each.properties or {}))
    if added:
        said.append(f"{len(added)} ledgers were not known and are listed again: {_ids(added)}")
    if unnamed := [each for each in added if each.properties is None]:
        said.append(
            f"{len(unnamed)} of them do not say whose they are, they stay and belong to no topic: {_ids(unnamed)}"
        )
    if rebuild is not None:
        records, notes = rebuild(tree.nodes, wanted, clock.now_ms())
        for path, value in records:
            _put(tree, path, value)
        said += notes
    _put(tree, STORE_NODE, encode_store_node(store_id))
    greatest = greatest_ledger_id(files, layout, (each.ledger_id for each in ledgers))
    tree.apply([(SEQUENCE, IDS_PATH, max(tree.sequences.get(IDS_PATH, 0), greatest + 1), b"")])
    files.make_dir(layout.metadata)
    files.sync_dir(layout.root)
    world = LogEnvironment(files, layout, clock, os.urandom, _LOG_BYTES)
    remove_unended_repair(files, layout)
    number = newest_number(files, layout) + 1
    files.open(layout.repair(number), create=True).close()
    files.sync_dir(layout.metadata)
    write_fresh(world, store_id, tree, number, last_sequence + 1)
    files.remove(layout.repair(number))
    files.sync_dir(layout.metadata)
    _set_aside_old(files, layout, number)
    return [f"{layout.metadata}: written anew with {len(tree.nodes)} nodes; the old files are in {layout.lost}", *said]


def _put(tree: NodeTree, path: str, value: bytes) -> None:
    before = tree.get(path)
    tree.apply([(PUT, path, before[1] + 1 if before is not None else 0, value)])


def _ids(ledgers: Sequence[LedgerIdentity]) -> str:
    shown = [str(each.ledger_id) for each in ledgers[:20]]
    return ", ".join(shown) + (", ..." if len(ledgers) > len(shown) else "")


def _set_aside_old(files: FileSystem, layout: Layout, number: int) -> None:
    """Move all other files of the metadata folder, and a database of format 1, to ``lost+found``."""
    kept = {
        posixpath.basename(path(each))
        for path in (layout.metadata_log, layout.snapshot)
        for each in (number, number + 1)
    }
    old = [posixpath.join(layout.metadata, name) for name in files.list_dir(layout.metadata) if name not in kept]
    # A start may migrate a database of format 1 again as long as the file exists.
    old += [path for ending in ("-wal", "-shm", "") if files.exists(path := layout.sqlite + ending)]
    if old:
        files.make_dir(layout.lost)
    for path in old:
        target, suffix = posixpath.join(layout.lost, f"metadata-{posixpath.basename(path)}"), 0
        while files.exists(target):
            suffix += 1
            target = posixpath.join(layout.lost, f"metadata-{posixpath.basename(path)}.{suffix}")
        files.rename(path, target)
    if old:
        files.sync_dir(layout.lost)
        files.sync_dir(layout.metadata)
        files.sync_dir(layout.root)
