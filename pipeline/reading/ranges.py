"""Reading one range, whichever way it is to be read."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from magnetar.pipeline.catalog import Catalog
from magnetar.pipeline.damage import Quarantined, Reason
from magnetar.pipeline.errors import CatalogError, CorruptEntryError, DataLossError
from magnetar.pipeline.log_range import MADE_ANEW
from magnetar.pipeline.offsets import Position
from magnetar.pipeline.planning import ReadRange
from magnetar.pipeline.reading.broker import read_through_broker
from magnetar.pipeline.reading.segments import SegmentGoneError, open_directory, read_segment
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from magnetar.pipeline.entry_chunk import EntryChunk
    from magnetar.pipeline.offsets import Place
    from magnetar.pipeline.reading.settings import ReadSettings

log = logging.getLogger(__name__)

_LOOK_BACK_ENTRIES = 256


class RangeReader:
    """Reads ranges one after the other. Not for several threads at once.

    lost: half-open ranges that are not stored any more, (topic, first, end, why).
    damaged: entries that cannot be read, (topic, ledger, entry, why).
    """

    def __init__(self, settings: ReadSettings) -> None:
        self.settings = settings
        self.lost: list[tuple[str, Place, Place, str]] = []
        self.damaged: list[tuple[str, int, int, str]] = []
        self._directory = open_directory(settings.storage_path) if settings.storage_path else None

    def chunks(self, piece: ReadRange) -> Iterator[EntryChunk]:
        """The entries of the range in order; the first and the last may hold messages outside of it.

        Raises: DataLossError with failOnDataLoss, CatalogError and its kin, ReadTimeoutError, CorruptEntryError of a
        damaged entry unless onCorrupt is quarantine.
        """
        if piece.ledger_id is not None:
            try:
                yield from self._of_segment(piece)
            except SegmentGoneError as error:
                if not self.settings.fall_back:
                    raise CatalogError(f"{piece.topic}: {error}; readMode=auto reads it through the broker") from error
                log.info("%s: %s; reading through the broker", piece.topic, error)
            else:
                return
        yield from read_through_broker(piece, self.settings, lambda a, b, why: self._lose(piece.topic, a, b, why))

    def _of_segment(self, piece: ReadRange) -> Iterator[EntryChunk]:
        if self._directory is None:
            raise SegmentGoneError(f"{self.settings.storage_path} cannot be read here")
        yield from read_segment(self._directory, piece, self._on_damaged(piece))

    def _on_damaged(self, piece: ReadRange) -> Callable[[int, str], None]:
        def note(entry_id: int, why: str) -> None:
            if self.settings.on_corrupt == "fail":
                ledger_id = -1 if piece.ledger_id is None else piece.ledger_id
                raise CorruptEntryError(Quarantined(piece.topic, ledger_id, entry_id, Reason.CHECKSUM, why))
            log.warning("%s: %s; left out", piece.topic, why)
            self.damaged.append((piece.topic, -1 if piece.ledger_id is None else piece.ledger_id, entry_id, why))

        return note

    def _lose(self, topic: str, first: Place, end: Place, why: str) -> None:
        if self.settings.fail_on_data_loss:
            raise DataLossError(topic, first, end, why)
        log.warning("%s", DataLossError(topic, first, end, why))
        self.lost.append((topic, first, end, why))

    def is_current(self, piece: ReadRange) -> bool:
        """Whether the topic of a range is still the topic that the plan was made for. Raises: DataLossError with
        failOnDataLoss for a topic that was made anew.
        """
        stored = Catalog(self.settings.connect.admin()).range(piece.topic)
        if stored is None or not stored.is_another_than(piece.end, piece.newest_ledger):
            return True
        error = DataLossError(piece.topic, piece.start, piece.end, MADE_ANEW)
        if self.settings.fail_on_data_loss:
            raise error
        log.warning("%s", error)
        return False

    def look_back(self, topic: str, ledger_id: int, entry_id: int) -> Iterator[EntryChunk]:
        """Chunks of the entries before an entry of a topic partition, newest first: for a decoder whose message began
        before its range. Lost entries are omitted.
        """
        stored = Catalog(self.settings.connect.admin()).range(topic, ledgers=True)
        if stored is None:
            return
        quiet = RangeReader(replace(self.settings, fail_on_data_loss=False))
        partition = TopicName.parse(topic).partition
        for ledger in reversed([each for each in stored.ledgers if each.ledger_id <= ledger_id]):
            end = entry_id if ledger.ledger_id == ledger_id else ledger.entries
            while end > 0:
                start = max(0, end - _LOOK_BACK_ENTRIES)
                first, stop = Position(ledger.ledger_id, start), Position(ledger.ledger_id, end)
                yield from reversed(list(quiet.chunks(ReadRange(topic, partition, first, stop))))
                end = start
