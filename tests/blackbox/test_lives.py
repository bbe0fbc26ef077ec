"""Namespaces that come and go leave nothing in the memory of the broker: its objects are counted, type by type."""

import contextlib
import json
import os
import pathlib
import signal
from datetime import timedelta

from pulsar import ConsumerType, InitialPosition, MessageId
from pulsar.schema import AvroSchema, Integer, Record

from tests.blackbox.clients import quiet_client
from tests.waiting import wait_for

FIRST, LIVES = 4, 10
KEPT = {
    "_Seen": "lines of the log of the last ten seconds, or the last thousand",
    "TreeWatch": "in a cluster, watches of bundles that lookups have read, 20,000 at most",
    "_Shelf": "the entry cache keeps places of deleted ledgers, 64 at most beside those in use",
    "TopicName": "parsed names stay in a cache of 12 MiB",
    "SchemaMeters": "the figures of schemas go five minutes after their last use",
    "OperationMeter": "a part of SchemaMeters",
    "BucketMeter": "a part of SchemaMeters",
    "Counts": "a part of SchemaMeters",
}
COUNTING = """
import collections, gc, json, os, signal

def count(*_):
    gc.collect()
    gc.unfreeze()
    found = (type(each) for each in gc.get_objects())
    counts = collections.Counter(each.__qualname__ for each in found if str(each.__module__).startswith("magnetar."))
    path = os.environ["MAGNETAR_COUNTS"]
    with open(path + ".new", "w") as file:
        json.dump(counts, file)
    os.rename(path + ".new", path)

signal.signal(signal.SIGUSR2, count)
"""


class Row(Record):
    number = Integer()


class Lives:
    """A broker that counts its objects, and namespaces that live in it one after the other."""

    def __init__(self, new_broker, folder):
        self._counts = folder / "counts.json"
        (folder / "sitecustomize.py").write_text(COUNTING)
        env = {"PYTHONPATH": str(folder), "MAGNETAR_COUNTS": str(self._counts)}
        self.broker = new_broker(env=env, forceDeleteNamespaceAllowed="true")

    def objects(self):
        """The number of objects by type, garbage left out."""
        self._counts.unlink(missing_ok=True)
        os.kill(self.broker.process.pid, signal.SIGUSR2)
        wait_for(self._counts.exists, subject="the counts of the broker")
        return json.loads(pathlib.Path(self._counts).read_text())

    def live(self, number):
        """Create a namespace, use it in many ways, and delete it by force."""
        name = f"public/life{number}"
        topic = f"persistent://{name}/t"
        admin = self.broker.admin
        admin("PUT", f"/admin/v2/namespaces/{name}", b"{}")
        admin("POST", f"/admin/v2/namespaces/{name}/deduplication", b"true")
        admin("PUT", f"/admin/v2/persistent/{name}/parts/partitions", b"3")
        client = quiet_client(self.broker.url)
        consumers = [
            client.subscribe(topic, f"s{kind}", consumer_type=kind, initial_position=InitialPosition.Earliest)
            for kind in (ConsumerType.Exclusive, ConsumerType.Shared, ConsumerType.Failover, ConsumerType.KeyShared)
        ]
        consumers.append(client.subscribe(f"persistent://{name}/parts", "s", consumer_type=ConsumerType.Shared))
        producer = client.create_producer(topic, batching_enabled=False)
        parts = client.create_producer(f"persistent://{name}/parts")
        for each in range(30):
            producer.send_async(bytes(100), lambda *_: None, partition_key=f"k{each % 5}")
            parts.send_async(b"x", lambda *_: None)
        producer.flush()
        parts.flush()
        for consumer in consumers:
            for each in range(30):
                message = consumer.receive(20_000)
                (consumer.negative_acknowledge if each == 20 else consumer.acknowledge)(message)
        producer.send(b"later", deliver_after=timedelta(hours=1))
        rows = client.create_producer(f"persistent://{name}/rows", schema=AvroSchema(Row))
        rows.send(Row(number=1))
        reader = client.create_reader(f"persistent://{name}/rows", MessageId.earliest, schema=AvroSchema(Row))
        reader.read_next(20_000)
        reader.seek(MessageId.earliest)
        client.create_producer(f"non-persistent://{name}/np").send(b"x")
        admin("POST", f"/admin/v2/persistent/{name}/t/maxProducers", b"7")
        admin("PUT", f"/admin/v2/persistent/{name}/t/subscription/rest", b'"earliest"')
        admin("PUT", f"/admin/v2/persistent/{name}/t/compaction")
        admin("GET", f"/admin/v2/persistent/{name}/t/stats")
        self.broker.unload(topic)
        producer.send(b"behind the unload")
        client.close()
        admin("DELETE", f"/admin/v2/namespaces/{name}?force=true")


def test_a_namespace_leaves_no_object(new_broker, tmp_path):
    lives = Lives(new_broker, tmp_path)
    for number in range(FIRST):
        lives.live(number)
    before = lives.objects()
    assert before["TopicName"] > FIRST
    for number in range(FIRST, LIVES):
        lives.live(number)

    def grown():
        more = {each: count - before.get(each, 0) for each, count in lives.objects().items() if each not in KEPT}
        return {each: count for each, count in more.items() if count >= LIVES - FIRST}

    with contextlib.suppress(AssertionError):  # ledgers and connections end behind the deletion
        wait_for(lambda: not grown(), every=0.5)
    assert grown() == {}
