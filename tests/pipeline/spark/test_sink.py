"""`df.write` and `writeStream` into real topics."""

import shutil
import urllib.request
import uuid

import pulsar
import pyarrow as pa
import pytest

import magnetar.pipeline
from magnetar.pipeline.sink.foreach_batch import exactly_once
from magnetar.pipeline.sink.options import SinkOptions
from magnetar.pipeline.sink.staging import Staging
from magnetar.pipeline.sink.writers import send_published
from magnetar.pytest_plugin import BrokerProcess


@pytest.fixture(scope="module")
def deduplicating(tmp_path_factory):
    process = BrokerProcess(tmp_path_factory.mktemp("dedup") / "data", {"brokerDeduplicationEnabled": True})
    yield process
    process.stop()


@pytest.fixture(scope="module", autouse=True)
def registered(spark):
    magnetar.pipeline.register(spark)


@pytest.fixture
def client(deduplicating):
    made = pulsar.Client(deduplicating.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield made
    made.close()


def read_all(client, topic):
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(60_000))
    reader.close()
    return found


def call(broker, method, path, body):
    request = urllib.request.Request(f"{broker.http_url}/{path}", body, method=method)
    request.add_header("Content-Type", "application/json")
    urllib.request.urlopen(request).close()


def to(broker, writer, topic, **options):
    writer = writer.format("pulsar").option("service.url", broker.url).option("admin.url", broker.http_url)
    for name, value in ({"topic": topic} | options).items():
        writer = writer.option(name, value)
    return writer


def test_a_batch_write(spark, deduplicating, client, topic):
    df = spark.range(0, 1000, 1, 3).selectExpr("cast(id as string) value", "cast(id % 7 as string) __key")
    to(deduplicating, df.write.mode("append"), topic).save()
    found = read_all(client, topic)
    assert sorted(int(m.data()) for m in found) == list(range(1000))
    assert all(m.partition_key() == str(int(m.data()) % 7) for m in found)


def test_every_part_of_a_message_and_a_table_that_was_read(spark, deduplicating, client, topic):
    rows = """
        select cast(id as string) value, concat('k', id) __key, cast('o' as binary) __orderingKey,
            timestamp_millis(1700000000000 + id) __eventTime, map('n', cast(id as string)) __messageProperties,
            timestamp_millis(1600000000000) __deliverAt
        from range(3)"""
    to(deduplicating, spark.sql(rows).coalesce(1).write.mode("append"), topic).save()
    where = {"service.url": deduplicating.url, "admin.url": deduplicating.http_url, "topic": topic}
    to(deduplicating, spark.read.format("pulsar").options(**where).load().write.mode("append"), f"{topic}-copy").save()
    for written in (topic, f"{topic}-copy"):
        found = [
            (m.data(), m.partition_key(), m.ordering_key(), m.event_timestamp(), m.properties())
            for m in read_all(client, written)
        ]
        assert found == [(b"%d" % n, f"k{n}", "o", 1_700_000_000_000 + n, {"n": str(n)}) for n in range(3)]


def test_records_with_times_get_a_schema(spark, deduplicating, topic):
    rows = "select 7 id, timestamp_millis(1700000000123) at, array(timestamp_millis(5)) more, date'2024-01-02' day"
    to(deduplicating, spark.sql(rows).write.mode("append"), topic).save()
    where = {"service.url": deduplicating.url, "admin.url": deduplicating.http_url, "topic": topic}
    frame = spark.read.format("pulsar").options(**where).load().select("id", "at", "more", "day")
    assert frame.collect() == spark.sql(rows).collect()


def test_a_batch_write_with_a_sink_id_may_be_repeated(spark, deduplicating, client, topic):
    df = spark.range(0, 500, 1, 2).selectExpr("cast(id as string) value")
    for _ in range(2):
        options = {"guarantee": "exactly-once", "sinkId": "load-1"}
        to(deduplicating, df.write.mode("append"), topic, **options).save()
    assert sorted(int(m.data()) for m in read_all(client, topic)) == list(range(500))


def test_overwriting_and_bad_options_are_refused(spark, deduplicating, topic):
    df = spark.range(1).selectExpr("cast(id as string) value")
    with pytest.raises(Exception, match="cannot be overwritten"):
        to(deduplicating, df.write.mode("overwrite"), topic).save()
    with pytest.raises(Exception, match="compressionType"):
        to(deduplicating, df.write.mode("append"), topic, compressionType="rar").save()


def forget_last_commit(checkpoint):
    """The driver died after the sink had stored the batch and before Spark noted that."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)


def numbers(spark, folder):
    return spark.readStream.schema("value string").text(str(folder))


def add(folder, *values):
    (folder / f"{uuid.uuid4().hex}.txt").write_text("".join(f"{value}\n" for value in values))


@pytest.mark.parametrize("guarantee", ["exactly-once", "exactly-once-staged"])
def test_a_stream_whose_driver_dies_after_the_send(spark, deduplicating, client, topic, tmp_path, guarantee):
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()

    def run():
        stream = to(deduplicating, numbers(spark, source).writeStream, topic, guarantee=guarantee)
        query = stream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination(120)
        assert query.exception() is None

    for first in (0, 100):
        add(source, *range(first, first + 100))
        run()
        forget_last_commit(checkpoint)
    run()
    assert [int(m.data()) for m in read_all(client, topic)] == list(range(200))
    if guarantee == "exactly-once-staged":
        (folder,) = (checkpoint / "sink-staging").iterdir()
        assert len(list(folder.iterdir())) == 1, "files of batches that were sent are deleted"


def test_a_staged_stream_whose_rows_change_their_order(spark, deduplicating, client, topic, tmp_path):
    """The staged rows count, not those that a repetition computes."""
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()
    add(source, *range(50))
    for order in ("value", "md5(value)"):
        df = numbers(spark, source).selectExpr("value", f"{order} o").repartition(2, "o").drop("o")
        query = to(deduplicating, df.writeStream, topic).option("checkpointLocation", str(checkpoint))
        query.trigger(availableNow=True).start().awaitTermination(120)
        forget_last_commit(checkpoint)
        shutil.rmtree(checkpoint / "sink-staging" / "x", ignore_errors=True)
    assert sorted(int(m.data()) for m in read_all(client, topic)) == list(range(50))


def test_a_staged_batch_that_is_sent_again_to_a_topic_that_has_grown(deduplicating, topic, tmp_path, monkeypatch):
    path = f"admin/v2/{topic.replace('://', '/')}/partitions"
    call(deduplicating, "PUT", path, b"2")
    given = {"service.url": deduplicating.url, "admin.url": deduplicating.http_url, "topic": topic}
    options = SinkOptions.parse(given | {"stagingDirectory": str(tmp_path)}, streaming=True)
    staging = Staging(str(tmp_path), "grown")
    rows = pa.RecordBatch.from_pydict({"value": [str(n) for n in range(60)], "__key": [str(n) for n in range(60)]})
    name, _ = staging.stage(0, 0, "a", [rows])
    with monkeypatch.context() as death:
        death.setattr(staging, "mark_sent", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            send_published(staging, 0, [name], options, "grown")
    call(deduplicating, "POST", path, b"3")
    reports = send_published(staging, 0, [name], options, "grown")
    assert (sum(each.stored for each in reports), sum(each.known for each in reports)) == (0, 60)


def test_foreach_batch_sends_from_executors(spark, deduplicating, client, topic, tmp_path):
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()
    write = exactly_once(
        {
            "service.url": deduplicating.url,
            "admin.url": deduplicating.http_url,
            "topic": topic,
            "sinkId": "each",
            "stagingDirectory": str(tmp_path / "staging"),
        }
    )
    for first in (0, 100):
        add(source, *range(first, first + 100))
        query = numbers(spark, source).repartition(2).writeStream.foreachBatch(write)
        query = query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination(120)
        assert query.exception() is None
        forget_last_commit(checkpoint)
    assert sorted(int(m.data()) for m in read_all(client, topic)) == list(range(200))


def test_foreach_batch_under_the_sink_id_of_another_stream_loses_no_rows(spark, deduplicating, client, topic, tmp_path):
    """The task that sends is tried twice."""

    def write(value, folder):
        given = {"topic": topic, "sinkId": "twins", "stagingDirectory": str(tmp_path / folder)}
        service = {"service.url": deduplicating.url, "admin.url": deduplicating.http_url}
        exactly_once(given | service)(spark.createDataFrame([(value,)], "value string"), 0)

    write("a", "first")
    for _ in range(2):
        with pytest.raises(Exception, match=r"which this stream has not sent.*give another sinkId"):
            write("b", "second")
    assert [m.data() for m in read_all(client, topic)] == [b"a"]


def test_a_task_that_is_tried_again_sends_nothing_twice(spark, deduplicating, client, topic):
    """The first attempt fails after its rows were sent in part."""

    def fail_once(batches):
        from pyspark import TaskContext

        for batch in batches:
            yield batch.slice(0, batch.num_rows // 2)
            if TaskContext.get().attemptNumber() == 0:
                raise RuntimeError("the executor dies")
            yield batch.slice(batch.num_rows // 2)

    df = spark.range(0, 4000, 1, 2).selectExpr("cast(id as string) value").mapInArrow(fail_once, "value string")
    options = {"guarantee": "exactly-once", "sinkId": "retried", "batchingMaxMessages": "100"}
    to(deduplicating, df.write.mode("append"), topic, **options).save()
    assert sorted(int(m.data()) for m in read_all(client, topic)) == list(range(4000))


def test_plans_do_not_show_secrets(spark, deduplicating, topic):
    df = spark.range(1).selectExpr("cast(id as string) value")
    spark.conf.set("spark.sql.ui.explainMode", "extended")
    secrets = {"basic": "user:open-sesame", "pulsar.client.authPluginClassName": "basic"}
    to(deduplicating, df.write.mode("append"), topic, **secrets, **{"pulsar.client.authParams": "u:open-sesame"}).save()
    spark.conf.unset("spark.sql.ui.explainMode")
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    plans = [executions.apply(k).physicalPlanDescription() for k in range(executions.size())]
    assert any(f"topic={topic}" in plan for plan in plans)
    assert not any("open-sesame" in plan for plan in plans)
