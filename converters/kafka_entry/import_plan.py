"""Planning the import of a Kafka log file: exactly once, resumable, without a journal of its own.

The topic's deduplication is the memory. Every entry is appended under a producer name derived from the file, with
sequence ids that only grow along the file; what the topic has already persisted is dropped by the same rule that
protects any producer.

    producer name = kafka-import-<16 hex digits of SHA-256(file label, sequence mode, first batch)>
    sequence id   = first offset of the entry .. last offset     (mode offset: offsets ascend through the file)
                  = position of the entry .. its last byte       (mode position: they do not, as in produced sets)

Control and empty batches are left out, and gaps that compaction left do not count: a topic gets the records.
To resume, pass the producer's last persisted sequence id: everything up to it is skipped and never sent again. Plain
messages of magic 0 and 1 are packed together; because packing starts behind the resume point, entries never straddle
it.
"""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.errors import InvalidRecordError
from magnetar.converters.kafka.record_batch import RecordBatch
from magnetar.converters.kafka_entry.planning import PlannedEntry, message_count, plan_entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from magnetar.converters.kafka.log_file import LogBatch, LogEnd, LogFile

PACK_BYTES = 128 * 1024
PACK_MESSAGES = 1_000


class SequenceMode(enum.StrEnum):
    """What sequence ids are made of."""

    OFFSET = "offset"
    POSITION = "position"


@dataclass(frozen=True, slots=True)
class Survey:
    """What a file holds, from its entry headers alone (compressed messages of magic 0 and 1 count as one)."""

    entries: int
    valid_bytes: int
    end: LogEnd
    first_batch: bytes
    sequence_mode: SequenceMode


@dataclass(frozen=True, slots=True)
class ImportStep:
    """One entry to append (None for control and empty batches), and how far the file is done once it is persisted."""

    entry: PlannedEntry | None
    next_position: int


def survey(log: LogFile) -> Survey:
    """Walk the file once; decides the sequence mode. Raises: CorruptRecordError."""
    entries, last, ascending, first = 0, -1, True, b""
    for item in log.batches():
        batch = item.batch
        # A wrapper's last offset is in its header; its first is not, but lies behind the entry before it.
        start = batch.base_offset if isinstance(batch, RecordBatch) else batch.last_offset
        ascending = ascending and start > last and batch.last_offset >= start
        last = batch.last_offset
        first = first or bytes(batch.buffer)
        entries += 1
    assert log.end is not None
    mode = SequenceMode.OFFSET if ascending else SequenceMode.POSITION
    return Survey(entries, log.valid_bytes, log.end, first, mode)


def producer_name(label: str, found: Survey) -> str:
    """The name under which this file is imported; the same file gives the same name, also after it has grown.

    Args: label tells apart files that begin with the same batch, for example "orders-0/00000000000000000000.log".
    """
    digest = hashlib.sha256()
    for part in (label.encode("utf-8", "surrogateescape"), found.sequence_mode.encode(), found.first_batch):
        digest.update(len(part).to_bytes(8, "big") + part)
    return f"kafka-import-{digest.hexdigest()[:16]}"


def plan_import(
    log: LogFile, *, name: str, mode: SequenceMode, publish_time: int, resume_after: int = -1, position: int = 0
) -> Iterator[ImportStep]:
    """Yield the entries to append, in order.

    Args:    resume_after: highest sequence id the topic has persisted for `name`, -1 for none.
             position: where to begin; 0 is always right, a later `next_position` only saves reading.
    Raises:  CrcMismatchError and KafkaFormatError at a damaged batch; InvalidRecordError when offsets do not ascend in
             mode offset (the file changed since the survey).
    """
    packer = _Packer(name, mode, publish_time, resume_after)
    for item in log.batches(position):
        yield from packer.add(item)
    yield from packer.flush()


class _Packer:
    """Gathers plain messages into entries; batches and wrappers are entries by themselves."""

    def __init__(self, name: str, mode: SequenceMode, publish_time: int, resume_after: int) -> None:
        self._name = name
        self._mode = mode
        self._publish_time = publish_time
        self._last = resume_after
        self._resume_after = resume_after
        self._pending: list[LogBatch] = []
        self._pending_bytes = 0

    def add(self, item: LogBatch) -> Iterator[ImportStep]:
        plain = not isinstance(item.batch, RecordBatch) and item.batch.codec is Codec.NONE
        if self._pending and (
            not plain
            or len(self._pending) == PACK_MESSAGES
            or self._pending_bytes + item.batch.size_in_bytes > PACK_BYTES
        ):
            yield from self.flush()
        if self._highest(item) <= self._resume_after:
            return
        if isinstance(item.batch, RecordBatch) and message_count(item.batch, gaps=False) == 0:
            yield ImportStep(None, item.next_position)
            return
        self._pending.append(item)
        self._pending_bytes += item.batch.size_in_bytes
        if not plain:
            yield from self.flush()

    def flush(self) -> Iterator[ImportStep]:
        """The entry that is being gathered, if any."""
        if not self._pending:
            return
        items, self._pending, self._pending_bytes = self._pending, [], 0
        first, last = self._lowest(items[0]), self._highest(items[-1])
        if not self._last < first <= last:
            raise InvalidRecordError(f"sequence ids {first}..{last} do not follow {self._last}: the file has changed")
        self._last = last
        entry = plan_entry(
            b"".join(bytes(item.batch.buffer) for item in items),
            publish_time=self._publish_time,
            producer_name=self._name,
            sequence_id=first,
            highest_sequence_id=last,
            gaps=False,
        )
        yield ImportStep(entry, items[-1].next_position)

    def _lowest(self, item: LogBatch) -> int:
        return item.position if self._mode is SequenceMode.POSITION else item.batch.base_offset

    def _highest(self, item: LogBatch) -> int:
        return item.next_position - 1 if self._mode is SequenceMode.POSITION else item.batch.last_offset
