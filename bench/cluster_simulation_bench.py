"""Sixteen brokers and 100,000 topics in virtual time: the brokers' own ownership code over a metadata service that serves
a limited number of reads and writes a second.

``python -m bench.cluster_simulation_bench [TOPICS]``. Printed: how evenly bundles are spread, the cost of lookups, the
wait of clients when a broker is killed, and the load of the service by the topics: nodes, watches, requests. The
service has the measured rates of one ZooKeeper on loopback.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
import typing
from collections import Counter

import structlog

from magnetar.broker.ownership.bundle_ownership import BundleOwnership
from magnetar.broker.ownership.cluster_nodes import LoadReport
from magnetar.broker.ownership.ownership import AskBroker, BrokerAddresses, Here, ServedAt
from magnetar.broker.ownership.peers import Peers
from magnetar.broker.ownership.placement_strategies import PlacementRules
from magnetar.broker.ownership.register import BrokerRegister
from magnetar.broker.policies.records import even_bundles
from magnetar.broker.tasks import TaskSet
from magnetar.protocol.topic_name import TopicName
from tests.model.virtual_loop import VirtualLoop
from tests.twins.memory_cluster import MemoryCluster, MemorySession

BROKERS, NAMESPACES, BUNDLES = 16, 16, 64
READS_PER_S, WRITES_PER_S, ROUND_TRIP_S = 11_000, 4_800, 0.0003
SESSION_S = 6.0
CLIENTS = 1000
"""Lookups under way at the same time."""

LEDGERS_OF_TOPIC = 3
"""A topic with two subscriptions writes its own ledger and two of cursors; the writer of each watches its node."""
NODES_OF_TOPIC, BYTES_OF_TOPIC, WRITES_OF_SWITCH = 6.05, 1060, 5
"""Counted by ``bench.zookeeper_counts_bench``."""
WATCHES_OF_NAMESPACE = 5
"""In each broker: two for its policies, two for its bundles, one for the names of its topics."""
SWITCH_S = 4 * 3600.0
"""The time after which a ledger is full or old."""


class Service:
    """The metadata service: it performs one operation after the other, as the leader of an ensemble writes, and counts
    them.
    """

    def __init__(self):
        self.counts = Counter()
        self._free_s = 0.0

    async def take(self, kind):
        self.counts[kind] += 1
        now_s = asyncio.get_running_loop().time()
        self._free_s = max(self._free_s, now_s) + 1 / (WRITES_PER_S if kind == "writes" else READS_PER_S)
        await asyncio.sleep(self._free_s - now_s + ROUND_TRIP_S)


def metered(kind, method):
    async def call(self, *arguments):
        await self.service.take(kind)
        return await method(self, *arguments)

    return call


class Session(MemorySession):
    """A session whose operations wait for their turn at the service."""

    session_timeout_s = SESSION_S

    def __init__(self, cluster, service):
        super().__init__(cluster)
        self.service = service
        self.watches = 0

    def watch(self, *arguments):
        self.watches += 1
        return super().watch(*arguments)


for name, kind in {
    **dict.fromkeys(("get", "children", "is_mine"), "reads"),
    **dict.fromkeys(("put", "put_ephemeral", "create_ephemeral", "create_numbered", "delete"), "writes"),
}.items():
    setattr(Session, name, metered(kind, getattr(MemorySession, name)))


class Broker:
    """A broker that has bundle ownership only; its topics have no cost."""

    def __init__(self, cluster, service, number):
        self.session, self.tasks = Session(cluster, service), TaskSet()
        self.url, self.alive = f"pulsar://b{number}:6650", True
        self.topics = 0
        self.own = BrokerAddresses(self.url, None, f"http://b{number}:8080", None)
        register = BrokerRegister(self.session, f"b{number}:8080", self.report, self.tasks)
        peers = Peers(self.session, self.tasks, self.connects)
        chance = random.Random(number)
        self.ownership = BundleOwnership(self.session, self.own, register, self, self.tasks, chance, peers)

    async def report(self):
        return LoadReport(web_service_url=self.own.web_url, pulsar_service_url=self.url)

    def default_bundles(self, _namespace):
        return even_bundles(BUNDLES)

    def eligible(self, _namespace, reports):
        return dict(reports)

    def placement(self):
        return PlacementRules()

    async def unload(self, namespace, low, high):
        """Does nothing: this broker loads no topics."""

    async def connects(self, url):
        await asyncio.sleep(ROUND_TRIP_S)
        return World.by_url[url].alive


class World:
    by_url: typing.ClassVar[dict] = {}


async def find(topic, chance, waits):
    """Look a topic up as a client does: at any broker, then at the broker that the answer names. Returns the broker
    that serves the topic.
    """
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    broker, authoritative = chance.choice([each for each in World.by_url.values() if each.alive]), False
    pause_s = 0.1
    while True:
        answer = await broker.ownership.lookup(topic, authoritative=authoritative)
        await asyncio.sleep(ROUND_TRIP_S)
        if isinstance(answer, Here):
            waits.append(loop.time() - began_s)
            return broker
        asked = answer.owner if isinstance(answer, ServedAt) else answer.broker
        if not World.by_url[asked.service_url].alive:  # refused: the client waits and begins again
            await asyncio.sleep(pause_s)
            pause_s *= 2
            broker, authoritative = chance.choice([each for each in World.by_url.values() if each.alive]), False
            continue
        broker, authoritative = World.by_url[asked.service_url], isinstance(answer, AskBroker) and answer.authoritative


async def find_all(topics):
    """The owner of each topic, and the duration of each lookup."""
    chance, waits, owners = random.Random(1), [], {}
    waiting = iter(topics)

    async def client():
        for topic in waiting:
            owners[topic] = await find(topic, chance, waits)

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return owners, sorted(waits)


def report(event, waits, service, seconds):
    counts, number = service.counts, max(len(waits), 1)
    print(
        f"{event}: {number} lookups in {seconds:.2f} s; wait p50 {waits[number // 2] * 1e3:.1f} ms, longest "
        f"{waits[-1]:.2f} s; {counts['reads'] / number:.2f} reads, {counts['writes'] / number:.3f} writes a lookup"
    )
    counts.clear()


async def play(count):
    loop = asyncio.get_running_loop()
    cluster, service = MemoryCluster(), Service()
    brokers = [Broker(cluster, service, number) for number in range(BROKERS)]
    World.by_url = {each.url: each for each in brokers}
    for each in brokers:
        await each.ownership.start()
    topics = [TopicName.parse(f"persistent://t/n{number % NAMESPACES}/topic-{number}") for number in range(count)]
    for event in ("first lookups", "lookups again"):
        service.counts.clear()
        began_s = loop.time()
        owners, waits = await find_all(topics)
        report(event, waits, service, loop.time() - began_s)
    spread = sorted(len(each.ownership.owned()) for each in brokers)
    print(f"bundles of a broker: {spread[0]} to {spread[-1]} of {sum(spread)}")
    report_load(count, sum(2 * each.session.watches for each in brokers))
    dead = brokers[3]
    dead.alive = False
    dead.session.suspend()
    lost = [topic for topic, owner in owners.items() if owner is dead]
    loop.call_later(SESSION_S, lambda: dead.tasks.spawn(dead.session.expire(), "expire"))
    service.counts.clear()
    began_s = loop.time()
    _, waits = await find_all(lost)
    report(f"one broker killed, session {SESSION_S:g} s", waits, service, loop.time() - began_s)


def report_load(topics, of_bundles):
    """Print the size of the service's tree, its watches and their return after an outage, and the steady requests."""
    of_ledgers, of_namespaces = LEDGERS_OF_TOPIC * topics, BROKERS * NAMESPACES * WATCHES_OF_NAMESPACE
    watches = of_ledgers + of_bundles + of_namespaces
    writes = WRITES_OF_SWITCH * topics / SWITCH_S
    print(
        f"nodes: {NODES_OF_TOPIC * topics:,.0f} with {BYTES_OF_TOPIC * topics / 1e6:,.0f} MB of values\n"
        f"watches: {watches:,}, of these {of_ledgers:,} of ledgers, {of_bundles:,} of bundles, {of_namespaces:,} of "
        f"namespaces; set again after an outage in {watches / READS_PER_S:.0f} s\n"
        f"steady: {writes:.0f} writes a second, {writes / WRITES_PER_S:.1%} of the service"
    )


def main(count=100_000):
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    loop, began_s = VirtualLoop(), time.monotonic()
    try:
        loop.run_until_complete(play(count))
    finally:
        loop.close()
    print(f"({time.monotonic() - began_s:.0f} s of real time)")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
