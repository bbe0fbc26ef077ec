"""Clients that come and go under load: order per key, nothing lost, nothing twice without a cause."""

import threading
import time

import pulsar
import pytest
from pulsar import ConsumerType

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.clients import Sink, Source, quiet_client
from tests.blackbox.history import History
from tests.blackbox.raw import RawPeer, send
from tests.waiting import wait_for

KEYS = [f"key-{i}" for i in range(20)]


class Churn:
    """One topic with a source and consumers that the test starts and ends."""

    def __init__(self, broker, topic, kind, keys, **source):
        self.broker, self.topic, self.kind = broker, topic, kind
        self.history = History(ordered=kind is not ConsumerType.Shared, settle_s=4.0)
        self.client = quiet_client(broker.url)
        self.sinks, self._number = [], 0
        self.join()
        self.source = Source(self.client, topic, self.history, keys=keys, pause=0.005, batching_enabled=False, **source)
        self.source.start()

    def join(self, **options):
        self._number += 1
        sink = Sink(self.broker.url, self.topic, self.history, f"c{self._number:02}", self.kind, **options)
        sink.start()
        self.sinks.append(sink)
        return sink

    def finish(self):
        """End the source, and check that every message with a receipt is delivered and the history has no problems."""
        wait_for(lambda: self.source.failed or self.history.count("receipted") > 200, subject="200 receipts", every=0.1)
        self.source.stop()
        assert not self.source.failed
        if not self.sinks:
            self.join()
        wait_for(lambda: not self.history.missing(), subject="delivery of every message with a receipt", every=0.1)
        for sink in self.sinks:
            sink.leave()
        self.client.close()
        assert self.history.problems() == []
        assert self.history.count("delivered") >= self.history.count("receipted") > 200


def test_key_shared_consumers_join_and_leave(broker, topic):
    churn = Churn(broker, topic, ConsumerType.KeyShared, KEYS)
    for step in range(6):
        churn.join()
        time.sleep(0.25)
        if step % 2:
            churn.sinks.pop(0).leave()
        elif step:
            churn.sinks.pop(0).crash()
        time.sleep(0.25)
    churn.finish()


def test_failover_hands_over_in_order(broker, topic):
    churn = Churn(broker, topic, ConsumerType.Failover, ["a", "b"])
    for step in range(5):
        churn.join()
        time.sleep(0.3)
        active = max(churn.sinks, key=lambda sink: sink.received)
        churn.sinks.remove(active)
        if step % 2:
            active.crash()
        else:
            active.leave()
        time.sleep(0.2)
    churn.finish()


def test_shared_consumers_crash_with_messages_in_hand(broker, topic):
    churn = Churn(broker, topic, ConsumerType.Shared, ["a"])
    for _ in range(6):
        churn.join(work=lambda _message: False)  # takes messages, acknowledges none
        crashed = churn.sinks.pop()
        wait_for(lambda crashed=crashed: crashed.received > 0, subject="messages in the hands of the consumer")
        time.sleep(0.3)
        crashed.crash()
    churn.finish()


@pytest.mark.parametrize(
    "kind", [ConsumerType.KeyShared, ConsumerType.Failover, ConsumerType.Shared], ids=lambda k: k.name
)
def test_topics_are_unloaded_under_load(broker, topic, kind):
    churn = Churn(broker, topic, kind, KEYS[:5])
    churn.join()
    for _ in range(3):
        time.sleep(0.5)
        with churn.history.interruption():
            broker.unload(topic)
        before = churn.history.count("receipted")
        wait_for(lambda before=before: churn.history.count("receipted") > before, subject="a receipt after the unload")
    churn.finish()


@pytest.mark.timeout(300)
def test_a_storm_of_a_thousand_connections(new_broker, topic):
    """A thousand peers connect at once, attach a producer, publish, are cut off, and do it all again."""
    broker = new_broker()
    steady = quiet_client(broker.url)
    history = History()
    source = Source(steady, topic, history, keys=["steady"], pause=0.005)
    source.start()
    files = broker.open_files
    failures, count = [], 250

    def storm(worker):
        try:
            for _ in range(2):
                peers = [RawPeer(broker.url) for _ in range(count)]
                for number, peer in enumerate(peers):
                    peer.producer(f"{topic}-storm-{number % 20}")
                    peer.write(send(1, 0, b"storm"))
                for peer in peers:
                    assert peer.receive().type == pb.BaseCommand.SEND_RECEIPT
                for peer in peers:
                    peer.reset()
        except BaseException as e:
            failures.append((worker, e))

    workers = [threading.Thread(target=storm, args=(worker,)) for worker in range(4)]
    for each in workers:
        each.start()
    for each in workers:
        each.join(50)
    assert not failures
    source.stop()
    assert not source.failed
    wait_for(lambda: broker.open_files <= files + 30, subject="closing of the storm's connections")
    wait_for(lambda: broker.metrics("pulsar_active_connections") <= 3, subject="forgetting of the connections")
    reader = steady.create_reader(f"{topic}-storm-0", pulsar.MessageId.latest)
    assert not reader.has_message_available()
    steady.close()
    assert broker.stop() == 0
