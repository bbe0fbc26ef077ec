"""The topics in the metadata of a data directory: for reading without a broker."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.protocol.topic_name import TopicName
from magnetar.storage.embedded.files import RealFiles
from magnetar.storage.embedded.layout import Layout
from magnetar.storage.embedded.verify.metadata import read_stored_nodes
from magnetar.storage.errors import MetadataDamagedError
from magnetar.storage.managed.ledger_list import ROOT
from magnetar.storage.managed.managed_ledger_records_pb2 import ManagedLedgerInfo

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

    Changes nothing. Precondition: no broker uses the directory. A running broker changes the metadata during the read;
    ask its admin API (``internalStats``) instead. Raises MetadataDamagedError when metadata are incomplete or missing,
    OSError.
    """
    layout = Layout(data_dir)
    nodes = read_stored_nodes(RealFiles(), layout)
    if not nodes.complete:
        raise MetadataDamagedError(data_dir, [str(problem) for problem in nodes.problems])
    found: list[StoredTopic] = []
    for path, (value, _) in nodes.tree.nodes.items():
        name = TopicName.from_persistence_name(path.removeprefix(ROOT + "/")) if path.startswith(ROOT + "/") else None
        if name is None:
            continue
        record = ManagedLedgerInfo.FromString(value)
        ledgers = (StoredLedger(i.ledgerId, i.entries, i.size, not i.timestamp) for i in record.ledgerInfo)
        found.append(StoredTopic(str(name), tuple(ledgers)))
    return sorted(found, key=lambda topic: topic.topic)
