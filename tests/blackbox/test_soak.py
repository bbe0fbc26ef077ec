"""Everything at once for a while: surging producers, consumers that are stuck, slow, reconnecting or seeking.

`MAGNETAR_SOAK_SECONDS` (20) sets the duration. Memory, files, threads must be flat after the first third.
"""

import os
import threading
import time

import pulsar
import pytest
from pulsar import ConsumerType, MessageId

from tests.blackbox.clients import quiet_client

SECONDS = int(os.environ.get("MAGNETAR_SOAK_SECONDS", "20"))
TOPIC = "persistent://public/default/soak"
GROWTH_BYTES = 48 << 20  # the entry cache of this test and the allocator's slack


class Soak:
    def __init__(self, broker):
        self.broker, self.stopping, self.failures, self.counts = broker, threading.Event(), [], {}

    def run(self, name, step):
        """Call `step(client)` again and again in a thread of its own until the end."""

        def loop():
            client = quiet_client(self.broker.url)
            try:
                generator = step(client)
                while not self.stopping.is_set():
                    next(generator)
                    self.counts[name] = self.counts.get(name, 0) + 1
                generator.close()
            except BaseException as e:
                self.failures.append((name, repr(e)))
            finally:
                client.close()

        thread = threading.Thread(target=loop, name=name, daemon=True)
        thread.start()
        return thread

    def surge(self, client):
        producer = client.create_producer(TOPIC, block_if_queue_full=True, max_pending_messages=500)
        while True:
            for _ in range(1000):
                producer.send_async(bytes(1000), lambda *_: None, partition_key="k")
            producer.flush()
            yield
            self.stopping.wait(0.5)

    def _take(self, consumer, most, pause=0.0):
        for _ in range(most):
            try:
                consumer.acknowledge(consumer.receive(200))
            except pulsar.Timeout:
                return
            if pause:
                time.sleep(pause)

    def steady(self, client):
        consumer = client.subscribe(TOPIC, "steady", consumer_type=ConsumerType.KeyShared)
        while True:
            self._take(consumer, 500)
            yield

    def slow(self, client):
        consumer = client.subscribe(TOPIC, "slow", consumer_type=ConsumerType.Shared, receiver_queue_size=10)
        while True:
            self._take(consumer, 20, pause=0.02)
            yield

    def stuck(self, client):
        client.subscribe(TOPIC, "stuck", consumer_type=ConsumerType.Shared, receiver_queue_size=1000)
        while True:
            yield
            self.stopping.wait(0.5)

    def reconnecting(self, _client):
        while True:
            other = quiet_client(self.broker.url)
            self._take(other.subscribe(TOPIC, "reconnecting", consumer_type=ConsumerType.Shared), 200)
            other.create_producer(TOPIC + "-other").send(b"x")
            other.close()
            yield

    def seeking(self, client):
        consumer = client.subscribe(TOPIC, "seeking")
        while True:
            consumer.seek(MessageId.earliest)
            self._take(consumer, 100)
            consumer.seek(MessageId.latest)
            yield
            self.stopping.wait(0.3)


@pytest.mark.timeout(SECONDS * 4 + 240)
def test_nothing_grows(new_broker):
    broker = new_broker(
        managedLedgerCacheSizeMB=16, managedLedgerMaxEntriesPerLedger=5000, managedLedgerMinLedgerRolloverTimeMinutes=0
    )
    soak = Soak(broker)
    threads = [
        soak.run(name, getattr(soak, name)) for name in ("surge", "steady", "slow", "stuck", "reconnecting", "seeking")
    ]
    samples = []
    began = time.monotonic()
    while (passed := time.monotonic() - began) < SECONDS:
        time.sleep(0.5)
        assert broker.process.poll() is None, broker.log_text()[-4000:]
        samples.append((passed, broker.rss_bytes, broker.open_files, broker.threads))
    soak.stopping.set()
    for thread in threads:
        thread.join(30)
    assert not soak.failures
    assert set(soak.counts) == {"surge", "steady", "slow", "stuck", "reconnecting", "seeking"}
    warm = [s for s in samples if SECONDS / 3 <= s[0] < SECONDS * 2 / 3]
    late = [s for s in samples if s[0] >= SECONDS * 2 / 3]
    print(soak.counts, "RSS MiB", [s[1] >> 20 for s in samples[:: max(1, len(samples) // 20)]])
    assert max(s[1] for s in late) <= max(s[1] for s in warm) + GROWTH_BYTES
    assert min(s[2] for s in late) <= max(s[2] for s in warm) + 5, "files leak"
    assert min(s[3] for s in late) <= max(s[3] for s in warm), "threads leak"
    assert "Traceback" not in broker.log_text()
    assert broker.stop() == 0
