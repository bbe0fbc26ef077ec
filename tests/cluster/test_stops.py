"""Brokers that are stopped in order (SIGTERM) under load: one of three, two of three at the same moment, one while
ZooKeeper does not answer. All features hold, and a partitioned topic of eight producers loses nothing.
"""

from __future__ import annotations

import contextlib
import signal
import time
import uuid

import pytest
import requests

from tests.cluster.broker_processes import SESSION_MS, Member, connect, initialize, serving
from tests.cluster.conftest import LONG
from tests.cluster.features import FEATURES, Scene
from tests.cluster.scenes import busiest, end, loaded
from tests.waiting import wait_for

pytestmark = [pytest.mark.timeout(400), pytest.mark.skipif(not LONG, reason="part of `make cluster`")]
SETTINGS = {
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "isDelayedDeliveryDeliverAtTimeStrict": "true",
    "messageExpiryCheckIntervalInMinutes": 1,
    "retentionCheckIntervalInSeconds": 1,
}
AWAY_S = 3
"""The time without ZooKeeper: shorter than a session."""
END_WITHIN_S = 60


@pytest.fixture(scope="module")
def members(cluster, tmp_path_factory):
    initialize(cluster)
    directory = tmp_path_factory.mktemp("members")
    with serving([Member(directory, name, cluster.zookeeper, **SETTINGS) for name in ("s1", "s2", "s3")]) as started:
        yield started


def stop(stopped, _cluster):
    for each in stopped:
        each.process.send_signal(signal.SIGTERM)
    return [each.process.wait(END_WITHIN_S) for each in stopped]


def stop_without_zookeeper(stopped, cluster):
    cluster.stop("zk")
    time.sleep(0.2)
    for each in stopped:
        each.process.send_signal(signal.SIGTERM)
    time.sleep(AWAY_S)
    cluster.go_on("zk")
    return [each.process.wait(END_WITHIN_S) for each in stopped]


STOPS = {"one": (stop, 1), "two": (stop, 2), "without_zookeeper": (stop_without_zookeeper, 1)}


def owner_first(members, url):
    return sorted(members, key=lambda each: each.url != url)


@pytest.fixture(scope="module", params=STOPS)
def halves(request, members, cluster):
    """Feature -> its generator, stopped behind the move, or the error of its first half."""
    client = connect(*members)
    scene = Scene(client, list(members), delay_s=2 + SESSION_MS / 1000)
    namespace = f"public/{uuid.uuid4().hex}"
    scene.admin("PUT", f"namespaces/{namespace}", {"bundles": {"numBundles": 1}})
    for each in members:  # the other brokers follow within a moment
        url = f"{each.http}/admin/v2/namespaces/{namespace}"
        wait_for(lambda url=url: requests.get(url, timeout=30).ok, 30, "the namespace")
    started = {name: feature(scene, f"persistent://{namespace}/{name}") for name, feature in FEATURES.items()}
    for name, half in started.items():
        try:
            next(half)
        except Exception as error:
            started[name] = error
    how, count = STOPS[request.param]
    ranked = owner_first(members, scene.owner_of(f"persistent://{namespace}/schemas"))
    scene.members = ranked[count:]
    codes = how(ranked[:count], cluster)
    for each in ranked[:count]:
        each.start()  # the bundles have other owners by now
    yield started
    client.close()
    assert codes == [0] * count


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_holds_when_brokers_stop(halves, feature):
    half = halves[feature]
    if isinstance(half, Exception):
        raise half
    with contextlib.suppress(StopIteration):
        next(half)


@pytest.mark.parametrize(("how", "limit_s"), [("one", 8), ("two", 10), ("without_zookeeper", 12)])
def test_a_partitioned_topic_loses_nothing(members, cluster, how, limit_s):
    act, count = STOPS[how]
    with loaded(members, partitioned=True) as load:
        stopped = owner_first(members, busiest(members, load).url)[:count]
        load.mark()
        codes = act(stopped, cluster)
        load.more()
        for each in stopped:
            each.start()
        end(f"stop: {how}", load, limit_s)
    assert codes == [0] * count
