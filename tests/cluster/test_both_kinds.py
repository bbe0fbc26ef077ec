"""A broker of Apache Pulsar and one of this project serve one cluster: bundles go to and fro under load.

Runs where MAGNETAR_PULSAR_LIB names a directory with the jars of Apache Pulsar 4.2 (part of `make cluster`).
"""

from __future__ import annotations

import pathlib
import time

import pytest
import requests

from tests.cluster.broker_processes import Member
from tests.cluster.conftest import LONG
from tests.cluster.figures import figure
from tests.cluster.pulsar_broker import LIB, MORE, NO_LIB, PulsarBroker, initialize_by_pulsar
from tests.cluster.scenes import SETTINGS, SHORT_LEDGERS, loaded

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not LIB, reason=NO_LIB),
    pytest.mark.skipif(not LONG, reason="part of `make cluster`"),
]
ROUNDS = 8
ATTEMPTS = 8


@pytest.fixture
def kinds(cluster, tmp_path_factory):
    directory = pathlib.Path(tmp_path_factory.mktemp("kinds"))
    initialize_by_pulsar(cluster)
    settings = MORE | SETTINGS | SHORT_LEDGERS
    made = [kind(directory, kind.__name__, cluster.zookeeper, **settings) for kind in (PulsarBroker, Member)]
    try:
        yield [each.start() for each in made]
    finally:
        for each in made:
            each.end()


def elsewhere(kinds, load, destination):
    """The lanes whose topics this broker does not serve."""
    paths = {lane: lane.topic.replace("://", "/") for lane in load.lanes}
    found = {lane: requests.get(f"{kinds[0].http}/lookup/v2/topic/{path}", timeout=30) for lane, path in paths.items()}
    return [lane for lane, answer in found.items() if answer.json().get("brokerUrl") != destination.url]


def move(kinds, lanes, destination):
    """Move every bundle of these topics to this broker."""
    for lane in lanes:
        path = lane.topic.replace("://", "/")
        bundle = requests.get(f"{kinds[0].http}/lookup/v2/topic/{path}/bundle", timeout=30).text
        namespace = path.removeprefix("persistent/").rpartition("/")[0]
        broker = destination.http.removeprefix("http://")
        url = f"{kinds[0].http}/admin/v2/namespaces/{namespace}/{bundle}/unload?destinationBroker={broker}"
        answer = requests.put(url, timeout=60)
        assert answer.status_code in (200, 204), answer.text


def bring(kinds, load, destination):
    """Move the bundles until this broker serves all topics.

    The leader of Apache Pulsar keeps the destination of a bundle for one lookup alone. A second lookup that comes
    before the destination has taken the bundle may lead to the other broker: then the move has to be repeated.
    """
    left = load.lanes
    for _ in range(ATTEMPTS):
        move(kinds, left, destination)
        load.more(100)
        left = elsewhere(kinds, load, destination)
        if not left:
            return
    raise AssertionError(f"not at {destination.name} after {ATTEMPTS} moves: {', '.join(lane.topic for lane in left)}")


def test_bundles_go_to_and_fro_under_load(kinds):
    with loaded(kinds, pause_s=0.01) as load:
        for number in range(ROUNDS):
            to = kinds[number % 2]
            load.mark()
            bring(kinds, load, to)
            figure(f"all bundles to {to.name}", silence_s=load.longest_silence())
            time.sleep(1)
        figure("to and fro", messages=load.check())
