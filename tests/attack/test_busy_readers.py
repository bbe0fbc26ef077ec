"""Readers of one tenant with endless work must not make the messages of other tenants wait for all their turns."""

import selectors
import time

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.honest import HonestClient
from tests.blackbox.raw import RawPeer, command, frame, send

READERS = 40
MESSAGES = 20_000
SECONDS = 3
AGAIN_S = 0.5
MOST_BUSY_S = 0.15
"""Processor time of the broker in the wait of one PING: a few turns, of some ten milliseconds each."""


def test_forty_subscriptions_that_read_their_backlog_for_ever(new_broker, topic):
    """All 40 had a turn in each round of the loop: a PING waited for 0.3 s of processor time."""
    broker = new_broker(pings=False)
    producer = RawPeer(broker.url)
    producer.producer(topic)
    producer.write(b"".join(send(1, number, b"x" * 20) for number in range(MESSAGES)))
    while producer.receive().send_receipt.sequence_id < MESSAGES - 1:
        pass
    again = frame(command("REDELIVER_UNACKNOWLEDGED_MESSAGES", "redeliverUnacknowledgedMessages", consumer_id=1))
    readers, read = [RawPeer(broker.url) for _ in range(READERS)], 0
    with selectors.DefaultSelector() as selector:
        for number, reader in enumerate(readers):
            reader.subscribe(topic, f"s{number}")
            selector.register(reader.socket, selectors.EVENT_READ)
        with HonestClient(broker) as honest:
            ends, due = time.monotonic() + SECONDS, 0.0
            while (now := time.monotonic()) < ends:
                if now >= due:
                    due = now + AGAIN_S
                    for reader in readers:
                        reader.flow(MESSAGES)
                        reader.write(again)
                for key, _ in selector.select(0.1):
                    read += len(key.fileobj.recv(1 << 20))
    for reader in (producer, *readers):
        reader.close()
    assert read > 50 * MESSAGES, "the readers had no work"
    assert honest.answered > 10
    assert honest.busiest_s < MOST_BUSY_S, f"a PING waited for {honest.busiest_s:.2f} s of the broker's work"
    assert broker.stop() == 0


def test_readers_of_two_addresses_that_read_none_of_their_large_messages(new_broker, topic):
    """The readers filled the memory of all clients: the broker refused each producer and consumer of every other address."""
    broker = new_broker(pings=False, maxClientMemoryInMB="64")
    producer = RawPeer(broker.url)
    producer.producer(topic)
    for number in range(4):
        producer.write(send(1, number, bytes(4_000_000)))
        assert producer.receive().send_receipt.sequence_id == number
    readers = [RawPeer(broker.url, receive_buffer=4096, source=f"127.0.0.{2 + at % 2}") for at in range(60)]
    refused = 0
    for at, reader in enumerate(readers):
        values = {"topic": topic, "subscription": f"s{at}", "consumer_id": 1, "initialPosition": 1}
        refused += reader.ask("SUBSCRIBE", "subscribe", subType=0, **values).HasField("error")
        reader.flow(1000)
    assert refused, "the readers had memory for all their messages"
    time.sleep(1)
    for number in range(10):
        honest = RawPeer(broker.url)
        honest.producer(f"{topic}-honest")
        honest.subscribe(f"{topic}-honest", f"h{number}", permits=100, initialPosition=pb.CommandSubscribe.Latest)
        honest.write(send(1, number, b"x" * 1000))
        kinds = {honest.receive().type, honest.receive().type}
        assert kinds == {pb.BaseCommand.SEND_RECEIPT, pb.BaseCommand.MESSAGE}
        honest.close()
    assert broker.stop() == 0
