"""The cost of one turn of the broker: a message, or a run of them, from the bytes of a SEND to those of its receipt.

    python bench/turn_bench.py [--messages 3000] [--run 1] [--bytes 1024] [--consumers 0]

Sockets and disk are left out: the transport takes bytes, a frame counts as written one turn later. The remaining cost
is the broker's own work, printed as CPU a turn (the least of some rounds) and as calls of its Python functions a turn,
which other work of the machine does not change.
"""

import argparse
import asyncio
import contextlib
import gc
import os
import statistics
import sys
import tempfile
import time

import magnetar
from magnetar.broker.broker import Broker
from magnetar.broker.network.connection import Connection
from magnetar.broker.settings import Settings
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.checksum import crc32c
from magnetar.storage.embedded.engine import EngineEnvironment

TOPIC = "persistent://public/default/turns"


class NoDisk:
    """A ``FrameWriter`` that writes nothing and reports success in the next turn of the loop."""

    pace_s = 0.0

    def __init__(self):
        self.loop = asyncio.get_running_loop()
        self.frames = 0

    def wait(self, _seconds):
        return False

    def call_after(self, _delay_s, _callback):
        raise AssertionError("a writer without a pace needs no timer")

    def write(self, _frame, done, *, is_awaited=False):  # noqa: ARG002 - there is no disk
        self.frames += 1
        self.loop.call_soon(done, None, 0.0)  # a busy journal would park slabs, whose bytes it does not have

    def close(self):
        pass


class Wire:
    """A transport that counts the bytes written to it and keeps the first 100 writes."""

    def __init__(self):
        self.frames = []
        self.bytes = 0

    def write(self, data):
        self.bytes += len(data)
        if len(self.frames) < 100:
            self.frames.append(bytes(data))

    def get_extra_info(self, name):
        return ("127.0.0.1", 1) if name == "peername" else None

    def get_write_buffer_size(self):
        return 0

    def set_write_buffer_limits(self, high, low):
        pass

    def is_closing(self):
        return False

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass

    def close(self):
        pass

    abort = close


class Peer:
    """A client at the other end of a connection."""

    def __init__(self, broker):
        self.wire = Wire()
        self.connection = Connection(broker.resources, broker.services)
        self.connection.connection_made(self.wire)

    def give(self, data):
        room = self.connection.get_buffer(-1)
        room[: len(data)] = data
        self.connection.buffer_updated(len(data))

    async def request(self, command_type, field, **values):
        command = pb.BaseCommand(type=command_type)
        for key, value in values.items():
            setattr(getattr(command, field), key, value)
        before = len(self.wire.frames)
        self.give(framed(command.SerializeToString()))
        while len(self.wire.frames) == before:  # noqa: ASYNC110 - the test waits for turns of the broker
            await asyncio.sleep(0.001)


def framed(command, rest=b""):
    return (len(command) + 4 + len(rest)).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command + rest


def send(sequence_id, size):
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1).SerializeToString()
    body = len(metadata).to_bytes(4, "big") + metadata + bytes(size)
    command = pb.BaseCommand(type=pb.BaseCommand.SEND)
    command.send.producer_id, command.send.sequence_id = 1, sequence_id
    return framed(command.SerializeToString(), b"\x0e\x01" + crc32c(body).to_bytes(4, "big") + body)


@contextlib.asynccontextmanager
async def started(consumers=0):
    """(a broker without sockets and disk, its producer's end of the connection)"""
    with tempfile.TemporaryDirectory() as folder:
        environment = EngineEnvironment.real()
        environment.frame_writer = NoDisk
        broker = Broker(Settings(data_dir=folder, broker_service_port=None, web_service_port=None), environment)
        await broker.start()
        peers = [Peer(broker) for _ in range(1 + consumers)]
        for peer in peers:
            await peer.request(pb.BaseCommand.CONNECT, "connect", client_version="bench", protocol_version=19)
        await peers[0].request(
            pb.BaseCommand.PRODUCER, "producer", topic=TOPIC, producer_id=1, request_id=1, producer_name="p"
        )
        for number, peer in enumerate(peers[1:]):
            values = {"topic": TOPIC, "consumer_id": 1, "request_id": 2, "subscription": f"s{number}"}
            await peer.request(pb.BaseCommand.SUBSCRIBE, "subscribe", subType=pb.CommandSubscribe.Exclusive, **values)
            flow = pb.BaseCommand(type=pb.BaseCommand.FLOW)
            flow.flow.consumer_id, flow.flow.messagePermits = 1, 1 << 30
            peer.give(framed(flow.SerializeToString()))
        try:
            yield broker, peers
        finally:
            await broker.stop()


async def turns(peers, reads):
    """Give each read to the broker and run the loop until the broker has sent the receipts."""
    producer = peers[0]
    for data in reads:
        before = producer.wire.bytes
        producer.give(data)
        while producer.wire.bytes == before:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
        await asyncio.sleep(0)


async def calls_a_turn(peers, reads):
    """Calls of the broker's Python functions in the median of the turns, where the more frequent timers of a loaded
    machine do not count; those of the event loop and of the library are left out.
    """
    calls, of_turns = 0, []
    ours = os.path.dirname(magnetar.__file__)

    def count(frame, event, _argument):
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename.startswith(ours)

    gc.disable()  # finalizers of other objects would count
    sys.setprofile(count)
    try:
        for data in reads:
            before = calls
            await turns(peers, [data])
            of_turns.append(calls - before)
    finally:
        sys.setprofile(None)
        gc.enable()
    return statistics.median(of_turns)


async def main(arguments):
    async with started(arguments.consumers) as (_, peers):
        sequence_id, least, calls = 0, None, 0.0
        for round_number in range(arguments.rounds):
            reads = []
            for _ in range(arguments.messages // arguments.run):
                reads.append(b"".join(send(sequence_id + i, arguments.bytes) for i in range(arguments.run)))
                sequence_id += arguments.run
            gc.collect()
            if round_number == 1:
                calls = await calls_a_turn(peers, reads)
                continue
            before = time.thread_time()
            await turns(peers, reads)
            cpu_us = (time.thread_time() - before) / len(reads) * 1e6
            least = cpu_us if least is None else min(least, cpu_us)
        print(
            f"{arguments.run} message(s) of {arguments.bytes} bytes a turn, {arguments.consumers} consumer(s): "
            f"{least:.1f} us of CPU, {calls:.1f} calls of its Python functions"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("messages", 3000), ("run", 1), ("bytes", 1024), ("consumers", 0), ("rounds", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    chosen = parser.parse_args()
    import uvloop

    uvloop.run(main(chosen))
