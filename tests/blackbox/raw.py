"""A peer that speaks the protocol by hand, to misbehave as no client library does."""

import contextlib
import socket
import struct
import urllib.parse

import crc32c

from magnetar.protocol import pulsar_api_pb2 as pb

PATIENCE_SECONDS = 60  # for frames that certainly come, on a busy machine


def frame(command, entry=b""):
    """Bytes of a frame; `command` is a BaseCommand."""
    raw = command.SerializeToString()
    return struct.pack(">II", 4 + len(raw) + len(entry), len(raw)) + raw + entry


def command(type_name, field, **values):
    """A BaseCommand with that field set."""
    base = pb.BaseCommand(type=pb.BaseCommand.Type.Value(type_name))
    target = getattr(base, field)
    target.SetInParent()
    for name, value in values.items():
        if isinstance(value, (list, tuple)):
            getattr(target, name).extend(value)
        elif isinstance(value, (int, str, bytes, float, bool)):
            setattr(target, name, value)
        else:
            getattr(target, name).CopyFrom(value)
    return base


def entry(sequence_id, payload, **metadata):
    """Checksum, metadata and payload, as they follow a SEND."""
    fields = {"producer_name": "raw", "sequence_id": sequence_id, "publish_time": 1} | metadata
    raw = pb.MessageMetadata(**fields).SerializeToString()
    body = struct.pack(">I", len(raw)) + raw + payload
    return b"\x0e\x01" + struct.pack(">I", crc32c.crc32c(body)) + body


def send(producer_id, sequence_id, payload=b"x", **metadata):
    """Bytes of a SEND frame; a chunk is marked as a chunk, as clients do."""
    fields = {"is_chunk": True} if "chunk_id" in metadata else {}
    base = command("SEND", "send", producer_id=producer_id, sequence_id=sequence_id, num_messages=1, **fields)
    return frame(base, entry(sequence_id, payload, **metadata))


def lookup(request_id, topic):
    """Bytes of a LOOKUP frame."""
    return frame(command("LOOKUP", "lookupTopic", topic=topic, request_id=request_id, authoritative=False))


class RawPeer:
    """One connection. It reads only on request, and answers PING while reading."""

    def __init__(self, url, handshake=True, receive_buffer=None, source=None):
        address = urllib.parse.urlsplit(url)
        self.socket = socket.socket()
        if source is not None:
            self.socket.bind((source, 0))
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE_SECONDS)
        self.socket.connect((address.hostname, address.port))
        self._buffer = bytearray()
        self._requests = 0
        if handshake:
            self.write(frame(command("CONNECT", "connect", client_version="raw", protocol_version=21)))
            answer = self.receive()
            assert answer is not None, "the broker has closed the connection"
            assert answer.type == pb.BaseCommand.CONNECTED

    def write(self, data):
        self.socket.sendall(data)

    def write_until_stuck(self, data, seconds=1.0, most_bytes=256 << 20):
        """Write the data again and again until the broker takes no more; return the number of written bytes."""
        self.socket.settimeout(seconds)
        done = 0
        try:
            while done < most_bytes:
                done += self.socket.send(data)
        except TimeoutError:
            pass
        finally:
            self.socket.settimeout(PATIENCE_SECONDS)
        return done

    def receive(self):
        """The next command that is no PING; None when the broker has closed. Entries of messages are dropped."""
        while True:
            data = self._frame()
            if data is None:
                return None
            (size,) = struct.unpack_from(">I", data)
            found = pb.BaseCommand.FromString(data[4 : 4 + size])
            if found.type != pb.BaseCommand.PING:
                return found
            self.write(frame(command("PONG", "pong")))

    def _frame(self):
        while len(self._buffer) < 4 or len(self._buffer) < 4 + struct.unpack_from(">I", self._buffer)[0]:
            try:
                data = self.socket.recv(1 << 20)
            except ConnectionError:
                data = b""
            if not data:
                return None
            self._buffer += data
        size = struct.unpack_from(">I", self._buffer)[0]
        data = bytes(self._buffer[4 : 4 + size])
        del self._buffer[: 4 + size]
        return data

    def is_closed(self, timeout=10):
        """Whether the broker closes the connection within the time; frames before the close are dropped."""
        self.socket.settimeout(timeout)
        try:
            while self.socket.recv(1 << 20):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True

    def ask(self, type_name, field, **values):
        """Send a request, return its answer (by request id)."""
        self._requests += 1
        self.write(frame(command(type_name, field, request_id=self._requests, **values)))
        while (found := self.receive()) is not None:
            [(_, value)] = [(f, v) for f, v in found.ListFields() if f.name != "type"]
            if getattr(value, "request_id", None) == self._requests:
                return found
        raise AssertionError("the broker closed instead of answering")

    def find(self, topic):
        """Look the topic up, as every client does: a member of a cluster serves no topic of a bundle without an owner, and
        a lookup makes the broker the owner.
        """
        found = self.ask("LOOKUP", "lookupTopic", topic=topic, authoritative=False)
        assert found.lookupTopicResponse.response == pb.CommandLookupTopicResponse.Connect, found

    def producer(self, topic, producer_id=1, **values):
        self.find(topic)
        found = self.ask("PRODUCER", "producer", topic=topic, producer_id=producer_id, **values)
        assert found.type == pb.BaseCommand.PRODUCER_SUCCESS, found
        return found

    def subscribe(self, topic, subscription="sub", consumer_id=1, permits=0, **values):
        self.find(topic)
        options = {"subType": pb.CommandSubscribe.Shared, "initialPosition": pb.CommandSubscribe.Earliest} | values
        found = self.ask(
            "SUBSCRIBE", "subscribe", topic=topic, subscription=subscription, consumer_id=consumer_id, **options
        )
        assert found.type == pb.BaseCommand.SUCCESS, found
        if permits:
            self.flow(permits, consumer_id)

    def flow(self, permits, consumer_id=1):
        self.write(frame(command("FLOW", "flow", consumer_id=consumer_id, messagePermits=permits)))

    def acknowledge(self, message_ids, consumer_id=1):
        """Acknowledge the messages individually, and wait for the receipt."""
        found = self.ask(
            "ACK", "ack", consumer_id=consumer_id, ack_type=pb.CommandAck.Individual, message_id=message_ids
        )
        assert found.type == pb.BaseCommand.ACK_RESPONSE
        assert not found.ackResponse.HasField("error"), found

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.close()

    __del__ = close  # a test that fails leaves no open socket behind

    def reset(self):
        """End the connection with a RST, as a machine does that crashed and started again."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()
