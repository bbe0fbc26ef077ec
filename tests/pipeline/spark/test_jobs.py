"""Jobs on a real Spark session: tasks in Python workers, progress, errors with their own text."""

import io
import json
import os
import pickle
import signal

import pyarrow.parquet as pq
import pytest

from magnetar.pipeline.errors import PipelineError
from magnetar.pipeline.jobs.export import ExportJob
from magnetar.pipeline.jobs.runner import TaskFailedError
from magnetar.pipeline.lake.committer import open_table
from magnetar.pipeline.options import SourceOptions
from magnetar.pipeline.progress import Progress


def test_pieces_run_in_tasks(runner):
    out = io.StringIO()
    progress = Progress("test", out, style="json")
    progress.begin(4)
    assert runner.map(lambda n: n * n, [1, 2, 3, 4], progress, [1, 1, 1, 1]) == [1, 4, 9, 16]
    progress.end()
    assert json.loads(out.getvalue().splitlines()[-1])["done"] == 4
    assert runner.map(lambda n: n, [], progress, []) == []


def test_pieces_run_without_rdds_too(runner):
    """As over Spark Connect: the same work as a query, in the order of the pieces."""
    assert runner._by_query(lambda n: n * n, [3, 1, 2]) == [(False, pickle.dumps(n)) for n in (9, 1, 4)]
    [(failed, error)] = runner._by_query(int, ["no number"])
    assert (failed, str(pickle.loads(error))) == (True, "invalid literal for int() with base 10: 'no number'")


def test_errors_come_with_their_own_text(runner):
    def fails(_):
        raise PipelineError("ledger 7 is damaged")

    with pytest.raises(PipelineError, match=r"^ledger 7 is damaged$"):
        runner.map(fails, [1], Progress("test", io.StringIO(), style="none"), [1])


@pytest.mark.parametrize("table_format", ["delta", "parquet", "iceberg"])
def test_export(runner, spark_broker, pulsar_client, topic, tmp_path, table_format):
    producer = pulsar_client.create_producer(topic, batching_enabled=True)
    for n in range(1000):
        producer.send_async(b"%d" % n, None)
    producer.flush()
    given = {"service.url": spark_broker.url, "admin.url": spark_broker.http_url, "topic": topic, "minPartitions": "4"}
    table = open_table(table_format, str(tmp_path / "t"))
    out = io.StringIO()
    report = ExportJob(SourceOptions.parse(given), table).run(runner, Progress("export", out, style="json"))
    assert (report.rows, report.commits, report.files) == (1000, 1, 4)
    found = []
    for file in table.files():
        read = pq.read_table(table.place.absolute(file.path), partitioning=None)
        found += zip(read["__index"].to_pylist(), read["value"].to_pylist(), strict=True)
    assert sorted(found) == [(n, b"%d" % n) for n in range(1000)]


def test_a_worker_that_dies_is_tried_again(runner, tmp_path):
    """kill -9 of the Python worker in its first attempt."""
    marker = tmp_path / "died"

    def dies_once(number):
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    assert runner.map(dies_once, [1, 2], Progress("test", io.StringIO(), style="none"), [1, 1]) == [1, 2]


def test_a_task_that_fails_every_time_is_one_line(runner):
    def fails(_):
        raise ConnectionResetError("gone")

    with pytest.raises(TaskFailedError, match=r"^a task failed: .*ConnectionResetError.*gone"):
        runner.map(fails, [1], Progress("test", io.StringIO(), style="none"), [1])
