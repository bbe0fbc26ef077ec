"""Delayed delivery through the official client and a broker process."""

import contextlib
import json
import os
import time
from datetime import timedelta

import pulsar
import pytest
import requests
from pulsar import ConsumerType, InitialPosition

from tests.blackbox.patience import TICK_MS, is_before, longer_and_longer
from tests.waiting import wait_for

pytestmark = pytest.mark.blackbox
RECEIVE_MS = 60_000
MANY = 1_000_000 if os.environ.get("MAGNETAR_CRASH_LONG") else 150_000
SETTINGS = {"delayedDeliveryMinIndexCountPerBucket": 50, "delayedDeliveryMaxNumBuckets": 4}


def connect(broker):
    return pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def shared(client, topic, name="sub", kind=ConsumerType.Shared, **more):
    return client.subscribe(topic, name, kind, initial_position=InitialPosition.Earliest, **more)


def receive(consumer, count, timeout_ms=RECEIVE_MS):
    """Receive and acknowledge so many messages; return (data, time of the receipt) of each."""
    out = []
    for _ in range(count):
        message = consumer.receive(timeout_ms)
        out.append((message.data(), time.time()))
        consumer.acknowledge(message)
    return out


def received_within(consumer, timeout_ms):
    """The next message; None when none came in that time."""
    with contextlib.suppress(pulsar.Timeout):
        return consumer.receive(timeout_ms)
    return None


def assert_empty(consumer, timeout_ms=300):
    with pytest.raises(pulsar.Timeout):
        consumer.receive(timeout_ms)


def test_delayed_among_immediate_messages(client, topic):
    for name, seconds in longer_and_longer(topic, 2):
        consumer, producer = shared(client, name), client.create_producer(name)
        sent = time.time()
        # Two ticks and more apart: messages that fall due within one tick are delivered together, in the order of their
        # positions.
        producer.send(b"late", deliver_after=timedelta(seconds=seconds + 3))
        producer.send(b"now 1")
        producer.send(b"at", deliver_at=int((sent + seconds) * 1000))
        producer.send(b"past", deliver_at=1000)
        producer.send(b"now 2")
        first = receive(consumer, 3)
        if is_before(sent + seconds):
            break
    assert [data for data, _ in first] == [b"now 1", b"past", b"now 2"]
    (at, when_at), (late, when_late) = receive(consumer, 2)
    assert (at, late) == (b"at", b"late")
    assert when_at - sent >= seconds - TICK_MS / 1000
    assert seconds + 3 - TICK_MS / 1000 <= when_late - sent < seconds + 5
    assert_empty(consumer)


def test_strict_time_is_never_early(new_broker, topic):
    broker = new_broker(isDelayedDeliveryDeliverAtTimeStrict="true", **SETTINGS)
    client = connect(broker)
    consumer, producer = shared(client, topic), client.create_producer(topic)
    due = [int((time.time() + 1 + k / 20) * 1000) for k in range(20)]
    for deliver_at in due:
        producer.send(b"%d" % deliver_at, deliver_at=deliver_at)
    for data, when in receive(consumer, 20):
        assert 0 <= when * 1000 - int(data) < 1500
    client.close()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_restart_with_many_pending(new_broker, topic, how):
    broker = new_broker(**SETTINGS)
    for name, seconds in longer_and_longer(topic, 6):
        client = connect(broker)
        consumer = shared(client, name)
        producer = client.create_producer(name, batching_enabled=False, max_pending_messages=2000)
        due_ms = int((time.time() + seconds) * 1000)
        for k in range(1000):
            producer.send_async(b"%d" % k, None, deliver_at=due_ms + k % 7)
        producer.flush()
        early = received_within(consumer, 300)
        client.close()
        broker.stop() if how == "stop" else broker.kill()
        broker.start()
        client = connect(broker)
        consumer = shared(client, name)
        client.create_producer(name).send(b"now")
        first = consumer.receive(RECEIVE_MS)
        if is_before(due_ms / 1000):
            break
        client.close()
    assert early is None
    assert first.data() == b"now"  # dispatch of others does not wait for the index
    consumer.acknowledge(first)
    got = receive(consumer, 1000, RECEIVE_MS + seconds * 1000)
    assert sorted(int(data) for data, _ in got) == list(range(1000))
    assert min(when for _, when in got) * 1000 >= due_ms - TICK_MS
    assert_empty(consumer)
    client.close()


@pytest.mark.timeout(900)
def test_restart_while_a_great_many_are_pending(new_broker, topic):
    """A million with MAGNETAR_CRASH_LONG. They are due in an hour; a policy that switches delays off makes them due at
    once.
    """
    broker = new_broker()
    client = connect(broker)
    consumer = shared(client, topic)
    producer = client.create_producer(
        topic,
        batching_enabled=False,
        max_pending_messages=20_000,
        block_if_queue_full=True,
        send_timeout_millis=120_000,
    )
    refused = []
    due_ms = int((time.time() + 3600) * 1000)
    for k in range(MANY):
        producer.send_async(
            b"%d" % k, lambda result, _: refused.append(result) if result != pulsar.Result.Ok else None,
            deliver_at=due_ms + k * 7919 % 1_000_000,
        )  # fmt: skip
    producer.flush()
    assert not refused
    assert_empty(consumer)
    base = f"/admin/v2/persistent/public/default/{topic.rpartition('/')[2]}"

    def pending():
        return json.loads(broker.admin("GET", base + "/delayedMessages"))["count"]

    assert pending() == MANY
    client.close()
    broker.kill()
    broker.start()
    client = connect(broker)
    consumer = shared(client, topic, receiver_queue_size=5000)
    client.create_producer(topic, send_timeout_millis=120_000).send(b"now")
    assert receive(consumer, 1, 120_000)[0][0] == b"now"
    assert broker.cpu_seconds < 10, "others wait for the index"  # not by the clock: other processes may be at work
    wait_for(lambda: pending() == MANY, 60)
    assert_empty(consumer)
    broker.admin("POST", base + "/delayedDelivery", b'{"active": false, "tickTime": 1000}')
    assert sorted(int(data) for data, _ in receive(consumer, MANY, 60_000)) == list(range(MANY))
    assert_empty(consumer)
    client.close()


def test_every_subscription_gets_every_message(client, topic):
    consumers = [shared(client, topic, f"sub-{k}") for k in range(3)]
    exclusive = client.subscribe(topic, "exclusive", initial_position=InitialPosition.Earliest)
    producer = client.create_producer(topic, batching_enabled=False)
    for k in range(120):
        producer.send_async(b"%d" % k, None, deliver_after=timedelta(milliseconds=2500 + k))
    producer.flush()
    assert len(receive(exclusive, 120)) == 120  # delays act on Shared and Key_Shared only
    late = shared(client, topic, "late comer")
    for consumer in (*consumers, late):
        assert sorted(int(data) for data, _ in receive(consumer, 120)) == list(range(120))
        assert_empty(consumer, 100)


def test_seek_and_unsubscribe(client, topic):
    consumer = shared(client, topic)
    other = shared(client, topic, "other")
    producer = client.create_producer(topic, batching_enabled=False)
    producer.send(b"first")
    for k in range(30):
        producer.send(b"%d" % k, deliver_after=timedelta(milliseconds=2500))
    assert receive(consumer, 1)[0][0] == b"first"
    consumer.seek(pulsar.MessageId.earliest)
    assert receive(consumer, 1)[0][0] == b"first"
    other.unsubscribe()
    assert sorted(int(d) for d, _ in receive(consumer, 30)) == list(range(30))
    consumer.seek(pulsar.MessageId.earliest)  # all of them are due by now
    assert next(d for d, _ in receive(consumer, 31)) == b"first"
    assert_empty(consumer)


def test_disconnected_while_messages_become_due(client, topic):
    for name, seconds in longer_and_longer(topic, 1.5):
        consumer = shared(client, name)
        producer = client.create_producer(name, batching_enabled=False)
        due = time.time() + seconds
        for k in range(20):
            producer.send(b"%d" % k, deliver_at=int(due * 1000))
        early = received_within(consumer, 100)
        consumer.close()
        if is_before(due):
            break
    assert early is None
    time.sleep(due + 0.5 - time.time())
    consumer = shared(client, name)
    assert sorted(int(d) for d, _ in receive(consumer, 20)) == list(range(20))
    assert_empty(consumer)


def test_key_shared_keeps_the_order_of_a_key(client, topic):
    for name, seconds in longer_and_longer(topic, 2):
        consumers = [shared(client, name, "sub", ConsumerType.KeyShared) for _ in range(2)]
        producer = client.create_producer(name, batching_enabled=False)
        due = time.time() + seconds
        for k in range(100):
            producer.send(b"%d" % k, partition_key=f"key-{k % 5}", deliver_at=int(due * 1000))
        if is_before(due):
            break
    by_key = {}
    for consumer in consumers:
        while message := received_within(consumer, 4000 + max(0, int((due - time.time()) * 1000))):
            by_key.setdefault(message.partition_key(), []).append(int(message.data()))
            consumer.acknowledge(message)
    assert sum(map(len, by_key.values())) == 100
    for numbers in by_key.values():
        assert numbers == sorted(numbers)


def test_20233_delayed_messages_do_not_block_key_shared(client, topic):
    """Apache Pulsar #8703: a consumer that joined later got nothing of a key while delayed messages of it waited."""
    first = shared(client, topic, "sub", ConsumerType.KeyShared)
    producer = client.create_producer(topic, batching_enabled=False)
    for k in range(20):
        producer.send(b"waits", partition_key=f"key-{k}", deliver_after=timedelta(hours=1))
    second = shared(client, topic, "sub", ConsumerType.KeyShared)
    for k in range(20):
        producer.send(b"%d" % k, partition_key=f"key-{k}")
    got, end = {}, time.monotonic() + RECEIVE_MS / 1000
    while sum(map(len, got.values())) < 20 and time.monotonic() < end:
        for consumer in (first, second):
            with contextlib.suppress(pulsar.Timeout):
                message = consumer.receive(200)
                got.setdefault(consumer.consumer_name(), []).append(message.data())
                consumer.acknowledge(message)
    assert sorted(int(data) for each in got.values() for data in each) == list(range(20))
    assert len(got) == 2, "both consumers have keys"


def test_listed_and_cancelled_by_rest(broker, client, topic):
    for name, seconds in longer_and_longer(topic, 3):
        consumer = shared(client, name)
        producer = client.create_producer(name, batching_enabled=False)
        due_ms = int((time.time() + seconds) * 1000)
        ids = [producer.send(b"%d" % k, deliver_at=due_ms + k) for k in range(5)]
        base = f"{broker.http}/admin/v2/persistent/public/default/{name.rpartition('/')[2]}/delayedMessages"
        listed = requests.get(base, timeout=60).json()
        one = f"{base}/ledger/{ids[2].ledger_id()}/entry/{ids[2].entry_id()}"
        deleted = [requests.delete(one, timeout=60).status_code for _ in range(2)]
        if is_before(due_ms / 1000):
            break
    assert listed == {"count": 5, "earliest": due_ms, "latest": due_ms + 4}
    assert deleted == [204, 204]
    assert [d for d, _ in receive(consumer, 4)] == [b"0", b"1", b"3", b"4"]
    assert_empty(consumer)
    fired = f"{base}/ledger/{ids[3].ledger_id()}/entry/{ids[3].entry_id()}"
    assert requests.delete(fired, timeout=60).status_code == 409
    metrics = requests.get(f"{broker.http}/metrics/", timeout=60).text
    assert "pulsar_delayed_message_index_bucket_total{" in metrics
