"""Features of topics on both sides of a move to another owner.

Each feature is a generator function of a scene and a topic. It brings the topic into a state and yields; then the
topic moves, while the pumps of the scene go on; the rest checks that clients and the admin API see the same state.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter

import pulsar
import requests
from pulsar.schema import Integer, JsonSchema, Record, String

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.raw import RawPeer
from tests.cluster.load import SETTLE_S, position
from tests.waiting import wait_for

__all__ = ["FEATURES", "Scene", "exclusive_producers", "properties_of_subscriptions", "schemas"]

EARLIEST = {"initial_position": pulsar.InitialPosition.Earliest}
TIMEOUT_MS = 60_000
KEEPS = "keeps"
"""A subscription for which the messages of a former owner stay: without any, the next check of retention trims them."""


class First(Record):
    name = String()


class Second(Record):
    name = String()
    count = Integer(required=True)


class Scene:
    """A client of several brokers, and their admin API: a request goes to the first broker that answers."""

    def __init__(self, client, members, delay_s):
        self.client, self.members, self.delay_s = client, members, delay_s

    def admin(self, method, path, body=None):
        def answered():
            for each in self.members:
                with contextlib.suppress(requests.RequestException):
                    answer = requests.request(method, f"{each.http}/admin/v2/{path}", json=body, timeout=30)
                    if answer.status_code < 500:
                        return [answer]
            return None

        (answer,) = wait_for(answered, 60, f"{method} {path}")
        assert answer.ok, (method, path, answer.status_code, answer.text)
        return answer.json() if answer.content else None

    def topic(self, method, topic, path, body=None):
        return self.admin(method, f"{topic.replace('://', '/')}/{path}", body)

    def entry(self, topic, ledger_id, entry_id):
        """The answer with an entry's payload and metadata, from the owner of the topic."""

        def answered():
            path = f"admin/v2/{topic.replace('://', '/')}/ledger/{ledger_id}/entry/{entry_id}"
            for each in self.members:
                with contextlib.suppress(requests.RequestException):
                    answer = requests.get(f"{each.http}/{path}", timeout=30)
                    if answer.ok:
                        return [answer]
            return None

        (answer,) = wait_for(answered, 60, f"entry {ledger_id}:{entry_id}")
        return answer

    def owner_of(self, topic):
        """Address of the broker that serves the topic, once a broker does."""

        def found():
            for each in self.members:
                with contextlib.suppress(requests.RequestException):
                    path = f"{each.http}/lookup/v2/topic/{topic.replace('://', '/')}"
                    answer = requests.get(path, timeout=30)
                    if answer.ok:
                        return answer.json()["brokerUrl"]
            return None

        return wait_for(found, 60, f"the owner of {topic}")

    def stored(self, topic, **options):
        """Every message of the topic, from its beginning."""
        reader = self.client.create_reader(topic, pulsar.MessageId.earliest, **options)
        found = []
        while reader.has_message_available():
            found.append(reader.read_next(TIMEOUT_MS))
        reader.close()
        return found


class Pump:
    """Publishes numbers with a key each until ``finish``, without waiting for receipts."""

    def __init__(self, producer, keys=1):
        self.producer, self.keys, self.sent, self.failures = producer, keys, 0, []
        self._room, self._finished = threading.Semaphore(100), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._finished.wait(0.005):
            self._room.acquire()
            key = f"k{self.sent % self.keys}"
            self.producer.send_async(str(self.sent).encode(), self._done, partition_key=key)
            self.sent += 1

    def _done(self, result, _message_id):
        if result != pulsar.Result.Ok:
            self.failures.append(result)
        self._room.release()

    def until(self, count):
        wait_for(lambda: self.sent >= count, 60, f"message {count}")

    def finish(self):
        self.until(self.sent + 20)
        self._finished.set()
        self._thread.join(60)
        self.producer.flush()
        assert self.failures == []
        return self.sent


def received(consumer, count):
    """So many messages, acknowledged as they come."""
    found = []
    for _ in range(count):
        found.append(consumer.receive(TIMEOUT_MS))
        consumer.acknowledge(found[-1])
    return found


def rest_of(consumer, wait_ms=1500):
    """All messages until the consumer gets none for so long."""
    found = []
    with contextlib.suppress(pulsar.Timeout):
        while True:
            found.append(consumer.receive(TIMEOUT_MS if not found else wait_ms))
    return found


def refused(call, *errors):
    try:
        call().close()
    except errors:
        return
    raise AssertionError(f"no error of {errors}")


def deduplication(scene, topic):
    """Each message is stored once, those without a receipt at the move too; the broker drops an old sequence id."""
    scene.client.subscribe(topic, KEEPS).close()  # the cursor of deduplication alone keeps no message
    scene.topic("POST", topic, "deduplicationEnabled", body=True)
    wait_for(lambda: scene.topic("GET", topic, "deduplicationEnabled") is True)
    pump = Pump(scene.client.create_producer(topic, "p", send_timeout_millis=0, batching_enabled=False))
    pump.until(100)
    yield
    sent = pump.finish()
    pump.producer.send(b"old", sequence_id=5)
    stored = [int(each.data()) for each in scene.stored(topic)]
    again = [number for number, times in Counter(stored).items() if times > 1]
    assert stored == list(range(sent)), f"again {again}, missing {set(range(sent)).difference(stored)}"
    pump.producer.close()
    again = scene.client.create_producer(topic, "p", send_timeout_millis=0)
    assert again.last_sequence_id() == sent - 1


def delayed_messages(scene, topic):
    """No delayed message comes before its time, and all come; messages under way at the move may come again."""
    consumer = scene.client.subscribe(topic, "s", pulsar.ConsumerType.Shared, **EARLIEST)
    producer = scene.client.create_producer(topic, send_timeout_millis=0)
    due_ms = [int((time.time() + scene.delay_s + number / 10) * 1000) for number in range(10)]
    for number in (5, 2, 8, 0, 9, 1, 7, 3, 6, 4):
        producer.send(str(number).encode(), deliver_at=due_ms[number])
    yield
    came = set()
    while len(came) < 10:
        message = consumer.receive(TIMEOUT_MS)
        number = int(message.data())
        early_ms = due_ms[number] - time.time() * 1000
        assert early_ms <= 0, f"message {number} came {early_ms:.0f} ms before its time"
        consumer.acknowledge(message)
        came.add(number)
    assert came == set(range(10))
    consumer.close()


def key_shared(scene, topic):
    """Each key's messages come in order, first deliveries to one consumer at a time, none is left out."""
    found, lock = [], threading.Lock()

    def listen(consumer, message):
        with lock:
            found.append((message.partition_key(), int(message.data())))
        with contextlib.suppress(pulsar.PulsarException):  # no connection now: the message comes again
            consumer.acknowledge(message)

    options = {"message_listener": listen, **EARLIEST}
    consumers = [scene.client.subscribe(topic, "s", pulsar.ConsumerType.KeyShared, **options) for _ in range(2)]
    pump = Pump(scene.client.create_producer(topic, send_timeout_millis=0, batching_enabled=False), keys=7)
    pump.until(100)
    yield
    sent = pump.finish()
    wait_for(lambda: len({number for _, number in found}) == sent, 60, "all messages")
    for key in range(7):
        firsts = list(dict.fromkeys(number for each, number in found if each == f"k{key}"))
        assert firsts == sorted(firsts), f"key {key}: {firsts}"
    for each in consumers:
        each.close()


def compaction(scene, topic):
    """The compacted view stays, and the next compaction continues it."""
    producer = scene.client.create_producer(topic, send_timeout_millis=0)

    def compact():
        scene.topic("PUT", topic, "compaction")
        wait_for(lambda: scene.topic("GET", topic, "compaction")["status"] == "SUCCESS", 60, "the compaction")

    def view():
        return {each.partition_key(): each.data() for each in scene.stored(topic, is_read_compacted=True)}

    for number in range(30):
        producer.send(b"%d" % number, partition_key=f"k{number % 3}")
    compact()
    assert len(scene.stored(topic, is_read_compacted=True)) == 3
    yield
    compacted = scene.stored(topic, is_read_compacted=True)
    assert [each.data() for each in compacted] == [b"27", b"28", b"29"]
    producer.send(b"30", partition_key="k1")
    compact()
    assert view() == {"k0": b"27", "k1": b"30", "k2": b"29"}


def batch_index_acks(scene, topic):
    """Acknowledged parts of a batch do not come again, the others do."""
    producer = scene.client.create_producer(
        topic, send_timeout_millis=0, batching_enabled=True, batching_max_publish_delay_ms=200
    )
    options = {"batch_index_ack_enabled": True, **EARLIEST}
    consumer = scene.client.subscribe(topic, "s", pulsar.ConsumerType.Shared, **options)
    for number in range(10):
        producer.send_async(str(number).encode(), None)
    producer.flush()
    messages = [consumer.receive(TIMEOUT_MS) for _ in range(10)]
    assert len({position(each.message_id()) for each in messages}) == 1
    for each in messages:
        if int(each.data()) % 2:
            consumer.acknowledge(each)
    time.sleep(SETTLE_S)
    consumer.close()
    yield
    consumer = scene.client.subscribe(topic, "s", pulsar.ConsumerType.Shared, **options)
    assert [int(each.data()) for each in rest_of(consumer)] == [0, 2, 4, 6, 8]
    consumer.close()


def retention_and_ttl(scene, topic):
    """The policies stay, and acknowledged messages under retention too."""
    producer = scene.client.create_producer(topic, send_timeout_millis=0)
    scene.topic("POST", topic, "retention", {"retentionTimeInMinutes": 60, "retentionSizeInMB": 10})
    scene.topic("POST", topic, "messageTTL?messageTTL=3600")
    wait_for(lambda: (scene.topic("GET", topic, "retention") or {}).get("retentionSizeInMB") == 10)
    consumer = scene.client.subscribe(topic, "s", **EARLIEST)
    for number in range(5):
        producer.send(str(number).encode())
    received(consumer, 5)
    time.sleep(SETTLE_S)
    consumer.close()
    yield
    producer.send(b"5")
    assert [int(each.data()) for each in scene.stored(topic)] == list(range(6))
    assert scene.topic("GET", topic, "retention")["retentionTimeInMinutes"] == 60
    assert scene.topic("GET", topic, "messageTTL") == 3600


def expired_messages(scene, topic):
    """Messages that have expired do not come again, and the next owner lets messages expire by the same policy."""
    producer = scene.client.create_producer(topic, send_timeout_millis=0)
    names = ("policy", "request")
    consumers = [scene.client.subscribe(topic, name, **EARLIEST) for name in names]
    for each in consumers:
        each.close()
    for number in range(5):
        producer.send(str(number).encode())
    time.sleep(2.5)
    for name in names:
        scene.topic("POST", topic, f"subscription/{name}/expireMessages/1")
    for number in range(5, 8):
        producer.send(str(number).encode())
    time.sleep(SETTLE_S)
    yield
    consumer = scene.client.subscribe(topic, "request", **EARLIEST)
    assert [int(each.data()) for each in rest_of(consumer)] == [5, 6, 7]
    consumer.close()

    def backlog():
        return scene.topic("GET", topic, "stats")["subscriptions"]["policy"]["msgBacklog"]

    assert backlog() == 3
    scene.topic("POST", topic, "messageTTL?messageTTL=1")
    wait_for(lambda: backlog() == 0, 100, "the expiry of all messages")
    producer.send(b"8")
    consumer = scene.client.subscribe(topic, "policy", **EARLIEST)
    assert received(consumer, 1)[0].data() == b"8"
    consumer.close()


def trimmed_messages(scene, topic):
    """Without retention the former owner's messages go once all subscriptions have acknowledged them."""
    consumer = scene.client.subscribe(topic, "s", **EARLIEST)
    producer = scene.client.create_producer(topic, send_timeout_millis=0)
    for number in range(5):
        producer.send(str(number).encode())
    received(consumer, 4)
    time.sleep(SETTLE_S)
    yield
    producer.send(b"5")
    assert [int(each.data()) for each in scene.stored(topic)] == list(range(6))
    assert [int(each.data()) for each in received(consumer, 2)] == [4, 5]
    wait_for(lambda: len(scene.topic("GET", topic, "internalStats")["ledgers"]) == 1, 60, "one ledger")
    assert [int(each.data()) for each in scene.stored(topic)] == [5]
    consumer.close()


def refused_transactions(scene, topic):
    """Every owner refuses transactions with the same typed errors, and a refusal acknowledges nothing."""
    producer = scene.client.create_producer(topic, send_timeout_millis=0)
    producer.send(b"1")

    def refusals():
        # Until the session of a killed owner ends, lookups may still answer with its address.
        peer = wait_for(lambda: RawPeer(scene.owner_of(topic)), 60, "a living owner", ignoring=ConnectionRefusedError)
        peer.subscribe(topic, "s", permits=1)
        message = peer.receive().message.message_id
        ids = {"txnid_least_bits": 1, "txnid_most_bits": 0}
        answers = [
            peer.ask("TC_CLIENT_CONNECT_REQUEST", "tcClientConnectRequest", tc_id=0),
            peer.ask("NEW_TXN", "newTxn", tc_id=0),
            peer.ask("ADD_PARTITION_TO_TXN", "addPartitionToTxn", partitions=[topic], **ids),
            peer.ask("END_TXN", "endTxn", txn_action=pb.COMMIT, **ids),
            peer.ask("ACK", "ack", consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=[message], **ids),
        ]
        peer.close()
        errors = [each.ackResponse if each.HasField("ackResponse") else each.error for each in answers]
        return [(each.error, each.message) for each in errors]

    expected = [(pb.NotAllowedError, "Transactions are not enabled.")] * 4
    of_acks = "org.apache.pulsar.broker.service.BrokerServiceException$NotAllowedException: "
    expected.append((pb.NotAllowedError, of_acks + "Server don't support transaction ack!"))
    assert refusals() == expected
    yield
    assert refusals() == expected
    consumer = scene.client.subscribe(topic, "s", pulsar.ConsumerType.Shared, **EARLIEST)
    assert [each.data() for each in rest_of(consumer)] == [b"1"]
    consumer.close()


def schemas(scene, topic):
    """Versions of the schema stay, and the broker refuses an incompatible producer."""
    scene.client.subscribe(topic, KEEPS).close()
    producer = scene.client.create_producer(topic, schema=JsonSchema(First), send_timeout_millis=0)
    producer.send(First(name="a"))
    path = f"schemas/{topic.partition('://')[2]}/schema"
    before = scene.admin("GET", path)
    yield
    producer.send(First(name="b"))
    assert scene.admin("GET", path) == before
    refused(lambda: scene.client.create_producer(topic, schema=JsonSchema(Second)), pulsar.IncompatibleSchema)
    consumer = scene.client.subscribe(topic, "s", schema=JsonSchema(First), **EARLIEST)
    assert [each.value().name for each in received(consumer, 2)] == ["a", "b"]
    consumer.close()


def properties_of_subscriptions(scene, topic):
    scene.client.subscribe(topic, "s", **EARLIEST).close()
    scene.topic("PUT", topic, "subscription/s/properties", {"k": "v", "owner": "a"})
    yield
    assert scene.topic("GET", topic, "subscription/s/properties") == {"k": "v", "owner": "a"}
    scene.topic("PUT", topic, "subscription/s/properties", {"k": "w"})
    assert scene.topic("GET", topic, "subscription/s/properties") == {"k": "w"}


def dead_letters(scene, topic):
    """A message that no consumer acknowledges goes to the topic of dead letters, the others do not."""
    policy = pulsar.ConsumerDeadLetterPolicy(2, f"{topic}-dead", initial_subscription_name="dead")
    consumer = scene.client.subscribe(
        topic,
        "s",
        pulsar.ConsumerType.Shared,
        dead_letter_policy=policy,
        negative_ack_redelivery_delay_ms=100,
        **EARLIEST,
    )
    producer = scene.client.create_producer(topic, send_timeout_millis=0)
    for text in (b"bad", b"good"):
        producer.send(text)
    for message in (consumer.receive(TIMEOUT_MS) for _ in range(2)):
        (consumer.negative_acknowledge if message.data() == b"bad" else consumer.acknowledge)(message)
    time.sleep(SETTLE_S)
    yield
    dead = scene.client.subscribe(f"{topic}-dead", "dead", **EARLIEST)

    def died():
        with contextlib.suppress(pulsar.Timeout):
            message = consumer.receive(200)
            assert message.data() == b"bad"
            consumer.negative_acknowledge(message)
        with contextlib.suppress(pulsar.Timeout):
            return dead.receive(100)
        return None

    assert wait_for(died, 60, "the dead letter").data() == b"bad"
    for each in (consumer, dead):
        each.close()


def chunked_messages(scene, topic):
    """A message in chunks on both sides of the move, and one whose chunks are under way at the move: all chunks are
    stored in order. The C++ client drops a message whose first chunk was stored twice.
    """
    scene.client.subscribe(topic, KEEPS).close()
    producer = scene.client.create_producer(
        topic, send_timeout_millis=0, batching_enabled=False, chunking_enabled=True, max_pending_messages=100
    )
    texts = [bytes([65 + number]) * (6 << 20) for number in range(3)]
    producer.send(texts[0])
    producer.send_async(texts[1], None)
    yield
    producer.flush()
    producer.send(texts[2])
    stored = chunks(scene, topic)
    under_way = [chunk for text, chunk in stored if text == b"B"]
    assert list(dict.fromkeys(stored)) == [(text, chunk) for text in (b"A", b"B", b"C") for chunk in (0, 1)], stored
    readable = texts if under_way.count(0) == 1 else [texts[0], texts[2]]
    consumer = scene.client.subscribe(topic, "s", **EARLIEST)
    found = [consumer.receive(TIMEOUT_MS).data() for _ in readable]
    assert [text for text in dict.fromkeys(found) if text in readable] == readable
    consumer.close()


def chunks(scene, topic):
    """(first byte, chunk id) of each entry, in the order of the log."""
    stats, found = scene.topic("GET", topic, "internalStats"), []
    for ledger in stats["ledgers"]:
        for entry in range(ledger["entries"] or stats["currentLedgerEntries"]):
            answer = scene.entry(topic, ledger["ledgerId"], entry)
            found.append((answer.content[:1], int(answer.headers["X-Pulsar-chunk-id"])))
    return found


def exclusive_producers(scene, topic):
    """The exclusive producer keeps its topic."""
    scene.client.subscribe(topic, KEEPS).close()
    exclusive = {"access_mode": pulsar.ProducerAccessMode.Exclusive, "send_timeout_millis": 0}
    producer = scene.client.create_producer(topic, "p", **exclusive)
    producer.send(b"1")
    yield
    producer.send(b"2")
    for mode in (exclusive, {"send_timeout_millis": 0}):
        refused(lambda mode=mode: scene.client.create_producer(topic, **mode), pulsar.PulsarException)
    assert [each.data() for each in scene.stored(topic)] == [b"1", b"2"]


FEATURES = {
    each.__name__: each
    for each in (
        deduplication,
        delayed_messages,
        key_shared,
        compaction,
        batch_index_acks,
        retention_and_ttl,
        expired_messages,
        trimmed_messages,
        refused_transactions,
        schemas,
        properties_of_subscriptions,
        dead_letters,
        chunked_messages,
        exclusive_producers,
    )
}
