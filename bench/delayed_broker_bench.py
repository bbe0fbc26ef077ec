"""Delayed delivery through a broker process and raw sockets: the cost of a publish, of a restart, and of a second with
many due messages.

    python bench/delayed_broker_bench.py [publish restart due] [--messages 10000000] [--due 500000] [--tracker bucket|memory]

publish  300,000 messages of 100 bytes to a topic with a Shared consumer: immediate messages, and messages due in a day
restart  `--messages` pending, random within a day. The process is stopped, and killed, and started again, and an immediate
         message is published: seconds from the start of the process until a client has it; resident memory
due      `--due` messages that fall due within one second: how late each is when a client has it

Client and broker share the machine; the client's own cost is in the figures.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pathlib
import random
import select
import struct
import sys
import tempfile
import time

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from bench import load, servers
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.frames import encode_command

U32, I64 = struct.Struct(">I"), struct.Struct(">q")
PACKAGE = "org.apache.pulsar.broker.delayed."
FACTORY = {"bucket": "BucketDelayedDeliveryTrackerFactory", "memory": "InMemoryDelayedDeliveryTrackerFactory"}
SIZE, DAY_MS, WINDOW, CHUNK = 100, 86_400_000, 2000, 100_000
TOPIC = "persistent://public/default/delayed-bench"
chance = random.Random(3)


def now_ms() -> int:
    return int(time.time() * 1000)


class Producer(load.Producer):
    """Frames whose payload begins with the time they are due (0: at once). They may be sent more than once."""

    def __init__(self, port: int, times: list[int]):
        super().__init__(port, TOPIC, 0, SIZE)
        pieces, rest = [], os.urandom(SIZE - 8)
        for at in times:
            metadata = pb.MessageMetadata(producer_name="bench", sequence_id=0, publish_time=now_ms())
            if at:
                metadata.deliver_at_time = at
            head = metadata.SerializeToString()
            covered = U32.pack(len(head)) + head + I64.pack(at) + rest
            entry = b"\x0e\x01" + U32.pack(load.crc32c(covered)) + covered
            send = pb.CommandSend(producer_id=1, sequence_id=0)
            pieces.append(encode_command(pb.BaseCommand(type=pb.BaseCommand.SEND, send=send), entry))
            self.ends.append(self.ends[-1] + len(pieces[-1]))
        self.data, self.count = memoryview(b"".join(pieces)), len(times)

    def again(self) -> Producer:
        self.at = self.acked = 0
        return self


class Shared(load.Connection):
    """A Shared consumer that acknowledges its messages; `got` has (due, received) in ms of each message."""

    def __init__(self, port: int, permits: int = 20_000):
        super().__init__(port)
        self.permits, self.credit = permits, 0
        self.got: list[tuple[int, int]] = []
        subscribe = pb.CommandSubscribe(
            topic=TOPIC, subscription="bench", subType=pb.CommandSubscribe.Shared, consumer_id=1, request_id=1,
            initialPosition=pb.CommandSubscribe.Earliest,
        )  # fmt: skip
        self.request(pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE, subscribe=subscribe), pb.BaseCommand.SUCCESS)
        self.flow()

    def flow(self) -> None:
        if self.credit <= self.permits // 2:
            flow = pb.CommandFlow(consumer_id=1, messagePermits=self.permits - self.credit)
            self.send(pb.BaseCommand(type=pb.BaseCommand.FLOW, flow=flow))
            self.credit = self.permits

    def pull(self, wait_s: float) -> None:
        """Take the messages that come within the time."""
        if not select.select([self], [], [], wait_s)[0]:
            return
        ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual)
        frames, at = self.receive(), now_ms()
        for start, end in frames:
            if self.buffer[start + 5] == load.MESSAGE:
                size = U32.unpack_from(self.buffer, start)[0]
                command = pb.BaseCommand.FromString(bytes(self.buffer[start + 4 : start + 4 + size]))
                ack.message_id.add().CopyFrom(command.message.message_id)
                self.got.append((I64.unpack_from(self.buffer, end - SIZE)[0], at))
        self.drop()
        if ack.message_id:
            self.credit -= len(ack.message_id)
            self.send(pb.BaseCommand(type=pb.BaseCommand.ACK, ack=ack))
            self.flow()


def broker(tracker: str, folder: str) -> servers.Server:
    command = [sys.executable, "-m", "magnetar", "standalone", "--data-dir", folder]
    for key, value in {
        "brokerServicePort": "0",
        "webServicePort": "0",
        "delayedDeliveryTrackerFactoryClassName": PACKAGE + FACTORY[tracker],
    }.items():
        command += ["--set", f"{key}={value}"]
    return servers.Server("ours", command, folder)


def new_broker(tracker: str) -> servers.Server:
    return broker(tracker, tempfile.mkdtemp(prefix="magnetar-bench-")).wait_ready()


def ended(server: servers.Server, *, kill: bool) -> None:
    """End the process and keep its files."""
    (server.process.kill if kill else server.process.terminate)()
    server.process.wait()
    server.process.stdout.close()


def in_a_day() -> int:
    return now_ms() + DAY_MS + chance.randrange(DAY_MS)


def publish(options: argparse.Namespace) -> None:
    count = 300_000
    for name in ("immediate", "delayed"):
        with new_broker(options.tracker) as server:
            idle = Shared(server.port, permits=count * 2)
            reader = multiprocessing.Process(target=_read_all, args=(idle,), daemon=True)
            reader.start()
            producer = Producer(server.port, [in_a_day() if name == "delayed" else 0 for _ in range(count)])
            load.publish([producer], WINDOW)  # to warm up
            before = server.cpu_seconds()
            took = load.publish([producer.again()], WINDOW)
            time.sleep(2)
            cpu = (server.cpu_seconds() - before) / count * 1e6
            reader.kill()
            print(
                f"publish, {name:9} {count / took:10,.0f} msg/s, {cpu:.1f} us of the broker's CPU a message", flush=True
            )


def _read_all(consumer: Shared) -> None:
    while True:
        consumer.pull(10)


def restart(options: argparse.Namespace) -> None:
    server = new_broker(options.tracker)
    folder = server.folder
    Shared(server.port, permits=1).close()
    empty = server.rss_mb()
    began = time.perf_counter()
    for _ in range(0, options.messages, CHUNK * 10):
        producer = Producer(server.port, [in_a_day() for _ in range(CHUNK)])
        for _ in range(10):
            load.publish([producer.again()], WINDOW)
        producer.close()
    rate = options.messages / (time.perf_counter() - began)
    time.sleep(3)
    print(
        f"{options.messages:,} pending, {rate:,.0f} msg/s; broker {server.rss_mb():.0f} MB, "
        f"at most {server.peak_mb():.0f} MB, before {empty:.0f} MB",
        flush=True,
    )
    for kill in (False, True):
        ended(server, kill=kill)
        began = time.perf_counter()
        server = broker(options.tracker, folder).wait_ready()
        ready = time.perf_counter() - began
        consumer = Shared(server.port)
        load.publish([Producer(server.port, [0])], 1)
        while not consumer.got:
            consumer.pull(1)
        first = time.perf_counter() - began
        time.sleep(2)
        how = "kill -9" if kill else "stop"
        print(
            f"restart after {how:8} ready {ready:.2f} s, first delivery {first:.2f} s, {server.rss_mb():.0f} MB",
            flush=True,
        )
        consumer.close()
    server.__exit__()


def due(options: argparse.Namespace) -> None:
    with new_broker(options.tracker) as server:
        consumer = Shared(server.port)
        first_ms = now_ms() + 30_000 + options.due // 20  # after all have been encoded and published
        producer = Producer(server.port, [first_ms + chance.randrange(1000) for _ in range(options.due)])
        load.publish([producer], WINDOW)
        if now_ms() > first_ms:
            print("the machine was too slow: some were due before all were published")
        time.sleep(max(first_ms - now_ms(), 0) / 1000)
        before = server.cpu_seconds()
        while len(consumer.got) < options.due and now_ms() < first_ms + 120_000:
            consumer.pull(1)
        late = sorted(got - at for at, got in consumer.got)
        seconds = (max(got for _, got in consumer.got) - first_ms) / 1000
        at = [late[min(int(len(late) * q), len(late) - 1)] for q in (0.5, 0.99, 0.999)]
        cpu = (server.cpu_seconds() - before) / len(late) * 1e6
        print(
            f"due in a second {len(late):,} of {options.due:,} in {seconds:.1f} s, {cpu:.1f} us of the broker's CPU a "
            "message"
        )
        print(f"lateness        p50 {at[0]} ms, p99 {at[1]} ms, p999 {at[2]} ms, earliest {late[0]} ms", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["publish", "restart", "due"], metavar="PART")
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--due", type=int, default=500_000)
    parser.add_argument("--tracker", choices=("bucket", "memory"), default="bucket")
    chosen = parser.parse_args()
    for part in chosen.parts:
        {"publish": publish, "restart": restart, "due": due}[part](chosen)
