"""`spark.read.format("pulsar")` against a broker process, written to by the official client."""

import contextlib
import io

import pulsar
import pytest

from magnetar.pipeline import register
from tests.pipeline.spark.source_for_tests import admin, numbers, options, path, publish

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def read(spark, broker, topic, **more):
    return spark.read.format("pulsar").options(**options(broker, topic, **more)).load()


@pytest.fixture(autouse=True, scope="module")
def registered(spark):
    register(spark)


def test_every_message_once_with_its_columns(spark, spark_broker, pulsar_client, topic):
    publish(pulsar_client, topic, 500, key=lambda k: f"k{k % 7}")
    frame = read(spark, spark_broker, topic)
    rows = frame.orderBy("__index").collect()
    assert [row["__index"] for row in rows] == list(range(500))
    assert [int(bytes(row.value)) for row in rows] == list(range(500))
    row = rows[42]
    assert (bytes(row["__key"]), row["__topic"], row["__messageProperties"]) == (b"k0", topic, {"n": "42"})
    assert row["__eventTime"].timestamp() == pytest.approx(1.042)
    message_id = pulsar.MessageId.deserialize(bytes(row["__messageId"]))
    assert (message_id.ledger_id(), message_id.entry_id()) == (row["__ledgerId"], row["__entryId"])


def test_both_paths_give_equal_rows(spark, spark_broker, pulsar_client, topic):
    publish(pulsar_client, topic, 3000, batching_enabled=True)
    storage = {"storage.url": str(spark_broker.data_dir)}
    through = read(spark, spark_broker, topic, readMode="broker").orderBy("__index").toArrow()
    auto = read(spark, spark_broker, topic, minPartitions="5", **storage).orderBy("__index").toArrow()
    assert auto.num_rows == 3000
    assert auto.equals(through)
    assert auto.column("__brokerPublishTime").null_count == 0


def test_partitions_and_patterns(spark, spark_broker, pulsar_client, topic):
    admin(spark_broker, "PUT", f"{path(topic)}/partitions", b"4")
    publish(pulsar_client, topic, 200, key=lambda k: f"k{k}")
    assert numbers(read(spark, spark_broker, topic)) == list(range(200))
    name = topic.rpartition("/")[2]
    pattern = spark.read.format("pulsar").options(**options(spark_broker, topicsPattern=name[:-2] + ".."))
    assert numbers(pattern.load()) == list(range(200))
    assert {row["__partition"] for row in pattern.load().select("__partition").distinct().collect()} <= {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"startingOffsets": '{"%s": 10}', "endingOffsets": '{"%s": 20}'}, range(10, 20)),
        ({"startingOffsets": "latest"}, range(0)),
        ({"maxRecordsPerPartition": "7", "startingOffsets": '{"%s": 33}'}, range(33, 100)),
        ({"startingOffsets": '{"%s": 95}', "minPartitions": "3"}, range(95, 100)),
    ],
)
def test_ranges(spark, spark_broker, pulsar_client, topic, more, expected):
    publish(pulsar_client, topic, 100)
    given = {name: text % topic if "%s" in text else text for name, text in more.items()}
    frame = read(spark, spark_broker, topic, **given)
    assert numbers(frame) == list(expected)


def test_columns_metadata_only_and_style_of_kafka(spark, spark_broker, pulsar_client, topic):
    publish(pulsar_client, topic, 10)
    assert read(spark, spark_broker, topic, columns="__key,__index").columns == ["__key", "__index"]
    metadata = read(spark, spark_broker, topic, metadataOnly="true")
    assert "value" not in metadata.columns
    assert metadata.count() == 10
    kafka = read(spark, spark_broker, topic, columnStyle="kafka", includeHeaders="true")
    assert kafka.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    assert [row.offset for row in kafka.orderBy("offset").collect()] == list(range(10))


def test_filters_are_evaluated_in_the_source(spark, spark_broker, pulsar_client, topic):
    publish(pulsar_client, topic, 300, key=lambda k: f"k{k % 10}")

    def where(condition):
        """A query on a new DataFrame, because Spark keeps the filters of a DataFrame's first query."""
        return read(spark, spark_broker, topic, pushdown="true").where(condition)

    assert "Filter (" not in plan_of(where("__index >= 250")), "Spark has nothing left to evaluate"
    assert where("__index >= 250").count() == 50
    assert where("__key = cast('k3' as binary)").count() == 30
    assert where("__eventTime < timestamp_millis(1100)").count() == 100
    assert where("__partition = -1 and __index in (5, 7) and __key is not null").count() == 2
    assert where("__topic = 'other'").count() == 0
    assert where("__topic like '%9' or __index % 3 = 0").count() >= 100, "what is not understood Spark evaluates"
    frame = read(spark, spark_broker, topic)
    assert [frame.where("__index >= 250").count(), frame.count()] == [50, 300], "without the option it is shared"
    spark.conf.set(PUSHDOWN, "false")
    try:
        assert where("__index >= 250").count() == 50
    finally:
        spark.conf.set(PUSHDOWN, "true")


def plan_of(frame):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        frame.explain()
    return text.getvalue()


def test_the_error_of_an_unknown_topic_or_option_names_the_remedy(spark, spark_broker, topic):
    with pytest.raises(Exception, match="does not exist"):
        read(spark, spark_broker, topic).count()
    with pytest.raises(Exception, match="did you mean startingOffsets"):
        read(spark, spark_broker, topic, startingOffset="earliest").count()


def test_typed_values_by_the_schema_of_the_topic(spark, spark_broker, pulsar_client, topic):
    import pulsar.schema

    class Order(pulsar.schema.Record):
        item = pulsar.schema.String()
        amount = pulsar.schema.Integer()

    producer = pulsar_client.create_producer(topic, schema=pulsar.schema.AvroSchema(Order))
    for k in range(20):
        producer.send(Order(item=f"i{k}", amount=k))
    frame = read(spark, spark_broker, topic)
    assert frame.columns[:2] == ["amount", "item"] or frame.columns[:2] == ["item", "amount"]
    assert frame.agg({"amount": "sum"}).collect()[0][0] == sum(range(20))
    assert read(spark, spark_broker, topic, valueMode="bytes").columns[0] == "value"


def test_a_loaded_table_reads_on_when_the_schema_has_grown(spark, spark_broker, pulsar_client, topic):
    def produce(record, *fields):
        definition = {"type": "record", "name": "R", "fields": list(fields)}
        schema = pulsar.schema.AvroSchema(None, schema_definition=definition)
        pulsar_client.create_producer(topic, schema=schema).send(record)

    a, b = {"name": "a", "type": "int"}, {"name": "b", "type": "string", "default": "new"}
    produce({"a": 1}, a)
    before = read(spark, spark_broker, topic)
    produce({"a": 2, "b": "x"}, a, b)
    assert [row.a for row in before.orderBy("__index").collect()] == [1, 2]
    assert [row.b for row in read(spark, spark_broker, topic).orderBy("__index").collect()] == ["new", "x"]
    stream = spark.readStream.format("pulsar").schema(before.select("a", "__index").schema)
    query = stream.options(**options(spark_broker, topic, startingOffsets="earliest")).load().writeStream
    query = query.format("memory").queryName("grown").trigger(availableNow=True).start()
    query.awaitTermination(120)
    assert [row.a for row in spark.table("grown").orderBy("__index").collect()] == [1, 2]
