"""The fault kit against the official client, as in tests of other programs."""

import json
import pathlib
import queue
import time
import urllib.error
import urllib.request

import pulsar
import pytest

import magnetar
from magnetar.process import BrokerStartError
from magnetar.testing import FaultError
from tests.blackbox.clients import quiet_client


@pytest.fixture
def client(magnetar_fault_broker):
    client = quiet_client(magnetar_fault_broker.url, operation_timeout_seconds=10)
    yield client
    client.close()


@pytest.fixture
def topic(magnetar_namespace):
    return magnetar_namespace.topic("orders")


def producer(client, topic, **options):
    return client.create_producer(topic, batching_enabled=False, **options)


def test_a_pause_holds_everything_up(magnetar_faults, client, topic):
    sent = []
    publisher = producer(client, topic)
    with magnetar_faults.paused():
        publisher.send_async(b"late", lambda result, _: sent.append(result))
        assert magnetar_faults.state()["paused"]
        time.sleep(0.2)
        assert sent == []
    publisher.flush()
    assert sent == [pulsar.Result.Ok]


def test_cut_connections_come_back_and_lose_nothing(magnetar_faults, client, topic):
    consumer = client.subscribe(topic, "sub")
    publisher = producer(client, topic)
    publisher.send(b"before")
    (one,) = [each for each in magnetar_faults.connections() if topic in each["topics"]]
    assert magnetar_faults.cut(one["id"]) == 1
    publisher.send(b"after")
    assert magnetar_faults.cut(topic=topic) == 1
    got = {consumer.receive(20_000).data() for _ in range(2)}
    assert got == {b"before", b"after"}


def test_a_lost_receipt_makes_the_client_send_again(magnetar_faults, client, topic):
    """Without deduplication the message is stored twice, which a program has to tolerate."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    publisher = producer(client, topic, send_timeout_millis=10_000)
    lost = magnetar_faults.lose_receipt(topic=topic)
    sent = []
    publisher.send_async(b"once", lambda result, _: sent.append(result))
    assert reader.read_next(10_000).data() == b"once"
    assert (lost.applied, sent) == (1, [])
    magnetar_faults.cut(topic=topic)
    assert reader.read_next(20_000).data() == b"once"
    publisher.flush()
    assert sent == [pulsar.Result.Ok]


def test_the_third_publish_is_rejected(magnetar_faults, client, topic):
    publisher = producer(client, topic)
    magnetar_faults.reject_publish(3, topic=topic)
    results = queue.SimpleQueue()
    for _ in range(3):
        publisher.send_async(b"x", lambda result, _: results.put(result))
    found = [results.get(timeout=30) for _ in range(3)]
    assert found == [pulsar.Result.Ok, pulsar.Result.Ok, pulsar.Result.ChecksumError]


def test_other_errors_make_the_client_send_again(magnetar_faults, client, topic):
    rejected = magnetar_faults.reject_publish(1, "ServiceNotReady", topic=topic)
    producer(client, topic).send(b"x")
    assert rejected.applied == 1


def test_requests_are_rejected_with_an_error(magnetar_faults, client, topic):
    with magnetar_faults.reject("SUBSCRIBE", "ConsumerBusy", topic=topic) as rule:
        with pytest.raises(pulsar.ConsumerBusy):
            client.subscribe(topic, "sub")
        assert rule.applied == 1
    client.subscribe(topic, "sub")


def test_a_delivery_comes_twice(magnetar_faults, client, topic):
    consumer = client.subscribe(topic, "sub", consumer_type=pulsar.ConsumerType.Shared)
    magnetar_faults.duplicate_delivery(topic=topic)
    producer(client, topic).send(b"twice")
    ids = {str(consumer.receive(10_000).message_id()) for _ in range(2)}
    assert len(ids) == 1


def test_delayed_and_dropped_commands(magnetar_faults, client, topic):
    publisher = producer(client, topic)
    with magnetar_faults.delay("SEND", 0.3, topic=topic):
        started = time.monotonic()
        publisher.send(b"slow")
        assert time.monotonic() - started >= 0.3
    consumer = client.subscribe(topic, "sub", initial_position=pulsar.InitialPosition.Earliest)
    dropped = magnetar_faults.drop("ACK", times=None, topic=topic)
    message = consumer.receive(10_000)
    consumer.acknowledge(message)
    consumer.close()
    consumer = client.subscribe(topic, "sub")
    assert consumer.receive(10_000).message_id() == message.message_id()
    assert dropped.applied >= 1


def test_a_full_disk_refuses_and_recovers(magnetar_faults, client, topic):
    publisher = producer(client, topic, send_timeout_millis=60_000)
    publisher.send(b"before")
    sent = []
    with magnetar_faults.full_disk():
        publisher.send_async(b"waits", lambda result, _: sent.append(result))
        time.sleep(0.3)
        assert sent == []
    publisher.flush()
    assert sent == [pulsar.Result.Ok]


def test_a_slow_sync_makes_receipts_late(magnetar_faults, client, topic):
    publisher = producer(client, topic)
    magnetar_faults.slow_sync(0.3)
    started = time.monotonic()
    publisher.send(b"x")
    assert time.monotonic() - started >= 0.3
    magnetar_faults.slow_sync(0)


def test_a_failing_sync_ends_the_broker_and_loses_nothing(magnetar_broker_factory):
    broker = magnetar_broker_factory(faults=True)
    client = quiet_client(broker.url)
    consumer = client.subscribe("kept", "sub")
    publisher = producer(client, "kept")
    publisher.send(b"kept")
    broker.faults.fail_sync()
    publisher.send_async(b"sent again", lambda *_: None)
    assert broker.wait_exit() == 74
    broker.start()
    got = set()
    while got != {b"kept", b"sent again"}:  # the first message may come twice: before the crash and after it
        got.add(consumer.receive(30_000).data())
    client.close()


def test_a_clock_ahead_makes_delayed_messages_due(magnetar_faults, client, topic):
    consumer = client.subscribe(topic, "sub", consumer_type=pulsar.ConsumerType.Shared)
    producer(client, topic).send(b"tomorrow", deliver_at=int((time.time() + 86_400) * 1000))
    with pytest.raises(pulsar.Timeout):
        consumer.receive(300)
    magnetar_faults.clock_ahead(2 * 86_400)
    assert consumer.receive(10_000).data() == b"tomorrow"


def test_namespaces_are_fresh(magnetar_faults):
    first, second = magnetar_faults.new_namespace(), magnetar_faults.new_namespace()
    assert str(first) != str(second)
    assert first.topic("t") == f"persistent://{first}/t"


def test_a_snapshot_brings_everything_back(magnetar_broker_factory):
    broker = magnetar_broker_factory(faults=True)
    client = quiet_client(broker.url)
    consumer = client.subscribe("state", "sub")
    publisher = producer(client, "state")
    publisher.send(b"acknowledged")
    publisher.send(b"kept")
    consumer.acknowledge(consumer.receive(10_000))
    consumer.close()  # sends its acknowledgements
    consumer = client.subscribe("state", "sub")
    snapshot = broker.faults.snapshot("before")
    url, http_url = broker.url, broker.http_url
    took = []
    for _ in range(3):
        publisher.send(b"forgotten")
        got = []
        while not got or got[-1] != b"forgotten":
            got.append(consumer.receive(20_000).data())
        assert set(got) == {b"kept", b"forgotten"}
        took.append(snapshot.restore())
    consumer.close()
    consumer = client.subscribe("state", "sub")
    assert consumer.receive(20_000).data() == b"kept"
    with pytest.raises(pulsar.Timeout):
        consumer.receive(200)
    assert (broker.url, broker.http_url) == (url, http_url)
    print("restored in", [round(ms) for ms in took], "ms")
    with pytest.raises(FaultError, match="there are: before"):
        type(snapshot)(broker.faults, "other").restore()
    snapshot.drop()
    assert broker.faults.state()["snapshots"] == []
    client.close()
    assert broker.stop() == 0


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda f: f.drop("SEND_RECIEPT"), "did you mean 'SEND_RECEIPT'"),
        (lambda f: f.reject("SEND", "ChecksumEror"), "did you mean 'ChecksumError'"),
        (lambda f: f.reject("ACK_RESPONSE", "UnknownError"), "cannot be rejected"),
        (lambda f: f.drop("SEND", nth=0), "nth counts from 1"),
        (lambda f: f.delay("SEND", -1), "seconds"),
        (lambda f: f.drop("SEND", topic="a/b"), "topic"),
        (lambda f: f.ask("POST", "/faults/rules", {"action": "drop", "comand": "SEND"}), "did you mean 'command'"),
        (lambda f: f.ask("POST", "/faults/disk", {"ful": True}), "did you mean 'full'"),
    ],
)
def test_the_error_of_a_senseless_request_names_valid_values(magnetar_faults, call, hint):
    with pytest.raises(FaultError, match=hint):
        call(magnetar_faults)


def test_the_kit_is_reached_without_the_proxy_of_the_environment(magnetar_faults, monkeypatch):
    for variable in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setattr("urllib.request._opener", None)  # the opener keeps the proxies of its first request
    assert not magnetar_faults.state()["paused"]


def test_an_unknown_setting_says_which_is_meant():
    with pytest.raises(BrokerStartError, match="did you mean maxMessageSize"):
        magnetar.start(maxMesageSize=1)


def test_a_wait_in_vain_names_the_rule(magnetar_faults, topic):
    with (
        magnetar_faults.lose_receipt(topic=topic) as rule,
        pytest.raises(TimeoutError, match=f"drop SEND_RECEIPT of {topic}: no frame matched within 0 s"),
    ):
        rule.wait(0)


def test_the_faults_of_a_broker_that_has_ended_say_so(magnetar_broker_factory):
    broker = magnetar_broker_factory(faults=True)
    broker.kill()
    with pytest.raises(ConnectionError, match=r"does not answer .*: `start` the broker if it has ended"):
        broker.faults.cut()


def test_there_are_no_faults_unless_asked_for(magnetar_broker):
    with pytest.raises(RuntimeError, match="faults=True"):
        _ = magnetar_broker.faults


@pytest.mark.parametrize("headers", [{"Origin": "http://localhost"}, {"Host": "evil.example"}])
def test_a_web_page_has_no_use_of_it(magnetar_faults, headers):
    request = urllib.request.Request(magnetar_faults.url + "/faults/pause", method="POST", headers=headers)
    with pytest.raises(urllib.error.HTTPError) as failed:
        urllib.request.urlopen(request, timeout=10)
    with failed.value as answer:
        assert answer.code == 403
        assert "reason" in json.load(answer)
    assert not magnetar_faults.state()["paused"]


def test_the_directory_of_the_broker_leads_to_its_data(magnetar_fault_broker):
    assert (pathlib.Path(magnetar_fault_broker.data_dir) / "VERSION").exists()
