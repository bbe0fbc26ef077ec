"""`spark.readStream.format("pulsar")`: micro-batches that replay exactly, and changes while a stream runs."""

import json
import pathlib

import pytest

from magnetar.pipeline import register
from tests.pipeline.spark.source_for_tests import admin, numbers, options, path, publish


@pytest.fixture(autouse=True, scope="module")
def registered(spark):
    register(spark)


class Stream:
    """A stream into a Parquet table that is run now and then until it has read everything."""

    def __init__(self, spark, folder, given):
        self.spark, self.given = spark, {"startingOffsets": "earliest", **given}
        self.table, self.checkpoint = folder / "table", folder / "checkpoint"
        self.progress = []

    def run(self, **more):
        """Read all stored messages; returns the number of micro-batches."""
        frame = self.spark.readStream.format("pulsar").options(**self.given, **more).load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(availableNow=True).start(str(self.table))
        try:
            query.awaitTermination(120)
            self.progress = list(query.recentProgress)
        finally:
            query.stop()
        return len([each for each in self.progress if each.numInputRows])

    def rows(self):
        return self.spark.read.parquet(str(self.table))

    def offsets(self):
        """The offsets of the last micro-batch, as in the checkpoint."""
        newest = max(
            (p for p in (self.checkpoint / "offsets").iterdir() if p.name.isdigit()), key=lambda p: int(p.name)
        )
        return json.loads(newest.read_text().splitlines()[-1])

    def forget_last_commit(self):
        """Remove the newest commit of the checkpoint, as after the death of a driver between the sink's commit and its
        own.
        """
        commits = self.checkpoint / "commits"
        newest = max((p for p in commits.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
        newest.unlink()
        pathlib.Path(commits, f".{newest.name}.crc").unlink(missing_ok=True)


@pytest.fixture
def stream(spark, spark_broker, topic, tmp_path):
    def make(named=topic, **more):
        return Stream(spark, tmp_path, options(spark_broker, named, **more))

    return make


def test_everything_once_over_runs_limits_and_a_repeated_batch(stream, pulsar_client, topic):
    found = stream(maxMessagesPerTrigger="60")
    publish(pulsar_client, topic, 100)
    assert found.run() == 2
    assert numbers(found.rows()) == list(range(100))
    assert found.offsets()[topic] == 100
    publish(pulsar_client, topic, 30, first=100)
    found.forget_last_commit()
    found.run()
    assert numbers(found.rows()) == list(range(130))


def test_limits_in_entries_and_bytes(stream, spark, pulsar_client, topic, tmp_path):
    """How limits are shared and combined is tested without Spark."""
    publish(pulsar_client, topic, 100)
    assert stream(maxEntriesPerTrigger="50").run() == 2
    other = stream(maxBytesPerTrigger="5000")
    other.checkpoint, other.table = tmp_path / "c2", tmp_path / "t2"
    assert 2 <= other.run() <= 4
    assert numbers(other.rows()) == list(range(100))


def test_partitions_that_never_had_a_message(stream, spark_broker, pulsar_client, topic):
    admin(spark_broker, "PUT", f"{path(topic)}/partitions", b"2")
    found = stream()
    found.run()
    publish(pulsar_client, f"{topic}-partition-1", 10)
    found.run()
    publish(pulsar_client, f"{topic}-partition-0", 10, first=10)
    found.run()
    assert numbers(found.rows()) == list(range(20))


def test_new_partitions_are_picked_up(stream, spark_broker, pulsar_client, topic):
    admin(spark_broker, "PUT", f"{path(topic)}/partitions", b"2")
    publish(pulsar_client, topic, 50, key=str)
    found = stream()
    found.run()
    admin(spark_broker, "POST", f"{path(topic)}/partitions", b"4")
    publish(pulsar_client, topic, 200, first=50, key=str)
    found.run()
    assert numbers(found.rows()) == list(range(250))
    assert {row[0] for row in found.rows().select("__partition").distinct().collect()} == {0, 1, 2, 3}


def test_new_topics_of_a_pattern_are_picked_up(stream, pulsar_client, topic):
    pattern = topic.rpartition("/")[2] + "-.*"
    publish(pulsar_client, f"{topic}-a", 10)
    found = stream(None, topicsPattern=pattern)
    found.run()
    publish(pulsar_client, f"{topic}-b", 10, first=10)
    found.run()
    assert numbers(found.rows()) == list(range(20))


def test_a_topic_that_comes_later_is_waited_for(stream, pulsar_client, topic):
    found = stream(waitingForNonExistedTopic="true")
    found.run()
    publish(pulsar_client, topic, 10)
    found.run()
    assert numbers(found.rows()) == list(range(10))


def test_lost_messages_fail_the_query_or_are_passed_over(stream, spark_broker, pulsar_client, topic):
    publish(pulsar_client, topic, 20)
    found = stream()
    found.run()
    publish(pulsar_client, topic, 30, first=20)
    admin(spark_broker, "PUT", f"{path(topic)}/unload")  # the ledger that is open for writing is never truncated
    admin(spark_broker, "DELETE", f"{path(topic)}/truncate")
    publish(pulsar_client, topic, 10, first=50)
    with pytest.raises(Exception, match=f"30 messages of {topic} are lost, from 20 up to 50"):
        found.run()
    found.run(failOnDataLoss="false")
    assert numbers(found.rows()) == [*range(20), *range(50, 60)]


def test_a_topic_made_anew_is_read_from_its_start_without_fail_on_data_loss(stream, spark_broker, pulsar_client, topic):
    publish(pulsar_client, topic, 20)
    found = stream()
    found.run()
    admin(spark_broker, "DELETE", f"{path(topic)}?force=true")
    publish(pulsar_client, topic, 50, first=100)
    with pytest.raises(Exception, match="created again"):
        found.run()
    found.run(failOnDataLoss="false")
    assert numbers(found.rows()) == [*range(20), *range(100, 150)]


def test_a_durable_cursor_follows_the_stream(stream, spark_broker, pulsar_client, topic):
    publish(pulsar_client, topic, 50)
    found = stream(predefinedSubscription="spark")
    found.run()
    publish(pulsar_client, topic, 7, first=50)

    def backlog():
        stats = json.loads(admin(spark_broker, "GET", f"{path(topic)}/stats"))
        return stats["subscriptions"]["spark"]["msgBacklog"]

    assert backlog() == 57, "Spark tells of the end of a micro-batch when it begins the next one"
    found.run()
    assert backlog() == 7
    assert numbers(found.rows()) == list(range(57))


def test_progress_tells_how_far_behind_the_stream_is(stream, pulsar_client, topic):
    publish(pulsar_client, topic, 100)
    found = stream(maxMessagesPerTrigger="30")
    found.run()
    first = json.loads(found.progress[0].json)["sources"][0]
    assert json.loads(_text(first["endOffset"]))[topic] == 30
    assert json.loads(_text(first["latestOffset"]))[topic] == 100


def _text(offset):
    return offset if isinstance(offset, str) else json.dumps(offset)


def test_ledger_files_and_broker_in_a_stream(stream, spark_broker, pulsar_client, topic):
    found = stream(**{"storage.url": str(spark_broker.data_dir), "minPartitions": "3"})
    for round_ in range(3):
        publish(pulsar_client, topic, 2000, first=2000 * round_, batching_enabled=True)
        found.run()
    assert numbers(found.rows()) == list(range(6000))
