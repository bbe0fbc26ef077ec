"""Every job with tasks, in a real session: its results equal those without Spark (tests/pipeline/jobs)."""

import datetime as dt
import io
import json
import pathlib
import shutil

import pulsar
import pyarrow.parquet as pq
import pytest

from magnetar.converters.kafka.transactions import Isolation
from magnetar.pipeline.connect_options import ConnectOptions
from magnetar.pipeline.jobs.audit import audit_topics
from magnetar.pipeline.jobs.delays import delay_statistics
from magnetar.pipeline.jobs.export import ExportJob
from magnetar.pipeline.jobs.hot_keys import key_statistics
from magnetar.pipeline.jobs.kafka_backfill import BackfillOptions, backfill
from magnetar.pipeline.jobs.key_compaction import compact_topics
from magnetar.pipeline.jobs.maintenance import join_small_files
from magnetar.pipeline.jobs.replay import replay_table, replay_topics, sink_options
from magnetar.pipeline.lake.committer import open_table
from magnetar.pipeline.options import SourceOptions
from magnetar.pipeline.progress import Progress

KAFKA = pathlib.Path(__file__).parents[2] / "vectors" / "kafka_transactions"
COUNT = 300


@pytest.fixture
def progress():
    return Progress("test", io.StringIO(), style="none")


@pytest.fixture
def connection(spark_broker):
    return {"service.url": spark_broker.url, "admin.url": spark_broker.http_url}


@pytest.fixture
def sent(pulsar_client, topic):
    """Numbers with thirteen keys, in batches; the last five are delivered in two hours."""
    producer = pulsar_client.create_producer(topic, batching_enabled=True, batching_max_messages=7)
    for n in range(COUNT):
        late = {"deliver_after": dt.timedelta(hours=2)} if n >= COUNT - 5 else {}
        producer.send_async(b"%d" % n, None, partition_key=f"k{n % 13}", **late)
    producer.flush()
    return list(range(COUNT))


@pytest.fixture
def source(connection, topic):
    """Options that make several tasks."""
    return SourceOptions.parse(connection | {"topic": topic, "minPartitions": "3"})


def received(client, topic):
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(int(reader.read_next(10_000).data()))
    return found


def test_reports(runner, progress, source, sent):
    audit = audit_topics(source, runner, progress).to_json()
    assert (audit["messages"], audit["counts"]) == (COUNT, {})
    [delays] = delay_statistics(source, runner, progress)["topics"]
    assert (delays["messages"], delays["pending"]) == (COUNT, 5)
    keys = key_statistics(source, runner, progress, top=1, consumers=(2,))
    assert (keys["messages"], keys["keys"], keys["top"][0]["messages"]) == (COUNT, 13, 24)


def test_key_compaction(runner, progress, source, sent, tmp_path):
    table = open_table("delta", str(tmp_path / "t"))
    report = compact_topics(source, table, runner, progress)
    assert (report["rows"], report["messages"]) == (13, COUNT)
    found = [v for f in table.files() for v in pq.read_table(table.place.absolute(f.path), partitioning=None)["value"]]
    assert sorted(int(v.as_py()) for v in found) == sent[-13:]


def test_from_a_topic_to_a_table_and_back(runner, progress, source, connection, sent, pulsar_client, topic, tmp_path):
    replayed = replay_topics(source, sink_options(connection, f"{topic}-a", None, {}), runner, progress)
    assert replayed["stored"] == COUNT
    in_order = received(pulsar_client, topic)
    assert received(pulsar_client, f"{topic}-a") == in_order
    table = open_table("parquet", str(tmp_path / "t"))
    ExportJob(source, table, round_bytes=4000).run(runner, progress)
    before = len(table.files())
    joined = join_small_files(table, runner, progress)
    assert joined["files_before"] == before > 1
    assert len(table.files()) == joined["files_after"] == 1
    back = replay_table(table, sink_options(connection, f"{topic}-b", None, {}), runner, progress)
    assert back["stored"] == COUNT
    assert received(pulsar_client, f"{topic}-b") == in_order


def test_backfill_of_kafka_segments(runner, progress, connection, topic, tmp_path):
    for number in (0, 1):
        folder = tmp_path / f"orders-{number}"
        folder.mkdir()
        for path in KAFKA.glob("*.log"):
            shutil.copy(path, folder)
    options = BackfillOptions(ConnectOptions.parse(connection), Isolation.READ_UNCOMMITTED, enable_deduplication=True)
    expected = len(json.loads((KAFKA / "expected.json").read_text())["read_uncommitted"])
    report = backfill([tmp_path], topic, options, runner, progress)
    assert (report["stored"], len(report["partitions"])) == (2 * expected, 2)
    assert backfill([tmp_path], topic, options, runner, progress)["stored"] == 0
