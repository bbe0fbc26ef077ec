"""Foreign entries as the official client reads them from a broker process."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request

import pulsar
import pytest
from pulsar import ConsumerType, InitialPosition

from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch
from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.records import Record
from tests.blackbox import bad_converters
from tests.blackbox.clients import quiet_client
from tests.blackbox.conftest import BrokerProcess
from tests.blackbox.foreign import (
    foreign_entry,
    kafka_entry,
    key_text,
    publish,
    records_of,
    vector_bytes,
)
from tests.waiting import wait_for

pytestmark = pytest.mark.blackbox
RECEIVE_MS = 60_000
TYPES = [ConsumerType.Exclusive, ConsumerType.Failover, ConsumerType.Shared, ConsumerType.KeyShared]
ORDERED = (ConsumerType.Exclusive, ConsumerType.Failover)
RECORDED = [
    "java_m0_none", "java_m0_gzip", "java_m0_snappy", "java_m0_lz4",
    "java_m1_none_create", "java_m1_gzip_logappend", "java_m1_snappy_create", "java_m1_lz4_multiblock",
    "java_m2_none_create", "java_m2_gzip_create", "java_m2_snappy_multiblock", "java_m2_lz4_logappend",
    "java_m2_zstd_create", "java_m2_two_batches", "java_mixed_m0_m1gzip_m2", "java_m2_none_offset_gaps",
    "kafkapython_m2_zstd", "aiokafka_m2_lz4_50", "java_m2_idempotent",
]  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    settings = {"messageConverters": "kafka,bytes", "acknowledgmentAtBatchIndexLevelEnabled": "true"}
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings).start()
    yield process
    assert process.stop() == 0, process.log_text()[-4000:]


def subscribe(client, topic, name="sub", kind=ConsumerType.Shared, **options):
    return client.subscribe(
        topic, name, kind, initial_position=InitialPosition.Earliest, batch_index_ack_enabled=True, **options
    )


def place(message):
    found = message.message_id()
    return found.ledger_id(), found.entry_id(), found.batch_index()


def receive(consumer, count):
    return [consumer.receive(RECEIVE_MS) for _ in range(count)]


def assert_empty(consumer, timeout_ms=500):
    with pytest.raises(pulsar.Timeout):
        consumer.receive(timeout_ms)


def big_batch(codec=Codec.ZSTD, records=400, size=2500):
    return build_record_batch(
        [Record(n, 5, b"k", (b"%d " % n * size)[:size]) for n in range(records)], BatchOptions(codec=codec)
    )


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_every_magic_and_codec_with_redelivery_restart_and_seek(new_broker, topic, kind):
    broker = new_broker(messageConverters="kafka", acknowledgmentAtBatchIndexLevelEnabled="true")
    sets = [vector_bytes(name) for name in RECORDED] + [big_batch(), vector_bytes("java_m2_control_commit")]
    publish(broker, topic, [kafka_entry(each) for each in sets])
    expected = sorted(record for each in sets for record in ((key_text(k), v) for k, v in records_of(each)))
    client = quiet_client(broker.url)
    subscribe(client, topic, "keeps what others acknowledged").close()
    consumer = subscribe(client, topic, kind=kind, negative_ack_redelivery_delay_ms=200)
    first = receive(consumer, len(expected))
    assert sorted((m.partition_key(), m.data()) for m in first) == expected
    if kind in ORDERED:
        assert [place(m) for m in first] == sorted(place(m) for m in first)
    assert all(m.properties()["entry.format.origin"] == "kafka" for m in first if m.message_id().batch_index() < 0)
    # Individual batch indexes: every other message is acknowledged; the others come again.
    left = {place(m): m.data() for m in first[1::2]}
    for message in first[::2]:
        consumer.acknowledge(message)
    for message in first[1::2]:
        consumer.negative_acknowledge(message)
    again = {}
    while len(again) < len(left):
        message = consumer.receive(RECEIVE_MS)
        again[place(message)] = message.data()
    assert {p: d for p, d in again.items() if p in left} == left
    client.close()

    broker.stop()
    broker.start()
    client = quiet_client(broker.url)
    consumer = subscribe(client, topic, kind=kind)
    after = receive(consumer, len(left))
    assert {place(m): m.data() for m in after} == left
    for message in after:
        consumer.acknowledge(message)
    assert_empty(consumer)
    consumer.seek(pulsar.MessageId.earliest)
    assert sorted((m.partition_key(), m.data()) for m in receive(consumer, len(expected))) == expected
    client.close()


def test_holes_and_control_batches_complete_by_themselves(broker, client, topic):
    gaps = build_record_batch([Record(offset, 5, None, b"%d" % offset) for offset in (0, 3, 70)])
    control = vector_bytes("java_m2_control_commit")
    consumer = subscribe(client, topic)
    publish(broker, topic, [kafka_entry(control), kafka_entry(gaps), kafka_entry(control)])
    messages = receive(consumer, 3)
    assert [m.message_id().batch_index() for m in messages] == [0, 3, 70]
    for message in messages:
        consumer.acknowledge(message)
    assert_empty(consumer, 300)
    assert backlog(broker, topic, "sub", 0) == 0


def backlog(broker, topic, subscription, wanted, seconds=10):
    """The backlog in entries as soon as it is `wanted`; after so many seconds, whatever it is."""

    def found():
        stats = json.loads(broker.admin("GET", "/admin/v2/" + topic.replace("://", "/", 1) + "/stats"))
        return stats["subscriptions"][subscription]["msgBacklog"]

    with contextlib.suppress(AssertionError):
        wait_for(lambda: found() == wanted, seconds, every=0.1)
    return found()


def test_the_bytes_converter_and_entries_without_a_converter(broker, client, topic):
    consumer = subscribe(client, topic)
    publish(
        broker,
        topic,
        [
            foreign_entry(b"plain", "bytes"),
            foreign_entry(b"batch of one", "bytes", 1),
            foreign_entry(b"of nobody", "unheard-of"),
            foreign_entry(b"", "bytes"),
        ],
    )
    messages = receive(consumer, 4)
    assert [m.data() for m in messages] == [b"plain", b"batch of one", b"of nobody", b""]
    assert [m.properties() for m in messages][::2] == [{"entry.format.origin": "bytes"}, {"entry.format": "unheard-of"}]


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_order_is_kept_while_large_entries_are_converted(broker, client, topic, kind):
    consumer = subscribe(client, topic, kind=kind)
    entries = []
    for n in range(6):
        entries += [kafka_entry(big_batch(records=300)), foreign_entry(b"small %d" % n, "bytes")]
    publish(broker, topic, entries)
    messages = receive(consumer, 6 * 301)
    places = [place(m) for m in messages]
    assert len(set(places)) == len(places)
    if kind in ORDERED:
        assert places == sorted(places)


def test_a_consumer_may_have_the_stored_bytes(broker, client, topic):
    raw = big_batch(Codec.GZIP, 2, 10)
    ordinary = subscribe(client, topic, "converted")
    stored = subscribe(client, topic, "stored", properties={"entry.format.raw": "true"})
    publish(broker, topic, [foreign_entry(raw, "kafka"), foreign_entry(b"x", "bytes")])
    assert [m.data() for m in receive(stored, 2)] == [raw, b"x"]
    assert [m.properties() for m in [ordinary.receive(RECEIVE_MS)]] == [{"entry.format.origin": "bytes"}]
    assert broker.metrics("pulsar_message_converter_raw_bypass_total") >= 2


def test_the_commands_of_the_page_set_the_policy(broker):
    page = (pathlib.Path(__file__).parents[2] / "docs/features/converters.md").read_text()
    commands = re.findall(r"^```sh\n(admin=.*?)^```", page, re.DOTALL | re.MULTILINE)[0]
    publish(broker, "persistent://public/default/orders", [kafka_entry(vector_bytes("java_m2_none_create"))])
    subprocess.run(["bash", "-eu", "-c", commands.replace("http://localhost:8080", broker.http)], check=True)
    try:
        of_namespace = broker.admin("GET", "/admin/v2/namespaces/public/default/properties")
        of_topic = broker.admin("GET", "/admin/v2/persistent/public/default/orders/properties")
        assert json.loads(of_namespace)["messageConverterFailurePolicy"] == "dlq"
        assert json.loads(of_topic)["messageConverterFailurePolicy"] == "skip"
    finally:
        broker.admin("DELETE", "/admin/v2/namespaces/public/default/property/messageConverterFailurePolicy")


def set_property(broker, topic, **properties):
    path = "/admin/v2/" + topic.replace("://", "/", 1) + "/properties"
    broker.admin("PUT", path, json.dumps(properties).encode())


# No batch: the C++ client up to 4.2 at least crashes when it is sent a batch that it cannot read.
BAD = foreign_entry(b"this is no record batch", "kafka", partition_key="bad")


def good(n, key=None):
    return foreign_entry(b"good %d" % n, "bytes", partition_key=key or f"k{n}")


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_policy_raw(broker, client, topic, kind):
    consumer = subscribe(client, topic, kind=kind)
    set_property(broker, topic, messageConverterFailurePolicy="raw")
    publish(broker, topic, [good(0), BAD, good(1)])
    assert sorted(m.data() for m in receive(consumer, 3)) == [b"good 0", b"good 1", b"this is no record batch"]


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_policy_skip(broker, client, topic, kind):
    consumer = subscribe(client, topic, kind=kind)
    set_property(broker, topic, messageConverterFailurePolicy="skip")
    publish(broker, topic, [good(0), BAD, good(1)])
    for message in receive(consumer, 2):
        consumer.acknowledge(message)
    assert backlog(broker, topic, "sub", 0) == 0


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_policy_park_holds_order_where_there_is_one(broker, client, topic, kind):
    consumer = subscribe(client, topic, kind=kind)
    publish(broker, topic, [good(0), BAD, good(1), good(2)])
    if kind in ORDERED:
        assert consumer.receive(RECEIVE_MS).data() == b"good 0"
        assert_empty(consumer, 1500)
        set_property(broker, topic, messageConverterParkOrdered="pass")
        assert [m.data() for m in receive(consumer, 2)] == [b"good 1", b"good 2"]
    else:
        assert sorted(m.data() for m in receive(consumer, 3)) == [b"good 0", b"good 1", b"good 2"]
    assert_empty(consumer, 300)
    if kind is ConsumerType.KeyShared:
        publish(broker, topic, [good(3, key="bad"), good(4)])
        assert consumer.receive(RECEIVE_MS).data() == b"good 4"
        assert_empty(consumer, 300)
    assert broker.metrics("pulsar_message_converter_parked") >= 1
    set_property(broker, topic, messageConverterFailurePolicy="raw", messageConverterParkOrdered="pass")
    assert consumer.receive(RECEIVE_MS).data() == b"this is no record batch"
    if kind is ConsumerType.KeyShared:
        assert consumer.receive(RECEIVE_MS).data() == b"good 3"


def test_policy_dlq(broker, client, topic):
    path = "/admin/v2/namespaces/public/default/property/messageConverterDeadLetterAttempts/2"
    broker.admin("PUT", path)
    for kind in (ConsumerType.Shared, ConsumerType.Exclusive):
        name = f"{topic}-{kind.name}"
        letters = subscribe(client, f"{name}-sub-DLQ", "letters")
        consumer = subscribe(client, name, kind=kind)
        set_property(broker, name, messageConverterFailurePolicy="dlq")
        ids = publish(broker, name, [good(0), BAD, good(1)])
        for message in receive(consumer, 2):
            consumer.acknowledge(message)
        letter = letters.receive(RECEIVE_MS)
        assert letter.data() == b"this is no record batch"
        properties = letter.properties()
        assert properties["REAL_TOPIC"] == name
        assert properties["REAL_SUBSCRIPTION"] == "sub"
        assert properties["ORIGIN_MESSAGE_ID"] == "{}:{}".format(*ids[1])
        assert properties["conversion.attempts"] == "2"
        assert properties["conversion.reason"] == "exception"
        assert properties["entry.format.origin"] == "kafka"
        assert_empty(letters, 300)
        assert backlog(broker, name, "sub", 0) == 0


def test_fifty_subscriptions_convert_once(broker, client, topic):
    consumers = [subscribe(client, topic, f"s{n}", receiver_queue_size=10) for n in range(50)]
    before = {
        name: broker.metrics(f"pulsar_message_converter_{name}_total") or 0 for name in ("accepted", "cache_hits")
    }
    batch = big_batch(records=300)
    publish(broker, topic, [kafka_entry(batch), kafka_entry(vector_bytes("java_m2_zstd_create"))])
    want = 300 + len(records_of(vector_bytes("java_m2_zstd_create")))
    for consumer in consumers:
        receive(consumer, want)
    accepted = broker.metrics("pulsar_message_converter_accepted_total") - before["accepted"]
    hits = broker.metrics("pulsar_message_converter_cache_hits_total") - before["cache_hits"]
    assert accepted == 2
    assert hits >= 49


def test_a_bomb_is_cut_off(broker, client, topic):
    consumer = subscribe(client, topic)
    set_property(broker, topic, messageConverterFailurePolicy="skip")
    bomb = build_record_batch([Record(0, 5, None, bytes(64 << 20))], BatchOptions(codec=Codec.GZIP))
    publish(broker, topic, [foreign_entry(bomb, "kafka"), good(0)])
    assert consumer.receive(RECEIVE_MS).data() == b"good 0"
    assert 'reason="oversize"' in broker.admin("GET", "/metrics")


def test_peeking_shows_both_forms(broker, client, topic):
    consumer = subscribe(client, topic)
    raw = vector_bytes("java_m2_single")
    publish(broker, topic, [foreign_entry(raw, "kafka")])
    path = "/admin/v2/" + topic.replace("://", "/", 1) + "/subscription/sub/position/1"
    with urllib.request.urlopen(f"{broker.http}{path}") as shown:
        assert shown.headers["X-Magnetar-Conversion"] == "kafka"
        assert shown.read() == records_of(raw)[0][1]
    with urllib.request.urlopen(f"{broker.http}{path}?raw=true") as shown:
        assert shown.headers["X-Magnetar-Conversion"] is None
        assert shown.read() == raw
    consumer.close()


def test_non_persistent_topics(broker, client, topic):
    name = topic.replace("persistent://", "non-persistent://")
    consumer = client.subscribe(name, "sub", ConsumerType.Shared)
    stored = client.subscribe(name, "raw", ConsumerType.Shared, properties={"entry.format.raw": "true"})
    large = foreign_entry(big_batch(records=1, size=200_000, codec=Codec.NONE), "kafka")
    publish(broker, name, [good(0), large, good(1), BAD, good(2)])
    data = [m.data() for m in receive(consumer, 4)]
    assert [len(each) for each in data] == [6, 200_000, 6, 6]
    assert data[::2] == [b"good 0", b"good 1"]
    assert data[3] == b"good 2"
    assert len([m.data() for m in receive(stored, 4)][1]) > 200_000
    assert_empty(consumer, 300)


def test_the_program_of_the_page_runs(broker):
    page = pathlib.Path(__file__).parents[2] / "docs" / "features" / "converters.md"
    [program] = re.findall(r"^```py\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    program = program.replace("pulsar://127.0.0.1:6650", broker.url)
    subprocess.run([sys.executable, "-c", program], timeout=60, check=True)


# --- bad converters ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bad_broker(tmp_path_factory):
    settings = {
        "messageConverters": bad_converters.PATHS,
        "messageConverterTimeoutMillis": 700,
        "messageConverterFailurePolicy": "skip",
        "messageConverterDeadLetterAttempts": 1,
    }
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings).start()
    yield process
    workers = children(process.process.pid)
    assert process.stop() == 0, process.log_text()[-4000:]
    assert not any(pathlib.Path(f"/proc/{pid}").exists() for pid in workers)


def children(pid):
    """Ids of the child processes, whichever thread of the process started them."""
    found = []
    for each in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            found += map(int, each.read_text().split())
    return found


@pytest.mark.parametrize("bad", bad_converters.BAD)
@pytest.mark.parametrize("kind", [ConsumerType.Exclusive, ConsumerType.Shared], ids=lambda kind: kind.name)
def test_a_bad_converter_harms_only_its_entry(bad_broker, topic, bad, kind):
    client = quiet_client(bad_broker.url)
    try:
        consumer = subscribe(client, topic, kind=kind)
        neighbour = subscribe(client, topic + "-neighbour")
        upper = [foreign_entry(b"upper %d" % n, "upper") for n in range(3)]
        publish(bad_broker, topic, [upper[0], foreign_entry(b"bad", bad), *upper[1:]])
        publish(bad_broker, topic + "-neighbour", upper)
        assert sorted(m.data() for m in receive(neighbour, 3)) == [b"UPPER 0", b"UPPER 1", b"UPPER 2"]
        assert sorted(m.data() for m in receive(consumer, 3)) == [b"UPPER 0", b"UPPER 1", b"UPPER 2"]
        assert_empty(consumer, 200)
    finally:
        client.close()


def test_no_request_waits_for_a_sleeping_converter(new_broker, topic):
    broker = new_broker(messageConverters=bad_converters.PATHS, messageConverterTimeoutMillis=60_000)
    client = quiet_client(broker.url)
    for kind, asleep in zip(TYPES, ["sleeps", "sleeps-when-asked"] * 2, strict=True):
        consumer = subscribe(client, f"{topic}-{kind.name}", kind=kind)
        publish(broker, f"{topic}-{kind.name}", [foreign_entry(b"bad", asleep), foreign_entry(b"upper", "upper")])
        if kind is ConsumerType.Shared:
            assert_empty(consumer, 300)  # the workers of its topic sleep; entries without conversion pass
            publish(broker, f"{topic}-{kind.name}", [foreign_entry(b"plain", "unheard-of")])
            assert consumer.receive(RECEIVE_MS).data() == b"plain"
    client.close()
    assert broker.stop() == 0


def test_a_failure_that_passes_loses_nothing(bad_broker, topic):
    client = quiet_client(bad_broker.url)
    try:
        consumer = subscribe(client, topic)
        set_property(bad_broker, topic, messageConverterFailurePolicy="park")
        publish(bad_broker, topic, [foreign_entry(b"later", "twice")])
        assert consumer.receive(RECEIVE_MS).data() == b"later"
    finally:
        client.close()


def test_a_breaker_opens_and_another_topic_goes_on(bad_broker, topic):
    client = quiet_client(bad_broker.url)
    try:
        consumer = subscribe(client, topic)
        publish(bad_broker, topic, [foreign_entry(b"bad %d" % n, "raises") for n in range(30)])
        publish(bad_broker, topic, [foreign_entry(b"good", "upper")])
        assert consumer.receive(RECEIVE_MS).data() == b"GOOD"
        name = urllib.parse.quote(topic, safe=":/")
        text = bad_broker.admin("GET", "/metrics")
        [line] = [
            each
            for each in text.splitlines()
            if each.startswith("pulsar_message_converter_breaker_open") and f'"{name}"' in each and "raises" in each
        ]
        assert line.endswith(" 1")
    finally:
        client.close()


# --- start and stop ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"messageConverters": "kafka,nonsense"}, "'nonsense'"),
        ({"messageConverters": "tests.blackbox.bad_converters.NoConverter"}, "bad_converters.NoConverter"),
        ({"messageConverters": "tests.blackbox.missing.Nothing"}, "tests.blackbox.missing"),
        ({"messageConverters": "kafka", "messageConverterSettings": "kafka.mode=loud"}, "kafka.mode"),
        ({"messageConverters": "kafka", "messageConverterSettings": "kafka"}, "name.key=value"),
        ({"messageConverters": "kafka,kafka"}, "'kafka'"),
    ],
)
def test_a_chain_that_does_not_fit_is_refused_by_name(tmp_path, settings, named):
    process = BrokerProcess(tmp_path / "data", settings)
    with pytest.raises(AssertionError):
        process.start()
    process._close()
    [problem] = [line for line in process.log_text().splitlines() if line.startswith("magnetar: error")]
    assert named in problem
    assert "Traceback" not in process.log_text()


def test_optional_converters_are_left_out(new_broker, topic):
    broker = new_broker(
        messageConverters="nonsense,tests.blackbox.missing.Nothing,bytes", messageConvertersOptional="true"
    )
    client = quiet_client(broker.url)
    consumer = subscribe(client, topic)
    publish(broker, topic, [foreign_entry(b"x", "bytes")])
    assert consumer.receive(RECEIVE_MS).properties() == {"entry.format.origin": "bytes"}
    client.close()
    assert "nonsense" in broker.log_text()


def test_workers_die_with_a_killed_broker(new_broker, topic):
    broker = new_broker(messageConverters=bad_converters.PATHS)
    client = quiet_client(broker.url)
    subscribe(client, topic)
    publish(broker, topic, [foreign_entry(b"x", "sleeps")])
    time.sleep(0.5)
    workers = children(broker.process.pid)
    assert workers
    broker.kill()
    wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in workers), subject="the end of the workers")
    assert not any(os.path.exists(f"/proc/{pid}") for pid in workers)
    client.close()
