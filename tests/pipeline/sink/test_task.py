"""Rows through a task into a real broker, read back by the official client."""

import threading
import urllib.request
import uuid

import pulsar
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from magnetar.client.errors import DeduplicationError, RefusedError, RetryError
from magnetar.pipeline.sink.options import SinkOptions
from magnetar.pipeline.sink.packing import MessageTooLargeError
from magnetar.pipeline.sink.routing import RoutingError
from magnetar.pipeline.sink.staging import Staging, StagingError
from magnetar.pipeline.sink.task import Place, RepeatedSinkIdError, send_rows
from magnetar.pipeline.sink.writers import send_published
from magnetar.pytest_plugin import BrokerProcess

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    process = BrokerProcess(tmp_path_factory.mktemp("sink") / "data", {"brokerDeduplicationEnabled": True})
    yield process
    process.stop()


@pytest.fixture
def client(broker):
    made = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield made
    made.close()


@pytest.fixture
def topic():
    return f"persistent://public/default/t-{uuid.uuid4().hex[:12]}"


def options(broker, topic, **others):
    given = {"service.url": broker.url, "admin.url": broker.http_url, "topic": topic}
    return SinkOptions.parse(given | {"guarantee": "exactly-once", "sinkId": "s"} | others, streaming=False)


def table(*values, **columns):
    return pa.RecordBatch.from_pydict({"value": list(values)} | columns)


def read_all(client, topic, count):
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = [reader.read_next(60_000) for _ in range(count)]
    assert not reader.has_message_available()
    reader.close()
    return found


def read_to_end(client, topic):
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    while reader.has_message_available():
        yield reader.read_next(60_000)
    reader.close()


EXACTLY_ONCE = Place(0, "s-0", 0)


def test_rows_arrive_in_order_with_their_parts(broker, client, topic):
    batch = table(
        *[str(n) for n in range(2500)],
        __key=[f"k{n % 3}" for n in range(2500)],
        __eventTime=[1_700_000_000_000 + n for n in range(2500)],
    )
    (report,) = send_rows([batch.slice(0, 700), batch.slice(700)], options(broker, topic), EXACTLY_ONCE)
    assert (report.topic, report.stored, report.known) == (topic, 2500, 0)
    found = read_all(client, topic, 2500)
    assert [m.data() for m in found] == [str(n).encode() for n in range(2500)]
    assert [m.partition_key() for m in found[:3]] == ["k0", "k1", "k2"]
    assert found[-1].event_timestamp() == 1_700_000_002_499


def test_a_repetition_stores_nothing_twice(broker, client, topic):
    rows = [table(*[str(n) for n in range(3300)])]
    limits = options(broker, topic, batchingMaxMessages="100")
    send_rows([rows[0].slice(0, 1234)], limits, EXACTLY_ONCE)
    (report,) = send_rows(rows, limits, EXACTLY_ONCE)
    assert report.stored + report.known == 3300
    assert report.known == 1234
    (report,) = send_rows(rows, limits, EXACTLY_ONCE)
    assert (report.stored, report.known) == (0, 3300)
    assert [m.data() for m in read_all(client, topic, 3300)] == [str(n).encode() for n in range(3300)]


def test_a_later_batch_of_a_stream_goes_on(broker, client, topic):
    send_rows([table("a")], options(broker, topic), Place(0, "s-0", 1 << 32))
    send_rows([table("b")], options(broker, topic), Place(0, "s-0", 2 << 32))
    assert [m.data() for m in read_all(client, topic, 2)] == [b"a", b"b"]


@pytest.mark.parametrize("more", [{}, {"checkDeduplication": "false"}])
def test_a_stream_that_begins_anew_under_its_sink_id_loses_no_rows(broker, client, topic, more):
    given = options(broker, topic, **more)
    send_rows([table("a")], given, Place(0, "s-0", 1 << 32))
    with pytest.raises(DeduplicationError, match=r"rows of batch 1 of producer s-0, and this is batch 0.*sinkId"):
        send_rows([table("b")], given, Place(0, "s-0", 0))
    (report,) = send_rows([table("a")], given, Place(0, "s-0", 1 << 32))
    assert report.known == 1
    assert [m.data() for m in read_all(client, topic, 1)] == [b"a"]


@pytest.mark.parametrize("batch_id", [0, 3])
def test_a_staged_stream_under_the_sink_id_of_another_stream_loses_no_rows(broker, client, topic, tmp_path, batch_id):
    """The batches have one number, as the batches 0 of a stream and of its successor with a new checkpoint."""
    sending = options(broker, topic)

    def send(folder, value):
        staging = Staging(str(tmp_path / folder), "s")
        name, _ = staging.stage(batch_id, 0, "a", [table(value)])
        return send_published(staging, batch_id, [name], sending, "s")

    send("first", "a")
    refused = f"{topic} has rows of batch {batch_id} of producer s-0, which this stream has not sent.*another sinkId"
    with pytest.raises(RepeatedSinkIdError, match=refused):
        send("second", "b")
    with pytest.raises(StagingError, match=refused):
        send("second", "b")
    assert [m.data() for m in read_all(client, topic, 1)] == [b"a"]


def test_a_staged_batch_that_was_sent_in_part_is_its_own_repetition(broker, client, topic, tmp_path, monkeypatch):
    staging, sending = Staging(str(tmp_path), "s"), options(broker, topic)
    name, _ = staging.stage(0, 0, "a", [table("a", "b")])
    with monkeypatch.context() as death:
        death.setattr(staging, "mark_sent", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            send_published(staging, 0, [name], sending, "s")
    (report,) = send_published(staging, 0, [name], sending, "s")
    assert (report.stored, report.known) == (0, 2)
    assert [m.data() for m in read_all(client, topic, 2)] == [b"a", b"b"]


def test_at_least_once_needs_no_name(broker, client, topic):
    plain = options(broker, topic, guarantee="at-least-once", sinkId="")
    for _ in range(2):
        send_rows([table("a")], plain, Place(0, None, 0))
    assert [m.data() for m in read_all(client, topic, 2)] == [b"a", b"a"]


def set_partitions(broker, topic, method, count):
    path = topic.replace("persistent://", "persistent/")
    request = urllib.request.Request(f"{broker.http_url}/admin/v2/{path}/partitions", b"%d" % count, method=method)
    request.add_header("Content-Type", "application/json")
    urllib.request.urlopen(request).close()


def test_partitions_by_key(broker, client, topic):
    set_partitions(broker, topic, "PUT", 3)
    batch = table(*[str(n) for n in range(60)], __key=[f"k{n % 10}" for n in range(60)])
    reports = send_rows([batch], options(broker, topic), EXACTLY_ONCE)
    assert sum(report.stored for report in reports) == 60
    placed = {}
    for report in reports:
        for message in read_all(client, report.topic, report.stored):
            assert placed.setdefault(message.partition_key(), report.topic) == report.topic
    assert len(placed) == 10


@pytest.mark.parametrize("keys", [{"__key": [f"k{n}" for n in range(60)]}, {}], ids=["keys", "no keys"])
def test_a_staged_batch_keeps_its_partitions_although_the_topic_grows(broker, client, topic, tmp_path, keys):
    """The first attempt stops in the middle. With other partitions a repetition would lose rows and repeat others."""
    set_partitions(broker, topic, "PUT", 2)
    rows = table(*[str(n) for n in range(60)], **keys)
    sending = options(broker, topic, batchingMaxMessages="5")

    def send(some):
        return send_rows([some], sending, EXACTLY_ONCE, Staging(str(tmp_path), "s").partition_counts(0, 0))

    send(rows.slice(0, 35))
    set_partitions(broker, topic, "POST", 3)
    reports = send(rows)
    assert (sum(each.stored for each in reports), sum(each.known for each in reports)) == (25, 35)
    made = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    found = [m.data() for n in range(3) for m in read_to_end(made, f"{topic}-partition-{n}")]
    made.close()
    assert sorted(map(int, found)) == list(range(60))


def named(*partitions):
    values = [str(n) for n in range(len(partitions))]
    return pa.RecordBatch.from_pydict({"value": values, "__partition": pa.array(partitions, pa.int32())})


def test_a_staged_batch_that_names_a_partition_goes_on_when_the_topic_has_got_the_partition(
    broker, client, topic, tmp_path
):
    set_partitions(broker, topic, "PUT", 2)
    sending = options(broker, topic, routing="partition")

    def send():
        counts = Staging(str(tmp_path), "s").partition_counts(0, 0)
        return send_rows([named(0, 1, 2)], sending, EXACTLY_ONCE, counts)

    with pytest.raises(RoutingError, match="wants partition 2"):
        send()
    set_partitions(broker, topic, "POST", 3)
    assert sum(each.stored for each in send()) >= 1
    assert [m.data() for m in read_all(client, f"{topic}-partition-2", 1)] == [b"2"]


def test_a_staged_batch_goes_to_a_topic_that_was_made_anew_with_fewer_partitions(broker, topic, tmp_path):
    set_partitions(broker, topic, "PUT", 3)
    sending = options(broker, topic)

    def send():
        counts = Staging(str(tmp_path), "s").partition_counts(0, 0)
        rows = table(*[str(n) for n in range(30)], __key=[f"k{n}" for n in range(30)])
        return send_rows([rows], sending, EXACTLY_ONCE, counts)

    send()
    set_partitions(broker, topic, "DELETE", 0)
    set_partitions(broker, topic, "PUT", 2)
    assert [sum(each.stored for each in reports) for reports in (send(), send())] == [30, 0]


def test_a_topic_column_and_short_names(broker, client, topic):
    local = topic.rpartition("/")[2]
    given = options(broker, "", sinkId="s")
    reports = send_rows([table("a", "b", __topic=[local, topic])], given, EXACTLY_ONCE)
    assert [(report.topic, report.stored) for report in reports] == [(topic, 2)]


def test_records_carry_the_schema(broker, client, topic):
    batch = pa.RecordBatch.from_pydict({"id": [1, 2], "name": ["a", None]})
    send_rows([batch], options(broker, topic, recordName="Order"), EXACTLY_ONCE)

    class Order(pulsar.schema.Record):
        id = pulsar.schema.Long()
        name = pulsar.schema.String()

    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=pulsar.schema.AvroSchema(Order))
    found = [reader.read_next(60_000).value() for _ in range(2)]
    assert [(order.id, order.name) for order in found] == [(1, "a"), (2, None)]


def test_a_broker_that_is_killed_while_rows_are_sent(broker, client, topic):
    count, killer = 30_000, threading.Timer(0, lambda: None)

    def rows():
        for first in range(0, count, 1000):
            if first in {5000, 20_000}:
                nonlocal killer
                killer = threading.Thread(target=lambda: (broker.kill(), broker.start()))
                killer.start()
            yield table(*[f"{n:06d}" for n in range(first, first + 1000)])
            if first in {6000, 21_000}:
                killer.join()

    sending = options(broker, topic, maxPendingBytes="200000", batchingMaxMessages="50")
    (report,) = send_rows(rows(), sending, EXACTLY_ONCE)
    killer.join()
    assert report.stored + report.known == count
    assert [int(m.data()) for m in read_all(client, topic, count)] == list(range(count))


def large(n):
    """A payload that takes three entries, for every third number."""
    text = b"%06d" % n
    return text * 2_000_000 if n % 3 == 0 else text


def test_large_messages_in_chunks_once_although_the_broker_is_killed(broker, client, topic):
    def rows():
        for n in range(9):
            if n == 4:  # chunks of number 3 wait for their receipts
                broker.kill()
                broker.start()
            yield table(large(n))

    sending = options(broker, topic, chunkingEnabled="true", maxPendingBytes="60000000")
    (report,) = send_rows(rows(), sending, EXACTLY_ONCE)
    assert report.stored + report.known == 9
    assert [m.data() for m in read_all(client, topic, 9)] == [large(n) for n in range(9)]
    (report,) = send_rows(rows(), sending, EXACTLY_ONCE)
    assert (report.stored, report.known) == (0, 9)
    assert len(read_all(client, topic, 9)) == 9


@pytest.mark.parametrize("more", [{}, {"compressionType": "LZ4"}, {"batchingEnabled": "false"}])
def test_the_official_client_decrypts(broker, topic, tmp_path, more):
    pair = rsa.generate_private_key(65537, 2048)
    public, private = tmp_path / "public.pem", tmp_path / "private.pem"
    public.write_bytes(pair.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    private.write_bytes(pair.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    sending = options(broker, topic, encryptionKeys=f"app={public}", chunkingEnabled="true", **more)
    (report,) = send_rows([table("one", "two", large(1))], sending, EXACTLY_ONCE)
    assert report.stored == 3
    client = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    reader = client.create_reader(
        topic, pulsar.MessageId.earliest, crypto_key_reader=pulsar.CryptoKeyReader(str(public), str(private))
    )
    assert [reader.read_next(60_000).data() for _ in range(3)] == [b"one", b"two", large(1)]
    client.close()


def test_without_deduplication_nothing_is_sent(tmp_path_factory, topic):
    other = BrokerProcess(tmp_path_factory.mktemp("plain") / "data", {"topicLevelPoliciesEnabled": True})
    try:
        with pytest.raises(DeduplicationError, match="option enableDeduplication"):
            send_rows([table("a")], options(other, topic), EXACTLY_ONCE)
        (report,) = send_rows([table("a")], options(other, topic, enableDeduplication="true"), EXACTLY_ONCE)
        assert report.stored == 1
    finally:
        other.stop()


def test_a_name_in_use_is_waited_for(broker, client, topic):
    attached = client.create_producer(topic, producer_name="s-0")
    threading.Timer(1.0, attached.close).start()
    (report,) = send_rows([table("a")], options(broker, topic), EXACTLY_ONCE)
    assert report.stored == 1


def test_errors(broker, topic):
    with pytest.raises(MessageTooLargeError, match="maxMessageSize"):
        send_rows([table(bytes(6 << 20))], options(broker, topic), EXACTLY_ONCE)
    with pytest.raises(RefusedError, match=r"TopicNotFound|[Nn]amespace"):
        send_rows([table("a")], options(broker, "persistent://no/where/t"), EXACTLY_ONCE)
    nobody = {"service.url": "pulsar://127.0.0.1:1", "topic": topic, "sendTimeoutMs": "300"}
    with pytest.raises(RetryError, match=r"127\.0\.0\.1:1"):
        send_rows([table("a")], SinkOptions.parse(nobody, streaming=False), Place(0, None, 0))
    assert send_rows([], options(broker, topic), EXACTLY_ONCE) == []
