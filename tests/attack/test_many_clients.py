"""Thousands of producers and consumers on one connection must not hold the loop, and their metadata must count."""

import json
import urllib.error

import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.honest import HonestClient
from tests.blackbox.raw import RawPeer, command, frame, send
from tests.waiting import wait_for

MOST_BUSY_S = 0.15
"""Processor time of the broker in the wait of one PING."""
SHARED, FAILOVER, KEY_SHARED = pb.CommandSubscribe.Shared, pb.CommandSubscribe.Failover, pb.CommandSubscribe.Key_Shared


def subscribe(peer, topic, sub_type, count):
    for start in range(0, count, 100):
        fields = {"topic": topic, "subscription": "s", "subType": sub_type}
        peer.write(
            b"".join(
                frame(command("SUBSCRIBE", "subscribe", consumer_id=n, request_id=n, consumer_name=f"c{n}", **fields))
                for n in range(start, start + 100)
            )
        )
        answers = 0
        while answers < 100:
            answers += peer.receive().type == pb.BaseCommand.SUCCESS


def answers_before(honest, work):
    """The processor time of the broker in the longest wait of an honest client behind `work`."""
    before = honest.answered
    work()
    wait_for(lambda: honest.answered >= before + 20, subject="twenty answers")
    assert honest.busiest_s < MOST_BUSY_S, f"a PING waited for {honest.busiest_s:.2f} s of the broker's work"


@pytest.mark.parametrize(("sub_type", "count"), [(SHARED, 4000), (FAILOVER, 2000), (KEY_SHARED, 2000)])
def test_thousands_of_consumers_of_a_subscription_leave_together(new_broker, topic, sub_type, count):
    """The end of a connection with 2,000 consumers of a Failover subscription took 2.2 s, with 12,000 of Key_Shared 4.5
    s, and an UNSUBSCRIBE that closes them 1.7 s.
    """
    broker = new_broker(pings=False)
    for _ in range(2):
        peer = RawPeer(broker.url)
        subscribe(peer, topic, sub_type, count)
        with HonestClient(broker) as honest:
            answers_before(honest, peer.close)
    peer = RawPeer(broker.url)
    subscribe(peer, topic, sub_type, count)
    forced = frame(command("UNSUBSCRIBE", "unsubscribe", consumer_id=1, request_id=1, force=True))
    with HonestClient(broker) as honest:
        answers_before(honest, lambda: peer.write(forced))
    peer.close()
    assert broker.stop() == 0


def test_publishes_to_thousands_of_consumers_without_permits(new_broker, topic):
    """Each of 500 entries of a non-persistent topic walked through 4,000 consumers: 0.5 s."""
    broker = new_broker(pings=False)
    topic = topic.replace("persistent://", "non-persistent://")
    producer, peer = RawPeer(broker.url), RawPeer(broker.url)
    producer.producer(topic)
    subscribe(peer, topic, SHARED, 4000)
    burst = b"".join(send(1, number) for number in range(500))
    with HonestClient(broker) as honest:
        answers_before(honest, lambda: producer.write(burst))
        peer.flow(1_000_000, consumer_id=3000)
        answers_before(honest, lambda: producer.write(burst))
    producer.close()
    peer.close()
    assert broker.stop() == 0


def test_runs_to_thousands_of_non_persistent_subscriptions(new_broker, topic):
    """Two producers that took turns: 250 SENDs of one read went to 3,000 subscriptions each, 3.4 s."""
    broker = new_broker(pings=False)
    topic = topic.replace("persistent://", "non-persistent://")
    producer, peer = RawPeer(broker.url), RawPeer(broker.url)
    for start in range(0, 3000, 100):
        fields = {"topic": topic, "subType": SHARED}
        peer.write(
            b"".join(
                frame(command("SUBSCRIBE", "subscribe", subscription=f"s{n}", consumer_id=n, request_id=n, **fields))
                for n in range(start, start + 100)
            )
        )
        answers = 0
        while answers < 100:
            answers += peer.receive().type == pb.BaseCommand.SUCCESS
    for number in (0, 1):
        producer.producer(topic, number)
    with HonestClient(broker) as honest:
        answers_before(
            honest, lambda: producer.write(b"".join(send(number % 2, number, b"x") for number in range(250)))
        )
        answers_before(honest, lambda: producer.write(b"".join(send(0, number, b"x") for number in range(250))))
    producer.close()
    peer.close()
    assert broker.stop() == 0


def test_expiry_for_thousands_of_subscriptions(new_broker, topic):
    """The expiry of all gave way only where a subscription had messages to drop: 5,000 took 0.6 s."""
    broker = new_broker(pings=False)
    peer = RawPeer(broker.url)
    for start in range(0, 5000, 100):
        fields = {"topic": topic, "subType": SHARED, "durable": False}
        peer.write(
            b"".join(
                frame(command("SUBSCRIBE", "subscribe", subscription=f"s{n}", consumer_id=n, request_id=n, **fields))
                for n in range(start, start + 100)
            )
        )
        answers = 0
        while answers < 100:
            answers += peer.receive().type == pb.BaseCommand.SUCCESS
    producer = RawPeer(broker.url)
    producer.producer(topic)
    producer.write(b"".join(send(1, number) for number in range(120)))
    while producer.receive().send_receipt.sequence_id < 119:
        pass
    path = "/admin/v2/" + topic.replace("://", "/", 1)

    def expire():
        with pytest.raises(urllib.error.HTTPError, match="409"):  # no message is old enough
            broker.admin("POST", f"{path}/all_subscription/expireMessages/1000", body=b"")

    with HonestClient(broker) as honest:
        answers_before(honest, expire)
        answers_before(honest, lambda: broker.admin("GET", f"{path}/internalStats"))
    producer.close()
    peer.close()
    assert broker.stop() == 0


def test_metadata_of_producers_count_in_the_share_of_their_connection(new_broker, topic):
    """1,500 producers with 60 KB of metadata each took 90 MiB; the share of a connection is 16 MiB here."""
    broker = new_broker(pings=False, maxClientMemoryInMB=128, maxMessageSize=1 << 20)
    before, refused = broker.rss_bytes, 0
    metadata = [pb.KeyValue(key="k", value="x" * 60_000)]
    peer = RawPeer(broker.url)
    for number in range(1500):
        found = peer.ask("PRODUCER", "producer", topic=topic, producer_id=number, metadata=metadata)
        refused += found.type == pb.BaseCommand.ERROR and found.error.error == pb.TooManyRequests
    assert 1200 < refused < 1500
    assert broker.rss_bytes - before < 48 << 20
    peer.close()
    assert broker.stop() == 0


def test_internal_statistics_of_a_log_of_which_every_second_entry_is_acknowledged(new_broker, topic):
    """Each of 200,000 ranges was shown: the answer took 1.4 s a subscription, in a single callback."""
    broker, entries = new_broker(pings=False), 200_000
    peer = RawPeer(broker.url)
    peer.producer(topic)
    for first in range(0, entries, 4000):
        peer.write(b"".join(send(1, number, b"") for number in range(first, first + 4000)))
        while (found := peer.receive()).send_receipt.sequence_id != first + 3999:
            pass
    ledger_id = found.send_receipt.message_id.ledgerId
    for number in range(3):
        peer.subscribe(topic, f"s{number}", number)
        for first in range(1, entries, 40_000):
            ids = [pb.MessageIdData(ledgerId=ledger_id, entryId=e) for e in range(first, first + 40_000, 2)]
            peer.acknowledge(ids, number)
    path = "/admin/v2/" + topic.replace("://", "/", 1)
    with HonestClient(broker) as honest:
        for page in ("internalStats", "stats", "internal-info"):
            answers_before(honest, lambda page=page: broker.admin("GET", f"{path}/{page}"))
        cursors = json.loads(broker.admin("GET", f"{path}/internalStats"))["cursors"]
    assert {each["totalNonContiguousDeletedMessagesRange"] for each in cursors.values()} == {entries // 2}
    assert {each["individuallyDeletedMessages"].count("..") for each in cursors.values()} == {10_000}
    peer.close()
    assert broker.stop() == 0
