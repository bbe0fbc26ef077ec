"""kill -9 under live clients: messages with a receipt are stored, in order, once; promises to cursors hold.

`MAGNETAR_CRASH_LONG=1` runs 50 cycles instead of 4.
"""

import os
import random
import time

import pulsar
import pytest
from pulsar import ConsumerType, InitialPosition, MessageId

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.clients import Sink, Source, id_of, quiet_client, read_all
from tests.blackbox.history import History
from tests.blackbox.patience import is_before, longer_and_longer
from tests.blackbox.raw import RawPeer, send
from tests.waiting import wait_for

CYCLES = 50 if os.environ.get("MAGNETAR_CRASH_LONG") else 4
TOPIC = "persistent://public/default/kill"
KEEP = {"defaultRetentionTimeInMinutes": -1, "defaultRetentionSizeInMB": -1}  # no subscription: readers find everything


@pytest.mark.timeout(60 * CYCLES + 120)
def test_no_receipted_message_is_lost_and_the_order_is_kept(new_broker):
    chance = random.Random(7)
    broker = new_broker(**KEEP)
    history = History()
    client = quiet_client(broker.url)
    pause = 0.001 if CYCLES > 10 else 0  # everything is read again in each cycle: many cycles need fewer messages
    sources = [
        Source(client, TOPIC, history, keys=["single"], pause=pause, batching_enabled=False),
        Source(
            client,
            TOPIC,
            history,
            keys=["batched"],
            pause=pause,
            batching_enabled=True,
            batching_max_publish_delay_ms=2,
        ),
    ]
    for source in sources:
        source.start()
    for cycle in range(CYCLES):
        before = history.count("receipted")
        wait_for(lambda before=before: history.count("receipted") > before, subject="a receipt after the restart")
        time.sleep(chance.uniform(0.0, 0.6))
        with history.interruption():
            broker.kill()
            receipted = {(e.key, e.number) for e in list(history.events) if e.what == "receipted"}
            broker.start()
        stored = {tuple(data.decode().split(":")) for _, data, _ in read_all(broker.url, TOPIC)}
        lost = {(key, number) for key, number in receipted if (key, str(number)) not in stored}
        assert not lost, f"cycle {cycle}: {len(lost)} of {len(receipted)} lost: {sorted(lost)[:5]}"
    for source in sources:
        source.stop()
        assert not source.failed
    for key, data, message_id in read_all(broker.url, TOPIC):
        history.delivered(f"all {message_id}", key, int(data.partition(b":")[2]), message_id)
        history.ended(f"all {message_id}")
    assert history.problems() == []
    assert history.count("receipted") > 100 * CYCLES
    client.close()
    assert broker.stop() == 0


@pytest.mark.timeout(60 * CYCLES + 120)
@pytest.mark.parametrize("batch", [1, 7])
def test_a_deduplicating_producer_resends_everything_and_each_message_is_there_once(new_broker, batch):
    chance = random.Random(11 + batch)
    broker = new_broker(brokerDeduplicationEnabled="true", brokerDeduplicationEntriesInterval=100, **KEEP)
    total = 0
    for cycle in range(CYCLES):
        client, producer = _the_one(broker.url, batch)
        total += batch * chance.randrange(30, 100 if batch > 1 else 600)
        _send_from_the_first(producer, total)
        time.sleep(chance.uniform(0.0, 0.05))
        broker.kill()
        client.shutdown()
        broker.start()
        stored = _stored(broker.url)
        assert stored == list(range(1, len(stored) + 1)), f"after kill {cycle}"
    client, producer = _the_one(broker.url, batch)
    # This client library names only the first id of a batch to the broker.
    assert producer.last_sequence_id() == (stored[-1] - batch + 1 if stored else -1)
    _send_from_the_first(producer, total)
    producer.flush()
    assert _stored(broker.url) == list(range(1, total + 1))
    client.close()


def test_a_chunked_message_interrupted_by_a_kill_is_completed_by_its_producer(new_broker):
    """The chunks stored before the kill must not make the last chunk a duplicate: its producer would get a receipt for
    a message that is not stored.
    """
    broker = new_broker(brokerDeduplicationEnabled="true", **KEEP)
    peer = RawPeer(broker.url)
    peer.producer(TOPIC, producer_name="chunker")

    def chunk(number):
        facts = {"uuid": "chunker-0", "chunk_id": number, "num_chunks_from_msg": 3, "total_chunk_msg_size": 6}
        return send(1, 7, b"%d%d" % (number, number), producer_name="chunker", **facts)

    for number in range(2):
        peer.write(chunk(number))
        assert peer.receive().type == pb.BaseCommand.SEND_RECEIPT
    broker.kill()
    peer.close()
    broker.start()
    peer = RawPeer(broker.url)
    assert peer.producer(TOPIC, producer_name="chunker").producer_success.last_sequence_id == -1
    for number in range(3):
        peer.write(chunk(number))
        receipt = peer.receive().send_receipt
        assert receipt.message_id.ledgerId < 2**63, f"chunk {number} was answered as a duplicate"
    peer.close()


def _the_one(url, batch):
    """A producer with a fixed name whose batches are cut at the same places every time."""
    client = quiet_client(url)
    options = {"block_if_queue_full": True, "max_pending_messages": 700, "producer_name": "the-one"}
    if batch > 1:
        options |= {"batching_enabled": True, "batching_max_messages": batch, "batching_max_publish_delay_ms": 60_000}
    return client, client.create_producer(TOPIC, **options)


def _send_from_the_first(producer, total):
    for number in range(1, total + 1):  # the client library takes a sequence id of 0 for none
        producer.send_async(b"%d" % number, lambda *_: None, sequence_id=number)


def _stored(url):
    return [int(data) for _, data, _ in read_all(url, TOPIC)]


def publish(url, count, topic=TOPIC, **options):
    client = quiet_client(url)
    producer = client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
    for i in range(count):
        producer.send_async(b"%d" % i, lambda *_: None, **options)
    producer.flush()
    client.close()


def receive_until_quiet(consumer, first_ms=10_000, quiet_ms=2000):
    out = []
    try:
        while True:
            out.append(int(consumer.receive(quiet_ms if out else first_ms).data()))
            if len(out) % 500 == 0:
                time.sleep(0)
    except pulsar.Timeout:
        return out


def acknowledge_with_receipt(url, count, wanted):
    """Receive so many messages on a Shared consumer; acknowledge, with a receipt, those that `wanted` names."""
    peer = RawPeer(url)
    peer.subscribe(TOPIC, permits=count)
    ids = []
    while len(ids) < count:
        found = peer.receive()
        if found.HasField("message"):
            ids.append(found.message.message_id)
    acked = [number for number in range(count) if wanted(number)]
    for start in range(0, len(acked), 500):
        peer.acknowledge([ids[number] for number in acked[start : start + 500]])
    return peer, set(acked)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_thousands_of_holes_are_exact_when_their_receipt_was_seen(new_broker, end):
    count = 8000
    broker = new_broker()
    publish(broker.url, 1)  # the topic, so that the subscription begins with number 0
    broker.admin("DELETE", "/admin/v2/" + TOPIC.replace("://", "/") + "?force=true")
    publish(broker.url, count)
    peer, acked = acknowledge_with_receipt(broker.url, count, lambda number: number % 2 == 0 or number % 7 == 0)
    getattr(broker, end)()
    peer.close()
    broker.start()
    client = quiet_client(broker.url)
    consumer = client.subscribe(TOPIC, "sub", consumer_type=ConsumerType.Shared)
    assert receive_until_quiet(consumer) == [number for number in range(count) if number not in acked]
    client.close()


def test_acks_without_receipt_are_exact_after_a_clean_stop(new_broker):
    broker = new_broker()
    client = quiet_client(broker.url)
    consumer = client.subscribe(TOPIC, "sub", consumer_type=ConsumerType.Shared)
    publish(broker.url, 3000)
    for message in [consumer.receive(60_000) for _ in range(3000)]:
        if int(message.data()) % 3 == 0:
            consumer.acknowledge(message)
    consumer.close()
    assert broker.stop() == 0
    broker.start()
    again = quiet_client(broker.url)
    consumer = again.subscribe(TOPIC, "sub", consumer_type=ConsumerType.Shared)
    assert receive_until_quiet(consumer) == [number for number in range(3000) if number % 3]
    again.close()
    client.close()


@pytest.mark.timeout(60 * CYCLES + 120)
def test_a_kill_never_skips_and_repeats_only_the_last_acknowledgements(new_broker):
    chance = random.Random(3)
    broker = new_broker()
    history = History(ordered=False, ack_window_s=3.0, settle_s=5.0)
    client = quiet_client(broker.url)
    source = Source(client, TOPIC, history, keys=["k"], pause=0.002)
    holes = set(range(0, 100_000, 5))

    def not_a_hole(message):
        return int(message.data().partition(b":")[2]) not in holes

    sink = Sink(broker.url, TOPIC, history, "c0", ConsumerType.Shared, work=not_a_hole, receiver_queue_size=1000)
    source.start()
    sink.start()
    for _ in range(CYCLES):
        sent = history.highest("sent")  # higher numbers cannot come from the queue of the client
        wait_for(lambda sent=sent: history.highest("delivered") > sent + 20, 60, "deliveries after the restart")
        history.reconnected()
        time.sleep(chance.uniform(0.2, 1.2))
        with history.interruption():
            broker.kill()
            broker.start()
    source.stop()
    sink.leave()
    last = Sink(broker.url, TOPIC, history, "last", ConsumerType.Shared)
    last.start()
    wait_for(lambda: not history.missing() and last.received > 0)
    wait_for(lambda: _is_quiet(last))
    last.leave()
    assert history.problems() == []
    given = {e.number for e in history.events if e.session == "last" and e.what == "delivered"}
    everything = {e.number for e in history.events if e.what == "receipted"}
    assert everything & holes <= given, "a message that was never acknowledged was skipped"
    client.close()


def _is_quiet(sink):
    before = sink.received
    time.sleep(0.5)
    return sink.received == before


def test_readers_go_on_where_they_were(new_broker):
    broker = new_broker(**KEEP)
    publish(broker.url, 2000)
    client = quiet_client(broker.url)
    reader = client.create_reader(TOPIC, MessageId.earliest, receiver_queue_size=100)
    first = [reader.read_next(60_000) for _ in range(777)]
    broker.kill()
    broker.start()
    rest = [reader.read_next(60_000) for _ in range(2000 - 777)]  # the same reader, reconnected
    assert [int(m.data()) for m in first + rest] == list(range(2000))
    assert not reader.has_message_available()
    saved = first[-1].message_id()
    resumed = client.create_reader(TOPIC, saved)  # another program, that kept the id of its last message
    assert [int(resumed.read_next(60_000).data()) for _ in range(2000 - 777)] == list(range(777, 2000))
    assert [id_of(m.message_id()) for m in first + rest] == sorted(id_of(m.message_id()) for m in first + rest)
    client.close()


def test_delayed_messages_survive_and_are_not_early(new_broker):
    broker = new_broker()
    for topic, seconds in longer_and_longer(TOPIC, 4):
        client = quiet_client(broker.url)
        client.subscribe(topic, "sub", consumer_type=ConsumerType.Shared).close()
        producer = client.create_producer(topic, batching_enabled=False)
        due = time.time() + seconds
        for number in range(50):
            producer.send(b"%d" % number, deliver_at=int(due * 1000) + 20 * (number % 10))
        producer.send(b"50")
        broker.kill()
        client.shutdown()
        broker.start()
        client = quiet_client(broker.url)
        consumer = client.subscribe(topic, "sub", consumer_type=ConsumerType.Shared)
        first = consumer.receive(60_000).data()
        if is_before(due):
            break
        client.close()
    assert first == b"50"
    early = []
    got = []
    for _ in range(50):
        got.append(int(consumer.receive(60_000 + seconds * 1000).data()))
        if is_before(due):
            early.append(got[-1])
    assert (sorted(got), early) == (list(range(50)), [])
    client.close()


def test_negative_counts_start_again_but_nothing_is_forgotten(new_broker):
    broker = new_broker()
    client = quiet_client(broker.url)
    consumer = client.subscribe(
        TOPIC, "sub", consumer_type=ConsumerType.Shared, initial_position=InitialPosition.Earliest
    )
    publish(broker.url, 200)
    taken = [consumer.receive(60_000) for _ in range(200)]
    for message in taken[:100]:
        consumer.negative_acknowledge(message)
    broker.kill()
    broker.start()
    got = set()
    while len(got) < 200:
        message = consumer.receive(60_000)
        got.add(int(message.data()))
        consumer.acknowledge(message)
    assert got == set(range(200))
    client.close()
