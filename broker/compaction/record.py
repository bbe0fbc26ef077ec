"""The durable record of a topic's compaction: a few numbers, stored atomically with the position of the cursor
`__compaction`.

``CompactedTopicLedger`` (Apache Pulsar's name) and the horizon describe the compacted topic: the ledger replaces every
entry up to and including the horizon. Two more numbers name ledgers to delete: the ledger that a compaction was
writing, and the ledger that a compaction replaced. The last names the ledger of the log with which the first compaction
began: a log that still has this ledger has the originals of all entries of the compacted ledger.
"""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.storage.position import EARLIEST, Position

__all__ = ["NO_LEDGER", "OWN_PROPERTIES", "CompactionRecord"]

NO_LEDGER = -1
_LEDGER, _HORIZON_LEDGER, _HORIZON_ENTRY = "CompactedTopicLedger", "CompactionHorizonLedger", "CompactionHorizonEntry"
_STARTED, _REPLACED = "CompactionStartedLedger", "CompactionReplacedLedger"
_BEGUN = "CompactionFirstLedger"
OWN_PROPERTIES = frozenset({_HORIZON_LEDGER, _HORIZON_ENTRY, _STARTED, _REPLACED, _BEGUN})
"""The properties that Apache Pulsar does not have."""


@dataclass(frozen=True, slots=True)
class CompactionRecord:
    """`ledger_id` NO_LEDGER: the topic was never compacted."""

    ledger_id: int = NO_LEDGER
    horizon: Position = EARLIEST
    started: int = NO_LEDGER
    replaced: int = NO_LEDGER
    first_source: int = NO_LEDGER
    """The first ledger that the first compaction read; NO_LEDGER: not known, as in records of earlier versions."""

    def properties(self) -> dict[str, int]:
        values = {
            _LEDGER: self.ledger_id,
            _HORIZON_LEDGER: self.horizon.ledger_id,
            _HORIZON_ENTRY: self.horizon.entry_id,
            _STARTED: self.started,
            _REPLACED: self.replaced,
            _BEGUN: self.first_source,
        }
        if self.ledger_id == NO_LEDGER:
            del values[_HORIZON_LEDGER], values[_HORIZON_ENTRY], values[_BEGUN]
        return {key: value for key, value in values.items() if value != NO_LEDGER}

    @property
    def ledger_ids(self) -> frozenset[int]:
        """Every ledger that the record names."""
        return frozenset({self.ledger_id, self.started, self.replaced} - {NO_LEDGER})

    @classmethod
    def of(cls, properties: dict[str, int], mark_delete: Position = EARLIEST) -> CompactionRecord:
        """mark_delete: of the cursor; the horizon when the properties have no horizon, as in Apache Pulsar."""
        horizon = mark_delete
        if _HORIZON_LEDGER in properties:
            horizon = Position(properties[_HORIZON_LEDGER], properties.get(_HORIZON_ENTRY, -1))
        return cls(
            properties.get(_LEDGER, NO_LEDGER),
            horizon if _LEDGER in properties else EARLIEST,
            properties.get(_STARTED, NO_LEDGER),
            properties.get(_REPLACED, NO_LEDGER),
            properties.get(_BEGUN, NO_LEDGER) if _LEDGER in properties else NO_LEDGER,
        )
