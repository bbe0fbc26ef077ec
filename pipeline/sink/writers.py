"""Spark's side of the sink: `df.write.format("pulsar")` and `writeStream`.

| guarantee           | tasks                | commit on the driver         | a batch again                      |
|---------------------|----------------------|------------------------------|------------------------------------|
| at-least-once       | send                 | -                            | its rows are sent again            |
| exactly-once        | send under own names | -                            | the broker drops duplicates        |
| exactly-once-staged | write rows to files  | publish the files, send them | files that were published are sent |
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema

from magnetar.pipeline.option_table import OptionError
from magnetar.pipeline.sink.columns import RowReader
from magnetar.pipeline.sink.options import Guarantee, SinkOptions
from magnetar.pipeline.sink.staging import Staging
from magnetar.pipeline.sink.task import BATCH_SHIFT, Place, RepeatedSinkIdError, send_rows
from magnetar.pipeline.sink.values import value_encoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from magnetar.pipeline.sink.topic_producer import TopicReport

log = logging.getLogger(__name__)


@dataclass
class Sent(WriterCommitMessage):
    """The messages that a task sent, or the file with its rows. `sink_id` goes along because the driver does not know
    the query's id.
    """

    task: int
    sink_id: str = ""
    reports: list[TopicReport] = field(default_factory=list)
    staged: str = ""


def make_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """Return the writer for `DataSource.writer`. Raises: OptionError."""
    if overwrite:
        raise OptionError("a topic cannot be overwritten: use mode append")
    parsed = SinkOptions.parse(options, streaming=False)
    _check(schema, parsed)
    return PulsarWriter(parsed)


def make_stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """Return the writer for `DataSource.streamWriter`. Raises: OptionError."""
    if overwrite:
        raise OptionError("a topic cannot be overwritten: use output mode append or update")
    parsed = SinkOptions.parse(options, streaming=True)
    _check(schema, parsed)
    return PulsarStreamWriter(parsed)


def _check(schema: StructType, options: SinkOptions) -> None:
    """Refuse rows that cannot be written before any task starts. Raises: OptionError."""
    try:
        arrow = to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # a PySpark without this argument: its function sets the zone itself
        arrow = to_arrow_schema(schema)
    RowReader(arrow, options, value_encoder(arrow, options))


class PulsarWriter(DataSourceArrowWriter):
    """A batch: every task sends its rows."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Runs on executors; everything is stored on return."""
        task = _context().partitionId()
        name = f"{self._options.sink_id}-{task}" if self._options.exactly_once else None
        return Sent(task, reports=send_rows(iterator, self._options, Place(task, name, 0)))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Logs the numbers of stored messages."""
        log_reports(_reports(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the failure; messages that tasks have sent stay in the topics."""
        log.warning("pulsar sink: the write failed; %d messages are stored", _stored(_reports(messages)))


class PulsarStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches. Spark makes a new object for each micro-batch, so no state lasts from one to the next."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Runs on executors."""
        context = _context()
        batch_id, task = int(context.getLocalProperty("streaming.sql.batchId") or 0), context.partitionId()
        sink_id = self._options.sink_id or context.getLocalProperty("sql.streaming.queryId") or ""
        if self._options.exactly_once and not sink_id:
            raise OptionError("the query has no id: give option sinkId")
        if self._options.guarantee is Guarantee.STAGED:
            staging = Staging(self._options.staging, sink_id)
            if staging.manifest(batch_id) is not None:
                return Sent(task, sink_id)  # the batch was published before: its rows are in the files
            name, _ = staging.stage(batch_id, task, uuid.uuid4().hex[:12], iterator)
            return Sent(task, sink_id, staged=name)
        producer = f"{sink_id}-{task}" if self._options.exactly_once else None
        place = Place(task, producer, batch_id << BATCH_SHIFT)
        return Sent(task, sink_id, reports=send_rows(iterator, self._options, place))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Runs on the driver after all tasks. Every row of the batch is stored on return."""
        sent = sorted((m for m in messages if isinstance(m, Sent)), key=lambda m: m.task)
        if self._options.guarantee is not Guarantee.STAGED or not sent:
            log_reports(_reports(messages), batchId)
            return
        staging = Staging(self._options.staging, sent[0].sink_id)
        send_published(staging, batchId, [m.staged for m in sent if m.staged], self._options, sent[0].sink_id)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Log the failure. Files of the batch stay for its repetition, in which the broker drops stored entries."""
        log.warning("pulsar sink: batch %d failed; %d messages are stored", batchId, _stored(_reports(messages)))


def send_published(
    staging: Staging, batch_id: int, names: list[str], options: SinkOptions, sink_id: str
) -> list[TopicReport]:
    """Publish these files as the batch's rows, unless the batch has published files, and send the published files.

    All rows are stored on return; a batch that was sent before is not sent again.

    Raises: as `send_rows`, StagingError, OSError.
    """
    staging.check_newest(batch_id)
    reports: list[TopicReport] = []
    if not staging.is_sent(batch_id):
        is_first = staging.manifest(batch_id) is None
        for number, name in enumerate(staging.publish(batch_id, names)):
            reports += send_staged(staging, batch_id, number, name, options, sink_id, is_first=is_first)
        staging.mark_sent(batch_id, {"topics": [asdict(report) for report in reports]})
        log_reports(reports, batch_id)
    staging.forget_before(batch_id)
    return reports


def send_staged(
    staging: Staging, batch_id: int, number: int, name: str, options: SinkOptions, sink_id: str, *, is_first: bool
) -> list[TopicReport]:
    """Send one file, the batch's `number`-th. is_first: no earlier attempt has sent any of its rows.

    Raises: as `send_rows`, StagingError.
    """
    staging.check_refused(batch_id)
    place = Place(number, f"{sink_id}-{number}", batch_id << BATCH_SHIFT, is_first)
    try:
        return send_rows(staging.rows(batch_id, name), options, place, staging.partition_counts(batch_id, number))
    except RepeatedSinkIdError as error:
        staging.refuse(batch_id, str(error))
        raise


def log_reports(reports: list[TopicReport], batch_id: int | None = None) -> None:
    """One line a topic."""
    of_batch = "" if batch_id is None else f"batch {batch_id}: "
    for topic in sorted({report.topic for report in reports}):
        mine = [report for report in reports if report.topic == topic]
        known = sum(report.known for report in mine)
        log.info("pulsar sink: %s%s: %d messages stored, %d were there", of_batch, topic, _stored(mine), known)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "write runs in a task"
    return context


def _reports(messages: list[WriterCommitMessage | None]) -> list[TopicReport]:
    return [report for message in messages if isinstance(message, Sent) for report in message.reports]


def _stored(reports: list[TopicReport]) -> int:
    return sum(report.stored for report in reports)
