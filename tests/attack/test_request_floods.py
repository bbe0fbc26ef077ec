"""Connections that send requests without waiting for answers must not make other clients wait for all their turns."""

import json
import selectors
import threading
import time

import pytest

from magnetar.broker.handlers.consume import ACKS_IN_ONE_TURN
from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.honest import HonestClient
from tests.blackbox.raw import RawPeer, command, frame, lookup

PEERS = 40
SECONDS = 2
MOST_BUSY_S = 0.15
"""Processor time of the broker in the wait of one PING."""
MOST_BYTES = 160 << 20


def flood(broker, requests, peers=None, least=None, most_busy_s=MOST_BUSY_S):
    """Write the requests again and again on all connections, and read the answers."""
    peers, written = peers or [RawPeer(broker.url) for _ in range(PEERS)], 0
    with selectors.DefaultSelector() as selector:
        for peer in peers:
            peer.socket.setblocking(False)
            selector.register(peer.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, [0])
        with HonestClient(broker) as honest:
            ends = time.monotonic() + SECONDS
            while time.monotonic() < ends:
                for key, events in selector.select(0.1):
                    if events & selectors.EVENT_READ:
                        key.fileobj.recv(1 << 20)
                    if events & selectors.EVENT_WRITE:
                        (done,) = key.data
                        sent = key.fileobj.send(requests[done:])
                        key.data[0] = (done + sent) % len(requests)
                        written += sent
    for peer in peers:
        peer.close()
    assert written > (least or PEERS * len(requests)), "the broker had no work"
    assert honest.busiest_s < most_busy_s, f"a PING waited for {honest.busiest_s:.2f} s of the broker's work"
    assert honest.answered


def test_lookups_without_end_on_forty_connections(new_broker, topic):
    """A round of the loop had 256 requests of each connection; a message waited for 2.6 s, and a stop took a minute."""
    broker = new_broker(pings=False)
    flood(broker, b"".join(lookup(number, topic) for number in range(1000)))
    assert broker.stop() == 0


def test_subscribing_and_closing_without_end_on_forty_connections(new_broker, topic):
    """Each of the requests that waited for the subscription took a round of the loop: a stop took 70 seconds."""
    broker = new_broker(pings=False)
    RawPeer(broker.url).producer(topic)
    flood(
        broker,
        b"".join(
            frame(
                command("SUBSCRIBE", "subscribe", topic=topic, subscription="s", consumer_id=n, request_id=n, subType=1)
            )
            + frame(command("CLOSE_CONSUMER", "close_consumer", consumer_id=n, request_id=n))
            for n in range(500)
        ),
    )
    assert broker.stop() == 0


def test_schemas_compared_with_megabytes_of_versions_on_forty_connections(new_broker, topic):
    """Each request hashed all versions of the topic twice on the loop: a message waited for 0.8 s."""
    broker = new_broker(pings=False)
    peer = RawPeer(broker.url)
    peer.subscribe(topic)
    broker.admin("PUT", "/admin/v2/namespaces/public/default/schemaCompatibilityStrategy", b'"ALWAYS_COMPATIBLE"')

    def request(number, kind, doc):
        fields = [{"name": "a", "type": kind, "default": number}] if kind == "int" else []
        text = json.dumps({"type": "record", "name": f"R{number}", "doc": doc, "fields": fields}).encode()
        schema = pb.Schema(name="s", type=pb.Schema.Avro, schema_data=text)
        return {"topic": topic, "schema": schema}

    for number in range(8):
        found = peer.ask("GET_OR_CREATE_SCHEMA", "getOrCreateSchema", **request(number, "int", "x" * 1_000_000))
        assert not found.getOrCreateSchemaResponse.error_message
    kind = "GET_OR_CREATE_SCHEMA"
    requests = [command(kind, "getOrCreateSchema", request_id=n, **request(9, "none", f"{n}")) for n in range(20)]
    flood(broker, b"".join(map(frame, requests)))
    assert broker.stop() == 0


@pytest.mark.parametrize("number", [ACKS_IN_ONE_TURN - 1, 28 * ACKS_IN_ONE_TURN])
@pytest.mark.parametrize("kind", ["ACK", "REDELIVER_UNACKNOWLEDGED_MESSAGES"])
def test_commands_with_thousands_of_ids_on_forty_connections(new_broker, topic, kind, number):
    """A command counted as one, whatever its size: a PING waited for ten seconds of processor time. The ids of commands
    that waited were objects, twenty MB of them for a command of a MB, which made further objects expensive.
    """
    broker = new_broker(pings=False)
    peers = [RawPeer(broker.url) for _ in range(PEERS)]
    for at, peer in enumerate(peers):
        peer.subscribe(topic, subscription=f"s{at}")
    ids = [pb.MessageIdData(ledgerId=100, entryId=100)] * number
    if kind == "ACK":
        request = command(kind, "ack", consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=ids)
    else:
        request = command(kind, "redeliverUnacknowledgedMessages", consumer_id=1, message_ids=ids)
    flood(broker, frame(request), peers)
    assert broker.stop() == 0


def test_reads_full_of_small_commands_on_three_hundred_connections(new_broker):
    """The commands of a read that waited for their turn took ten times its bytes: more than a MiB a connection."""
    broker = new_broker(pings=False)
    peers = [RawPeer(broker.url) for _ in range(300)]
    before = broker.rss_bytes
    pong = frame(command("PONG", "pong"))
    flood(broker, pong * 10_000, peers)
    grown = broker.rss_bytes - before
    assert grown < MOST_BYTES, f"{grown >> 20} MiB more"
    assert broker.stop() == 0


def test_acknowledgements_of_a_megabyte_on_a_hundred_connections_of_an_address(new_broker, topic):
    """A hundred commands were parsed at a time: 900 MiB, and producers of all addresses were refused for lack of memory."""
    broker = new_broker(pings=False)
    peers = [RawPeer(broker.url, source="127.0.0.2") for _ in range(100)]
    for at, peer in enumerate(peers):
        peer.subscribe(topic, subscription=f"s{at}")
    ids = [pb.MessageIdData(ledgerId=100, entryId=100)] * 170_000
    request = frame(command("ACK", "ack", consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=ids))
    honest = [RawPeer(broker.url, source=source) for source in ("127.0.0.1", "127.0.0.2")]
    before, refused = broker.rss_bytes, []
    ended = threading.Event()

    def open_producers():
        number = 0
        while not ended.wait(0.1):
            number += 1
            for each in honest:
                found = each.ask("PRODUCER", "producer", topic=topic, producer_id=number)
                refused.extend([found.error.message] if found.HasField("error") else [])

    opening = threading.Thread(target=open_producers)
    opening.start()
    try:
        # A round of the loop reads from each connection: a hundred commands of a MiB take longer than forty.
        flood(broker, request, peers, least=len(request) * 10, most_busy_s=MOST_BUSY_S * len(peers) / PEERS)
    finally:
        ended.set()
        opening.join()
    assert not refused
    grown = broker.rss_bytes - before
    assert grown < 2 * MOST_BYTES, f"{grown >> 20} MiB more"
    assert broker.stop() == 0
