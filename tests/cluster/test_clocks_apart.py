"""Two brokers whose wall clocks are two hours apart: one joins under load, topics move between them and their owners are
killed. Nothing is lost, features hold, and expiry, retention and delayed messages follow the clock of the owner.
"""

from __future__ import annotations

import contextlib
import time
import uuid

import pulsar
import pytest
import requests

from tests.cluster.broker_processes import connect, initialize, serving
from tests.cluster.conftest import LONG
from tests.cluster.features import FEATURES, Scene
from tests.cluster.scenes import SESSION_S, SHORT_LEDGERS, end, loaded, two_members
from tests.cluster.test_stepped_clock import set_clock
from tests.cluster.two_kinds import bring, bring_topics
from tests.waiting import wait_for

pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(not LONG, reason="part of `make cluster`")]
HOURS_S = 2 * 3600
SETTINGS = {
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "isDelayedDeliveryDeliverAtTimeStrict": "true",
    "messageExpiryCheckIntervalInMinutes": 1,
    "retentionCheckIntervalInSeconds": 1,
    "loadBalancerReportUpdateMinIntervalMillis": 1000,
}
CLOCKS = {
    "from_behind": (-HOURS_S, 0),
    "to_behind": (0, -HOURS_S),
    "from_ahead": (HOURS_S, 0),
    "to_ahead": (0, HOURS_S),
}
BY_THE_CLOCK = {"delayed_messages", "expired_messages", "retention_and_ttl"}
"""Features that depend on the time: the last test has them."""


@pytest.fixture(scope="module")
def members(cluster, tmp_path_factory):
    initialize(cluster)
    made = two_members(tmp_path_factory.mktemp("members"), cluster.zookeeper, **SHORT_LEDGERS, **SETTINGS)
    for each in made:
        each.program = "tests.cluster.stepped_broker"
    with serving(made):
        yield made


def set_clocks(members, clocks):
    for member, ahead_s in zip(members, clocks, strict=True):
        set_clock(member, ahead_s)


def all_started(members):
    for each in members:
        if each.ended():
            each.start()


def new_namespace(members):
    namespace = f"public/{uuid.uuid4().hex}"
    url = f"{members[0].http}/admin/v2/namespaces/{namespace}"
    assert requests.put(url, json={"bundles": {"numBundles": 1}}, timeout=30).ok
    for each in members:  # the other broker follows within a moment
        url = f"{each.http}/admin/v2/namespaces/{namespace}"
        wait_for(lambda url=url: requests.get(url, timeout=30).ok, 30, "the namespace")
    return namespace


@pytest.fixture(scope="module", params=CLOCKS)
def halves(request, members):
    """Feature -> its generator, stopped behind the kill of the owner, or the error of its first half."""
    first, second = members
    set_clocks(members, CLOCKS[request.param])
    client = connect(*members)
    scene = Scene(client, list(members), delay_s=4 + SESSION_S)
    namespace = new_namespace(members)
    bring_topics(first, [f"persistent://{namespace}/schemas"], first)
    started = {name: FEATURES[name](scene, f"persistent://{namespace}/{name}") for name in FEATURES}
    for name, half in started.items():
        try:
            next(half) if name not in BY_THE_CLOCK else None
        except Exception as error:
            started[name] = error
    scene.members = [second]
    first.kill()
    yield started
    client.close()
    all_started(members)


@pytest.mark.parametrize("feature", sorted(FEATURES.keys() - BY_THE_CLOCK))
def test_a_feature_holds_at_an_owner_with_another_clock(halves, feature):
    half = halves[feature]
    if isinstance(half, Exception):
        raise half
    with contextlib.suppress(StopIteration):
        next(half)


@pytest.mark.parametrize("ahead_s", [HOURS_S, -HOURS_S])
def test_a_broker_with_another_clock_joins_under_load(members, ahead_s):
    first, second = members
    set_clocks(members, (0, ahead_s))
    all_started(members)
    second.terminate()
    with loaded([first], pause_s=0.005) as load:
        second.start()
        wait_for(lambda: len(requests.get(f"{first.http}/admin/v2/brokers/c1", timeout=30).json()) == 2, 30, "both")
        for to in (second, first, second):
            bring(first, load, to)
            load.more(300)
        second.kill()
        load.more()
        second.start()
        bring(first, load, second)
        first.kill()
        load.more()
        first.start()
        reports = [
            requests.get(f"{each.http}/admin/v2/broker-stats/load-report", timeout=30).json() for each in members
        ]
        assert abs(reports[1]["lastUpdate"] - reports[0]["lastUpdate"] - ahead_s * 1000) < 60_000
        end(f"a broker {ahead_s} s ahead joins and takes the topics", load, 4 * SESSION_S)


class Topic:
    """A topic of a namespace of its own, and its owner's view of it."""

    def __init__(self, members, client, name):
        self.members, self.client = members, client
        self.name = f"persistent://{new_namespace(members)}/{name}"
        self.path = self.name.replace("://", "/")

    def call(self, method, path, body=None):
        answer = requests.request(method, f"{self.members[0].http}/admin/v2/{self.path}/{path}", json=body, timeout=60)
        assert answer.ok, answer.text
        return answer.json() if answer.content else None

    def bring(self, to):
        bring_topics(self.members[0], [self.name], to)

    def publish(self, numbers, **options):
        producer = self.client.create_producer(self.name)
        for number in numbers:
            producer.send(b"%d" % number, **options)
        producer.close()

    def backlog(self, name="s"):
        return self.call("GET", "stats")["subscriptions"][name]["msgBacklog"]

    def expire(self):
        """Skip the messages that are older than an hour; 409 when the first message is younger."""
        url = f"{self.members[0].http}/admin/v2/{self.path}/subscription/s/expireMessages/3600"
        answer = requests.post(url, timeout=60)
        assert answer.status_code in (204, 409), answer.text

    def stored(self):
        reader = self.client.create_reader(self.name, pulsar.MessageId.earliest)
        found = []
        while reader.has_message_available():
            found.append(int(reader.read_next(30_000).data()))
        reader.close()
        return found

    def rest(self):
        consumer = self.client.subscribe(self.name, "s", pulsar.ConsumerType.Shared)
        found = []
        with contextlib.suppress(pulsar.Timeout):
            while True:
                found.append(int(consumer.receive(3000).data()))
        consumer.close()
        return found


def test_expiry_retention_and_delays_follow_the_clock_of_the_owner(members):
    right, other = members
    set_clocks(members, (0, -HOURS_S))
    all_started(members)
    client = connect(*members)
    expiring, retained, delayed = (Topic(members, client, each) for each in ("expiring", "retained", "delayed"))
    topics = (expiring, retained, delayed)
    for each in topics:
        each.bring(right)
        client.subscribe(
            each.name, "s", pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
        ).close()
    retained.call("POST", "retention", {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1})
    expiring.publish(range(5))
    retained.publish(range(5))
    retained.call("POST", "subscription/s/skip_all")
    due_ms = int((time.time() + 20) * 1000)
    delayed.publish(range(5), deliver_at=due_ms)

    for each in topics:
        each.bring(other)  # the clock is behind: nothing is due, nothing expires
    for each in (expiring, retained):
        each.publish([5])
    time.sleep(max(0.0, due_ms / 1000 + 1 - time.time()))
    assert delayed.rest() == []
    expiring.expire()
    assert (expiring.backlog(), delayed.backlog()) == (6, 5)
    assert retained.stored() == list(range(6))

    for each in topics:
        each.bring(right)
    wait_for(lambda: delayed.rest() == list(range(5)), 30, "the delayed messages")
    expiring.expire()
    assert expiring.backlog() == 6
    assert retained.stored() == list(range(6))

    set_clocks(members, (0, HOURS_S))
    delayed.publish([5], deliver_at=int((time.time() + HOURS_S / 2) * 1000))
    for each in topics:
        each.bring(other)  # the clock is ahead: all messages are old
    retained.call("POST", "subscription/s/skip_all")
    retained.publish([6])
    expiring.expire()
    wait_for(lambda: expiring.backlog() == 0, 30, "the expiry")
    wait_for(lambda: retained.stored() == [6], 30, "the end of the retention of earlier ledgers")
    assert delayed.rest() == [*range(5), 5]

    for each in topics:
        each.bring(right)
    expiring.publish([7])
    retained.publish([8])
    assert expiring.rest() == [7]
    assert retained.stored() == [6, 8]
    assert delayed.rest() == list(range(5))  # the last message is not due here
    expiring.expire()
    time.sleep(2)  # the retention is checked each second
    assert (expiring.backlog(), retained.stored()) == (1, [6, 8])
    client.close()
