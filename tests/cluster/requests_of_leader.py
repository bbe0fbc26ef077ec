"""The leader of a cluster is killed, suspended and stopped: the same steps on two brokers of any kind.

    python -m tests.cluster.requests_of_leader

plays the steps on two brokers of Apache Pulsar and writes the answers to ``leader_requests.json``; ``test_leader_requests``
plays them on two brokers of this project, and on a broker of each kind.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import re
import tempfile
from urllib.parse import quote

import requests
from kazoo.client import KazooClient

from tests.cluster.pulsar_broker import MORE, PulsarBroker, initialize_by_pulsar
from tests.cluster.real_cluster import RealCluster
from tests.waiting import wait_for

__all__ = ["RECORDED", "Failover"]

RECORDED = pathlib.Path(__file__).with_name("leader_requests.json")
NAMESPACE = "public/led"
TOPICS = 8


class Failover:
    """Two members, ``first`` and ``second``, not started yet; ``answers`` has the answers for clients and the REST API."""

    def __init__(self, members, zookeeper):
        self.members = dict(zip(("first", "second"), members, strict=True))
        self.answers = []
        self._topics = []
        self._zookeeper = KazooClient(zookeeper)

    def play(self):
        """Play every change of the leader, one after the other."""
        self._zookeeper.start()
        try:
            for each in self.members.values():
                each.start()
                self._registered(each)
            self._alone()
            self._placed()
            self._seen("both", "first", "second")
            self._second_follows("killed", lambda first: first.kill())
            self.members["first"].start()
            self._registered(self.members["first"])
            self._seen("the killed broker is back", "first", "second")
            self._first_follows_suspended()
            self._seen("the suspended broker is back", "first", "second")
            self._second_follows("stopped", lambda first: first.terminate())
        finally:
            self._zookeeper.stop()
            self._zookeeper.close()

    def _alone(self):
        """Wait until the register names no other broker: a killed broker of an earlier test stays registered, and may
        get bundles, until its session ends.
        """
        ours = {id_of(each) for each in self.members.values()}
        wait_for(lambda: set(self._zookeeper.get_children("/loadbalance/brokers")) == ours, 60, "no other broker")

    def _placed(self):
        """Create a namespace with a bundle for each topic; each broker serves every second topic."""
        first = self.members["first"]
        body = {"bundles": {"numBundles": TOPICS}}
        requests.put(f"{first.http}/admin/v2/namespaces/{NAMESPACE}", json=body, timeout=60)
        for each in self.members.values():
            url = f"{each.http}/admin/v2/namespaces/{NAMESPACE}"
            wait_for(lambda u=url: requests.get(u, timeout=60).ok, 60, "the namespace")
        bundles = self._bundles()
        self._topics = [self._topic_in(bundle) for bundle in bundles]
        for number, bundle in enumerate(bundles):
            target = list(self.members.values())[number % 2]
            url = f"{first.http}/admin/v2/namespaces/{NAMESPACE}/{bundle}/unload?destinationBroker={id_of(target)}"
            path = f"/namespace/{NAMESPACE}/{bundle}"

            def moved(u=url, p=path, t=target, topic=self._topics[number]):
                requests.get(f"{t.http}/lookup/v2/topic/persistent/{NAMESPACE}/{topic}", timeout=60)
                if self._owner(p) != id_of(t):
                    requests.put(u, timeout=60)
                    return False
                return True

            wait_for(moved, 60, f"bundle {bundle} at {target.name}", every=0.3)

    def _bundles(self):
        http = self.members["second"].http
        found = requests.get(f"{http}/admin/v2/namespaces/{NAMESPACE}/bundles", timeout=60).json()["boundaries"]
        return [f"{low}_{high}" for low, high in itertools.pairwise(found)]

    def _topic_in(self, bundle):
        """A topic whose hash lies in the bundle."""
        http = self.members["second"].http
        for number in range(1000):
            url = f"{http}/lookup/v2/topic/persistent/{NAMESPACE}/t{number}/bundle"
            if requests.get(url, timeout=60).text == bundle:
                return f"t{number}"
        raise AssertionError(bundle)

    def _owner(self, path):
        """The broker that the node of a bundle names."""
        if not self._zookeeper.exists(path):
            return None
        return json.loads(self._zookeeper.get(path)[0])["httpUrl"].removeprefix("http://")

    def _second_follows(self, event, end):
        first = self.members["first"]
        end(first)
        if event == "killed":  # the session of a killed broker goes on
            self._ask(f"leader right after the first was {event}", "second", "brokers/leaderBroker")
        self._gone(first, "second")
        self._seen(f"the first was {event}", "second")

    def _first_follows_suspended(self):
        second = self.members["second"]
        second.suspend()
        self._ask("leader right after the second was suspended", "first", "brokers/leaderBroker")
        self._gone(second, "first")
        self._seen("the second was suspended", "first")
        second.go_on()
        if second.ended():
            second.start()
        self._registered(second)

    def _registered(self, member):
        """Wait until every node of the cluster names the broker and the broker answers."""
        path = f"/loadbalance/brokers/{id_of(member)}"
        wait_for(lambda: self._zookeeper.exists(path), 120, f"{member.name} in the register")
        url = f"{member.http}/admin/v2/brokers/leaderBroker"
        wait_for(lambda: requests.get(url, timeout=60).ok, 60, "the leader", ignoring=requests.RequestException)

    def _gone(self, member, other):
        """Wait until the broker's session has ended and the other broker is the leader."""
        wait_for(
            lambda: not self._zookeeper.exists(f"/loadbalance/brokers/{id_of(member)}"), 60, f"{member.name} to be gone"
        )
        http, wanted = self.members[other].http, id_of(self.members[other])

        def leads():
            found = requests.get(f"{http}/admin/v2/brokers/leaderBroker", timeout=60)
            return found.ok and found.json().get("brokerId") == wanted

        wait_for(leads, 60, f"{other} as the leader")

    def _seen(self, event, *there):
        """The answers of the running brokers."""
        for name in there:
            self._ask(f"{event}: leader", name, "brokers/leaderBroker")
            self._ask(f"{event}: brokers", name, "brokers/c1")
        for topic in self._topics:
            for name in there:
                url = f"{self.members[name].http}/lookup/v2/topic/persistent/{NAMESPACE}/{topic}"
                wait_for(lambda u=url: requests.get(u, timeout=60).ok, 60, f"an owner of {topic}", every=0.2)
                self._ask(f"{event}: lookup", name, f"topic/persistent/{NAMESPACE}/{topic}", room="lookup/v2")
        for name in there:
            for of in self.members:
                path = f"brokers/c1/{quote(id_of(self.members[of]))}/ownedNamespaces"
                self._ask(f"{event}: bundles of {of}", name, path, show=bundles_of)
        leader = json.loads(self._zookeeper.get("/loadbalance/leader")[0])
        self.answers.append([f"{event}: node of the leader", 0, self._named(leader)])
        brokers = sorted(self._zookeeper.get_children("/loadbalance/brokers"))
        self.answers.append([f"{event}: register", 0, sorted(self._named(brokers))])

    def _ask(self, step, name, path, *, show=None, room="admin/v2"):
        answer = requests.get(f"{self.members[name].http}/{room}/{path}", timeout=60)
        try:
            shown = answer.json()
        except ValueError:
            shown = answer.text
        if answer.status_code >= 300:
            shown = ""
        elif show is not None:
            shown = show(shown)
        shown = self._named(shown)
        if isinstance(shown, list):
            shown = sorted(shown)
        self.answers.append([f"{step}, by {name}", answer.status_code, shown])

    def _named(self, shown):
        """Names of the brokers in place of their ports."""
        text = json.dumps(shown)
        for name, each in self.members.items():
            ports = f"{each.http.rpartition(':')[2]}|{each.url.rpartition(':')[2]}"
            text = re.sub(rf"127\.0\.0\.1:({ports})\b", name, text)
        return json.loads(text)


def id_of(member):
    return member.http.removeprefix("http://")


def bundles_of(found):
    return [name for name in found if name.startswith(f"{NAMESPACE}/")]


def main():
    directory = pathlib.Path(tempfile.mkdtemp(prefix="leader-"))
    cluster = RealCluster(directory / "cluster")
    (directory / "cluster").mkdir()
    cluster.up(3)
    members = []
    try:
        initialize_by_pulsar(cluster)
        members = [PulsarBroker(directory, name, cluster.zookeeper, **MORE) for name in ("p1", "p2")]
        failover = Failover(members, cluster.zookeeper)
        failover.play()
    finally:
        for each in members:
            each.end()
        cluster.down()
    lines = ",\n".join(json.dumps(each) for each in failover.answers)
    RECORDED.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
