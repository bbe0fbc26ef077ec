"""Fuzzing of a whole broker: peers that send any command with any values, and bytes that are no commands at all.

With any input, nothing in the broker may fail (an error in its log is a bug), their connections hold little memory,
nothing of them is left when they are gone, and an honest producer and consumer go on as if they were alone.

MAGNETAR_FUZZ_SECONDS sets how long; MAGNETAR_FUZZ_SEED repeats a failed run.
"""

from __future__ import annotations

import os
import random
import time

import structlog
from google.protobuf.descriptor import FieldDescriptor

from magnetar.broker.handlers.table import HANDLERS
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import encode_entry
from magnetar.protocol.checksum import crc32c
from tests.model.simulated_broker import Command, Peer, Simulation

SECONDS = float(os.environ.get("MAGNETAR_FUZZ_SECONDS", "3"))
SEED = int(os.environ.get("MAGNETAR_FUZZ_SEED", "20240229"))
TOPIC = "persistent://public/default/honest"
_TEXTS = ["", "x", "public/default", "a:b", "ü" * 40, "persistent", "__compaction", "public"]
_TOPICS = [f"persistent://public/default/fuzz-{i}" for i in range(4)] + [
    "non-persistent://public/default/fuzz",
    "fuzz-0",
    "persistent://nobody/nowhere/t",
    "persistent://public/default/fuzz-partition-3",
    "http://x",
    "persistent://public/default/",
]
_NUMBERS = [0, 1, 2, 3, 7, 100, 2**31 - 1]
_HELD_BYTES = 64 << 10
ATTACK_CPU_SECONDS = 10  # a few hundred commands take a tenth of a second; far more is as bad as a crash
_TYPES = {row.field: kind for kind, row in HANDLERS.items()} | {"send": Command.SEND}


class Attacker:
    """Makes the bytes of a peer; the same seed gives the same bytes."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.commands = [f for f in Command.DESCRIPTOR.fields if f.name != "type"]

    def command(self) -> bytes:
        """A command of a random type, its fields filled at random; required fields nearly always."""
        field = self.rng.choice(self.commands)
        base = Command(type=_TYPES.get(field.name, Command.PING))
        if self.rng.random() < 0.03:
            base.type = self.rng.choice(Command.Type.values())
        getattr(base, field.name).SetInParent()
        self.fill(getattr(base, field.name), 0)
        entry = self.entry() if field.name == "send" and self.rng.random() < 0.9 else b""
        data = base.SerializePartialToString()
        return (4 + len(data) + len(entry)).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data + entry

    def entry(self) -> bytes:
        metadata = pb.MessageMetadata()
        self.fill(metadata, 0)
        metadata.producer_name, metadata.sequence_id, metadata.publish_time = "p", self.rng.choice(_NUMBERS), 1
        encoded, payload = metadata.SerializePartialToString(), self.rng.randbytes(self.rng.randrange(60))
        body = len(encoded).to_bytes(4, "big") + encoded + payload
        return b"\x0e\x01" + crc32c(body).to_bytes(4, "big") + body

    def fill(self, message, depth: int) -> None:
        for field in message.DESCRIPTOR.fields:
            if self.rng.random() > (0.97 if field.is_required else 0.3):
                continue
            if field.is_repeated:
                values = getattr(message, field.name)
                for _ in range(self.rng.randrange(3)):
                    if field.type == FieldDescriptor.TYPE_MESSAGE:
                        self.fill(values.add(), depth + 1)
                    else:
                        values.append(self.value(field))
            elif field.type == FieldDescriptor.TYPE_MESSAGE:
                if depth < 4:
                    getattr(message, field.name).SetInParent()
                    self.fill(getattr(message, field.name), depth + 1)
            else:
                setattr(message, field.name, self.value(field))

    def value(self, field):
        rng = self.rng
        if field.type == FieldDescriptor.TYPE_ENUM:
            return rng.choice([v.number for v in field.enum_type.values])
        if field.type == FieldDescriptor.TYPE_STRING:
            return rng.choice(_TOPICS if field.name == "topic" else _TEXTS)
        if field.type == FieldDescriptor.TYPE_BYTES:
            return rng.randbytes(rng.randrange(20))
        if field.type == FieldDescriptor.TYPE_BOOL:
            return rng.random() < 0.5
        if field.name in ("consumer_id", "producer_id", "messagePermits"):
            return rng.choice([0, 1, 2, 5])
        number = rng.choice(_NUMBERS) if rng.random() < 0.8 else rng.getrandbits(31)
        wide = field.type in (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_INT64)
        if wide and rng.random() < 0.1:
            number = rng.choice([2**63 - 1, 2**63, 2**64 - 1])
        return number if field.type == FieldDescriptor.TYPE_UINT64 or number < 2**63 else -1

    def burst(self) -> bytes:
        """Some frames, a few of them damaged."""
        data = b"".join(self.command() for _ in range(self.rng.randrange(1, 12)))
        if self.rng.random() < 0.2:
            damaged = bytearray(data)
            for _ in range(self.rng.randrange(1, 4)):
                damaged[self.rng.randrange(len(damaged))] = self.rng.randrange(256)
            data = bytes(damaged)
        if self.rng.random() < 0.1:
            data += self.rng.randbytes(self.rng.randrange(40))
        return data[: len(data) - self.rng.randrange(6)] if self.rng.random() < 0.1 else data


class Honest:
    """An honest producer and consumer, which the attack must not affect."""

    def __init__(self, sim: Simulation) -> None:
        self.sim, self.number = sim, 0
        self.peer = sim.run(_connected(sim))
        producer = pb.CommandProducer(topic=TOPIC, producer_id=1, request_id=1)
        subscribe = pb.CommandSubscribe(
            topic=TOPIC, subscription="honest", subType=pb.CommandSubscribe.Exclusive, consumer_id=1, request_id=2
        )
        self.say(Command(type=Command.PRODUCER, producer=producer))
        self.say(Command(type=Command.SUBSCRIBE, subscribe=subscribe))
        flow = pb.CommandFlow(consumer_id=1, messagePermits=1_000_000)
        self.say(Command(type=Command.FLOW, flow=flow))

    def say(self, command: pb.BaseCommand, payload: bytes = b"") -> list:
        async def work() -> None:
            self.peer.send(command, payload)

        self.sim.run(work())
        return [f for f in self.sim.network.take() if f.peer is self.peer]

    def works(self) -> None:
        body = encode_entry(
            pb.MessageMetadata(producer_name="h", sequence_id=self.number, publish_time=1), b"%d" % self.number
        )
        send = pb.CommandSend(producer_id=1, sequence_id=self.number)
        frames = self.say(Command(type=Command.SEND, send=send), body)
        kinds = sorted(Command.Type.Name(f.command.type) for f in frames)
        assert kinds == ["MESSAGE", "SEND_RECEIPT"], kinds
        message = next(f for f in frames if f.command.type == Command.MESSAGE)
        assert message.payload == body
        ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Cumulative)
        ack.message_id.add().CopyFrom(message.command.message.message_id)
        assert not self.say(Command(type=Command.ACK, ack=ack))
        self.number += 1


async def _connected(sim: Simulation) -> Peer:
    return Peer(sim.broker, sim.network)


async def _attack(sim: Simulation, attacker: Attacker) -> None:
    """Attack with one or two peers at a time, their bytes in pieces of any size."""
    peers = [Peer(sim.broker, sim.network) for _ in range(attacker.rng.choice([1, 1, 2]))]
    for _ in range(attacker.rng.randrange(1, 8)):
        peer = attacker.rng.choice(peers)
        data = attacker.burst()
        while data:
            size = attacker.rng.choice([1, 5, 100, len(data)])
            peer.send_bytes(data[:size])
            data = data[size:]
        held = peer.connection._buffer.held_bytes
        assert held <= _HELD_BYTES, f"{held} bytes held for a peer"
    if attacker.rng.random() < 0.5:
        for peer in peers:
            peer.close()


def test_peers_that_send_anything():
    rng, end, rounds = random.Random(SEED), time.monotonic() + SECONDS, 0
    settings = {"keep_alive_interval_seconds": 30, "max_concurrent_topic_load_request": 4}
    sim = Simulation(settings)
    with structlog.testing.capture_logs() as logs:
        sim.start()
        honest = Honest(sim)
        while rounds < 30 or time.monotonic() < end:
            seed = rng.getrandbits(60)
            began = time.thread_time()
            sim.run(_attack(sim, Attacker(random.Random(seed))))
            assert time.thread_time() - began < ATTACK_CPU_SECONDS, seed
            errors = [e for e in logs if e["log_level"] in ("error", "critical")]
            assert not errors, (seed, errors)
            honest.works()
            logs.clear()
            rounds += 1
            if rounds % 50 == 0:
                close_all(sim, honest)
        close_all(sim, honest)
        sim.close()


def close_all(sim: Simulation, honest: Honest) -> None:
    """Close the connections of all attackers, and check that the broker keeps no consumers of them."""

    async def close() -> None:
        for connection in sim.broker.resources.connections:
            if connection is not honest.peer.connection:
                connection.close()

    sim.run(close(), seconds=120)
    sim.network.take()
    assert len(sim.broker.resources.connections) == 1
    for topic in sim.broker.topics.loaded.values():
        if str(topic.name) != TOPIC:
            assert not any(len(s.consumers) for s in topic.subscriptions.by_name.values()), topic.name
    honest.works()
