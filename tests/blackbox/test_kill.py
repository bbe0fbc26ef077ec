"""kill -9 under live clients: every message with a receipt is there, in order, after the restart."""

import os
import random
import threading
import time

import pulsar
import pytest

CYCLES = 50 if os.environ.get("MAGNETAR_CRASH_LONG") else 3


class Publisher(threading.Thread):
    """Sends numbered messages as fast as it gets receipts; keeps what was receipted, in order."""

    def __init__(self, url, topic, first):
        super().__init__(daemon=True)
        self.client = pulsar.Client(url, operation_timeout_seconds=10, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Fatal))
        self.producer = self.client.create_producer(
            topic, batching_enabled=False, block_if_queue_full=True, max_pending_messages=200, send_timeout_millis=60_000
        )
        self.next, self.receipted, self.stopping = first, [], False

    def run(self):
        while not self.stopping:
            number = self.next
            self.next += 1
            self.producer.send_async(b"%d" % number, lambda result, _id, number=number: self.done(result, number))

    def done(self, result, number):
        if result == pulsar.Result.Ok:
            self.receipted.append(number)

    def stop(self):
        self.stopping = True
        self.join(30)


def read_everything(url, topic):
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=5000)
    out = []
    while reader.has_message_available():
        out.append(int(reader.read_next(10_000).data()))
    client.close()
    return out


@pytest.mark.timeout(40 * CYCLES + 60)
def test_no_receipted_message_is_lost(new_broker):
    topic = "persistent://public/default/kill"
    chance = random.Random(7)
    broker = new_broker()
    publisher = Publisher(broker.url, topic, 0)
    publisher.start()
    checked = 0
    for _ in range(CYCLES):
        time.sleep(chance.uniform(0.2, 1.2))
        broker.kill()
        receipted = list(publisher.receipted)
        broker.start()
        stored = read_everything(broker.url, topic)
        assert set(receipted) <= set(stored), f"lost: {sorted(set(receipted) - set(stored))[:10]}"
        checked = len(receipted)
    publisher.stop()
    assert checked > 0
    stored = read_everything(broker.url, topic)
    firsts = list(dict.fromkeys(stored))  # a message without a receipt may be sent, and stored, again
    assert firsts == sorted(firsts), "first copies are not in the order of sending"
    assert set(publisher.receipted) <= set(stored)


def test_acknowledged_stays_acknowledged_when_the_receipt_was_seen(new_broker):
    broker = new_broker(acknowledgmentAtBatchIndexLevelEnabled="true")
    topic = "persistent://public/default/acks"
    client = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Fatal))
    consumer = client.subscribe(topic, "sub", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic, batching_enabled=False)
    for i in range(100):
        producer.send(b"%d" % i)
    messages = [consumer.receive(10_000) for _ in range(100)]
    for message in messages[::3]:
        consumer.acknowledge(message)
    consumer.close()
    assert broker.stop() == 0
    broker.start()
    again = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = again.subscribe(topic, "sub", consumer_type=pulsar.ConsumerType.Shared)
    expected = [i for i in range(100) if i % 3]
    assert [int(consumer.receive(10_000).data()) for _ in expected] == expected
    with pytest.raises(pulsar.Timeout):
        consumer.receive(300)
    again.close()
    client.close()


def test_a_second_broker_on_the_same_data_is_refused(new_broker):
    import subprocess
    import sys

    broker = new_broker()
    second = subprocess.run(
        [sys.executable, "-m", "magnetar", "standalone", "--data-dir", str(broker.data_dir), "--set", "brokerServicePort=0", "--set", "webServicePort=0"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert second.returncode == 75
    assert str(broker.process.pid) in second.stderr
