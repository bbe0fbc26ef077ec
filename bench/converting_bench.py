"""Message converters at work: their cost for clients whose entries need no conversion.

    python bench/converting_bench.py [reject stretch neighbour] [--rounds 9] [--seconds 6] [--entries 20000]

reject     CPU of dispatch (see dispatch_bench.py) with converters that accept no entry beside CPU without converters,
           on the same entries, one after the other in turns
stretch    CPU of a broker's event loop between two of its rounds, in the situations of `neighbour`: the wait of a
neighbour on a quiet machine
neighbour  a broker process: latency of messages of 1 KiB on one topic, 250 a second, from before the publish to the
           receipt by the consumer, while on another topic entries of 1 MB (1000 Kafka records, zstd) are converted and
           dispatched, 10 a second; and, to compare, while the same entries, converted beforehand, are just dispatched.
           Once on a persistent topic, where the disk has most of the say, and once on a non-persistent one, where
           only broker and processors have
"""

import argparse
import asyncio
import multiprocessing
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import uvloop

from bench import dispatch_bench, load, servers
from bench.scenarios import quantile
from magnetar.broker.broker import Broker
from magnetar.broker.consumers.consumer import EXCLUSIVE, SHARED, TYPE_NAMES
from magnetar.broker.foreign_entries.candidates import Candidates
from magnetar.broker.foreign_entries.config import ConvertingConfig
from magnetar.broker.foreign_entries.converting_service import Converting
from magnetar.broker.settings import Settings
from magnetar.broker.start_up import spare_the_collector
from magnetar.converters.examples import RejectAllConverter
from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch
from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.records import Record
from magnetar.converters.kafka_entry.planning import plan_entry
from magnetar.converters.registry import load_chain
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.frames import encode_command

CHAINS = {"kafka": ["kafka"], "reject-all": ["reject-all"], "asking": ["bench.converting_bench.AskedConverter"]}
RATE = 250
DOMAINS = ("persistent", "non-persistent")
SHAPES = ((1024, ()), (1024, (("trace", "4bf92f3577b34da6"),)), (65536, (("trace", "4bf92f3577b34da6"),)))
"""Bytes of an entry and its properties."""


class AskedConverter(RejectAllConverter):
    """A converter of all entry formats: the broker has to call it for every entry."""

    name = "asked"
    entry_formats = None


# --- reject -----------------------------------------------------------------------------------------------------------


def transform_of(specs):
    """A new transformer, without results for any slab."""
    service = Converting(ConvertingConfig(()), lambda: 0)
    service.chain = load_chain(specs).chain
    service.candidates = Candidates(service.chain)
    return service.topic(dispatch_bench.TOPIC, dict).transformer("sub")


async def reject(options):
    loop = asyncio.get_running_loop()
    for size, properties in SHAPES:
        entries = options.entries if size < 10_000 else options.entries // 20
        factory, ledger = await dispatch_bench.backlog(entries, size, dispatch_bench.Clock(), loop, properties)
        for sub_type, group in ((EXCLUSIVE, 0), (SHARED, 100)):
            seconds = {"none": []} | {name: [] for name in CHAINS}
            for _ in range(options.rounds):
                for name, found in seconds.items():
                    transform = None if name == "none" else transform_of(CHAINS[name])
                    found.append(await dispatch_bench.measure(ledger, sub_type, 1, entries, group, transform))
            base = min(seconds["none"]) / entries  # the least disturbed round, as the machine may be shared
            row = f"{size:>6} bytes, {len(properties)} properties, {TYPE_NAMES[sub_type]:>9}: {base * 1e6:.2f} us an entry"
            for name in CHAINS:
                more = min(seconds[name]) / entries - base
                row += f"; {name} {more * 1e9:+.0f} ns ({more / base:+.1%})"
            print(row, flush=True)
        await factory.close()


# --- neighbour --------------------------------------------------------------------------------------------------------


class Publisher(load.Connection):
    """Sends given entries, waiting for each receipt."""

    def __init__(self, port, topic):
        super().__init__(port)
        producer = pb.CommandProducer(topic=topic, producer_id=1, request_id=1)
        self.request(pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=producer), pb.BaseCommand.PRODUCER_SUCCESS)

    def publish(self, number, entry, messages):
        send = pb.CommandSend(producer_id=1, sequence_id=number, num_messages=messages)
        self.socket.sendall(encode_command(pb.BaseCommand(type=pb.BaseCommand.SEND, send=send), entry))
        while not self.receive():
            pass
        self.drop()


def consume(port, topic, stop):
    """Read and discard all bytes."""
    consumer = load.Consumer(port, topic, permits=50_000, batch=1000)
    consumer.flow()
    consumer.socket.settimeout(0.2)
    while not stop.is_set():
        try:
            consumer.pull()
        except TimeoutError:
            continue


def fill(port, topic, entry, messages, stop, sent):
    """Publish large entries at a steady pace."""
    publisher = Publisher(port, topic)
    while not stop.is_set():
        publisher.publish(sent.value, entry, messages)
        sent.value += 1
        time.sleep(0.1)


def latencies(port, topic, seconds):
    """The latencies of messages at a steady pace, in seconds."""
    consumer, publisher = load.Consumer(port, topic, permits=1000), Publisher(port, topic)
    consumer.flow()
    entry = load.encode_entry("neighbour", 0, bytes(1024), 1)
    found, begun = [], time.perf_counter()
    for number in range(int(seconds * RATE)):
        time.sleep(max(0.0, begun + number / RATE - time.perf_counter()))
        started = time.perf_counter()
        publisher.publish(number, entry, 1)
        while consumer.messages <= number:
            consumer.pull()
        found.append(time.perf_counter() - started)
    consumer.close()
    publisher.close()
    return found


def start_broker():
    folder = tempfile.mkdtemp(prefix="magnetar-bench-")
    command = [sys.executable, "-m", "magnetar", "standalone", "--data-dir", folder]
    for setting in ("brokerServicePort=0", "webServicePort=0", "messageConverters=kafka"):
        command += ["--set", setting]
    return servers.Server("ours", command, folder)


def large_entries():
    """The stored entry, the same entry converted beforehand, and the number of their messages."""
    records = [Record(n, 1, b"key-%d" % n, os.urandom(500) + bytes(500)) for n in range(1000)]
    planned = plan_entry(build_record_batch(records, BatchOptions(codec=Codec.ZSTD)), publish_time=1)
    chain = load_chain(["kafka"]).chain
    converted = chain.convert(planned.data, chain.select(planned.data))
    entries = {"nothing": None, "dispatched": converted.entry, "converted": planned.data}
    print(f"stored {len(planned.data)} bytes, converted {len(converted.entry)} bytes")
    return entries, planned.messages


def neighbour(options):
    entries, messages = large_entries()
    figures = {(domain, name): ([], []) for domain in DOMAINS for name in entries}
    process = multiprocessing.get_context("spawn")
    with start_broker().wait_ready() as broker:
        for round_number in range(options.rounds):
            for name, entry in entries.items():
                topic = f"persistent://public/default/{name}-{round_number}"
                stop, sent = process.Event(), process.Value("i", 0)
                beside = []
                if entry is not None:
                    beside = [
                        process.Process(target=consume, args=(broker.port, topic, stop)),
                        process.Process(target=fill, args=(broker.port, topic, entry, messages, stop, sent)),
                    ]
                for each in beside:
                    each.start()
                while beside and sent.value < 5:
                    time.sleep(0.05)
                for domain in DOMAINS:
                    before = sent.value
                    small = f"{domain}://public/default/small-{name}-{round_number}"
                    found = latencies(broker.port, small, options.seconds)
                    large = (sent.value - before) / options.seconds
                    figures[domain, name][0].append(found)
                    figures[domain, name][1].append(large)
                stop.set()
                for each in beside:
                    each.join(20)
    for (domain, name), (rounds, rates) in figures.items():
        all_of_them = [each for found in rounds for each in found]
        p99s = [quantile(found, 0.99) for found in rounds]
        print(
            f"{domain:>14} beside {name:>10}: p50 {quantile(all_of_them, 0.5):.2f} ms, p99 "
            f"{quantile(all_of_them, 0.99):.2f} ms "
            f"(rounds {min(p99s):.2f} - {statistics.median(p99s):.2f} - {max(p99s):.2f}), "
            f"{statistics.mean(rates):.1f} large a second"
        )


# --- stretch ----------------------------------------------------------------------------------------------------------


async def stretch(options):
    """Measure the CPU time of the event loop's thread from round to round, which other processes hardly affect."""
    entries, messages = large_entries()
    loop, process = asyncio.get_running_loop(), multiprocessing.get_context("spawn")
    folder = tempfile.mkdtemp(prefix="magnetar-bench-")
    broker = Broker(
        Settings(data_dir=folder, broker_service_port=0, web_service_port=None, message_converters=("kafka",))
    )
    await broker.start()
    spare_the_collector()  # as the broker's process does
    stretches, running = [], True

    def tick(last):
        now = time.thread_time()
        stretches.append(now - last)
        if running:
            loop.call_soon(tick, time.thread_time())

    for name, entry in entries.items():
        stop, sent = process.Event(), process.Value("i", 0)
        topic, port = f"persistent://public/default/{name}", broker.listeners.binary.port
        beside = []
        if entry is not None:
            beside = [
                process.Process(target=consume, args=(port, topic, stop)),
                process.Process(target=fill, args=(port, topic, entry, messages, stop, sent)),
            ]
        for each in beside:
            each.start()
        while beside and sent.value < 5:  # noqa: ASYNC110 - another process counts
            await asyncio.sleep(0.05)
        stretches, running, before = [], True, sent.value
        tick(time.thread_time())
        await asyncio.sleep(options.seconds)
        running, found = False, list(stretches)  # later stretches include work of this benchmark
        rate = (sent.value - before) / options.seconds
        long = [each for each in found if each > 0.0005]
        stop.set()
        while any(each.is_alive() for each in beside):  # noqa: ASYNC110 - processes
            await asyncio.sleep(0.05)
        print(
            f"beside {name:>10}: longest {max(found) * 1e3:.1f} ms, {len(long) / options.seconds:.0f} a second above "
            f"0.5 ms with {sum(long) / options.seconds * 1e3:.0f} ms in all, {rate:.1f} large a second",
            flush=True,
        )
    await broker.stop()
    shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", default=["reject", "stretch", "neighbour"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--entries", type=int, default=20_000)
    options = parser.parse_args()
    if "reject" in options.what:
        asyncio.run(reject(options))
    if "stretch" in options.what:
        uvloop.run(stretch(options))
    if "neighbour" in options.what:
        neighbour(options)


if __name__ == "__main__":
    main()
