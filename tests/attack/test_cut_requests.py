"""Requests that end in the middle, on all doors: no memory stays in the account, no error reaches the log."""

import json
import socket
import struct
import urllib.parse

import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.conftest import new_broker  # noqa: F401 - the fixture
from tests.blackbox.raw import command, frame, send
from tests.waiting import wait_for

TOPIC = "persistent://public/default/m"
PATH = "persistent/public/default/m"
CONNECT = frame(command("CONNECT", "connect", client_version="x", protocol_version=21))
PRODUCER = frame(command("PRODUCER", "producer", topic=TOPIC, producer_id=1, request_id=1))
SUBSCRIBE = frame(
    command("SUBSCRIBE", "subscribe", topic=TOPIC, subscription="s", subType=1, consumer_id=1, request_id=2)
)
FLOW = frame(command("FLOW", "flow", consumer_id=1, messagePermits=1000))
LARGE = send(1, 0, b"x" * 300_000)
IDS = [pb.MessageIdData(ledgerId=3, entryId=number) for number in range(5000)]
ACK = frame(command("ACK", "ack", consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=IDS, request_id=9))
LIST = frame(
    command("GET_TOPICS_OF_NAMESPACE", "getTopicsOfNamespace", namespace="public/default", request_id=3, mode=2)
)
BINARY = {
    "a frame": CONNECT + PRODUCER + LARGE,
    "an ACK": CONNECT + SUBSCRIBE + ACK,
    "lists": CONNECT + LIST * 50,
    "clients": CONNECT + PRODUCER * 100 + SUBSCRIBE * 100,
    "messages": CONNECT + PRODUCER + SUBSCRIBE + FLOW + LARGE * 3,
}
MESSAGES = json.dumps({"messages": [{"payload": "x" * 1000}] * 300}).encode()
JSON = "Content-Type: application/json\r\n"


def request(line, headers="", body=b""):
    return f"{line} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode() + body


def with_body(line, body, kind="application/json"):
    return request(line, f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n", body)


def text_frame(data, *, is_last=True):
    return bytes([is_last << 7 | 1, 0xFE]) + struct.pack(">H", len(data)) + bytes(4) + data


def session(kind, rest=""):
    headers = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    return request(f"GET /ws/v2/{kind}/{PATH}{rest}", f"{headers}Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")


WEB = {
    "messages": with_body(f"POST /topics/{PATH}", MESSAGES),
    "chunks": request(f"POST /topics/{PATH}", f"{JSON}Transfer-Encoding: chunked\r\n", b"100000\r\n" + MESSAGES),
    "properties": with_body(f"PUT /admin/v2/{PATH}/properties", json.dumps({"a": "b" * 100_000}).encode()),
    "metrics": request("GET /metrics") * 20,
    "a long head": request("GET /metrics", "X: y\r\n" * 300),
    "a form": with_body("POST /ui/do/publish", b"a=" + b"b" * 300_000, "application/x-www-form-urlencoded"),
    "a page": request(f"GET /ui/topic?name={TOPIC}"),
    "a text": session("producer") + text_frame(b"x" * 60_000, is_last=False),
    "texts": session("producer") + text_frame(json.dumps({"payload": "eA==" * 100}).encode()) * 50,
    "a consumer": session("consumer", "/w"),
    "a reader": session("reader", "?messageId=earliest"),
}
PORTIONS = (0.1, 0.5, 0.9, 1.0)


def cut(door, data, portion, end):
    """Send a portion of the data and end the connection: in an orderly way, by a RST, or behind the first answer."""
    peer = socket.create_connection((door.hostname, door.port), 30)
    try:
        peer.sendall(data[: max(1, int(len(data) * portion))])
        if end == "answered":
            peer.settimeout(0.05)
            peer.recv(1)
    except OSError:  # refused, or no answer yet
        pass
    if end == "reset":
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


@pytest.mark.parametrize("door", ["binary", "web"])
def test_no_memory_and_no_error_stay_behind_requests_that_are_cut(new_broker, door):  # noqa: F811
    """Each form of the console that was cut left a traceback of 2 KiB in the log."""
    broker = new_broker(webSocketServiceEnabled="true")
    address = urllib.parse.urlsplit(broker.url if door == "binary" else broker.http)
    used = broker.metrics("magnetar_client_memory_used_bytes")
    for data in (BINARY if door == "binary" else WEB).values():
        for portion in PORTIONS:
            for end in ("closed", "reset", "answered"):
                cut(address, data, portion, end)
    wait_for(lambda: broker.metrics("magnetar_client_memory_used_bytes") <= used, 60, "the memory of the connections")
    assert broker.stop() == 0
    assert "Traceback" not in broker.log_text()
