"""The owner stops or dies with publishes under way, and the next owner is a broker of the other kind (Apache Pulsar, and
this project).

Runs where MAGNETAR_PULSAR_LIB names a directory with the jars of Apache Pulsar 4.2 (part of `make cluster`).
"""

from __future__ import annotations

import contextlib
import pathlib
import signal
import uuid

import pytest
import requests

from tests.cluster.broker_processes import connect
from tests.cluster.conftest import LONG
from tests.cluster.features import FEATURES, Scene
from tests.cluster.pulsar_broker import LIB, NO_LIB
from tests.cluster.scenes import SESSION_S
from tests.cluster.two_kinds import both_kinds, bring_topics
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not LIB, reason=NO_LIB),
    pytest.mark.skipif(not LONG, reason="part of `make cluster`"),
]
SETTINGS = {
    "isDelayedDeliveryDeliverAtTimeStrict": "true",
    "messageExpiryCheckIntervalInMinutes": 1,
    "retentionCheckIntervalInSeconds": 1,
}
OURS, PULSAR = 1, 0
ENDS = {
    "stop_of_ours": (OURS, signal.SIGTERM),
    "kill_of_ours": (OURS, signal.SIGKILL),
    "stop_of_pulsar": (PULSAR, signal.SIGTERM),
    "kill_of_pulsar": (PULSAR, signal.SIGKILL),
}
BY_PULSAR = {
    ("kill_of_pulsar", "batch_index_acks"): "Apache Pulsar saves parts of batches with the next mark-delete position",
}


@pytest.fixture(scope="module")
def kinds(cluster, tmp_path_factory):
    with both_kinds(cluster, pathlib.Path(tmp_path_factory.mktemp("kinds")), **SETTINGS) as started:
        yield started


@pytest.fixture(scope="module", params=ENDS)
def halves(request, kinds):
    """Feature -> its generator, stopped behind the end of the owner, or the error of its first half."""
    index, how = ENDS[request.param]
    owner, other = kinds[index], kinds[1 - index]
    client = connect(*kinds)
    scene = Scene(client, [owner, other], delay_s=4 + SESSION_S)
    namespace = f"public/{uuid.uuid4().hex}"
    scene.admin("PUT", f"namespaces/{namespace}", {"bundles": {"numBundles": 1}})
    for each in kinds:  # the other broker follows within a moment
        url = f"{each.http}/admin/v2/namespaces/{namespace}"
        wait_for(lambda url=url: requests.get(url, timeout=30).ok, 30, "the namespace")
    bring_topics(kinds[PULSAR], [f"persistent://{namespace}/schemas"], owner)
    started = {name: feature(scene, f"persistent://{namespace}/{name}") for name, feature in FEATURES.items()}
    for name, half in started.items():
        try:
            next(half)
        except Exception as error:
            started[name] = error
    scene.members = [other]
    owner.process.send_signal(how)
    owner.process.wait(60)
    yield started
    client.close()
    owner.start()


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_holds_at_an_owner_of_the_other_kind(halves, feature, request):
    reason = BY_PULSAR.get((request.node.callspec.params["halves"], feature))
    if reason is not None:
        pytest.skip(reason)
    half = halves[feature]
    if isinstance(half, Exception):
        raise half
    with contextlib.suppress(StopIteration):
        next(half)
