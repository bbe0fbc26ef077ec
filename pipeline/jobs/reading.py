"""The input of jobs: options of the source, the plan of a range of indexes, and its rows inside a task."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from magnetar.pipeline.catalog import Catalog
from magnetar.pipeline.decode.decoder import BATCH_BYTES, Decoder
from magnetar.pipeline.encryption_keys import open_decryption
from magnetar.pipeline.errors import DataLossError, PipelineError
from magnetar.pipeline.jobs.typed_values import TypedValues
from magnetar.pipeline.lake.data_file import IndexSpan
from magnetar.pipeline.planning import ReadRange, even_split, pack, stitch
from magnetar.pipeline.reading.ranges import RangeReader
from magnetar.pipeline.reading.segments import SegmentMap, open_directory
from magnetar.pipeline.reading.settings import ReadSettings
from magnetar.pipeline.source_plan import SourcePlan, ensure_selected

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from magnetar.pipeline.entry_chunk import EntryChunk
    from magnetar.pipeline.log_range import LogRange
    from magnetar.pipeline.offsets import Offsets
    from magnetar.pipeline.options import SourceOptions
    from magnetar.pipeline.planning import Covered

_LEAST_BYTES = 4 << 20
"""The least stored bytes of a task that exists only to occupy another core."""


class NoIndexError(PipelineError):
    """The entries of a topic carry no broker entry index, by which jobs count."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"{topic}: its entries carry no broker entry index; on Apache Pulsar set brokerEntryMetadataInterceptors="
            "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor (and ...AppendBrokerTimestamp...)"
        )


def stored_logs(options: SourceOptions) -> dict[str, LogRange]:
    """The log of each selected topic partition that holds messages. Raises: CatalogError, NoIndexError, OptionError."""
    catalog = Catalog(options.connect.admin())
    topics = catalog.partitions(options.selection, missing_ok=options.wait_for_topic)
    ensure_selected(options, topics)
    found = {topic: log for topic, log in catalog.ranges(topics, ledgers=True).items() if log is not None}
    for topic, log in found.items():
        if log.entries and not log.indexed:
            raise NoIndexError(topic)
    return {topic: log for topic, log in found.items() if log.indexed}


def wanted_spans(options: SourceOptions, logs: Mapping[str, LogRange]) -> list[IndexSpan]:
    """The range of each log between startingOffsets and endingOffsets, by default all stored messages.

    Raises: OptionError, DataLossError, CatalogError.
    """
    stored = {topic: log for topic, log in sorted(logs.items()) if log.entries}
    firsts, ends = starting_indexes(options, stored), ending_indexes(options, stored)
    spans = [(topic, max(firsts[topic], int(log.first_index or 0)), ends[topic]) for topic, log in stored.items()]
    return [IndexSpan(topic, first, end) for topic, first, end in spans if first < end]


def ensure_same_logs(options: SourceOptions, spans: Iterable[IndexSpan], ledgers: Mapping[str, int]) -> None:
    """Check that no topic was deleted and made anew while it was read: the rows of such a topic may be incomplete, and
    schemas of the new topic may have decoded rows of the old topic.

    Args:    ledgers: topic partition -> the newest ledger of its log before reading began.
    Raises:  DataLossError for such a topic.
    """
    now = Catalog(options.connect.admin()).ranges(list(ledgers))
    for span in spans:
        log = now[span.topic]
        if log is not None and log.is_another_than(span.end, ledgers[span.topic]):
            raise DataLossError(span.topic, span.start, span.end, "the topic was made anew while it was read")


def starting_indexes(options: SourceOptions, logs: Mapping[str, LogRange]) -> dict[str, int]:
    """Topic partition -> the first index that the options want. Raises: as `wanted_spans`."""
    return _indexes(_plan(options).starting(dict(logs)))


def ending_indexes(options: SourceOptions, logs: Mapping[str, LogRange]) -> dict[str, int]:
    """Topic partition -> the index at which the options end (exclusive). Raises: as `wanted_spans`."""
    return _indexes(_plan(options).ending(dict(logs)))


def _plan(options: SourceOptions) -> SourcePlan:
    return SourcePlan(replace(options, storage_path=""))


def _indexes(offsets: Offsets) -> dict[str, int]:
    return {topic: place for topic, place in offsets.by_topic.items() if isinstance(place, int)}


def plan_tasks(
    spans: Sequence[IndexSpan], logs: Mapping[str, LogRange], options: SourceOptions, cores: int
) -> list[list[ReadRange]]:
    """Return each task's ranges: pieces of `splitBytes`, by default the same number of pieces for each core. Within a
    task, ranges are cut at the borders of ledger files if these are readable and hold the wanted messages: the rows of
    a compacted topic come from the broker.
    """
    by_file = options.storage_path and options.read_mode != "broker" and not options.read_compacted
    directory = open_directory(options.storage_path) if by_file else None
    ledgers = SegmentMap(directory) if directory is not None else None
    wholes: list[ReadRange] = []
    covered: dict[str, list[Covered]] = {}
    for span in spans:
        log = logs[span.topic]
        weight = log.bytes_per() * (span.end - span.start)
        newest = log.last.ledger_id
        whole = ReadRange(span.topic, log.partition, span.start, span.end, weight_bytes=weight, newest_ledger=newest)
        wholes.append(whole)
        covered[span.topic] = ledgers.covered(log, span.start, span.end) if ledgers is not None else []
    total = sum(whole.weight_bytes for whole in wholes)
    split = options.split_bytes or even_split(total, cores, _LEAST_BYTES)
    tasks = pack(wholes, split_bytes=split, min_tasks=options.min_partitions, max_messages=options.max_records)
    return [[piece for part in task for piece in stitch(part, covered[part.topic])] for task in tasks]


def readable(options: SourceOptions) -> ReadSettings:
    """The reading settings of a job that inspects messages: with onEncrypted=deliver, a message that stays encrypted
    ends the job, as with onEncrypted=fail.

    The copy of a ciphertext would not carry its encryption keys, and an encrypted batch hides the keys of its messages.
    """
    settings = ReadSettings.of(options)
    return replace(settings, on_encrypted="fail") if settings.on_encrypted == "deliver" else settings


@dataclass(frozen=True, slots=True)
class RowSettings:
    """How a task makes rows of entries; pickles.

    columns: names, None for all.   value: makes the decoders of payloads.
    """

    settings: ReadSettings
    columns: tuple[str, ...] | None = None
    style: str = "pulsar"
    value: TypedValues = field(default_factory=TypedValues)
    batch_bytes: int = BATCH_BYTES


@dataclass(slots=True)
class RowReport:
    """The entries that were left out. Positions: (topic, ledger, entry, why), at most a thousand; `messages` is the
    number of all omitted messages.
    """

    positions: list[tuple[str, int, int, str]] = field(default_factory=list)
    messages: int = 0
    lost: list[tuple[str, int, int, str]] = field(default_factory=list)

    def extend(self, other: RowReport) -> None:
        self.positions = [*self.positions, *other.positions][:_MOST_POSITIONS]
        self.messages += other.messages
        self.lost += other.lost


_MOST_POSITIONS = 1000


class RowReader:
    """The rows of ranges, inside a task. `report` lists omitted messages."""

    def __init__(self, rows: RowSettings) -> None:
        self.report = RowReport()
        self._rows = rows
        self._reader = RangeReader(rows.settings)
        self._decrypting = open_decryption(rows.settings.decryption_keys)

    def chunks(self, piece: ReadRange) -> Iterator[EntryChunk]:
        """The entries of a range, undecoded."""
        yield from self._reader.chunks(piece)

    def take_damaged(self) -> list[tuple[str, int, int, str]]:
        """(topic, ledger, entry, why) of the entries that could not be read since the last call."""
        found, self._reader.damaged = self._reader.damaged, []
        return found

    def batches(self, piece: ReadRange) -> Iterator[pa.RecordBatch]:
        """The messages of a range. Raises: as `RangeReader.chunks`; CorruptEntryError."""
        decoder = self.decoder(piece.topic)
        assert isinstance(piece.start, int)
        assert isinstance(piece.end, int)
        for chunk in self._reader.chunks(piece):
            yield from decoder.decode(chunk, piece.start, piece.end)
        yield from decoder.finish()
        self._note(decoder)

    def decoder(self, topic: str = "") -> Decoder:
        """A decoder for a range of this topic; all decoders share the schema."""
        rows = self._rows
        return Decoder(
            rows.columns,
            style=rows.style,
            value=rows.value.decoder(topic),
            batch_bytes=rows.batch_bytes,
            on_corrupt=rows.settings.on_corrupt,
            decrypting=self._decrypting,
            on_encrypted=rows.settings.on_encrypted,
            look_back=self._reader.look_back,
        )

    def _note(self, decoder: Decoder) -> None:
        kept = decoder.quarantine
        found = RowReport(
            [(e.topic, e.ledger_id, e.entry_id, f"{e.reason}: {e.detail}") for e in kept.entries], kept.messages
        )
        found.positions += self._reader.damaged
        found.messages += len(self._reader.damaged)
        found.lost = [
            (t, int(a), int(b), why) for t, a, b, why in self._reader.lost if isinstance(a, int) and isinstance(b, int)
        ]
        self._reader.damaged, self._reader.lost = [], []
        self.report.extend(found)
