"""Delay statistics: how far ahead the messages of a topic are to be delivered, from the metadata of their entries."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from magnetar.pipeline.decode.headers import Headers
from magnetar.pipeline.jobs.entry_scan import scan_topics
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.entry_columns import ColumnFlag, EntryColumn, EntryStatus

if TYPE_CHECKING:
    from magnetar.pipeline.entry_chunk import EntryChunk
    from magnetar.pipeline.jobs.page import Page
    from magnetar.pipeline.jobs.runner import Runner
    from magnetar.pipeline.options import SourceOptions
    from magnetar.pipeline.progress import Progress

STEPS_S: Final = (1, 10, 60, 600, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400)
"""Upper bounds of the classes of delays, in seconds; the last class has no bound."""


@dataclass(slots=True)
class DelayFacts:
    """Delay statistics of one stretch or one topic.

    pending: class of STEPS_S -> pending messages, classified by the time left until their delivery.
    delayed: class of STEPS_S -> all delayed messages, classified by the time from publication to delivery.
    furthest_ms: the latest delivery time; 0 without a delayed message.
    """

    topic: str = ""
    messages: int = 0
    pending: Counter[int] = field(default_factory=Counter)
    delayed: Counter[int] = field(default_factory=Counter)
    furthest_ms: int = 0

    def merge(self, other: DelayFacts) -> None:
        self.messages += other.messages
        self.pending += other.pending
        self.delayed += other.delayed
        self.furthest_ms = max(self.furthest_ms, other.furthest_ms)


class DelayScan:
    """Takes the chunks of a stretch. now_ms: messages with a later delivery time are pending."""

    def __init__(self, topic: str, now_ms: int) -> None:
        self.facts = DelayFacts(topic)
        self._now_ms = now_ms

    def add(self, chunk: EntryChunk, first_index: int, end_index: int) -> None:
        """Count the messages of the entries whose last index is in the range; clients never batch delayed messages."""
        headers = Headers(chunk, verify=False)
        fine = headers[EntryColumn.STATUS] == EntryStatus.FINE
        mine = fine & (headers.last_index >= first_index) & (headers.last_index < end_index)
        mine &= ~headers.has(ColumnFlag.MARKER)
        self.facts.messages += int(np.maximum(headers.messages[mine], 1).sum())
        data = memoryview(chunk.data)
        starts, ends = headers[EntryColumn.METADATA_START], headers[EntryColumn.METADATA_END]
        for row in np.flatnonzero(mine).tolist():
            metadata = pb.MessageMetadata.FromString(bytes(data[int(starts[row]) : int(ends[row])]))
            if metadata.deliver_at_time > 0:
                count = max(int(headers.messages[row]), 1)
                self._note(metadata.deliver_at_time, metadata.publish_time, count)

    def _note(self, deliver_at_ms: int, publish_ms: int, count: int) -> None:
        facts = self.facts
        facts.delayed[delay_class(deliver_at_ms - publish_ms)] += count
        facts.furthest_ms = max(facts.furthest_ms, deliver_at_ms)
        if deliver_at_ms > self._now_ms:
            facts.pending[delay_class(deliver_at_ms - self._now_ms)] += count


def delay_class(delay_ms: int) -> int:
    """The number of the class of STEPS_S that a delay belongs to."""
    return next((n for n, step in enumerate(STEPS_S) if delay_ms <= step * 1000), len(STEPS_S))


def class_name(number: int) -> str:
    """The label of a class in reports."""
    units = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))

    def text(seconds: int) -> str:
        size, unit = next((size, unit) for size, unit in units if seconds % size == 0)
        return f"{seconds // size} {unit}"

    return f"up to {text(STEPS_S[number])}" if number < len(STEPS_S) else f"over {text(STEPS_S[-1])}"


def delay_statistics(
    options: SourceOptions, runner: Runner, progress: Progress, *, now_ms: int | None = None
) -> dict[str, Any]:
    """Return the statistics of each selected topic partition. Raises: PipelineError, ClientError."""
    moment = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    by_topic: dict[str, DelayFacts] = {}
    for facts in scan_topics(options, runner, progress, _Make(moment)):
        by_topic.setdefault(facts.topic, DelayFacts(facts.topic)).merge(facts)
    return {"now_ms": moment, "topics": [_as_json(facts, moment) for _, facts in sorted(by_topic.items())]}


@dataclass(frozen=True, slots=True)
class _Make:
    """Makes the scan of a stretch in its task."""

    now_ms: int

    def __call__(self, topic: str) -> DelayScan:
        return DelayScan(topic, self.now_ms)


def _as_json(facts: DelayFacts, now_ms: int) -> dict[str, Any]:
    def named(counts: Counter[int]) -> dict[str, int]:
        return {class_name(n): counts[n] for n in range(len(STEPS_S) + 1) if counts[n]}

    return {
        "topic": facts.topic,
        "messages": facts.messages,
        "delayed": sum(facts.delayed.values()),
        "pending": sum(facts.pending.values()),
        "furthest_s": max(0.0, (facts.furthest_ms - now_ms) / 1000) if facts.furthest_ms else 0.0,
        "pending_by_time_left": named(facts.pending),
        "by_delay": named(facts.delayed),
    }


def as_text(report: dict[str, Any]) -> str:
    """One line per topic."""
    return "\n".join(
        f"{each['topic']}: {each['pending']} of {each['messages']} messages pending, "
        f"furthest in {each['furthest_s']:.0f} s"
        for each in report["topics"]
    )


def draw(report: dict[str, Any], page: Page) -> None:
    """The report as charts and a table."""
    for each in report["topics"]:
        page.heading(each["topic"])
        page.text(f"{each['pending']} of {each['messages']} messages pending; time left:")
        page.bars(list(each["pending_by_time_left"].items()), "messages")
    page.table(report["topics"], ("topic", "messages", "delayed", "pending", "furthest_s"))
