"""A broker of Apache Pulsar and one of this project in one cluster, and moves of bundles between them."""

from __future__ import annotations

import contextlib

import requests

from tests.cluster.broker_processes import Member
from tests.cluster.pulsar_broker import MORE, PulsarBroker, initialize_by_pulsar
from tests.cluster.scenes import SETTINGS, SHORT_LEDGERS

__all__ = ["both_kinds", "bring", "bring_topics", "elsewhere", "move"]

ATTEMPTS = 8


@contextlib.contextmanager
def both_kinds(cluster, directory, **more):
    """A broker of each kind, first that of Apache Pulsar; the cluster has the metadata of Pulsar's own command."""
    initialize_by_pulsar(cluster)
    settings = MORE | SETTINGS | SHORT_LEDGERS | more
    made = [kind(directory, kind.__name__, cluster.zookeeper, **settings) for kind in (PulsarBroker, Member)]
    try:
        yield [each.start() for each in made]
    finally:
        for each in made:
            each.end()


def elsewhere(broker, topics, destination):
    """The topics that the destination does not serve, as this broker sees it."""
    paths = {topic: topic.replace("://", "/") for topic in topics}
    found = {topic: requests.get(f"{broker.http}/lookup/v2/topic/{path}", timeout=30) for topic, path in paths.items()}
    return [topic for topic, answer in found.items() if answer.json().get("brokerUrl") != destination.url]


def move(broker, topics, destination):
    """Have this broker move every bundle of these topics to the destination."""
    for topic in topics:
        path = topic.replace("://", "/")
        bundle = requests.get(f"{broker.http}/lookup/v2/topic/{path}/bundle", timeout=30).text
        namespace = path.removeprefix("persistent/").rpartition("/")[0]
        there = destination.http.removeprefix("http://")
        url = f"{broker.http}/admin/v2/namespaces/{namespace}/{bundle}/unload?destinationBroker={there}"
        answer = requests.put(url, timeout=60)
        assert answer.status_code in (200, 204), answer.text


def bring(broker, load, destination):
    """``bring_topics`` under load."""
    bring_topics(broker, [lane.topic for lane in load.lanes], destination, between=lambda: load.more(100))


def bring_topics(broker, topics, destination, between=lambda: None):
    """Move the bundles until the destination serves all topics.

    The leader of Apache Pulsar keeps the destination of a bundle for one lookup alone. A second lookup that comes
    before the destination has taken the bundle may lead to the other broker: then the move has to be repeated.
    """
    left = topics
    for _ in range(ATTEMPTS):
        move(broker, left, destination)
        between()
        left = elsewhere(broker, topics, destination)
        if not left:
            return
    raise AssertionError(f"not at {destination.name} after {ATTEMPTS} moves: {', '.join(left)}")
