"""Isolation policies, the leader and load reports: the same steps on two brokers of any kind.

    python -m tests.cluster.requests_of_isolation HTTP1,BROKER1 HTTP2,BROKER2

writes the answers of two brokers of Apache Pulsar, on the hosts 127.0.0.1 and localhost, to ``isolation_requests.json``;
``test_isolation_requests`` plays the steps on two brokers of this project.
"""

from __future__ import annotations

import json
import pathlib
import sys

import requests

from tests.cluster.requests_of_topics import Brokers, has
from tests.waiting import wait_for

__all__ = ["HOSTS", "POLICIES", "RECORDED", "play_isolation"]

RECORDED = pathlib.Path(__file__).with_name("isolation_requests.json")
HOSTS = ("127.0.0.1", "localhost")
NAMESPACE = "public/isolated"
POLICIES = "clusters/c1/namespaceIsolationPolicies"
TOPICS = 12


def policy(primary, secondary, least=1):
    failover = {"min_limit": str(least), "usage_threshold": "100"}
    return {
        "namespaces": [f"{NAMESPACE}.*"],
        "primary": primary,
        "secondary": secondary,
        "auto_failover_policy": {"policy_type": "min_available", "parameters": failover},
    }


def owner(http, number):
    """Host of the owner, or the status of the refusal."""
    url = f"{http}/lookup/v2/topic/persistent/{NAMESPACE}/t{number}"
    answer = requests.get(url, timeout=60)
    if not answer.ok:
        return answer.status_code
    return answer.json()["brokerUrl"].removeprefix("pulsar://").partition(":")[0]


def owners(brokers):
    return sorted({str(owner(brokers.http[number % 2], number)) for number in range(TOPICS)})


def play_isolation(brokers):
    """Play the steps; ``brokers.answers`` gets the answers."""
    ask = brokers.ask
    first, second = (http.removeprefix("http://") for http in brokers.http)
    requests.put(f"{brokers.http[0]}/admin/v2/namespaces/{NAMESPACE}", json={"bundles": {"numBundles": 8}}, timeout=60)
    wait_for(lambda: all(has(http, f"namespaces/{NAMESPACE}") for http in brokers.http), 60, "the namespace")
    ask("GET", POLICIES)
    for name, body, expected in (
        ("first", policy(["127.0.0.1"], ["localhost"]), ["127.0.0.1"]),
        ("changed", policy(["localhost"], ["127.0.0.1"]), ["localhost"]),
        ("secondary", policy(["none"], ["127.0.0.1"]), ["127.0.0.1"]),
        ("both", policy(["localhost"], ["127.0.0.1"], 2), HOSTS),
        ("nobody", policy(["none"], ["none-either"]), []),
    ):
        ask("POST", f"{POLICIES}/p", body)
        wait_for(lambda b=body: all(stored(http, b) for http in brokers.http), 60, "the policy at both brokers")
        requests.put(f"{brokers.http[0]}/admin/v2/namespaces/{NAMESPACE}/unload", timeout=60)
        found = owners(brokers)
        if expected:
            wait_for(lambda e=expected: set(owners(brokers)) <= set(e), 60, f"owners of the policy {name}", every=1)
            found = owners(brokers) if expected is not HOSTS else "any"
        brokers.answers.append([f"owners {name}", 0, found])
        for _ in range(2):
            ask("GET", f"{POLICIES}/p")
            ask("GET", f"{POLICIES}/brokers", show=lambda each: sorted(each, key=lambda one: one["brokerName"]))
        ask("GET", f"{POLICIES}/brokers/{first}")
        ask("GET", f"{POLICIES}/brokers/{second}")
    for _ in range(2):
        ask("DELETE", f"{POLICIES}/p")
        wait_for(lambda: not any(has(http, f"{POLICIES}/p") for http in brokers.http), 60, "the end of the policy")
        ask("GET", f"{POLICIES}/p")
    wait_for(lambda: set(owners(brokers)) <= set(HOSTS), 60, "owners without a policy", every=1)
    for _ in range(2):
        ask("GET", "brokers/leaderBroker", show=sorted)
        ask("GET", "broker-stats/load-report", show=shape)


def stored(http, body):
    answer = requests.get(f"{http}/admin/v2/{POLICIES}/p", timeout=60)
    return answer.ok and answer.json()["primary"] == body["primary"]


def shape(value):
    """Names of members and types of values, without the figures of bundles."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in sorted(value.items()) if name != "lastStats"}
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def main(*addresses):
    brokers = Brokers([tuple(each.split(",")) for each in addresses])
    play_isolation(brokers)
    lines = ",\n".join(json.dumps(each) for each in brokers.answers)
    RECORDED.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
