"""Each field of each command and of the metadata of entries, with every hostile value that its type has.

The fields come from the descriptor of the protocol: the sweep includes a new field without a change here.
"""

import json
import struct

import crc32c
import pytest

from magnetar.broker.handlers.table import FROM_BROKER, HANDLERS, NOT_SPOKEN
from magnetar.protocol import pulsar_api_pb2 as pb
from tests.attack import hostile
from tests.attack.conftest import MIB, connect, http
from tests.blackbox.raw import RawPeer, command, frame
from tests.waiting import wait_for

TOPIC = "persistent://public/default/swept"
PATH = TOPIC.replace("://", "/", 1)
PING = frame(command("PING", "ping"))
ROOM = MIB - 4096
BEFORE_CONNECT = 60 * 1024
MINE = {"consumer_id": 1, "producer_id": 1, "topic": TOPIC, "namespace": "public/default", "subscription": "s"}


class Swept:
    """A connection with a producer and two consumers, made anew where the broker has closed the connection."""

    def __init__(self, url, role):
        self._url, self._role = url, role
        self._peer = None

    def _ready(self):
        if self._peer is not None:
            return self._peer
        peer = self._peer = connect(self._url, self._role) if self._role else RawPeer(self._url)
        for consumer, kind in enumerate((pb.CommandSubscribe.Shared, pb.CommandSubscribe.Key_Shared), start=1):
            values = {"topic": TOPIC, "subscription": f"s{consumer}", "consumer_id": consumer, "request_id": consumer}
            peer.write(frame(command("SUBSCRIBE", "subscribe", subType=kind, **values)))
            peer.write(frame(command("FLOW", "flow", consumer_id=consumer, messagePermits=1000)))
        peer.write(frame(command("PRODUCER", "producer", topic=TOPIC, producer_id=1, request_id=3)))
        while (found := peer.receive()).type != pb.BaseCommand.PRODUCER_SUCCESS:
            assert found.type in (pb.BaseCommand.SUCCESS, pb.BaseCommand.MESSAGE, pb.BaseCommand.ERROR), found
        return peer

    def send(self, *frames):
        """Send each frame followed by a PING; read until the broker answers the PING or closes the connection."""
        for data in frames:
            peer = self._ready()
            try:
                peer.write(data + PING)
                while (found := peer.receive()) is not None and found.type != pb.BaseCommand.PONG:
                    pass
            except ConnectionError:
                found = None
            if found is None:
                self.close()

    def close(self):
        if self._peer is not None:
            self._peer.close()
            self._peer = None


def with_required(message):
    """The message with its required fields set, to the values of the connection where they have one."""
    for field in message.DESCRIPTOR.fields:
        if not field.is_required:
            continue
        if field.message_type is not None:
            part = getattr(message, field.name)
            part.SetInParent()
            with_required(part)
        elif field.enum_type is not None:
            setattr(message, field.name, field.enum_type.values[0].number)
        elif field.cpp_type == field.CPPTYPE_STRING:
            value = MINE.get(field.name, "x")
            setattr(message, field.name, value.encode() if field.type == field.TYPE_BYTES else value)
        else:
            setattr(message, field.name, MINE.get(field.name, 1))
    return message


def sized(raw, entry=b""):
    return struct.pack(">II", 4 + len(raw) + len(entry), len(raw)) + raw + entry


def entry(metadata, payload=b"x"):
    body = struct.pack(">I", len(metadata)) + metadata + payload
    return b"\x0e\x01" + struct.pack(">I", crc32c.crc32c(body)) + body


def valid(kind):
    """The bytes of a command that the broker takes, and the field of the command."""
    name = pb.BaseCommand.Type.Name(kind).replace("_", "").lower()
    [field] = [
        f for f in pb.BaseCommand.DESCRIPTOR.fields if f.name.replace("_", "").lower() in (name, ALIASES.get(name))
    ]
    base = pb.BaseCommand(type=kind)
    getattr(base, field.name).SetInParent()
    with_required(getattr(base, field.name))
    return base.SerializeToString(), field


ALIASES = {"lookup": "lookuptopic", "partitionedmetadata": "partitionmetadata"}
SEND = pb.BaseCommand(type=pb.BaseCommand.SEND, send=pb.CommandSend(producer_id=1, sequence_id=1))
METADATA = pb.MessageMetadata(producer_name="raw", sequence_id=1, publish_time=1).SerializeToString()


def frames_of_commands(size):
    """The frames of the hostile values of a field, field by field."""
    for kind in HANDLERS:
        raw, field = valid(kind)
        for found in hostile.cases(field.message_type, size):
            yield [sized(raw + hostile.encoded(field.number, hostile.BYTES, case.raw)) for case in found]


def frames_of_entries(size):
    raw = SEND.SerializeToString()
    for found in hostile.cases(pb.CommandSend.DESCRIPTOR, size):
        number = pb.BaseCommand.SEND_FIELD_NUMBER
        yield [sized(raw + hostile.encoded(number, hostile.BYTES, case.raw), entry(METADATA)) for case in found]
    for found in hostile.cases(pb.MessageMetadata.DESCRIPTOR, size):
        yield [sized(raw, entry(METADATA + case.raw)) for case in found]
    batch = METADATA + hostile.encoded(pb.MessageMetadata.NUM_MESSAGES_IN_BATCH_FIELD_NUMBER, hostile.VARINT, b"\x01")
    single = pb.SingleMessageMetadata(payload_size=1).SerializeToString()
    for found in hostile.cases(pb.SingleMessageMetadata.DESCRIPTOR, size):
        parts = [single + case.raw for case in found]
        yield [sized(raw, entry(batch, struct.pack(">I", len(part)) + part + b"x")) for part in parts]


def swept(target, role, frames):
    connection = Swept(target.broker.url, role)
    with target.watch() as watch:
        for found in frames:
            connection.send(*found)
            connection.close()
    target.unharmed(watch, most_seconds=3.0, most_mib=96)


@pytest.fixture
def writer(secured):
    grants = b'["produce","consume"]'
    path = "/admin/v2/namespaces/public/default/permissions/writer"
    assert http(secured.broker, "POST", path, grants, "admin")[0] == 204
    return "writer"


def test_no_value_of_a_command_harms_other_clients(secured, writer):
    """A SUBSCRIBE of 1 MiB with 170,000 pairs held the event loop for 170 ms."""
    swept(secured, writer, frames_of_commands(ROOM))


CALLS = (
    "POST subscription/s1/analyzeBacklog",
    "POST all_subscription/expireMessages/1",
    "POST subscription/s1/resetcursor/1",
    "PUT compaction",
)


def test_no_metadata_of_an_entry_harms_other_clients_and_routes(secured, writer):
    """Consumers of two subscriptions get the entries; then every route that reads entries has its turn."""
    swept(secured, writer, frames_of_entries(ROOM))
    with secured.watch() as watch:
        status, body = http(secured.broker, "GET", f"/admin/v2/{PATH}/internalStats", role="admin")
        ledger, entries = (int(part) for part in json.loads(body)["lastConfirmedEntry"].split(":"))
        assert entries > 100
        calls = [f"GET {path}" for path in ("stats", "backlogSize", "messageid/1")]
        for n in range(1, entries):
            calls += f"GET subscription/s1/position/{n}", f"GET ledger/{ledger}/entry/{n}"
        for call in (*calls, *CALLS):
            method, _, path = call.partition(" ")
            status, body = http(secured.broker, method, f"/admin/v2/{PATH}/{path}", role="admin")
            assert status and b"internal error" not in body, (call, status, body)
        path = f"/admin/v2/{PATH}/compaction"
        wait_for(lambda: b'"SUCCESS"' in http(secured.broker, "GET", path, role="admin")[1])
    secured.unharmed(watch, most_seconds=3.0, most_mib=96)


def test_each_command_and_each_value_of_a_connect_before_the_proof_of_a_role(secured):
    with secured.watch() as watch:
        for kind in pb.BaseCommand.Type.values():
            peer = connect(secured.broker.url)
            peer.write(sized(pb.BaseCommand(type=kind).SerializePartialToString()))
            assert peer.is_closed() or kind == pb.BaseCommand.PING
        for kind in (pb.BaseCommand.CONNECT, pb.BaseCommand.AUTH_RESPONSE):
            raw, field = valid(kind)
            for found in hostile.cases(field.message_type, BEFORE_CONNECT):
                for case in found:
                    peer = connect(secured.broker.url)
                    peer.write(sized(raw + hostile.encoded(field.number, hostile.BYTES, case.raw)))
                    assert peer.is_closed(), case.name
    secured.unharmed(watch, most_seconds=3.0)


def test_each_command_that_is_not_for_a_broker_closes_the_connection(secured, writer):
    assert {*HANDLERS, *FROM_BROKER, *NOT_SPOKEN, pb.BaseCommand.SEND} == set(pb.BaseCommand.Type.values())
    for kind in (*FROM_BROKER, *NOT_SPOKEN):
        peer = connect(secured.broker.url, writer)
        peer.write(sized(pb.BaseCommand(type=kind).SerializePartialToString()))
        assert peer.is_closed()
