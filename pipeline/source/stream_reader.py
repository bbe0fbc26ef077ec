"""The reader of `spark.readStream`."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from magnetar.pipeline.errors import CatalogError, CatalogUnavailableError
from magnetar.pipeline.offsets import Offsets, Position
from magnetar.pipeline.source.batch_reader import Ranges, ranges_of
from magnetar.pipeline.source_plan import SourcePlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

    from magnetar.pipeline.options import SourceOptions
    from magnetar.pipeline.planning import ReadRange
    from magnetar.pipeline.source.row_source import RowSource
    from magnetar.pipeline.source_plan import Logs

log = logging.getLogger(__name__)

T = TypeVar("T")
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0


class PulsarStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches. One instance lives on the driver as long as the query; others, unpickled, read in tasks.

    Offsets are those of `pipeline.offsets.Offsets`. Everything but `read` runs on the driver.
    """

    def __init__(self, options: SourceOptions, rows: RowSource) -> None:
        self._options, self._rows = options, rows
        self._plan: SourcePlan | None = None
        self._newest: Logs = {}
        """The last seen logs, for `reportLatestOffset`."""
        self._until: Logs | None = None
        """With the trigger availableNow: the logs as they were at its start, where the stream ends."""
        self._subscribed: set[str] = set()
        self._committed: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_rows": self._rows}

    @property
    def _planner(self) -> SourcePlan:
        if self._plan is None:
            self._plan = SourcePlan(self._options)
        return self._plan

    # --- offsets ----------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset of a query that has no checkpoint yet."""
        logs = self._planner.logs(streaming=True)
        start = self._planner.starting(logs)
        self._subscribe(start)
        return start.as_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of the micro-batch that begins at `start`."""
        begin = Offsets.from_json(start)

        def end() -> Offsets:
            self._newest = self._planner.logs(streaming=True, begun=True)
            logs = self._newest if self._until is None else self._until
            return self._planner.advance(begin, logs, limited=not isinstance(limit, ReadAllAvailable))

        return self._patiently(end).as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """One limit, seen by Spark only: `latestOffset` observes every limit of the options, whatever it returns."""
        limits = self._options.limits
        rows = limits.messages if limits.messages is not None else limits.entries
        if rows is not None:
            return ReadMaxRows(rows)
        return ReadMaxBytes(limits.size_bytes) if limits.size_bytes is not None else ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The ends of the logs, shown in the progress of the query: messages behind `endOffset` are backlog."""
        return (
            Offsets({topic: stored.end for topic, stored in self._newest.items()}).as_json() if self._newest else None
        )

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of the logs at their present end."""
        self._until = self._patiently(lambda: self._planner.logs(streaming=True, begun=True))

    # --- a micro-batch ----------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The Spark partitions of a micro-batch: the same messages whenever Spark plans the batch again."""

        def tasks() -> list[list[ReadRange]]:
            logs = self._planner.logs(streaming=True, begun=True)
            return self._planner.tasks(Offsets.from_json(start), Offsets.from_json(end), logs)

        return [Ranges(task) for task in self._patiently(tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in a task."""
        return self._rows.batches(ranges_of(partition))

    def commit(self, end: dict[str, Any]) -> None:
        """Move the durable cursor, if the options name a subscription. An absent broker does not stop the query."""
        if not self._options.subscription:
            return
        try:
            self._move_cursors(Offsets.from_json(end))
        except CatalogError as error:
            log.warning("pulsar source: the cursor of %s stays behind: %s", self._options.subscription, error)

    def stop(self) -> None:
        """Close the files of growing ledgers; the driver holds nothing else open."""
        if self._plan is not None:
            self._plan.close()
            self._plan = None

    def _patiently(self, ask: Callable[[], T]) -> T:
        """The answer of the broker; repeats the request for up to `pollTimeoutMs`, since the broker may restart."""
        deadline, pause = time.monotonic() + self._options.poll_timeout_s, _FIRST_PAUSE_S
        while True:
            try:
                return ask()
            except CatalogUnavailableError as error:
                if time.monotonic() + pause > deadline:
                    raise
                log.info("pulsar source: %s; trying again", error)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    # --- the subscription -------------------------------------------------------------------------------------------

    def _subscribe(self, start: Offsets) -> None:
        """Make the durable subscription, at the place where the stream begins."""
        if self._options.subscription:
            self._move_cursors(start)

    def _move_cursors(self, offsets: Offsets) -> None:
        catalog, name = self._planner.catalog, self._options.subscription
        for topic, place in offsets.by_topic.items():
            if self._committed.get(topic) == place:
                continue
            if topic not in self._subscribed:
                catalog.create_subscription(topic, name)
                self._subscribed.add(topic)
            position = place if isinstance(place, Position) else self._position(topic, place)
            if position is not None:
                catalog.reset_cursor(topic, name, position)
            self._committed[topic] = place

    def _position(self, topic: str, index: int) -> Position | None:
        """The position of the next message; the position behind the last entry when every message has been read."""
        stored = self._planner.catalog.range(topic)
        if stored is None:
            return None
        if isinstance(stored.end, int) and index >= stored.end:
            return Position(stored.last.ledger_id, stored.last.entry_id + 1)
        return self._planner.catalog.position_of_index(topic, index)
