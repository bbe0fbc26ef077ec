"""Source and sink at an Apache Pulsar: `make oracle-pipeline`, with one running on ORACLE_URL and ORACLE_HTTP.

Whether its entries have a broker index depends on its settings (docs/pipeline/source.md); both ways are taken here.
"""

import os
import uuid

import pulsar
import pyarrow as pa
import pytest
from pulsar.schema import AvroSchema, Integer, Record, String

from magnetar.pipeline.catalog import Catalog
from magnetar.pipeline.offsets import Offsets
from magnetar.pipeline.options import SourceOptions
from magnetar.pipeline.sink.options import SinkOptions
from magnetar.pipeline.sink.task import Place, send_rows
from magnetar.pipeline.source.row_source import RowSource
from magnetar.pipeline.source.values import choose_values
from magnetar.pipeline.source_plan import SourcePlan

URL, HTTP = os.environ.get("MAGNETAR_ORACLE_URL"), os.environ.get("MAGNETAR_ORACLE_HTTP")

pytestmark = [
    pytest.mark.skipif(not (URL and HTTP), reason="needs an Apache Pulsar: MAGNETAR_ORACLE_URL, MAGNETAR_ORACLE_HTTP"),
    pytest.mark.timeout(180),
]


@pytest.fixture
def client():
    client = pulsar.Client(URL, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


@pytest.fixture
def topic(client):
    """A topic whose subscription keeps all messages."""
    name = f"persistent://public/default/t-{uuid.uuid4().hex[:12]}"
    client.subscribe(name, "keep").close()
    return name


def given(topic, **more):
    return {"service.url": URL, "admin.url": HTTP, "topic": topic, **more}


def rows_of(topic, **more):
    options = SourceOptions.parse(given(topic, **more))
    source, plan = RowSource.of(options, choose_values(options)), SourcePlan(options)
    logs = plan.logs()
    tasks = plan.tasks(plan.starting(logs), plan.ending(logs), logs)
    return [row for task in tasks for batch in source.batches(task) for row in batch.to_pylist()]


def is_indexed(topic):
    return Catalog(SourceOptions.parse(given(topic)).connect.admin()).range(topic).indexed


def publish(client, topic, count, **options):
    producer = client.create_producer(topic, block_if_queue_full=True, **options)
    for k in range(count):
        producer.send_async(b"%d" % k, None, partition_key=f"k{k % 5}", properties={"n": str(k)})
    producer.flush()
    producer.close()


def read_all(client, topic):
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(30_000))
    reader.close()
    return found


def test_every_kind_of_message_equals_that_of_the_official_client(client, topic):
    publish(client, topic, 50, batching_enabled=False)
    publish(client, topic, 200, batching_enabled=True, compression_type=pulsar.CompressionType.ZSTD)
    publish(client, topic, 30, batching_enabled=True)
    rows, messages = rows_of(topic, minPartitions="3"), read_all(client, topic)
    assert len(rows) == len(messages) == 280
    for row, message in zip(
        sorted(rows, key=lambda r: (r["__entryId"], r["__batchIndex"] or 0)), messages, strict=True
    ):
        assert row["value"] == message.data()
        assert row["__key"].decode() == message.partition_key()
        assert dict(row["__messageProperties"]) == message.properties()
        assert row["__messageId"] == message.message_id().serialize()
        assert round(row["__publishTime"].timestamp() * 1000) == message.publish_timestamp()
    if is_indexed(topic):
        index = [row["__index"] for row in rows]
        assert index == sorted(set(index)), "each once, in order"


def test_a_range_inside_a_batch(client, topic):
    publish(client, topic, 100, batching_enabled=True)
    if not is_indexed(topic):
        pytest.skip("no broker index")
    found = rows_of(topic, startingOffsets=f'{{"{topic}": 17}}', endingOffsets=f'{{"{topic}": 63}}')
    assert [int(row["value"]) for row in found] == list(range(17, 63))


def test_a_stream_in_steps(client, topic):
    publish(client, topic, 90, batching_enabled=False)
    options = SourceOptions.parse(given(topic, maxMessagesPerTrigger="40", startingOffsets="earliest"), streaming=True)
    source, plan = RowSource.of(options, choose_values(options)), SourcePlan(options)
    at, found, steps = plan.starting(plan.logs(streaming=True)), [], 0
    while (end := plan.advance(at, plan.logs(streaming=True), limited=True)) != at:
        tasks = plan.tasks(at, end, plan.logs(streaming=True))
        found += [row for task in tasks for batch in source.batches(task) for row in batch.to_pylist()]
        at, steps = Offsets.from_json(end.as_json()), steps + 1
    assert [int(row["value"]) for row in found] == list(range(90))
    assert steps == 3


class Order(Record):
    item = String()
    amount = Integer()


def test_typed_values(client, topic):
    producer = client.create_producer(topic, schema=AvroSchema(Order))
    for k in range(5):
        producer.send(Order(item=f"i{k}", amount=k))
    assert [(row["item"], row["amount"]) for row in rows_of(topic)] == [(f"i{k}", k) for k in range(5)]


def test_the_sink_is_exactly_once(client, topic):
    more = {"guarantee": "exactly-once", "sinkId": "s", "enableDeduplication": "true", "chunkingEnabled": "true"}
    values = [str(k) for k in range(500)] + ["x" * (6 << 20)]
    options = SinkOptions.parse(given(topic, **more), streaming=False)
    for stored, known in ((501, 0), (0, 501)):
        (report,) = send_rows([pa.RecordBatch.from_pydict({"value": values})], options, Place(0, "s-0", 0))
        assert (report.stored, report.known) == (stored, known)
    assert [message.data().decode() for message in read_all(client, topic)] == values
