"""Features of topics across the kill of their owner, and across an unload of their bundle: all of them at once."""

from __future__ import annotations

import contextlib
import time
import uuid

import pytest
import requests

from tests.cluster.broker_processes import SESSION_MS, Member, connect, initialize, serving
from tests.cluster.conftest import LONG
from tests.cluster.features import FEATURES, Scene
from tests.waiting import wait_for

pytestmark = [pytest.mark.timeout(300), pytest.mark.skipif(not LONG, reason="part of `make cluster`")]
SETTINGS = {
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "isDelayedDeliveryDeliverAtTimeStrict": "true",
    "messageExpiryCheckIntervalInMinutes": 1,
    "retentionCheckIntervalInSeconds": 1,
}


@pytest.fixture(scope="module")
def members(cluster, tmp_path_factory):
    initialize(cluster)
    directory = tmp_path_factory.mktemp("members")
    with serving([Member(directory, name, cluster.zookeeper, **SETTINGS) for name in ("e1", "e2")]) as started:
        yield started


def kill(scene, members, namespace):
    path = f"{scene.members[0].http}/lookup/v2/topic/persistent/{namespace}/schemas"
    url = requests.get(path, timeout=30).json()["brokerUrl"]
    owner = next(each for each in members if each.url == url)
    owner.kill()
    scene.members = [each for each in members if each is not owner]
    return owner.start


def kill_in_a_row(scene, members, _namespace):
    for killed in (*members, *members):
        killed.kill()
        killed.start()
        time.sleep(SESSION_MS / 1000 + 2)
    return lambda: None


def unload(scene, _members, namespace):
    scene.admin("PUT", f"namespaces/{namespace}/0x00000000_0xffffffff/unload")
    return lambda: None


@pytest.fixture(scope="module", params=[kill, kill_in_a_row, unload], ids=lambda each: each.__name__)
def halves(request, members):
    """Feature -> its generator, stopped behind the move, or the error of its first half."""
    client = connect(*members)
    scene = Scene(client, list(members), delay_s=2 + SESSION_MS / 1000)
    namespace = f"public/{uuid.uuid4().hex}"
    scene.admin("PUT", f"namespaces/{namespace}", {"bundles": {"numBundles": 1}})
    for each in members:  # the other broker follows within a moment
        url = f"{each.http}/admin/v2/namespaces/{namespace}"
        wait_for(lambda url=url: requests.get(url, timeout=30).ok, 30, "the namespace")
    started = {name: feature(scene, f"persistent://{namespace}/{name}") for name, feature in FEATURES.items()}
    for name, half in started.items():
        try:
            next(half)
        except Exception as error:
            started[name] = error
    restore = request.param(scene, members, namespace)
    try:
        yield started
    finally:
        restore()
        client.close()


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_holds_when_its_topic_moves(halves, feature):
    half = halves[feature]
    if isinstance(half, Exception):
        raise half
    with contextlib.suppress(StopIteration):
        next(half)
