"""What the metadata of a data directory say about topics: for reading without a broker."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.protocol.topic_name import TopicName
from magnetar.storage.embedded.layout import Layout
from magnetar.storage.embedded.metadata.sqlite_nodes import SqliteNodes
from magnetar.storage.managed.ledger_list import ROOT
from magnetar.storage.managed.managed_ledger_records_pb2 import ManagedLedgerInfo

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["StoredLedger", "StoredTopic", "stored_topics"]


@dataclass(frozen=True, slots=True)
class StoredLedger:
    """A ledger in the list of a topic. ``entries`` and ``size_bytes`` are 0 while it is ``open``."""

    ledger_id: int
    entries: int
    size_bytes: int
    open: bool


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """A topic (or partition) and its ledgers in order."""

    topic: str
    ledgers: tuple[StoredLedger, ...]


def stored_topics(data_dir: str) -> list[StoredTopic]:
    """Every persistent topic of a data directory, by name, as the metadata list them.

    The metadata are read from a copy; nothing is changed. Only for a directory that no broker uses: beside a running
    one the copy may be torn, ask its admin API (``internalStats``) instead. Raises FileNotFoundError, sqlite3.Error.
    """
    layout = Layout(data_dir)
    found: list[StoredTopic] = []
    for path, value in _nodes(layout.metadata):
        name = TopicName.from_persistence_name(path.removeprefix(ROOT + "/")) if path.startswith(ROOT + "/") else None
        if name is None:
            continue
        record = ManagedLedgerInfo.FromString(value)
        ledgers = (StoredLedger(i.ledgerId, i.entries, i.size, not i.timestamp) for i in record.ledgerInfo)
        found.append(StoredTopic(str(name), tuple(ledgers)))
    return sorted(found, key=lambda topic: topic.topic)


def _nodes(path: str) -> Iterable[tuple[str, bytes]]:
    """(path, value) of every node of the metadata store at ``path``."""
    source = Path(path)
    with tempfile.TemporaryDirectory(prefix="magnetar-read-") as folder:
        copy = Path(folder) / source.name
        shutil.copyfile(source, copy)
        log = Path(path + "-wal")
        if log.exists():
            shutil.copyfile(log, f"{copy}-wal")
        nodes = SqliteNodes(str(copy))
        try:
            return [(path, value) for path, value, _ in nodes.rows()]
        finally:
            nodes.close()
