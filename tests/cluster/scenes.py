"""The common part of the tests of faults: two brokers, the load on them, and the account at the end."""

from __future__ import annotations

import contextlib
import uuid

import requests

from tests.cluster.broker_processes import Member, connect
from tests.cluster.figures import figure
from tests.cluster.load import Load
from tests.waiting import wait_for

__all__ = [
    "PRODUCERS",
    "SESSION_S",
    "SHORT_LEDGERS",
    "busiest",
    "end",
    "loaded",
    "members_named",
    "owners",
    "two_members",
]

SESSION_S = 6
PRODUCERS = 8
SETTINGS = {"metadataStoreSessionTimeoutMillis": SESSION_S * 1000}
SHORT_LEDGERS = {"managedLedgerMaxEntriesPerLedger": 3000, "managedLedgerMinLedgerRolloverTimeMinutes": 0}
"""A new ledger about every ten seconds, so that faults also hit its creation and its close."""


def members_named(names, directory, zookeeper, **settings):
    return [Member(directory, name, zookeeper, **SETTINGS, **settings) for name in names]


def two_members(directory, zookeeper, **settings):
    return members_named(("f1", "f2"), directory, zookeeper, **settings)


@contextlib.contextmanager
def loaded(members, pause_s=0.003, *, partitioned=False, client=None):
    """Run a load of eight producers, each on its own topic (or partition of one topic) of a new namespace with 16
    bundles. The load closes its client, also a `client` of the caller.
    """
    client = client or connect(*members)
    namespace = f"public/{uuid.uuid4().hex}"
    bundles = {"bundles": {"numBundles": 16}}
    answer = requests.put(f"{members[0].http}/admin/v2/namespaces/{namespace}", json=bundles, timeout=30)
    assert answer.status_code == 204, answer.text
    for each in members:  # the other broker follows within a moment
        url = f"{each.http}/admin/v2/namespaces/{namespace}"
        wait_for(lambda url=url: requests.get(url, timeout=30).status_code == 200, 30, "the namespace")
    if partitioned:
        make_partitions(members, f"{namespace}/t")
    names = [f"t-partition-{number}" if partitioned else f"t{number}" for number in range(PRODUCERS)]
    made = Load(client, [f"persistent://{namespace}/{name}" for name in names], pause_s)
    made.start()
    try:
        yield made
    finally:
        client.close()


def make_partitions(members, topic):
    urls = [f"{each.http}/admin/v2/persistent/{topic}/partitions" for each in members]
    answer = requests.put(urls[0], json=PRODUCERS, timeout=30)
    assert answer.status_code == 204, answer.text
    for url in urls:
        wait_for(lambda url=url: requests.get(url, timeout=30).json().get("partitions") == PRODUCERS, 30, "partitions")


def owners(members, load):
    """Broker -> number of the load's topics that it serves."""
    found = dict.fromkeys(members, 0)
    for lane in load.lanes:
        path = lane.topic.replace("://", "/")
        url = requests.get(f"{members[0].http}/lookup/v2/topic/{path}", timeout=30).json()["brokerUrl"]
        for each in members:
            found[each] += each.url == url
    return found


def busiest(members, load):
    found = owners(members, load)
    owner = max(found, key=found.get)
    assert found[owner] > 0
    return owner


def end(event, load, limit_s):
    """Let the load go on, then compare all of its records; print the longest silence and check its limit."""
    load.more()
    silence_s = load.longest_silence()
    figure(event, silence_s=silence_s, messages=load.check())
    assert silence_s < limit_s, f"silence of {silence_s:.1f} s"
    return silence_s
