"""Growth of partitioned topics whose partitions several brokers serve: the same steps on two brokers of any kind.

    python -m tests.cluster.requests_of_growth HTTP1,BROKER1 HTTP2,BROKER2

writes the answers of two brokers of Apache Pulsar to ``growth_requests.json``; ``test_growth_requests`` plays the steps on
two brokers of this project.
"""

from __future__ import annotations

import json
import pathlib
import sys

import pulsar
import requests

from tests.cluster.requests_of_topics import EARLIEST, Brokers, count, has, status
from tests.waiting import wait_for

__all__ = ["RECORDED", "play_growth"]

RECORDED = pathlib.Path(__file__).with_name("growth_requests.json")
PARTITIONS = 2
GROWN = 8
FACTS = ("msgBacklog", "isDurable", "subscriptionProperties", "isReplicated")


def subscriptions(stats):
    """The facts about every subscription; a reader has a name of its own."""
    found = {}
    for name, each in sorted(stats["subscriptions"].items()):
        found[name if each["isDurable"] else "reader"] = [each[fact] for fact in FACTS]
    return found


def stored(stats):
    """The durable subscriptions without the marks of replication."""
    return {name: facts[:-1] for name, facts in subscriptions(stats).items() if name != "reader"}


def play_growth(brokers):
    """Play the steps; ``brokers.answers`` gets the answers."""
    for name, bundles, owners in (("one", 1, (1, 1)), ("other", 1, (0, 0)), ("many", 16, (1, 0))):
        _play_namespace(brokers, f"public/growth-{name}", bundles, owners)


def _play_namespace(brokers, namespace, bundles, owners):
    ask, client = brokers.ask, brokers.client()
    url = f"{brokers.http[0]}/admin/v2/namespaces/{namespace}"
    requests.put(url, json={"bundles": {"numBundles": bundles}}, timeout=60)
    base, topic = f"persistent/{namespace}/t", f"persistent://{namespace}/t"
    wait_for(lambda: all(has(http, f"namespaces/{namespace}") for http in brokers.http), 60, "the namespace")
    ask("PUT", f"{base}/partitions", PARTITIONS)
    wait_for(lambda: all(has(http, f"{base}/partitions") for http in brokers.http), 60, "the topic")
    for index, owner in enumerate(owners):
        brokers.serve(f"{topic}-partition-{index}", owner)

    ask("PUT", f"{base}/subscription/plain", EARLIEST)
    ask("PUT", f"{base}/subscription/given", {**EARLIEST, "properties": {"a": "1", "b": "2"}})
    ask("PUT", f"{base}/subscription/replicated?replicated=true", EARLIEST)
    ask("PUT", f"{base}-partition-0/subscription/of0", {**EARLIEST, "properties": {"c": "3"}})
    ask("PUT", f"{base}-partition-1/subscription/of1", {**EARLIEST, "properties": {"d": "4"}})
    ask("PUT", f"{base}-partition-0/subscription/given/properties", {"a": "changed"})
    reader = client.create_reader(f"{topic}-partition-0", pulsar.MessageId.earliest)
    ask("PUT", f"{base}-partition-0/compaction")
    path = f"{base}-partition-0/compaction"
    wait_for(lambda: status(brokers.http[0], path) == "SUCCESS", 60, "the compaction", every=0.3)
    for partitions in (PARTITIONS + 1, PARTITIONS + 2, GROWN):
        ask("POST", f"{base}/partitions", partitions)
        wait_for(lambda n=partitions: all(count(http, base) == n for http in brokers.http), 60, "more partitions")
        for index in range(partitions):
            ask("GET", f"{base}-partition-{index}/stats", show=subscriptions)
    for index in range(GROWN):
        brokers.serve(f"{topic}-partition-{index}", index % 2)
        ask("GET", f"{base}-partition-{index}/stats", show=stored)
    reader.close()
    client.close()


def main(*addresses):
    brokers = Brokers([tuple(each.split(",")) for each in addresses])
    play_growth(brokers)
    lines = ",\n".join(json.dumps(each) for each in brokers.answers)
    RECORDED.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
