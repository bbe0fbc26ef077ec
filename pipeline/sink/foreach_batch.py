"""Exactly once with any plan, sent by the executors: a function for `writeStream.foreachBatch`.

    write = exactly_once({"topic": "orders", "sinkId": "orders", "stagingDirectory": "/shared/staging"})
    df.writeStream.foreachBatch(write).option("checkpointLocation", "/shared/checkpoint").start()

Like the guarantee exactly-once-staged, but a second Spark job sends the published files, one task a file, instead of
the driver.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

from magnetar.pipeline.option_table import OptionError
from magnetar.pipeline.sink.options import Guarantee, SinkOptions
from magnetar.pipeline.sink.staging import Staging
from magnetar.pipeline.sink.writers import send_staged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame

_STAGED = "task int, name string"
_SENT = "topic string, stored long, known long"


def exactly_once(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """The function that writes a batch. Options as for the sink; `sinkId` and `stagingDirectory` are needed.

    Raises: OptionError.
    """
    parsed = SinkOptions.parse({**options, "guarantee": Guarantee.STAGED}, streaming=True)
    if not parsed.sink_id:
        raise OptionError("foreachBatch needs option sinkId: the same whenever the query starts again")
    staging = Staging(parsed.staging, parsed.sink_id)

    def write(df: DataFrame, batch_id: int) -> None:
        staging.check_newest(batch_id)
        if staging.is_sent(batch_id):
            return
        names = staging.manifest(batch_id)
        is_first = names is None
        if names is None:
            rows = df.mapInArrow(_stager(parsed, batch_id), _STAGED).collect()
            names = staging.publish(batch_id, [row.name for row in sorted(rows, key=lambda row: row.task)])
        topics = []
        if names:
            files = df.sparkSession.range(0, len(names), 1, len(names))
            sent = files.mapInArrow(_sender(parsed, batch_id, names, is_first=is_first), _SENT).collect()
            topics = [row.asDict() for row in sent]
        staging.mark_sent(batch_id, {"topics": topics})
        staging.forget_before(batch_id)

    return write


def _stager(options: SinkOptions, batch_id: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "mapInArrow runs in a task"
        staging, attempt = Staging(options.staging, options.sink_id), uuid.uuid4().hex[:12]
        name, _ = staging.stage(batch_id, context.partitionId(), attempt, batches)
        if name:
            yield pa.RecordBatch.from_arrays(
                [pa.array([context.partitionId()], pa.int32()), pa.array([name])], ["task", "name"]
            )

    return stage


def _sender(
    options: SinkOptions, batch_id: int, names: list[str], *, is_first: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "mapInArrow runs in a task"
        sends_first = is_first and context.attemptNumber() == 0
        staging = Staging(options.staging, options.sink_id)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                reports = send_staged(
                    staging, batch_id, number, names[number], options, options.sink_id, is_first=sends_first
                )
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array([report.topic for report in reports], pa.string()),
                        pa.array([report.stored for report in reports], pa.int64()),
                        pa.array([report.known for report in reports], pa.int64()),
                    ],
                    ["topic", "stored", "known"],
                )

    return send
