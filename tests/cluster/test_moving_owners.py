"""Owners that move again and again under load: brokers killed in a row or all at once; policies and deletions meanwhile.

After each row of faults the records of the load agree (``load``), and readers have got every entry once, in order.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
import uuid

import pulsar
import pytest
import requests

from tests.cluster.conftest import LONG
from tests.cluster.figures import figure
from tests.cluster.load import position
from tests.cluster.loaded_brokers import load_fixture, members_fixture
from tests.cluster.scenes import SESSION_S, SHORT_LEDGERS, end, loaded
from tests.waiting import wait_for

pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(not LONG, reason="part of `make cluster`")]
BETWEEN_KILLS_S = 10
members = members_fixture(names=("r1", "r2", "r3"), forceDeleteNamespaceAllowed="true", **SHORT_LEDGERS)
load = load_fixture()


class Tail(threading.Thread):
    """A reader that follows one topic from its beginning."""

    def __init__(self, client, topic):
        super().__init__(daemon=True)
        self.topic, self.found = topic, []
        self._reader = client.create_reader(topic, pulsar.MessageId.earliest)
        self._finished = threading.Event()
        self.start()

    def run(self):
        while not self._finished.is_set():
            with contextlib.suppress(pulsar.Timeout):
                message = self._reader.read_next(500)
                self.found.append((position(message.message_id()), int(message.data())))

    def check(self, stored):
        """Wait for the last entry; the reader has got each entry once, in order."""
        wait_for(lambda: self.found and self.found[-1] == stored[-1], 60, f"the last entry of {self.topic}")
        self._finished.set()
        self.join(30)
        self._reader.close()
        assert self.found == stored, f"{self.topic}: {len(self.found)} of {len(stored)} entries"


@contextlib.contextmanager
def tails(load):
    """Readers of all topics of the load; the caller checks the load within the block."""
    client = load.lanes[0].client
    made = [Tail(client, lane.topic) for lane in load.lanes]
    yield
    for tail, lane in zip(made, load.lanes, strict=True):
        tail.check(lane.stored())


def test_brokers_are_killed_in_a_row(cluster, members):
    cluster.make_whole()
    with loaded(members, partitioned=True) as load, tails(load):
        for number in range(6):
            killed = members[number % len(members)]
            killed.kill()
            if number % 2:
                killed.start()  # the bundles stay; otherwise the other brokers take them
            time.sleep(BETWEEN_KILLS_S)
            if not number % 2:
                killed.start()
        end(f"six kills, one each {BETWEEN_KILLS_S} s, under readers", load, 3 * SESSION_S)


def test_all_brokers_are_killed_and_started_again(members, load):
    with tails(load):
        for each in members:
            each.kill()
        for each in members:
            each.start()
        end("all brokers killed and started", load, SESSION_S + 10)


def test_all_brokers_stop_and_start_again(members, load):
    with tails(load):
        stops = [threading.Thread(target=each.terminate) for each in members]
        for each in stops:
            each.start()
        for each in stops:
            each.join()
        for each in members:
            each.start()
        end("all brokers stopped and started", load, SESSION_S + 10)


class Storm(threading.Thread):
    """Sets one policy to one value after the other, each at any broker, until ``finish``."""

    def __init__(self, members, path, body):
        super().__init__(daemon=True)
        self.path, self.confirmed, self.tried = path, 0, 0
        self.refusals = []
        self._members, self._body, self._chance = members, body, random.Random(path)
        self._finished = threading.Event()
        self.start()

    def run(self):
        while not self._finished.wait(0.05):
            self.tried += 1
            url = f"{self._chance.choice(self._members).http}/admin/v2/{self.path}"
            with contextlib.suppress(requests.RequestException):
                answer = requests.post(url, json=self._body(self.tried), timeout=90)
                if answer.ok:
                    self.confirmed = self.tried
                else:
                    self.refusals.append((answer.status_code, answer.text[:200]))

    def finish(self):
        self._finished.set()
        self.join(120)
        assert not self.is_alive(), self.path

    def check(self, value_at):
        """A confirmed change is never lost: every broker has the last confirmed value, or that of a later attempt."""
        for each in self._members:
            url = f"{each.http}/admin/v2/{self.path}"
            wait_for(
                lambda url=url: self.confirmed <= value_at(requests.get(url, timeout=30).json()) <= self.tried,
                30,
                f"{self.path} of {self.confirmed} at {each.name}",
            )


def test_policies_change_while_owners_move(members, load):
    namespace = load.lanes[0].topic.removeprefix("persistent://").rpartition("/")[0]

    def retention(number):
        return {"retentionTimeInMinutes": number, "retentionSizeInMB": 100}

    storms = [Storm(members, f"namespaces/{namespace}/retention", retention)]
    storms += [Storm(members, f"persistent/{namespace}/t{number}/retention", retention) for number in range(4)]
    chance = random.Random(3)
    for number in range(12):
        url = f"{chance.choice(members).http}/admin/v2/namespaces/{namespace}/unload"
        with contextlib.suppress(requests.RequestException):
            requests.put(url, timeout=60)
        time.sleep(2)
        if number in (4, 9):
            killed = members[number % len(members)]
            killed.kill()
            killed.start()
    for each in storms:
        each.finish()
    for each in storms:
        figure(each.path.rpartition("/")[0][-12:], changes=each.confirmed, tried=each.tried)
        assert each.confirmed > 5, each.refusals
        each.check(lambda found: found["retentionTimeInMinutes"])
    end("policies change, unloads, two kills", load, SESSION_S + 20)


def names_at(member, namespace):
    return requests.get(f"{member.http}/admin/v2/persistent/{namespace}", timeout=30).json()


def created_namespace(members, namespace):
    def created():
        answer = requests.put(
            f"{members[0].http}/admin/v2/namespaces/{namespace}", json={"bundles": {"numBundles": 8}}, timeout=60
        )
        return answer.status_code in (204, 409)

    wait_for(created, 60, "the namespace")
    for each in members:
        wait_for(lambda each=each: requests.get(f"{each.http}/admin/v2/namespaces/{namespace}", timeout=30).ok)


def deleted(members, path):
    """Repeat the deletion at all brokers in turn until one answers that it is done."""
    answers, statuses = [], (204, 404)

    def done():
        each = members[len(answers) % len(members)]
        try:
            answer = requests.delete(f"{each.http}/admin/v2/{path}", timeout=60)
        except requests.RequestException as error:
            answers.append(repr(error)[:200])
            return False
        answers.append((answer.status_code, answer.text[:200]))
        assert answer.status_code >= 409 or answer.status_code in statuses, answer.text
        return answer.status_code in statuses

    try:
        wait_for(done, 90, f"the deletion of {path}", every=0.2)
    except AssertionError as error:
        raise AssertionError(str(answers[-5:])) from error
    return answers


def test_topics_are_deleted_while_their_owners_are_killed(members, load):
    namespace = f"public/{uuid.uuid4().hex}"
    created_namespace(members, namespace)
    client = load.lanes[0].client
    for number in range(24):
        producer = client.create_producer(f"persistent://{namespace}/d{number}")
        for text in (b"1", b"2"):
            producer.send(text)
        client.subscribe(f"persistent://{namespace}/d{number}", "s").close()
        producer.close()
    failures = []

    def delete(numbers):
        try:
            for number in numbers:
                deleted(members, f"persistent/{namespace}/d{number}")
                time.sleep(0.2)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=delete, args=(range(first, 24, 4),)) for first in range(4)]
    for each in threads:
        each.start()
    for each in members[:2]:
        time.sleep(0.5)
        each.kill()
        each.start()
        time.sleep(SESSION_S)
    for each in threads:
        each.join()
    assert failures == []
    for each in members:
        wait_for(
            lambda each=each: not [n for n in names_at(each, namespace) if "/d" in n], 30, f"no topics, {each.name}"
        )
    for number in range(24):
        name = f"persistent://{namespace}/d{number}"
        assert client.get_topic_partitions(name) == [name]
        reader = client.create_reader(name, pulsar.MessageId.earliest)
        assert not reader.has_message_available(), f"a message of the deleted {name}"
        reader.close()
    end("deletions of topics, two kills", load, SESSION_S + 20)


def status_of(member, namespace):
    return requests.get(f"{member.http}/admin/v2/namespaces/{namespace}", timeout=30).status_code


def delete_under_a_kill(members, client, killed):
    namespace = f"public/{uuid.uuid4().hex}"
    created_namespace(members, namespace)
    names = [f"persistent://{namespace}/n{number}" for number in range(16)]
    for name in names:
        producer = client.create_producer(name)
        producer.send(b"1")
        producer.close()
    answers = []
    thread = threading.Thread(target=lambda: answers.extend(deleted(members, f"namespaces/{namespace}?force=true")))
    thread.start()
    time.sleep(0.05)
    killed.kill()
    killed.start()
    thread.join()
    assert answers, "the deletion"
    for each in members:
        wait_for(lambda each=each: status_of(each, namespace) == 404, 30, f"no namespace at {each.name}")
    created_namespace(members, namespace)
    for each in members:
        assert [n for n in names_at(each, namespace) if "/n" in n] == [], f"{each.name}, answers {answers}"
    reader = client.create_reader(names[0], pulsar.MessageId.earliest)
    assert not reader.has_message_available()
    reader.close()


def test_a_namespace_is_deleted_by_force_while_owners_are_killed(members, load):
    for killed in members:
        delete_under_a_kill(members, load.lanes[0].client, killed)
    end("deletions of namespaces, three kills", load, SESSION_S + 20)
