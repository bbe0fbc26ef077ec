"""The scenarios of the benchmarks. Each scenario takes a server's starter and a scale, and returns
named figures of one round.
"""

from __future__ import annotations

import itertools
import multiprocessing
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench import load, servers

_numbers = itertools.count()
Figures = dict[str, float]
Start = Callable[[], servers.Server]
WRITTEN_BYTES = 65536
BUFFERS_BYTES = 32 << 20
"""Of all producers of a scenario together, and at least 64 KiB each."""


def topic() -> str:
    """A new name, also in a directory that an earlier run has used."""
    return f"persistent://public/default/bench-{time.time_ns()}-{next(_numbers)}"


def quantile(values: list[float], q: float) -> float:
    """In milliseconds."""
    return sorted(values)[min(len(values) - 1, int(len(values) * q))] * 1e3


def beside(work: Callable, *arguments: object) -> Callable[[], object]:
    """Run ``work`` in a forked process, so that it does not slow the caller; returns a function that waits for its
    result.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=lambda: theirs.send(work(*arguments)), daemon=True)
    process.start()
    theirs.close()

    def wait() -> object:
        result = ours.recv()
        process.join()
        return result

    return wait


def publish(
    start: Start, scale: float, count: int, size: int, window: int, batch: int = 1, producers: int = 1
) -> Figures:
    """Messages a second from the first SEND to the last receipt, after a tenth of them to warm up."""
    with start().wait_ready() as server:
        each = max(window, int(count * scale) // producers)
        load.publish([load.Producer(server.port, topic(), max(each // 10, 10), size, batch)], window)
        buffer_bytes = max(BUFFERS_BYTES // producers, 64 << 10)
        crowd = [load.Producer(server.port, topic(), each, size, batch, buffer_bytes) for _ in range(producers)]
        before = server.cpu_seconds()
        took = load.publish(crowd, window)
        messages = each * producers * batch
        return {"msg/s": messages / took, "server µs CPU/msg": (server.cpu_seconds() - before) / messages * 1e6}


def one_in_flight(start: Start, scale: float, count: int) -> Figures:
    """Milliseconds from a SEND of 1 KiB to its receipt with nothing else outstanding."""
    with start().wait_ready() as server:
        producer = load.Producer(server.port, topic(), max(100, int(count * scale)), 1024)
        before = server.cpu_seconds()
        took = load.one_in_flight(producer)
        cost = (server.cpu_seconds() - before) / len(took) * 1e6
        took = took[20:]
        return {"p50 ms": quantile(took, 0.5), "p99 ms": quantile(took, 0.99), "server µs CPU/msg": cost}


def backlog(start: Start, scale: float, count: int, batch: int = 1) -> Figures:
    """Messages a second of a consumer that reads a stored backlog of 1 KiB messages, the producer gone."""
    with start().wait_ready() as server:
        name, n = topic(), int(count * scale)
        _store(server.port, name, n, batch)
        time.sleep(0.5)
        return _read(server, name, n, batch)


def cold_backlog(_: Start, scale: float, count: int, batch: int = 1) -> Figures:
    """Like ``backlog``, behind a restart of the broker: all of it comes from the disk, none from a cache."""
    name, n = topic(), int(count * scale)
    with servers.broker().wait_ready() as before:
        _store(before.port, name, n, batch)
        before.process.terminate()
        before.process.wait()
        with servers.broker(folder=before.folder).wait_ready() as server:
            return _read(server, name, n, batch)


def _store(port: int, name: str, n: int, batch: int) -> None:
    """Publish for the subscription of ``_read``."""
    load.Consumer(port, name).close()
    producer = load.Producer(port, name, n, 1024, batch)
    load.publish([producer], 1000 if batch == 1 else 20)
    producer.close()


def _read(server: servers.Server, name: str, n: int, batch: int) -> Figures:
    consumer = load.Consumer(server.port, name, batch=batch)
    before = server.cpu_seconds()
    took = load.drain(consumer, n * batch)
    consumer.close()
    return {"msg/s": n * batch / took, "server µs CPU/msg": (server.cpu_seconds() - before) / n / batch * 1e6}


def _member(port: int, name: str, number: int) -> load.Consumer:
    """One of a crowd of consumers, with a buffer that stays in the caches of the core."""
    return load.Consumer(port, name, subscription=f"fan-{number}", buffer_bytes=256 << 10)


def _drain_all(server: servers.Server, name: str, n: int, consumers: int) -> tuple[float, float]:
    """Read all that is published by as many subscriptions; returns the seconds from the first permits to the last
    message, and the processor time of the server for them.
    """
    crowd = [_member(server.port, name, number) for number in range(consumers)]
    before, started, left, poll = server.cpu_seconds(), load.now(), len(crowd), select.epoll()
    by_fd = {consumer.fileno(): consumer for consumer in crowd}
    for fd, consumer in by_fd.items():
        poll.register(fd, select.EPOLLIN)
        consumer.flow()
    while left:
        events = poll.poll(load.SILENCE)
        if not events:
            raise TimeoutError("no message")
        for fd, _ in events:
            consumer = by_fd[fd]
            consumer.pull()
            if consumer.messages >= n:
                poll.unregister(fd)
                left -= 1
    took, cpu_s = load.now() - started, server.cpu_seconds() - before
    for consumer in crowd:
        consumer.close()
    return took, cpu_s


def fan_out(start: Start, scale: float, count: int, consumers: int) -> Figures:
    """Deliveries a second of a stored backlog of 1 KiB entries to so many Exclusive subscriptions at once."""
    with start().wait_ready() as server:
        name, n = topic(), int(count * scale)
        for number in range(consumers):
            _member(server.port, name, number).close()
        load.publish([load.Producer(server.port, name, n, 1024)], 1000)
        took, cpu_s = _drain_all(server, name, n, consumers)
        deliveries = n * consumers
        return {"msg/s": deliveries / took, "server µs CPU/msg": cpu_s / deliveries * 1e6}


def _arrivals(port: int, name: str, n: int) -> list[tuple[int, float]]:
    consumer = load.Consumer(port, name)
    load.drain(consumer, n)
    return consumer.arrivals


def tail(start: Start, scale: float, count: int) -> Figures:
    """Messages a second received while the producer publishes at full speed, consumer in a process of its own."""
    with start().wait_ready() as server:
        name, n = topic(), int(count * scale)
        wait = beside(_arrivals, server.port, name, n)
        producer = load.Producer(server.port, name, n, 1024)
        before, started = server.cpu_seconds(), load.now()
        published = load.publish([producer], 1000)
        arrivals = wait()
        cost = (server.cpu_seconds() - before) / n * 1e6
        return {"msg/s": n / (arrivals[-1][1] - started), "published/s": n / published, "server µs CPU/msg": cost}


@contextmanager
def writer(port: int, mb_per_s: int, seconds: float) -> Iterator[None]:
    """A producer in another process that publishes ``mb_per_s`` (0: no producer) to a topic of its own, in messages of
    64 KiB at even distances; begins a second before the block, so that its ledger files are being written already.
    """
    if not mb_per_s:
        yield
        return
    rate = mb_per_s * 1_000_000 / WRITTEN_BYTES
    producer = load.Producer(port, topic(), int(rate * (seconds + 2)), WRITTEN_BYTES)
    wait = beside(load.paced, producer, rate)
    time.sleep(1)
    yield
    wait()
    producer.close()


def lateness(first_due: float, rate: int, counts: list[tuple[int, float]]) -> Figures:
    """Quantiles of the time from when a message was due to its arrival, without the first tenth. ``counts``: messages
    so far, and when.
    """
    late: list[float] = []
    for reached, when in counts:
        late += [when - (first_due + i / rate) for i in range(len(late), reached)]
    late = late[len(late) // 10 :]
    return {"p50 ms": quantile(late, 0.5), "p99 ms": quantile(late, 0.99), "p99.9 ms": quantile(late, 0.999)}


def paced(start: Start, scale: float, rate: int, seconds: float, beside_mb_s: int = 0) -> Figures:
    """Milliseconds from when each message of 1 KiB was due to when a consumer in another process had it, beside a
    ``writer`` of ``beside_mb_s``, whose processor time counts, too.
    """
    seconds = max(1.0, seconds * scale)
    with start().wait_ready() as server:
        name, n = topic(), int(rate * seconds)
        wait = beside(_arrivals, server.port, name, n)
        producer = load.Producer(server.port, name, n, 1024)
        with writer(server.port, beside_mb_s, seconds):
            before = server.cpu_seconds()
            first_due = load.paced(producer, rate)
            figures = lateness(first_due, rate, wait())
            cost = (server.cpu_seconds() - before) / n * 1e6
        return figures | {"server µs CPU/msg": cost}


def paced_receipt(start: Start, scale: float, rate: int, seconds: float, beside_mb_s: int = 0) -> Figures:
    """Milliseconds from when each message of 1 KiB was due to its receipt, the disk's part of the latency, beside a
    ``writer`` of ``beside_mb_s``.
    """
    seconds = max(1.0, seconds * scale)
    with start().wait_ready() as server:
        producer = load.Producer(server.port, topic(), int(rate * seconds), 1024)
        with writer(server.port, beside_mb_s, seconds):
            return lateness(load.paced(producer, rate), rate, producer.receipts)


def start_up(_: Start, _scale: float) -> Figures:
    """Seconds from starting the process on an empty directory to the first durable receipt, connecting by retry."""
    with socket.socket() as probe:
        probe.bind((load.HOST, 0))
        port = probe.getsockname()[1]
    name = topic()
    with servers.broker(port) as server:
        while True:
            try:
                producer = load.Producer(port, name, 1, 1024)
                break
            except ConnectionRefusedError:
                time.sleep(0.002)
        load.one_in_flight(producer)
        took = time.perf_counter() - server.started
        return {"s": took}


def idle_memory(start: Start, _scale: float) -> Figures:
    """Resident megabytes two seconds after start, then with 1,000 idle connections, then with 1,000 idle topics too."""
    with start().wait_ready() as server:
        time.sleep(2)
        figures = {"MB": server.rss_mb()}
        idle = [socket.create_connection((load.HOST, server.port)) for _ in range(1000)]
        hello = load.encode_command(
            load.pb.BaseCommand(
                type=load.pb.BaseCommand.CONNECT,
                connect=load.pb.CommandConnect(client_version="bench", protocol_version=19),
            )
        )
        for one in idle:
            one.sendall(hello)
            one.recv(4096)
        figures["MB, 1,000 connections"] = server.rss_mb()
        holder = load.Connection(server.port)
        for i in range(1000):
            body = load.pb.CommandProducer(topic=topic(), producer_id=i, request_id=i)
            command = load.pb.BaseCommand(type=load.pb.BaseCommand.PRODUCER, producer=body)
            holder.request(command, load.pb.BaseCommand.PRODUCER_SUCCESS)
        figures["MB, and 1,000 topics"] = server.rss_mb()
        for one in idle:
            one.close()
        return figures


@dataclass
class Scenario:
    """``limit``: whether the limit server can run the scenario. ``aim`` is a text for the report; no code checks it."""

    run: Callable[..., Figures]
    arguments: dict[str, object] = field(default_factory=dict)
    limit: bool = False
    pure: bool = False
    aim: str = ""


SCENARIOS: dict[str, Scenario] = {
    "publish-1k": Scenario(publish, {"count": 150_000, "size": 1024, "window": 1000}, True, aim=">= 35 % of limit"),
    "publish-100": Scenario(publish, {"count": 200_000, "size": 100, "window": 1000}, True, aim=">= 35 % of limit"),
    "publish-64k": Scenario(publish, {"count": 6_000, "size": 65536, "window": 64}, True, aim=">= 60 % of limit"),
    "publish-batched": Scenario(publish, {"count": 4_000, "size": 1024, "window": 64, "batch": 100}, True),
    "one-in-flight": Scenario(one_in_flight, {"count": 3_000}, True, aim="p50 <= 3 x limit"),
    "eight-producers": Scenario(
        publish, {"count": 150_000, "size": 1024, "window": 1000, "producers": 8}, True, aim=">= 35 % of limit"
    ),
    "topics-1": Scenario(publish, {"count": 40_000, "size": 1024, "window": 1000}, True),
    "topics-10": Scenario(publish, {"count": 40_000, "size": 1024, "window": 100, "producers": 10}, True),
    "topics-100": Scenario(publish, {"count": 40_000, "size": 1024, "window": 10, "producers": 100}, True),
    "topics-1000": Scenario(publish, {"count": 40_000, "size": 1024, "window": 1, "producers": 1_000}),
    "topics-10000": Scenario(publish, {"count": 40_000, "size": 1024, "window": 1, "producers": 10_000}),
    "publish-pure": Scenario(
        publish, {"count": 100_000, "size": 1024, "window": 1000}, True, pure=True, aim=">= 50,000/s"
    ),
    "backlog": Scenario(backlog, {"count": 200_000}, aim=">= 500,000/s"),
    "backlog-cached": Scenario(backlog, {"count": 24_000}, aim=">= 500,000/s"),
    "backlog-cold": Scenario(cold_backlog, {"count": 200_000}, aim=">= 200,000/s"),
    "backlog-batched": Scenario(backlog, {"count": 3_000, "batch": 100}, aim=">= 1,000,000/s"),
    "backlog-batched-cold": Scenario(cold_backlog, {"count": 3_000, "batch": 100}),
    "fan-out": Scenario(fan_out, {"count": 2_000, "consumers": 100}, aim=">= 1,000,000/s"),
    "fan-out-1000": Scenario(fan_out, {"count": 1_000, "consumers": 1_000}, aim=">= 1,000,000/s"),
    "tail": Scenario(tail, {"count": 150_000}),
    "paced-1000": Scenario(paced, {"rate": 1_000, "seconds": 8}),
    "paced-10000": Scenario(paced, {"rate": 10_000, "seconds": 8}),
    "paced-1000-beside": Scenario(paced, {"rate": 1_000, "seconds": 8, "beside_mb_s": 50}, aim="p99 < 5 ms"),
    "paced-10000-beside": Scenario(paced, {"rate": 10_000, "seconds": 8, "beside_mb_s": 50}, aim="p99 < 5 ms"),
    "receipt-10000": Scenario(paced_receipt, {"rate": 10_000, "seconds": 5}, True),
    "receipt-1000-beside": Scenario(paced_receipt, {"rate": 1_000, "seconds": 8, "beside_mb_s": 50}, True),
    "receipt-10000-beside": Scenario(paced_receipt, {"rate": 10_000, "seconds": 8, "beside_mb_s": 50}, True),
    "start-up": Scenario(start_up, aim="< 0.4 s"),
    "idle-memory": Scenario(idle_memory, aim="< 60 MB idle"),
}
