"""A raw load generator: pre-encoded SEND frames with a window of outstanding receipts, and a consumer with permits.

Frames are built before the clock starts, so that the generator costs little beside the server. Times are
``time.perf_counter``, which processes of one machine share.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.checksum import crc32c
from magnetar.protocol.frames import encode_command

now = time.perf_counter
HOST = "127.0.0.1"
SEND_RECEIPT, SEND_ERROR, MESSAGE, PING = 7, 8, 9, 18
SILENCE = 30.0
_U32 = struct.Struct(">I")
look_up = False
"""Whether a connection looks a topic up before it uses it: Apache Pulsar serves no topic without a lookup."""


class Connection:
    """A blocking socket after the handshake, with a buffer of frames."""

    def __init__(self, port: int, buffer_bytes: int = 4 << 20):
        self.socket = socket.create_connection((HOST, port))
        self.socket.settimeout(SILENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray(buffer_bytes)
        self.have = 0
        connect = pb.CommandConnect(client_version="bench", protocol_version=19)
        self.request(pb.BaseCommand(type=pb.BaseCommand.CONNECT, connect=connect), pb.BaseCommand.CONNECTED)

    def fileno(self) -> int:
        return self.socket.fileno()

    def close(self) -> None:
        self.socket.close()

    def send(self, command: pb.BaseCommand) -> None:
        self.socket.sendall(encode_command(command))

    def request(self, command: pb.BaseCommand, answer: int) -> pb.BaseCommand:
        """Send a command and wait for its answer, of type ``answer``; any other command raises RuntimeError."""
        self.send(command)
        while True:
            for start, _ in self.receive():
                size = _U32.unpack_from(self.buffer, start)[0]
                got = pb.BaseCommand.FromString(bytes(self.buffer[start + 4 : start + 4 + size]))
                if got.type == answer:
                    self.drop()
                    return got
                raise RuntimeError(f"unexpected {got}")
            self.drop()

    def use(self, topic: str) -> None:
        """Look the topic up if ``look_up`` is set; to be called before its first producer or consumer."""
        if look_up:
            lookup = pb.CommandLookupTopic(topic=topic, request_id=0)
            command = pb.BaseCommand(type=pb.BaseCommand.LOOKUP, lookupTopic=lookup)
            self.request(command, pb.BaseCommand.LOOKUP_RESPONSE)

    def receive(self) -> list[tuple[int, int]]:
        """(start, end) of each whole frame in the buffer, without its total size; call ``drop`` once they are read."""
        got = self.socket.recv_into(memoryview(self.buffer)[self.have :])
        if not got:
            raise ConnectionError("closed by the server")
        self.have += got
        at, frames, have, unpack, buffer = 0, [], self.have, _U32.unpack_from, self.buffer
        while have - at >= 4:
            end = at + 4 + unpack(buffer, at)[0]
            if end > have:
                break
            if buffer[at + 9] == PING:
                self.send(pb.BaseCommand(type=pb.BaseCommand.PONG, pong=pb.CommandPong()))
            else:
                frames.append((at + 4, end))
            at = end
        self.cut = at
        return frames

    def drop(self) -> None:
        rest = self.have - self.cut
        self.buffer[:rest] = self.buffer[self.cut : self.have]
        self.have, self.cut = rest, 0


class Producer(Connection):
    """One producer of ``count`` frames of ``batch`` messages of ``size`` bytes."""

    def __init__(self, port: int, topic: str, count: int, size: int, batch: int = 1, buffer_bytes: int = 4 << 20):
        super().__init__(port, buffer_bytes)
        self.use(topic)
        body = pb.CommandProducer(topic=topic, producer_id=1, request_id=1)
        command = pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=body)
        name = self.request(command, pb.BaseCommand.PRODUCER_SUCCESS).producer_success.producer_name
        self.count, self.acked, self.sent, self.errors = count, 0, 0, 0
        self.ends, pieces, total = [0], [], 0
        payload = encode_payload(size, batch)
        for sequence_id in range(count):
            entry = encode_entry(name, sequence_id, payload, batch)
            send = pb.CommandSend(producer_id=1, sequence_id=sequence_id)
            if batch > 1:
                send.num_messages = batch
            frame = encode_command(pb.BaseCommand(type=pb.BaseCommand.SEND, send=send), entry)
            pieces.append(frame)
            total += len(frame)
            self.ends.append(total)
        self.data = memoryview(b"".join(pieces))
        self.at = 0
        self.receipts: list[tuple[int, float]] = []  # (receipts so far, when)

    def push(self, limit: int) -> bool:
        """Send the frames before number ``limit``; returns whether the socket took them all."""
        self.socket.setblocking(False)
        stop = self.ends[min(limit, self.count)]
        while self.at < stop:
            try:
                self.at += self.socket.send(self.data[self.at : min(stop, self.at + (256 << 10))])
            except BlockingIOError:
                return False
        return True

    def pull(self) -> None:
        """Count the receipts that arrived."""
        try:
            frames = self.receive()
        except BlockingIOError:
            return
        buffer, before = self.buffer, self.acked
        for start, _ in frames:
            kind = buffer[start + 5]
            if kind not in (SEND_RECEIPT, SEND_ERROR):
                raise RuntimeError(f"unexpected command {kind}")
            self.errors += kind == SEND_ERROR
            self.acked += 1
        self.drop()
        if self.acked > before:
            self.receipts.append((self.acked, now()))


def encode_payload(size: int, batch: int) -> bytes:
    """Random bytes, or a batch of them."""
    payload = os.urandom(size)
    if batch > 1:
        single = pb.SingleMessageMetadata(payload_size=size).SerializeToString()
        payload = (_U32.pack(len(single)) + single + payload) * batch
    return payload


def encode_entry(producer_name: str, sequence_id: int, payload: bytes, batch: int) -> bytes:
    """Magic, checksum, metadata and payload as a client sends them."""
    metadata = pb.MessageMetadata(
        producer_name=producer_name, sequence_id=sequence_id, publish_time=int(time.time() * 1000)
    )
    if batch > 1:
        metadata.num_messages_in_batch = batch
    head = metadata.SerializeToString()
    covered = _U32.pack(len(head)) + head + payload
    return b"\x0e\x01" + _U32.pack(crc32c(covered)) + covered


class Consumer(Connection):
    """An Exclusive subscription from the earliest message, one message an entry unless ``batch`` says otherwise.
    ``buffer_bytes`` must have room for a frame.
    """

    def __init__(
        self,
        port: int,
        topic: str,
        permits: int = 20_000,
        batch: int = 1,
        subscription: str = "bench",
        buffer_bytes: int = 4 << 20,
    ):
        super().__init__(port, buffer_bytes)
        self.use(topic)
        self.permits, self.credit, self.batch = permits, 0, batch
        self.messages = 0
        self.arrivals: list[tuple[int, float]] = []  # (messages so far, when)
        subscribe = pb.CommandSubscribe(
            topic=topic, subscription=subscription, subType=pb.CommandSubscribe.Exclusive, consumer_id=1, request_id=1,
            initialPosition=pb.CommandSubscribe.Earliest,
        )  # fmt: skip
        self.request(pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE, subscribe=subscribe), pb.BaseCommand.SUCCESS)

    def flow(self) -> None:
        """Raise the permits to their full number once half are used."""
        if self.credit <= self.permits // 2:
            flow = pb.CommandFlow(consumer_id=1, messagePermits=self.permits - self.credit)
            self.send(pb.BaseCommand(type=pb.BaseCommand.FLOW, flow=flow))
            self.credit = self.permits

    def pull(self) -> None:
        """Count the messages that arrived and acknowledge the last of them cumulatively."""
        last = None
        for start, _ in self.receive():
            if self.buffer[start + 5] == MESSAGE:
                self.messages += self.batch
                self.credit -= self.batch
                last = start
        if last is not None:
            self.arrivals.append((self.messages, now()))
            size = _U32.unpack_from(self.buffer, last)[0]
            command = pb.BaseCommand.FromString(bytes(self.buffer[last + 4 : last + 4 + size]))
            ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Cumulative)
            ack.message_id.add().CopyFrom(command.message.message_id)
            self.send(pb.BaseCommand(type=pb.BaseCommand.ACK, ack=ack))
        self.drop()
        self.flow()


def publish(producers: list[Producer], window: int) -> float:
    """Send every frame with at most ``window`` receipts outstanding a producer; the seconds to the last receipt."""
    poll, by_fd = select.epoll(), {p.fileno(): p for p in producers}
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    left, started = len(producers), now()
    for p in producers:
        if not p.push(window):
            poll.modify(p.fileno(), select.EPOLLIN | select.EPOLLOUT)
    while left:
        events = poll.poll(SILENCE)
        if not events:
            raise TimeoutError("no receipt")
        for fd, event in events:
            p = by_fd[fd]
            if event & ~select.EPOLLOUT:
                p.pull()
            poll.modify(fd, select.EPOLLIN if p.push(p.acked + window) else select.EPOLLIN | select.EPOLLOUT)
            if p.acked >= p.count:
                poll.unregister(fd)
                left -= 1
    took = now() - started
    if errors := sum(p.errors for p in producers):
        raise RuntimeError(f"{errors} SEND_ERRORs")
    return took


def drain(consumer: Consumer, messages: int) -> float:
    """Read ``messages``; the seconds from the first permits to the last message."""
    started = now()
    consumer.flow()
    while consumer.messages < messages:
        consumer.pull()
    return now() - started


def one_in_flight(producer: Producer) -> list[float]:
    """Seconds from each SEND to its receipt; the next SEND follows the receipt."""
    took = []
    for i in range(producer.count):
        started = now()
        producer.socket.settimeout(SILENCE)
        producer.socket.sendall(producer.data[producer.ends[i] : producer.ends[i + 1]])
        while producer.acked <= i:
            producer.pull()
        took.append(now() - started)
    return took


def paced(producer: Producer, rate: float) -> float:
    """Send ``rate`` frames a second without waiting for receipts (open loop); returns when the first frame was due."""
    started = now()
    while producer.acked < producer.count:
        due = int((now() - started) * rate) + 1
        done = producer.push(due)
        wait = max(started + due / rate - now(), 0.0) if due < producer.count else SILENCE
        if select.select([producer], [] if done else [producer], [], wait)[0]:
            producer.pull()
    return started
