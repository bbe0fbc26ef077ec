"""Whether the metadata are those of this journal and these ledger files. Read before anything is changed.

The journal and the checkpoint note the last change of the metadata that was durable when they were written, so metadata
that end before it have lost changes. And a file with entries of a ledger the metadata do not know is no foreign file to
be put aside: a ledger's file goes before its last mention in the metadata does.
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
    """The error text when the metadata end before a change that the journal has seen."""
    seen = [frame.metadata_sequence for scan in scans for frame in scan.frames]
    newest = max([checkpoint.metadata_sequence, *seen])
    if newest <= last_sequence:
        return []
    return [f"they end with change {last_sequence}, the journal has seen change {newest}"]


def forgotten_ledgers(files: FileSystem, layout: Layout, store_id: bytes, known: Collection[int]) -> list[int]:
    """Ids of ledger files of this store that hold entries and that the metadata do not know, ascending."""
    found = []
    for name in files.list_dir(layout.ledgers):
        ledger_id = ledger_id_of(name)
        if ledger_id is not None and ledger_id not in known:
            path = posixpath.join(layout.ledgers, name)
            if name == posixpath.basename(layout.ledger(ledger_id)) and _is_ours(files, path, store_id, ledger_id):
                found.append(ledger_id)
    return sorted(found)


def forgotten_problem(ledger_ids: list[int]) -> list[str]:
    """The problems of these ledgers, as lines for the operator."""
    if not ledger_ids:
        return []
    named = ", ".join(map(str, ledger_ids[:_NAMED])) + (", ..." if len(ledger_ids) > _NAMED else "")
    return [f"they do not know {len(ledger_ids)} ledgers of this store whose files hold entries: {named}"]


def greatest_ledger_id(files: FileSystem, layout: Layout, others: Iterable[int]) -> int:
    """The greatest of all ids ever seen: of files, also of files put aside, and of ``others``; -1 without any."""
    ids = [ledger_id for ledger_id in others if ledger_id < _GREATEST_ID]
    for folder in (layout.ledgers, layout.lost):
        for name in files.list_dir(folder) if files.exists(folder) else ():
            ledger_id = ledger_id_of(name.partition(".ledger")[0] + ".ledger")
            if ledger_id is not None and ledger_id < _GREATEST_ID:
                ids.append(ledger_id)
    return max(ids, default=-1)


def _is_ours(files: FileSystem, path: str, store_id: bytes, ledger_id: int) -> bool:
    """Whether the file holds entries of this ledger of this store, or the rest of its head names them."""
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
