"""Decides where the source begins and ends, and which task reads which range: options and catalog in, tasks out. No
Spark.

The plan lives as long as its stream. The plan remembers only the content of ledger files and reads the catalog again
for each micro-batch, so new partitions and new topics appear.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from magnetar.pipeline.catalog import Catalog
from magnetar.pipeline.errors import (
    CatalogError,
    CatalogRefusedError,
    CatalogUnavailableError,
    DataLossError,
    NoSuchTopicError,
)
from magnetar.pipeline.log_range import MADE_ANEW
from magnetar.pipeline.offsets import EARLIEST, LATEST, MessagePlace, Offsets, Position, TimePlace, is_before
from magnetar.pipeline.option_table import OptionError
from magnetar.pipeline.planning import SPLIT_BYTES, ReadRange, even_split, pack, shares, stitch
from magnetar.pipeline.reading.segments import SegmentMap, open_directory

if TYPE_CHECKING:
    from collections.abc import Iterable

    from magnetar.pipeline.log_range import LogRange
    from magnetar.pipeline.offsets import Place, Wanted
    from magnetar.pipeline.options import SourceOptions
    from magnetar.pipeline.planning import Covered

log = logging.getLogger(__name__)

_SMALL_BYTES = 1 << 20
"""A range below this size is read through the broker as a whole, unless ledger files hold all of it."""

Logs = dict[str, "LogRange"]
Files = dict[str, "list[Covered]"]


class SourcePlan:
    """Plans for one source. For one thread."""

    def __init__(self, options: SourceOptions, catalog: Catalog | None = None) -> None:
        self.options = options
        self.catalog = catalog or Catalog(options.connect.admin())
        self._segments: SegmentMap | None = None
        if options.storage_path and options.read_mode != "broker":
            directory = open_directory(options.storage_path)
            if directory is None and options.read_mode == "segment":
                raise OptionError(f"option storage.url: {options.storage_path} cannot be read as a data directory here")
            self._segments = SegmentMap(directory) if directory is not None else None

    def close(self) -> None:
        """Close the files of growing ledgers; safe to call twice."""
        if self._segments is not None:
            self._segments.close()

    def logs(self, *, streaming: bool = False, begun: bool = False) -> Logs:
        """The log of every topic partition that is selected. Raises NoSuchTopicError and other CatalogErrors.

        begun: the stream has read before, so an absent topic that the options name was deleted: with
        failOnDataLoss=false it is left out until it is made anew.
        """
        wait = streaming and (self.options.wait_for_topic or (begun and not self.options.fail_on_data_loss))
        topics = self.catalog.partitions(self.options.selection, missing_ok=wait)
        if not begun and not wait:
            ensure_selected(self.options, topics)
        stored = self.catalog.ranges(topics, ledgers=self._segments is not None)
        for topic, each in stored.items():
            if each is None and not wait and not self.options.selection.pattern and topic in self._named():
                raise NoSuchTopicError(topic)
        return {topic: each for topic, each in stored.items() if each is not None}

    def _named(self) -> tuple[str, ...]:
        return self.options.selection.names

    # --- places -----------------------------------------------------------------------------------------------------

    def starting(self, logs: Logs) -> Offsets:
        """The first places to read, by the options."""
        places = {topic: self._place(each, self.options.starting.of(topic)) for topic, each in logs.items()}
        return Offsets(places, {topic: each.last.ledger_id for topic, each in logs.items()})

    def ending(self, logs: Logs) -> Offsets:
        """The places where reading ends, by the options."""
        return Offsets({topic: self._place(each, self.options.ending.of(topic)) for topic, each in logs.items()})

    def _place(self, stored: LogRange, wanted: Wanted) -> Place:
        if isinstance(wanted, str):
            return {EARLIEST: stored.first, LATEST: stored.readable_end}[wanted]
        if isinstance(wanted, TimePlace):
            wanted = self.catalog.place_of_time(stored.topic, wanted.time_ms)
        if isinstance(wanted, MessagePlace):
            return self._place_of_message(stored, wanted)
        if not stored.indexed:
            raise OptionError(f"{stored.topic} has no broker index; name places in it as ledger:entry")
        assert isinstance(stored.end, int)
        if wanted > stored.end:
            raise OptionError(f"{stored.topic} ends at index {stored.end}, index {wanted} is beyond it")
        return wanted

    def _place_of_message(self, stored: LogRange, wanted: MessagePlace) -> Place:
        position = wanted.position
        if position.entry_id < 0:  # before the first entry of its ledger
            if stored.first_ledger is None or position.ledger_id <= stored.first_ledger:
                return stored.first
            position = Position(position.ledger_id, 0)
        if not stored.indexed:
            return position
        if position > stored.last:
            return stored.readable_end
        try:
            bounds = self.catalog.index_of(stored.topic, position)
        except (CatalogUnavailableError, CatalogRefusedError):  # whether the entry is stored is not known
            raise
        except CatalogError:
            if self.options.fail_on_data_loss:
                raise DataLossError(stored.topic, position, stored.first, "that entry is not stored") from None
            bounds = None
        return stored.first if bounds is None else min(bounds[0] + max(wanted.batch_index, 0), bounds[1] + 1)

    # --- a stream ---------------------------------------------------------------------------------------------------

    def advance(self, start: Offsets, logs: Logs, *, limited: bool) -> Offsets:
        """Return the end of the micro-batch that begins at `start`: `start` itself when the topics have nothing new.

        Raises DataLossError when a topic is gone or begins anew, unless failOnDataLoss is false: then the topic leaves
        the offsets, or is read from its first message.
        """
        self._check_topics(start, logs)
        begins = {topic: self.begin(start, each) for topic, each in logs.items()}
        waiting = {topic: float(each.between(begins[topic], each.readable_end)) for topic, each in logs.items()}
        allowed = self._allowed(waiting, logs) if limited else waiting
        ends: dict[str, Place] = {}
        ledgers: dict[str, int] = {}
        sizes: dict[str, int] = {}
        for topic, each in logs.items():
            if waiting[topic]:
                ends[topic], ledgers[topic] = _after(each, begins[topic], int(allowed[topic])), each.last.ledger_id
                sizes[topic] = round(each.bytes_per())
            elif topic in start.by_topic:  # a new topic without messages gets an offset with its first messages
                ends[topic] = start.by_topic[topic]
                ledgers |= {topic: start.ledgers[topic]} if topic in start.ledgers else {}
                sizes |= {topic: start.bytes_per[topic]} if topic in start.bytes_per else {}
        return Offsets(ends, ledgers, sizes)

    def _check_topics(self, start: Offsets, logs: Logs) -> None:
        for topic, place in start.by_topic.items():
            stored = logs.get(topic)
            if stored is None and not self.options.selection.has(topic):
                self._lose(topic, place, "its end", "the options do not select the topic any more")
            elif stored is None:
                self._lose(topic, place, "its end", "the topic does not exist any more")
            elif stored.is_another_than(place, start.ledgers.get(topic)):
                self._lose(topic, place, "its end", MADE_ANEW)

    def begin(self, start: Offsets, stored: LogRange) -> Place:
        """The place in `start`; for a topic that is not in `start`, or was made anew, the first possible place."""
        place = start.by_topic.get(stored.topic)
        if isinstance(place, Position) and stored.indexed:
            return self._place_of_message(stored, MessagePlace(place))
        if place is None or stored.is_another_than(place, start.ledgers.get(stored.topic)):
            return 0 if stored.indexed else stored.first
        return place

    def _allowed(self, waiting: dict[str, float], logs: Logs) -> dict[str, float]:
        """The number of waiting messages of each topic that a trigger may take: each limit is shared in proportion to
        the backlogs, and the smallest share counts.
        """
        limits, allowed = self.options.limits, waiting
        if limits.messages is not None:
            allowed = shares(allowed, limits.messages)
        for limit, per in (
            (limits.entries, {t: each.entries_per() for t, each in logs.items()}),
            (limits.size_bytes, {t: each.bytes_per() for t, each in logs.items()}),
        ):
            if limit is not None:
                weighed = shares({t: n * per[t] for t, n in allowed.items()}, limit)
                allowed = {t: min(n, max(1.0, weighed[t] / per[t])) if n else 0.0 for t, n in allowed.items()}
        return allowed

    # --- tasks ------------------------------------------------------------------------------------------------------

    def tasks(self, start: Offsets, end: Offsets, logs: Logs, *, cores: int | None = None) -> list[list[ReadRange]]:
        """The ranges of every Spark partition, so that all of ``start .. end`` is read once.

        cores: those of this machine; without splitBytes the number of Spark partitions depends on them. None: it does
        not.

        Without cores, and with offsets of `advance`, the messages of each Spark partition, and their order, do not
        depend on the growth of the logs and of ledger files: exactly-once sinks number the rows of a task.
        """
        ranges: list[ReadRange] = []
        for topic, until in sorted(end.by_topic.items()):
            stored = logs.get(topic)
            if stored is None:
                self._lose(topic, start.by_topic.get(topic, 0), until, "the topic does not exist any more")
                continue
            if stored.is_another_than(until, end.ledgers.get(topic)):
                self._lose(topic, start.by_topic.get(topic, 0), until, MADE_ANEW)
                continue
            first = self._stored_from(stored, self.begin(start, stored), until)
            if is_before(first, until):
                weight = stored.between(first, until) * end.bytes_per.get(topic, stored.bytes_per())
                newest = end.ledgers.get(topic, stored.last.ledger_id)
                whole = ReadRange(topic, stored.partition, first, until, weight_bytes=weight, newest_ledger=newest)
                ranges.append(whole)
        options = self.options
        total = sum(each.weight_bytes for each in ranges)
        tasks = pack(
            ranges,
            split_bytes=options.split_bytes or (even_split(total, cores) if cores else SPLIT_BYTES),
            min_tasks=options.min_partitions,
            max_messages=options.max_records,
        )
        files = self._files(ranges, logs)
        return [[self._with_span(part) for piece in task for part in self._ways(piece, files)] for task in tasks]

    def _files(self, ranges: list[ReadRange], logs: Logs) -> Files:
        """The parts of the logs that ledger files hold, of each topic partition with a range."""
        if self._segments is None or self.options.read_compacted:
            return {}
        return {
            each.topic: self._segments.covered(logs[each.topic], each.start, each.end)
            for each in ranges
            if isinstance(each.start, int) and isinstance(each.end, int)
        }

    def _stored_from(self, stored: LogRange, first: Place, until: Place) -> Place:
        """The first stored place of the range; reports the lost messages before it."""
        if isinstance(first, int) and isinstance(stored.first, int) and isinstance(until, int) and first < stored.first:
            gone = min(stored.first, until)
            self._lose(stored.topic, first, gone, "they are not stored any more (retention)")
            return gone
        return first

    def _ways(self, whole: ReadRange, files: Files) -> list[ReadRange]:
        """The pieces of a range in their order, each read in one way."""
        if self._segments is None or self.options.read_compacted:
            return [whole]
        assert self.options.read_mode != "broker"
        pieces = stitch(whole, files.get(whole.topic, ()))
        rest = [piece for piece in pieces if piece.ledger_id is None]
        if rest and self.options.read_mode == "segment":
            raise CatalogError(
                f"{whole.topic}: no ledger file holds {rest[0].start} up to {rest[0].end}; "
                "readMode=auto reads that through the broker"
            )
        return [whole] if rest and whole.weight_bytes < _SMALL_BYTES else pieces

    def _with_span(self, piece: ReadRange) -> ReadRange:
        if piece.ledger_id is None or self._segments is None:
            return piece
        assert isinstance(piece.start, int)
        assert isinstance(piece.end, int)
        return replace(piece, span=self._segments.span(piece.ledger_id, piece.start, piece.end))

    def _lose(self, topic: str, first: object, end: object, why: str) -> None:
        error = DataLossError(topic, first, end, why)
        if self.options.fail_on_data_loss:
            raise error
        log.warning("%s", error)


def ensure_selected(options: SourceOptions, topics: Iterable[str]) -> None:
    """Raises OptionError for a place in a topic that is not selected: its name is wrong, or the topic was deleted. With
    failOnDataLoss=false, logs a warning instead.
    """
    for wanted in (options.starting, options.ending):
        for name in wanted.names_outside(topics):
            text = f"option {wanted.option} names {name}, which is none of the topics and partitions to read"
            if options.fail_on_data_loss:
                raise OptionError(text)
            log.warning("%s", text)


def _after(stored: LogRange, begin: Place, count: int) -> Place:
    """The place `count` messages (or entries) behind `begin`, at most `readable_end`."""
    end = stored.readable_end
    if isinstance(begin, int):
        assert isinstance(end, int)
        return min(end, max(begin, stored.first_index or 0) + count)
    assert isinstance(end, Position)
    return min(stored.position_at(stored.ordinal(begin) + count), end)
