"""Plans the import of a Kafka log file: exactly once, resumable, without a journal.

The topic's deduplication keeps the state. Every entry is appended under a producer name derived from the file, with
sequence ids that only grow along the file; so the topic drops entries that it has already persisted, as for any
producer.

    producer name = kafka-import-<16 hex digits of SHA-256(file label, sequence mode, first batch)>
    sequence id   = first offset of the entry .. last offset     (mode offset: offsets ascend through the file)
                  = position of the entry .. its last byte       (mode position: they do not, as in produced sets)

Control and empty batches are left out, and gaps that compaction left do not count: the topic gets only the records.
Batches of aborted transactions are left out when the plan has the log's `Transactions`; the plan then ends in front of
the first batch of the earliest open transaction, because sequence ids cannot return to it once it commits.
To resume, pass the producer's last persisted sequence id: entries up to it are skipped and never sent again. Plain
messages of magic 0 and 1 are packed together; because packing starts behind the resume point, entries never straddle
it.

A broker may report a last sequence id before the entry with this id is on the disk. `confirm` plans the batch that ends
at this id once more, under the same id: the receipt proves that all entries up to it are stored.
"""

from __future__ import annotations

import enum
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.converters.errors import ConverterError
from magnetar.converters.kafka.codecs import CODEC_BITS, codec_of
from magnetar.converters.kafka.errors import InvalidRecordError
from magnetar.converters.kafka.log_file import LogDamage
from magnetar.converters.kafka.record_batch import RecordBatch
from magnetar.converters.kafka.transactions import Outcome
from magnetar.converters.kafka_entry.planning import PlannedEntry, frame_entry, message_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from magnetar.converters.kafka.log_file import LogBatch, LogEnd, LogFile
    from magnetar.converters.kafka.transactions import Transactions

PACK_BYTES = 128 * 1024
PACK_MESSAGES = 1_000
_SEGMENT_NAME = re.compile(r"\d{20}\.log")


class SequenceMode(enum.StrEnum):
    """The source of sequence ids."""

    OFFSET = "offset"
    POSITION = "position"

    @staticmethod
    def for_file(name: str) -> SequenceMode:
        """Return the mode that stays right for a file of this name, also after later appends.

        Kafka names segments by their base offset, and offsets ascend in them even when its cleaner rewrites the file;
        in any other file only positions are sure to ascend.
        """
        return SequenceMode.OFFSET if _SEGMENT_NAME.fullmatch(name) else SequenceMode.POSITION


def place_of(item: LogBatch, mode: SequenceMode) -> int:
    """Return the place of a batch for `Transactions`: its position, or its last offset, which also wrappers state."""
    return item.position if mode is SequenceMode.POSITION else item.batch.last_offset


@dataclass(frozen=True, slots=True)
class Survey:
    """Facts about the entries of a file, found without decoding records; a wrapper (magic 0 or 1) counts as one
    entry.
    """

    entries: int
    valid_bytes: int
    end: LogEnd
    first_batch: bytes
    sequence_mode: SequenceMode


@dataclass(frozen=True, slots=True)
class ImportStep:
    """One entry to append (None for control, aborted and empty batches and for damage).

    next_position: the file is imported up to this position once the entry is persisted.
    confirms: the topic should have the entry already, and its receipt confirms that.
    aborted_messages: number of records of an aborted transaction that the step leaves out.
    waits: the batch at `position` belongs to an open transaction, or stands behind such a batch; the plan ends.
    """

    entry: PlannedEntry | None
    position: int
    next_position: int
    confirms: bool = False
    aborted_messages: int = 0
    waits: bool = False


def survey(log: LogFile) -> Survey:
    """Read the file once and decide the sequence mode. Raises: DamagedLogError, unless the file has `on_damage`."""
    entries, last, ascending, first = 0, -1, True, b""
    for item in log.batches():
        batch = item.batch
        # The header of a wrapper has only its last offset; its first offset lies behind the previous entry.
        start = batch.base_offset if isinstance(batch, RecordBatch) else batch.last_offset
        ascending = ascending and start > last and batch.last_offset >= start
        last = batch.last_offset
        first = first or bytes(batch.buffer)
        entries += 1
    assert log.end is not None
    mode = SequenceMode.OFFSET if ascending else SequenceMode.POSITION
    return Survey(entries, log.valid_bytes, log.end, first, mode)


def producer_name(label: str, first_batch: bytes, mode: SequenceMode) -> str:
    """Return the producer name for this file; the same file gives the same name, also after it has grown.

    Args: label tells apart files that begin with the same batch, for example "orders-0/00000000000000000000.log".
    """
    digest = hashlib.sha256()
    for part in (label.encode("utf-8", "surrogateescape"), mode.encode(), first_batch):
        digest.update(len(part).to_bytes(8, "big") + part)
    return f"kafka-import-{digest.hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """How a file becomes entries.

    resume_after: highest sequence id the topic has for `name`, -1 for none.
    confirm: begin with the batch that ends at `resume_after`, see the module.
    check_records: decode every record of a batch, not only headers and checksums, before the batch is planned.
    on_damage: called with a batch that cannot be stored; the batch is left out. Without on_damage it raises.
    transactions: of the whole log, with places as in `mode` (offsets or positions); None stores every record, as a
                  consumer with isolation level read_uncommitted reads them.
    """

    name: str
    mode: SequenceMode
    publish_time: int
    resume_after: int = -1
    confirm: bool = False
    check_records: bool = False
    on_damage: Callable[[LogDamage], None] | None = None
    transactions: Transactions | None = None

    def steps(self, log: LogFile, position: int = 0) -> Iterator[ImportStep]:
        """Yield the entries to append, in order.

        Args:    position: where to begin; 0 is always right, the `next_position` of an earlier step saves reading.
        Raises:  CrcMismatchError and other ConverterErrors at a damaged batch; InvalidRecordError when offsets do not
                 ascend in mode offset (the file changed, or was no segment).
        """
        packer = _Packer(self)
        try:
            for item in log.batches(position):
                if packer.waits_at(item):
                    yield from packer.flush()
                    yield ImportStep(None, item.position, item.position, waits=True)
                    return
                yield from packer.add(item)
        except Exception:
            yield from packer.flush()  # entries before the damage are part of the plan
            raise
        yield from packer.flush()


def plan_import(
    log: LogFile, *, name: str, mode: SequenceMode, publish_time: int, resume_after: int = -1, position: int = 0
) -> Iterator[ImportStep]:
    """Return `ImportPlan.steps`, with the defaults for all other fields of the plan."""
    return ImportPlan(name, mode, publish_time, resume_after).steps(log, position)


class _Packer:
    """Gathers plain messages into entries; batches and wrappers are entries by themselves."""

    def __init__(self, plan: ImportPlan) -> None:
        self._plan = plan
        self._last = plan.resume_after
        self._first = -1
        self._pending: list[LogBatch] = []
        self._pending_bytes = 0

    def waits_at(self, item: LogBatch) -> bool:
        """Whether the batch is at or behind the last stable place, and is not stored already."""
        transactions = self._plan.transactions
        stable = None if transactions is None else transactions.last_stable_place
        return stable is not None and self._highest(item) > self._plan.resume_after and self._place(item) >= stable

    def add(self, item: LogBatch) -> Iterator[ImportStep]:
        plain = not isinstance(item.batch, RecordBatch) and not item.batch.attributes & CODEC_BITS
        if self._pending and (
            not plain
            or len(self._pending) == PACK_MESSAGES
            or self._pending_bytes + item.batch.size_in_bytes > PACK_BYTES
        ):
            yield from self.flush()
        highest = self._highest(item)
        if highest <= self._plan.resume_after:
            if self._plan.confirm and highest == self._plan.resume_after:
                yield self._step([item], 1, highest, highest, confirms=True)
            return
        aborted = 0
        try:
            messages = self._checked(item)
            if messages and self._is_aborted(item):
                messages, aborted = 0, messages
            lowest = self._lowest(item) if messages else -1  # the offset of a wrapper may not fit its messages
        except ConverterError as error:
            yield from self.flush()
            if self._plan.on_damage is None:
                raise
            self._plan.on_damage(LogDamage(item.position, item.next_position, str(error)))
            messages = 0
        if messages == 0:
            yield from self.flush()
            yield ImportStep(None, item.position, item.next_position, aborted_messages=aborted)
            return
        if not self._pending:
            self._first = lowest
        self._pending.append(item)
        self._pending_bytes += item.batch.size_in_bytes
        if not plain:
            yield from self.flush(messages)

    def flush(self, messages: int | None = None) -> Iterator[ImportStep]:
        """Yield the entry of the gathered batches, if any. `messages` None: each of them is one plain message."""
        if not self._pending:
            return
        items, self._pending, self._pending_bytes = self._pending, [], 0
        first, last = self._first, self._highest(items[-1])
        if not self._last < first <= last:
            raise InvalidRecordError(
                f"position {items[0].position}: sequence ids {first}..{last} do not follow {self._last}: "
                "the file has changed, or its offsets do not ascend"
            )
        self._last = last
        yield self._step(items, len(items) if messages is None else messages, first, last)

    def _is_aborted(self, item: LogBatch) -> bool:
        transactions = self._plan.transactions
        return transactions is not None and transactions.outcome(item.batch, self._place(item)) is Outcome.ABORTED

    def _checked(self, item: LogBatch) -> int:
        """Verify the batch; return its number of messages. Raises: ConverterError."""
        batch = item.batch
        batch.ensure_valid()
        codec_of(batch.attributes, batch.magic)
        if self._plan.check_records:
            for _record in batch.records():
                pass
        return message_count(batch, gaps=False)

    def _step(
        self, items: list[LogBatch], messages: int, first: int, last: int, *, confirms: bool = False
    ) -> ImportStep:
        buffers = [item.batch.buffer for item in items]
        entry = frame_entry(
            buffers[0] if len(buffers) == 1 else b"".join(buffers),
            messages,
            publish_time=self._plan.publish_time,
            producer_name=self._plan.name,
            sequence_id=first,
            highest_sequence_id=last,
        )
        return ImportStep(entry, items[0].position, items[-1].next_position, confirms)

    def _place(self, item: LogBatch) -> int:
        return place_of(item, self._plan.mode)

    def _lowest(self, item: LogBatch) -> int:
        return item.position if self._plan.mode is SequenceMode.POSITION else item.batch.base_offset

    def _highest(self, item: LogBatch) -> int:
        return item.next_position - 1 if self._plan.mode is SequenceMode.POSITION else item.batch.last_offset
