"""kill -9 under everything at once: producers with deduplication, batches, delays and partitions, consumers of all
types, answered acknowledgements, compaction, and administrators that change topics, policies and subscriptions.

Each receipted message is stored exactly once, and every subscription gets it; an answered acknowledgement and an
answered change stay. `MAGNETAR_CRASH_LONG=1` runs 100 cycles instead of 3, `MAGNETAR_KILL_CYCLES` any number of
cycles; `MAGNETAR_KILL_SEED` chooses other cycles.
"""

import contextlib
import datetime as dt
import json
import os
import random
import threading
import time
import urllib.error

import pytest
from pulsar import ConsumerType

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.clients import Sink, Source, quiet_client, read_all
from tests.blackbox.history import History
from tests.blackbox.raw import RawPeer, command, frame
from tests.waiting import wait_for

CYCLES = int(os.environ.get("MAGNETAR_KILL_CYCLES", "100" if os.environ.get("MAGNETAR_CRASH_LONG") else "3"))
LONGEST_S = 2.0 if CYCLES > 3 else 0.7
SEED = int(os.environ.get("MAGNETAR_KILL_SEED", "5"))
PREFIX = "persistent://public/default/"
TOPIC, PARTS = PREFIX + "mixed", PREFIX + "parts"
ADMIN = "/admin/v2/persistent/public/default"
SETTINGS = {
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
    "brokerDeduplicationEnabled": "true",
    "brokerDeduplicationEntriesInterval": 50,
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "managedLedgerMaxEntriesPerLedger": 500,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "delayedDeliveryMinIndexCountPerBucket": 20,
    "delayedDeliveryMaxNumBuckets": 3,
    "delayedDeliveryTickTimeMillis": 100,
}


class DelayedSource(Source):
    def run(self):
        number = 0
        while not self.stopping.is_set():
            delay = dt.timedelta(milliseconds=200 + number * 37 % 1500)
            self.history.sent(self.keys[0], number)
            text = f"{self.keys[0]}:{number}".encode()
            receipt = self._receipt(self.keys[0], number)
            self.producer.send_async(text, receipt, partition_key=self.keys[0], deliver_after=delay)
            number += 1
            self.stopping.wait(0.01)


class Acknowledger(threading.Thread):
    """A Shared consumer that acknowledges some entries, with answers, and remembers these."""

    def __init__(self, url, chance, answered):
        super().__init__(daemon=True)
        self.url, self.chance, self.answered, self.wrong = url, chance, answered, []
        self.stopping = False

    def run(self):
        with contextlib.suppress(OSError, AssertionError):
            peer = RawPeer(self.url)
            peer.find(TOPIC)
            peer.ask(
                "SUBSCRIBE", "subscribe", topic=TOPIC, subscription="raw", subType=1, consumer_id=1, initialPosition=1
            )
            waiting, requests = {}, 1000
            peer.write(frame(command("FLOW", "flow", consumer_id=1, messagePermits=1000)))
            while not self.stopping and (found := peer.receive()) is not None:
                if found.type == pb.BaseCommand.ACK_RESPONSE:
                    if not found.ackResponse.HasField("error"):
                        self.answered.add(waiting.pop(found.ackResponse.request_id))
                    continue
                if found.type != pb.BaseCommand.MESSAGE:
                    continue
                place = (found.message.message_id.ledgerId, found.message.message_id.entryId)
                if place in self.answered:
                    self.wrong.append(place)
                peer.write(frame(command("FLOW", "flow", consumer_id=1, messagePermits=8)))
                if self.chance.random() < 0.5:
                    requests += 1
                    waiting[requests] = place
                    message_id = pb.MessageIdData(ledgerId=place[0], entryId=place[1])
                    peer.write(
                        frame(
                            command(
                                "ACK", "ack", consumer_id=1, ack_type=0, message_id=[message_id], request_id=requests
                            )
                        )
                    )


class Administrator(threading.Thread):
    """Changes values, and knows which of them the broker may have after each change."""

    def __init__(self, broker, chance):
        super().__init__(daemon=True)
        self.broker, self.chance, self.stopping = broker, chance, False
        self.possible = {}
        self.refused = []

    def run(self):
        while not self.stopping:
            name, value, call = self._choose()
            before = self.possible.get(name, {None})
            self.possible[name] = before | {value}
            try:
                self.broker.admin(*call)
                self.possible[name] = {value}
            except urllib.error.HTTPError as error:
                if error.code == 503:  # the broker ends
                    continue
                if error.code not in (404, 409, 412):
                    self.refused.append((call, error.code, error.read()[:200]))
                if error.code == 409:
                    self.possible[name] = before | {value}
            except OSError:
                time.sleep(0.05)

    def _choose(self):
        number, kind = self.chance.randrange(1, 1000), self.chance.randrange(7)
        if kind == 0:
            policy = self.chance.choice(("maxProducers", "maxConsumers", "compactionThreshold"))
            return (
                f"{ADMIN}/mixed/{policy}",
                number + 1000,
                ("POST", f"{ADMIN}/mixed/{policy}", b"%d" % (number + 1000)),
            )
        if kind == 1:
            policy = self.chance.choice(("maxTopicsPerNamespace", "maxConsumersPerTopic", "maxSubscriptionsPerTopic"))
            value = number + 1000
            return (
                f"/admin/v2/namespaces/public/default/{policy}",
                value,
                (
                    "POST",
                    f"/admin/v2/namespaces/public/default/{policy}",
                    b"%d" % value,
                ),
            )
        if kind == 2:
            return self._existence(f"{ADMIN}/t{number % 5}", "PUT", b"{}")
        if kind == 3:
            return self._existence(f"/admin/v2/namespaces/public/n{number % 3}", "PUT", b"")
        if kind == 4:
            return self._existence(f"{ADMIN}/mixed/subscription/x{number % 4}", "PUT", b"")
        if kind == 5:
            return "compaction", None, ("PUT", f"{ADMIN}/mixed/compaction", b"")
        path = f"/admin/v2/namespaces/public/default/property/a/{number}"
        return "property", str(number), ("PUT", path, b"")

    def _existence(self, path, method, body):
        if self.chance.random() < 0.5:
            return path, True, (method, path, body)
        return path, False, ("DELETE", path + ("" if "namespaces" in path else "?force=true"), None)

    def check(self):
        topics = json.loads(self.broker.admin("GET", ADMIN))
        namespaces = json.loads(self.broker.admin("GET", "/admin/v2/namespaces/public"))
        names = json.loads(self.broker.admin("GET", f"{ADMIN}/mixed/subscriptions"))
        for name, possible in list(self.possible.items()):
            if name == "compaction":
                continue
            if name == "property":
                found = self._get("/admin/v2/namespaces/public/default/property/a")
            elif "/subscription/" in name:
                found = name.rpartition("/")[2] in names
            elif name.startswith("/admin/v2/namespaces/public/n"):
                found = name.removeprefix("/admin/v2/namespaces/") in namespaces
            elif name.startswith(f"{ADMIN}/t"):
                found = PREFIX + name.rpartition("/")[2] in topics
            else:
                text = self._get(name)
                found = json.loads(text) if text else None
            absent = found in (None, False)
            assert found in possible or (absent and possible & {None, False}), f"{name} is {found}, not {possible}"
            self.possible[name] = {found}

    def _get(self, path):
        try:
            return self.broker.admin("GET", path) or None
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return None


def _sinks(url, history, got):
    kinds = {
        "failover": ConsumerType.Failover,
        "shared": ConsumerType.Shared,
        "keys": ConsumerType.KeyShared,
        "exclusive": ConsumerType.Exclusive,
    }
    sinks = []
    for topic in (TOPIC, PARTS):
        for name, kind in kinds.items():
            count = 1 if name == "exclusive" else 2
            taken = got.setdefault((topic, name), set())
            for k in range(count):
                work = lambda message, taken=taken: taken.add(message.data()) or True  # noqa: E731
                sinks.append(Sink(url, topic, history, f"{name}{k}", kind, name, work))
    return sinks


@pytest.mark.timeout(60 * CYCLES + 300)
def test_nothing_that_was_answered_is_lost(new_broker):
    chance = random.Random(SEED)
    broker = new_broker(**SETTINGS)
    broker.admin("PUT", f"{ADMIN}/parts/partitions", b"3")
    broker.admin("PUT", f"{ADMIN}/mixed", b"{}")
    history, got = History(), {}
    client = quiet_client(broker.url)
    batches = {"batching_enabled": True, "batching_max_publish_delay_ms": 3}
    sources = [
        Source(client, TOPIC, history, ["s0", "s1"], pause=0.01, batching_enabled=False, producer_name="single"),
        Source(client, TOPIC, history, ["b0", "b1"], pause=0.01, producer_name="batched", **batches),
        Source(client, PARTS, history, ["p0", "p1", "p2"], pause=0.01, producer_name="parts", **batches),
        DelayedSource(client, TOPIC, history, ["d0"], batching_enabled=False, producer_name="delayed"),
    ]
    sinks = _sinks(broker.url, History(), got)
    for thread in (*sources, *sinks):
        thread.start()
    administrator, answered = Administrator(broker, chance), set()
    for cycle in range(CYCLES):
        before = history.count("receipted")
        wait_for(lambda before=before: history.count("receipted") > before, seconds=90, subject="a receipt")
        administrator.stopping = False
        acting = threading.Thread(target=administrator.run, daemon=True)
        acting.start()
        raw = Acknowledger(broker.url, chance, answered)
        raw.start()
        wait_for(lambda least=5 * (cycle + 1): len(answered) > least, seconds=60, subject="answers to the consumer")
        wait_for(lambda: len(administrator.possible) > 10, seconds=60, subject="changes")
        time.sleep(chance.uniform(0.0, LONGEST_S))
        broker.kill()
        administrator.stopping = raw.stopping = True
        acting.join(60)
        raw.join(60)
        assert not raw.wrong, f"cycle {cycle}: {raw.wrong[:5]} were acknowledged"
        broker.start()
        administrator.check()
        assert not administrator.refused, administrator.refused[:3]
    for source in sources:
        source.stop()
        assert not source.failed
    receipted = {f"{e.key}:{e.number}".encode() for e in history.events if e.what == "receipted"}
    by_topic = {topic: [data for _, data, _ in read_all(broker.url, topic)] for topic in (TOPIC, PARTS)}
    for topic, found in by_topic.items():
        assert len(found) == len(set(found)), f"{topic} has messages twice"
    stored = set(by_topic[TOPIC]) | set(by_topic[PARTS])
    assert receipted == stored, (sorted(receipted - stored)[:5], sorted(stored - receipted)[:5])
    for (topic, name), taken in got.items():
        needed = set(by_topic[topic])
        wait_for(lambda needed=needed, taken=taken: needed <= taken, subject=f"messages of {name}", seconds=120)
    for sink in sinks:
        sink.leave()
    client.close()
    assert broker.stop() == 0
