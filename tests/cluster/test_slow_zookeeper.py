"""A ZooKeeper that answers late, and stands still for moments, while topics load, roll over, move, split and end."""

from __future__ import annotations

import itertools
import pathlib
import random
import shutil
import tempfile
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pulsar
import pytest
import requests

from tests.cluster.conftest import LONG
from tests.cluster.field import Field
from tests.cluster.scenes import busiest, end, loaded
from tests.cluster.test_moving_owners import created_namespace, deleted, names_at
from tests.waiting import wait_for

pytestmark = [pytest.mark.timeout(900), pytest.mark.skipif(not LONG, reason="part of `make cluster`")]
ROUNDS = 3
TOPICS = 6
STALL_S = 1.5


@pytest.fixture(scope="module")
def field(_services, tmp_path_factory):
    directory = pathlib.Path(tempfile.mkdtemp(prefix="magnetar-slow-"))
    made = Field(directory)
    try:
        yield made.up(tmp_path_factory.mktemp("members"), forceDeleteNamespaceAllowed="true")
    finally:
        made.down()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def load(field):
    field.cluster.make_whole()
    with loaded(field.members, pause_s=0.005) as made:
        try:
            yield made
        finally:
            field.network.heal()


class Stalls(threading.Thread):
    """Makes the link of one broker to ZooKeeper silent for a moment, again and again, until ``finish``."""

    def __init__(self, field):
        super().__init__(daemon=True)
        self._field, self._finished, self._chance = field, threading.Event(), random.Random(5)
        self.count = 0
        self.start()

    def run(self):
        network, port = self._field.network, self._field.zookeeper_port
        while not self._finished.wait(self._chance.uniform(2, 5)):
            each = self._chance.choice(self._field.members)
            network.silence(each.process.pid, port)
            self._finished.wait(STALL_S)
            network.open(each.process.pid, port)
            self.count += 1

    def finish(self):
        self._finished.set()
        self.join(30)


class Topics:
    """Topics that are made, half acknowledged and deleted and their messages."""

    def __init__(self, members, client, namespace):
        self.members, self.client, self.namespace = members, client, namespace
        self.holds = {}

    def make(self, number):
        name = f"persistent://{self.namespace}/s{number}"
        consumer = self.client.subscribe(name, "s", pulsar.ConsumerType.Shared)
        producer = self.client.create_producer(name, send_timeout_millis=0, batching_enabled=False)
        for text in range(10):
            producer.send(str(text).encode())
        for _ in range(10):
            message = consumer.receive(60_000)
            if int(message.data()) % 2:
                consumer.acknowledge(message)
        time.sleep(1.5)  # an acknowledgement without a receipt needs time to become durable
        producer.close()
        consumer.close()
        self.holds[name] = 10

    def add(self, name):
        producer = self.client.create_producer(name, send_timeout_millis=0, batching_enabled=False)
        producer.send(str(self.holds[name]).encode())
        self.holds[name] += 1
        producer.close()

    def delete(self, name):
        del self.holds[name]
        deleted(self.members, f"{name.replace('://', '/')}?force=true")

    def check(self, name):
        upto = self.holds[name]
        reader = self.client.create_reader(name, pulsar.MessageId.earliest)
        found = []
        while reader.has_message_available():
            found.append(int(reader.read_next(60_000).data()))
        reader.close()
        assert found == list(range(upto)), f"{name}: {found} of {upto}"
        consumer = self.client.subscribe(name, "s", pulsar.ConsumerType.Shared)
        wanted = [n for n in range(upto) if n >= 10 or n % 2 == 0]
        found = [int(consumer.receive(60_000).data()) for _ in wanted]
        assert sorted(found) == wanted, f"{name}: {found}"
        with pytest.raises(pulsar.Timeout):
            consumer.receive(300)
        consumer.close()


def bundles(member, namespace):
    url = f"{member.http}/admin/v2/namespaces/{namespace}/bundles"
    found = requests.get(url, timeout=60).json()["boundaries"]
    return [f"{low}_{high}" for low, high in itertools.pairwise(found)]


def put(members, path):
    """Repeat the request at the brokers in turn until one carries it out; answers on the way."""
    answers = []

    def done():
        url = f"{members[len(answers) % len(members)].http}/admin/v2/{path}"
        answers.append(requests.put(url, timeout=90))
        return answers[-1].ok or answers[-1].status_code == 412

    wait_for(done, 180, f"PUT {path}", every=0.5)
    return [(each.status_code, each.text[:200]) for each in answers]


@pytest.mark.parametrize("delay_s", [0.15])
def test_topics_load_move_split_and_end(field, load, delay_s):
    members, client = field.members, load.lanes[0].client
    namespace = f"public/{uuid.uuid4().hex}"
    created_namespace(members, namespace)
    of_load = load.lanes[0].topic.removeprefix("persistent://").rpartition("/")[0]
    topics, chance, answers = Topics(members, client, namespace), random.Random(1), []
    for each in members:
        field.network.slow(each.process.pid, field.zookeeper_port, delay_s)
    stalls = Stalls(field)
    try:
        with ThreadPoolExecutor(TOPICS) as pool:
            for number in range(ROUNDS):
                made = pool.map(topics.make, range(number * TOPICS, (number + 1) * TOPICS))
                split = pool.submit(put, members, f"namespaces/{of_load}/{bundles(members[0], of_load)[number]}/split")
                list(made)
                answers += split.result()
                moves = [pool.submit(put, members, f"namespaces/{each}/unload") for each in (namespace, of_load)]
                gone = chance.sample(sorted(topics.holds), 3)
                kept = [name for name in topics.holds if name not in gone]
                ends = [pool.submit(topics.delete, each) for each in gone]
                for each in moves:
                    answers += each.result()
                list(pool.map(topics.add, kept))
                for each in ends:
                    each.result()
                part = chance.choice(bundles(members[0], namespace))
                answers += put(members, f"namespaces/{namespace}/{part}/split?unload=true")
                list(pool.map(topics.add, kept))
        print("answers", [each for each in answers if each[0] != 204], "stalls", stalls.count)
    finally:
        stalls.finish()
        field.network.heal()
    for name in topics.holds:
        topics.check(name)
    wanted = sorted(topics.holds)
    for each in members:
        wait_for(lambda each=each: sorted(n for n in names_at(each, namespace) if "/s" in n) == wanted, 30, each.name)
    assert bundles(members[0], of_load) == bundles(members[1], of_load)
    deleted(members, f"namespaces/{namespace}?force=true")
    end(f"ZooKeeper that answers after {2 * delay_s} s", load, 120)


def test_an_owner_is_killed(field, load):
    killed = busiest(field.members, load)
    for each in field.members:
        field.network.slow(each.process.pid, field.zookeeper_port, 0.75)
    try:
        killed.kill()
        load.more(100)
    finally:
        field.network.heal()
        killed.start()
    end("the owner is killed while ZooKeeper answers after 1.5 s", load, 60)
