"""Checks, before any change, whether the metadata belong to this journal and these ledger files.

The journal and the checkpoint record the last change of the metadata that was durable when they were written, so
metadata that end before this change have lost changes. A file with entries of a ledger that the metadata do not list is
no unknown file for ``lost+found`` but a sign of lost metadata: the engine removes the file of a ledger before the last
node of the ledger in the metadata.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES
from magnetar.storage.embedded.layout import ledger_id_of
from magnetar.storage.embedded.ledger_head import parse_ledger_head
from magnetar.storage.errors import DamagedFileError
from magnetar.storage.records import find_entry

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from magnetar.storage.embedded.checkpoint_file import Checkpoint
    from magnetar.storage.embedded.files import FileSystem
    from magnetar.storage.embedded.journal.scan import SegmentScan
    from magnetar.storage.embedded.layout import Layout

__all__ = ["forgotten_ledgers", "forgotten_problem", "greatest_ledger_id", "metadata_lag"]

_LOOK_BYTES = 1 << 20
_GREATEST_ID = 1 << 62
_NAMED = 5


def metadata_lag(checkpoint: Checkpoint, scans: Iterable[SegmentScan], last_sequence: int) -> list[str]:
    """An error text if the metadata end before a change that the checkpoint or the journal records, else no text."""
    seen = [frame.metadata_sequence for scan in scans for frame in scan.frames]
    newest = max([checkpoint.metadata_sequence, *seen])
    if newest <= last_sequence:
        return []
    return [f"they end with change {last_sequence}, the journal has seen change {newest}"]


def forgotten_ledgers(files: FileSystem, layout: Layout, store_id: bytes, known: Collection[int]) -> list[int]:
    """The ids of ledgers of this store whose files hold entries and which are not in ``known``, ascending."""
    found = []
    for name in files.list_dir(layout.ledgers):
        ledger_id = ledger_id_of(name)
        if ledger_id is not None and ledger_id not in known:
            path = posixpath.join(layout.ledgers, name)
            if name == posixpath.basename(layout.ledger(ledger_id)) and _is_ours(files, path, store_id, ledger_id):
                found.append(ledger_id)
    return sorted(found)


def forgotten_problem(ledger_ids: list[int]) -> list[str]:
    """The problem of these ledgers, as text for the operator; no text without ledgers."""
    if not ledger_ids:
        return []
    named = ", ".join(map(str, ledger_ids[:_NAMED])) + (", ..." if len(ledger_ids) > _NAMED else "")
    return [f"they do not know {len(ledger_ids)} ledgers of this store whose files hold entries: {named}"]


def greatest_ledger_id(files: FileSystem, layout: Layout, others: Iterable[int]) -> int:
    """The greatest ledger id of files, also of files in ``lost+found``, and of ``others``; -1 without any id."""
    ids = [ledger_id for ledger_id in others if ledger_id < _GREATEST_ID]
    for folder in (layout.ledgers, layout.lost):
        for name in files.list_dir(folder) if files.exists(folder) else ():
            ledger_id = ledger_id_of(name.partition(".ledger")[0] + ".ledger")
            if ledger_id is not None and ledger_id < _GREATEST_ID:
                ids.append(ledger_id)
    return max(ids, default=-1)


def _is_ours(files: FileSystem, path: str, store_id: bytes, ledger_id: int) -> bool:
    """Whether the file belongs to this ledger of this store and has bytes behind its head; with a damaged head, whether
    the file has a record of this ledger.
    """
    file = files.open_read_only(path)
    try:
        data = file.read(_LOOK_BYTES, 0)
        size = file.size()
    finally:
        file.close()
    try:
        head = parse_ledger_head(path, data)
    except DamagedFileError:
        return find_entry(data, 0, len(data), ledger_id, 0) is not None
    if (head.header.store_id, head.header.file_id) != (store_id, ledger_id):
        return False
    return size > max(head.data_offset, FILE_HEADER_BYTES)
