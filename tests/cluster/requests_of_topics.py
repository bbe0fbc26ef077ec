"""Requests about topics whose partitions several brokers serve: the same steps on two brokers of any kind.

    python -m tests.cluster.requests_of_topics HTTP1,BROKER1 HTTP2,BROKER2

writes the answers of two brokers of Apache Pulsar to ``partitioned_requests.json``; ``test_partitioned_requests`` plays the
steps on two brokers of this project. Every second request goes to the second broker.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
from urllib.parse import quote

import pulsar
import requests

from tests.waiting import wait_for

__all__ = ["RECORDED", "Brokers", "play_listed", "play_non_persistent", "play_partitioned"]

RECORDED = pathlib.Path(__file__).with_name("partitioned_requests.json")
PARTITIONS = 4
UNUSED = 16
EARLIEST = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}


class Brokers:
    """Two brokers, and all their answers: status and body, without parts that differ from run to run."""

    def __init__(self, addresses):
        self.http = [http for http, _ in addresses]
        self.urls = [url for _, url in addresses]
        self.answers = []
        self._asked = 0

    def ask(self, method, path, body=None, *, show=None):
        """Send a request, to the two brokers in turn; ``show`` selects the compared part of the answer."""
        http = self.http[self._asked % 2]
        self._asked += 1
        answer = requests.request(method, f"{http}/admin/v2/{path}", json=body, timeout=60)
        try:
            shown = answer.json()
        except ValueError:
            shown = answer.text
        if show is not None and answer.status_code < 300:
            shown = show(shown)
        elif isinstance(shown, dict) and "reason" in shown:
            shown = shown["reason"]
        self.answers.append(
            [*self._without_places([f"{method} {path}"]), answer.status_code, self._without_places(shown)]
        )
        return answer

    def _without_places(self, shown):
        text = json.dumps(shown)
        text = re.sub(r"\b(127\.0\.0\.1|localhost):\d+", "BROKER", text)
        return json.loads(text)

    def client(self):
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
        addresses = ",".join(url.removeprefix("pulsar://") for url in self.urls)
        return pulsar.Client(f"pulsar://{addresses}", logger=logger, operation_timeout_seconds=60)

    def serve(self, topic, index):
        """Have that broker serve the bundle of the topic."""
        path = topic.replace("://", "/")

        def owner():
            return requests.get(f"{self.http[0]}/lookup/v2/topic/{path}", timeout=60).json().get("brokerUrl")

        bundle = requests.get(f"{self.http[0]}/lookup/v2/topic/{path}/bundle", timeout=60).text
        namespace = "/".join(path.split("/")[1:3])
        target = self.http[index].removeprefix("http://")

        def moved():
            if owner() == self.urls[index]:
                return True
            url = f"{self.http[index]}/admin/v2/namespaces/{namespace}/{bundle}/unload?destinationBroker={target}"
            requests.put(url, timeout=60)
            return owner() == self.urls[index]

        wait_for(moved, 60, f"{topic} at broker {index}", every=0.5)


def backlogs(stats):
    """Backlogs of every subscription, of the whole and of each partition."""
    parts = {name: backlogs_of(each) for name, each in stats["partitions"].items()}
    return {"all": backlogs_of(stats), "partitions": parts, "metadata": stats["metadata"]["partitions"]}


def backlogs_of(stats):
    return {name: each["msgBacklog"] for name, each in sorted(stats["subscriptions"].items())}


def cursors(stats):
    return {name: sorted(each["cursors"]) for name, each in sorted(stats["partitions"].items())}


def keys(found):
    return sorted(found)


def play_partitioned(brokers):
    """Play the steps; ``brokers.answers`` gets the answers."""
    ask, client = brokers.ask, brokers.client()
    namespace = "public/requests"
    url = f"{brokers.http[0]}/admin/v2/namespaces/{namespace}"
    requests.put(url, json={"bundles": {"numBundles": 16}}, timeout=60)
    base = f"persistent/{namespace}/parts"
    topic = f"persistent://{namespace}/parts"
    wait_for(lambda: all(has(http, f"namespaces/{namespace}") for http in brokers.http), 60, "the namespace")
    ask("PUT", f"{base}/partitions", PARTITIONS)
    wait_for(lambda: all(has(http, f"{base}/partitions") for http in brokers.http), 60, "the topic")
    for index in range(PARTITIONS):
        brokers.serve(f"{topic}-partition-{index}", index % 2)
    both = range(2)  # the same request at each of the brokers

    for _ in both:
        ask("PUT", f"{base}/subscription/s1", EARLIEST)
    for index in range(PARTITIONS):
        producer = client.create_producer(f"{topic}-partition-{index}", batching_enabled=False)
        for number in range(3):
            producer.send(str(number).encode())
        producer.close()
    for _ in both:
        ask("GET", f"{base}/subscriptions", show=sorted)
    ask("PUT", f"{base}-partition-1/subscription/s2", EARLIEST)
    for _ in both:
        ask("GET", f"{base}/subscriptions", show=sorted)
        ask("GET", f"{base}/partitioned-stats?perPartition=true", show=backlogs)
    for _ in both:
        ask("GET", f"{base}/partitioned-internalStats", show=cursors)
    for _ in both:
        ask("GET", f"{base}/internal-info", show=keys)

    ask("POST", f"{base}-partition-2/subscription/s1/skip/1")
    ask("POST", f"{base}/subscription/s1/skip/1")
    ask("POST", f"{base}/subscription/s1/skip_all")
    ask("GET", f"{base}/partitioned-stats", show=backlogs)
    for _ in both:
        ask("POST", f"{base}/subscription/s2/skip_all")
    for _ in both:
        ask("POST", f"{base}/subscription/nope/skip_all")
    for _ in both:
        ask("POST", f"{base}/subscription/s1/resetcursor/0")
        ask("GET", f"{base}/partitioned-stats", show=backlogs)
        ask("POST", f"{base}/subscription/s1/skip_all")
    ask("POST", f"{base}/subscription/s1/resetcursor/0")
    for _ in both:
        ask("POST", f"{base}/subscription/s2/resetcursor/0")
    for _ in both:
        ask("POST", f"{base}/subscription/nope/resetcursor/0")
    ask("POST", f"{base}/subscription/s1/resetcursor", EARLIEST)
    ask("POST", f"{base}-partition-3/subscription/s1/resetcursor", EARLIEST)

    for _ in both:
        ask("POST", f"{base}/subscription/s1/expireMessages/100000")
    for _ in both:
        ask("POST", f"{base}/subscription/nope/expireMessages/100000")
    for _ in both:
        ask("POST", f"{base}/all_subscription/expireMessages/100000")
    ask("GET", f"{base}/partitioned-stats", show=backlogs)

    for _ in both:
        ask("PUT", f"{base}/subscription/s1/properties", {"k": "v"})
        ask("GET", f"{base}/subscription/s1/properties")
    ask("GET", f"{base}-partition-0/subscription/s1/properties")
    ask("GET", f"{base}-partition-1/subscription/s1/properties")
    for _ in both:
        ask("PUT", f"{base}/subscription/s2/properties", {"k": "w"})
    for _ in both:
        ask("GET", f"{base}/subscription/nope/properties")
    for _ in both:
        ask("GET", f"{base}/subscription/s1/replicatedSubscriptionStatus", show=keys)
    for _ in both:
        ask("POST", f"{base}/subscription/s1/analyzeBacklog", EARLIEST)
    ask(
        "POST",
        f"{base}-partition-1/subscription/s1/analyzeBacklog",
        EARLIEST,
        show=lambda found: found["entries"],
    )

    consumer = client.subscribe(topic, "s3")
    for _ in both:
        ask("DELETE", f"{base}/subscription/s3")
    consumer.close()
    for _ in both:
        ask("DELETE", f"{base}/subscription/s3")
    for _ in both:
        ask("DELETE", f"{base}/subscription/s2")
    consumer = client.subscribe(topic, "s4")
    ask("DELETE", f"{base}/subscription/s4?force=true")
    consumer.close()
    for http in brokers.http:  # the client may have subscribed again before it closed
        requests.delete(f"{http}/admin/v2/{base}/subscription/s4?force=true", timeout=60)
    for _ in both:
        ask("DELETE", f"{base}/subscription/nope")
    for _ in both:
        ask("GET", f"{base}/subscriptions", show=sorted)

    for _ in both:
        ask("PUT", f"{base}/unload")
    ask("PUT", f"{base}/compaction")
    for part in range(PARTITIONS):
        path = f"{base}-partition-{part}/compaction"
        wait_for(lambda p=path: status(brokers.http[0], p) == "SUCCESS", 60, "the compaction", every=0.3)
    for _ in both:
        ask("POST", f"{base}/trim")
    for _ in both:
        ask("DELETE", f"{base}/truncate")
    ask("GET", f"{base}/subscriptions", show=sorted)

    ask("PUT", f"{base}/subscription/{quote(quote('a b/c', safe=''), safe='')}", EARLIEST)
    ask("POST", f"{base}/partitions", PARTITIONS + 2)
    wait_for(lambda: all(count(http, base) == PARTITIONS + 2 for http in brokers.http), 60, "more partitions")
    for _ in both:
        ask("GET", f"{base}/subscriptions", show=lambda found: sorted(set(found)))
    for index in range(PARTITIONS, PARTITIONS + 2):
        brokers.serve(f"{topic}-partition-{index}", index % 2)
        ask("GET", f"{base}-partition-{index}/subscriptions", show=sorted)
    for _ in both:
        ask("POST", f"{base}/createMissedPartitions")

    consumer = client.subscribe(topic, "s5")
    for _ in both:
        ask("DELETE", f"{base}/partitions")
    consumer.close()
    for _ in both:
        ask("POST", f"{base}/terminate/partitions", show=sorted)  # every message was truncated
    ask("DELETE", f"{base}/partitions?force=true")
    wait_for(lambda: not any(has(http, f"{base}/partitions") for http in brokers.http), 60, "the end of the topic")
    for _ in both:
        ask("GET", f"{base}/subscriptions")
    client.close()


def play_non_persistent(brokers):
    """Requests about partitions that no client has used: their bundles have no owners, and two brokers take them."""
    ask = brokers.ask
    namespace = "public/unused"
    requests.put(f"{brokers.http[0]}/admin/v2/namespaces/{namespace}", json={"bundles": {"numBundles": 32}}, timeout=60)
    wait_for(lambda: all(has(http, f"namespaces/{namespace}") for http in brokers.http), 60, "the namespace")
    for name, operation, *more in (
        ("stats", "GET /partitioned-stats", lambda found: sorted(found["partitions"])),
        ("listed", "GET /subscriptions"),
        ("reset", "POST /subscription/nope/resetcursor/0", lambda found: "done"),
        ("deleted", "DELETE /subscription/nope"),
        ("unloaded", "PUT /unload"),
    ):
        base = f"non-persistent/{namespace}/{name}"
        ask("PUT", f"{base}/partitions", UNUSED)
        wait_for(lambda at=base: all(count(http, at) == UNUSED for http in brokers.http), 60, "the topic")
        method, path = operation.split()
        for _ in range(2):
            ask(method, base + path, show=more[0] if more else None)


def play_listed(brokers):
    """Requests about non-persistent topics in use, of which only their own brokers know."""
    ask, client, namespace = brokers.ask, brokers.client(), "public/listed"
    requests.put(f"{brokers.http[0]}/admin/v2/namespaces/{namespace}", json={"bundles": {"numBundles": 8}}, timeout=60)
    wait_for(lambda: all(has(http, f"namespaces/{namespace}") for http in brokers.http), 60, "the namespace")
    names = ["of-first", "of-second"]
    for index, name in enumerate(names):
        brokers.serve(f"non-persistent://{namespace}/{name}", index)
    producers = [client.create_producer(f"non-persistent://{namespace}/{name}") for name in names]
    for path in (
        f"non-persistent/{namespace}",
        *(f"namespaces/{namespace}/topics?mode={m}" for m in ("ALL", "NON_PERSISTENT")),
    ):
        for _ in range(2):
            ask("GET", path, show=sorted)
    for name in (*names, "missing"):
        for _ in range(2):
            ask("GET", f"non-persistent/{namespace}/{name}/partitions")
    for each in producers:
        each.close()
    client.close()


def has(http, path):
    return requests.get(f"{http}/admin/v2/{path}", timeout=60).status_code == 200


def status(http, path):
    return requests.get(f"{http}/admin/v2/{path}", timeout=60).json().get("status")


def count(http, base):
    return requests.get(f"{http}/admin/v2/{base}/partitions", timeout=60).json().get("partitions")


def main(*addresses):
    brokers = Brokers([tuple(each.split(",")) for each in addresses])
    play_partitioned(brokers)
    play_non_persistent(brokers)
    play_listed(brokers)
    lines = ",\n".join(json.dumps(each) for each in brokers.answers)
    RECORDED.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
