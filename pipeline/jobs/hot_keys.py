"""Hot keys, and how unevenly Key_Shared would spread a topic over consumers.

The sticky key of a message is its ordering key, else its key, as in the broker. Counts per slot of the hash ring are
exact. Counts per key are exact while a task sees at most `MOST_KEYS` keys; with more keys, the algorithm of Misra and
Gries drops the rarest keys, and `undercount` bounds the missing count of a reported key.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from magnetar.pipeline.jobs.reading import RowReader, RowSettings, plan_tasks, stored_logs, wanted_spans
from magnetar.pipeline.reading.settings import ReadSettings
from magnetar.protocol.key_hash import RANGE_SIZE, sticky_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.pipeline.jobs.page import Page
    from magnetar.pipeline.jobs.runner import Runner
    from magnetar.pipeline.options import SourceOptions
    from magnetar.pipeline.planning import ReadRange
    from magnetar.pipeline.progress import Progress

MOST_KEYS: Final = 100_000
_COLUMNS = ("__key", "__orderingKey", "__size")


@dataclass(slots=True)
class KeyFacts:
    """Sticky key -> messages (at most MOST_KEYS), slot of the ring -> messages, and totals."""

    keys: Counter[bytes] = field(default_factory=Counter)
    slots: Counter[int] = field(default_factory=Counter)
    messages: int = 0
    without_key: int = 0
    undercount: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the rows of a batch by their sticky keys."""
        sticky = pc.coalesce(batch.column("__orderingKey"), batch.column("__key"))
        self.messages += batch.num_rows
        self.without_key += sticky.null_count
        counted = sticky.drop_null().value_counts()
        for key, count in zip(counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True):
            self.keys[key] += count
            self.slots[sticky_hash(key)] += count
        self._bound()

    def merge(self, other: KeyFacts) -> None:
        self.keys += other.keys
        self.slots += other.slots
        self.messages += other.messages
        self.without_key += other.without_key
        self.undercount += other.undercount
        self._bound()

    def _bound(self) -> None:
        """Misra-Gries: subtract the count of the first key beyond the bound from all."""
        if len(self.keys) <= MOST_KEYS:
            return
        floor = self.keys.most_common(MOST_KEYS + 1)[-1][1]
        self.keys = Counter({key: count - floor for key, count in self.keys.items() if count > floor})
        self.undercount += floor

    def share_of_consumers(self, consumers: int) -> list[float]:
        """The part of the messages that each consumer gets when the ring is split evenly among that many consumers."""
        total = sum(self.slots.values()) or 1
        shares = [0.0] * consumers
        for slot, count in self.slots.items():
            shares[slot * consumers // RANGE_SIZE] += count / total
        return shares


@dataclass(frozen=True, slots=True)
class KeyPiece:
    """The work of one task; pickles."""

    ranges: tuple[ReadRange, ...]
    rows: RowSettings


def count_piece(piece: KeyPiece) -> KeyFacts:
    """Count the keys of one task's ranges."""
    reader, facts = RowReader(piece.rows), KeyFacts()
    for each in piece.ranges:
        for batch in reader.batches(each):
            facts.add(batch)
    return facts


def key_statistics(
    options: SourceOptions,
    runner: Runner,
    progress: Progress,
    *,
    top: int = 20,
    consumers: Sequence[int] = (2, 4, 8, 16),
) -> dict[str, Any]:
    """Return the statistics of all selected topics together. Raises: PipelineError, ClientError."""
    logs = stored_logs(options)
    spans = wanted_spans(options, logs)
    tasks = plan_tasks(spans, logs, options, runner.cores)
    rows = RowSettings(ReadSettings.of(options), _COLUMNS)
    weights = [sum(each.weight_bytes for each in ranges) for ranges in tasks]
    progress.begin(sum(weights))
    whole = KeyFacts()
    for facts in runner.map(count_piece, [KeyPiece(tuple(ranges), rows) for ranges in tasks], progress, weights):
        whole.merge(facts)
    with_key = whole.messages - whole.without_key
    return {
        "messages": whole.messages,
        "without_key": whole.without_key,
        "keys": len(whole.keys),
        "undercount": whole.undercount,
        "top": [
            {"key": _text(key), "messages": count, "share": count / (with_key or 1), "slot": sticky_hash(key)}
            for key, count in whole.keys.most_common(top)
        ],
        "key_shared": [_skew(number, whole.share_of_consumers(number)) for number in consumers],
    }


def _skew(consumers: int, shares: list[float]) -> dict[str, Any]:
    """The spread over so many consumers. skew: the largest share times the number of consumers, 1 for an even spread; 2
    means that the busiest consumer gets twice its part.
    """
    return {"consumers": consumers, "largest": max(shares), "smallest": min(shares), "skew": max(shares) * consumers}


def _text(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")


def as_text(report: dict[str, Any]) -> str:
    """The hottest keys and the skew."""
    keys = [f"{each['share']:7.2%}  {each['messages']:>12}  {each['key']}" for each in report["top"]]
    skew = [
        f"Key_Shared with {each['consumers']} consumers: the busiest gets {each['largest']:.1%} "
        f"({each['skew']:.2f} x its part)"
        for each in report["key_shared"]
    ]
    totals = f"{report['messages']} messages, {report['keys']} keys, {report['without_key']} messages without a key"
    return "\n".join([totals, *keys, *skew])


def draw(report: dict[str, Any], page: Page) -> None:
    """The report as charts and tables."""
    page.heading("Hot keys")
    page.bars([(each["key"], each["messages"]) for each in report["top"]], "messages")
    page.table(report["top"], ("key", "messages", "share", "slot"))
    page.heading("Key_Shared")
    page.table(report["key_shared"], ("consumers", "largest", "smallest", "skew"))
