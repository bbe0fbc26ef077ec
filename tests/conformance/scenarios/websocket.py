"""Sessions at /ws/v2: paths, upgrades, partitioned topics, statistics, unloads."""

import base64

from harness.wire import pb
from transcript import scenario


def b64(data):
    return base64.b64encode(data).decode()


def producer(s, topic, **query):
    return s.web_socket("producer", topic, **query)


def consumer(s, topic, subscription="sub", **query):
    return s.web_socket("consumer", topic, subscription, **query)


def reader(s, topic, **query):
    return s.web_socket("reader", topic, **query)


@scenario
def ws_paths(s):
    topic = s.topic()
    path = topic.replace("://", "/")
    for at in (
        "/ws/v2/producer/persistent/public/default",
        "/ws/v2/producer/persistent/public/no-such-namespace/t",
        "/ws/v2/producer/persistent/no-such-tenant/ns/t",
        "/ws/v2/producer/other/public/default/t",
        "/ws/v2/producer",
        "/ws/v2/producer/" + path + "/more",
        "/ws/v2/consumer/" + path,
        "/ws/v2/consumer/" + path + "/",
        "/ws/v2/consumer/" + path + "/sub/more",
        "/ws/v2/consumer/persistent/public/no-such-namespace/t/sub",
        "/ws/v2/reader/" + path + "/more",
        "/ws/v2/reader/persistent/public/no-such-namespace/t",
        "/ws/v2/other/" + path,
        "/ws/v2",
        "/ws",
        "/other",
    ):
        s.web_socket_at(at)


@scenario
def ws_paths_without_upgrade(s):
    topic = s.topic().replace("://", "/")
    s.http("GET", "/ws/v2/producer/" + topic)
    s.http("POST", "/ws/v2/producer/" + topic, {})
    s.http("GET", "/ws/v2/consumer/" + topic + "/sub")
    s.http("GET", "/ws/v2/consumer/" + topic)
    s.http("GET", "/ws/v2/reader/" + topic)
    s.http("GET", "/ws/v2/other/" + topic)


def stats(s, path):
    return s.http("GET", path + "/stats", quietly=True)[1]["subscriptions"].get("sub", {})


def backlog(s, path):
    return stats(s, path).get("msgBacklog")


def consumers(s, path):
    return stats(s, path).get("consumers")


@scenario
def ws_partitioned_topic(s):
    topic = f"persistent://public/default/{s.tag}-p"
    s.http("PUT", "/admin/v2/" + topic.replace("://", "/") + "/partitions", 3, keep=None)
    c = consumer(s, topic)
    p = producer(s, topic, messageRoutingMode="RoundRobinPartition")
    partitions = set()
    for i in range(6):
        p.send(payload=b64(b"m%d" % i), quietly=True)
        p.recv(quietly=True)
        got = c.recv(quietly=True)
        partitions.add(pb.MessageIdData.FromString(base64.b64decode(got["messageId"])).partition)
        c.send(messageId=got["messageId"], quietly=True)
    s.note("partitions", sorted(partitions))
    ids = set()
    for key in ("a", "a", "a"):
        p.send(payload=b64(b"k"), key=key, quietly=True)
        ids.add(pb.MessageIdData.FromString(base64.b64decode(p.recv(quietly=True)["messageId"])).partition)
    s.note("one partition for one key", len(ids))
    path = "/admin/v2/" + topic.replace("://", "/")

    def left():
        return sum(backlog(s, f"{path}-partition-{i}") or 0 for i in range(3))

    s.eventually("three are left", lambda: left() == 3)


@scenario
def ws_partitioned_topic_by_key(s):
    topic = f"persistent://public/default/{s.tag}-p"
    s.http("PUT", "/admin/v2/" + topic.replace("://", "/") + "/partitions", 4, keep=None)
    for scheme in ("JavaStringHash", "Murmur3_32Hash"):
        p = producer(s, topic, hashingScheme=scheme)
        for key in ("a", "b", "customer-17", "ü", ""):
            p.send(payload=b64(b"k"), key=key)
            p.recv()


@scenario
def ws_reader_of_a_partitioned_topic(s):
    topic = f"persistent://public/default/{s.tag}-p"
    s.http("PUT", "/admin/v2/" + topic.replace("://", "/") + "/partitions", 2, keep=None)
    r = reader(s, topic, messageId="earliest")
    p = producer(s, topic, messageRoutingMode="RoundRobinPartition")
    got = set()
    for i in range(4):
        p.send(payload=b64(b"m%d" % i), quietly=True)
        p.recv(quietly=True)
        got.add(r.recv(quietly=True)["payload"])
    s.note("payloads", sorted(got))


@scenario
def ws_non_persistent_topic(s):
    topic = s.topic(domain="non-persistent")
    c = consumer(s, topic)
    p = producer(s, topic)
    p.ask(payload=b64(b"x"), context="c")
    got = c.recv()
    c.send(messageId=got["messageId"])
    c.none()


@scenario
def ws_sessions_outlive_an_unload(s):
    topic = s.topic()
    c = consumer(s, topic)
    p = producer(s, topic)
    p.ask(payload=b64(b"a"))
    got = c.recv()
    c.send(messageId=got["messageId"])
    path = "/admin/v2/" + topic.replace("://", "/")
    s.eventually("acknowledged", lambda: backlog(s, path) == 0)
    s.http("PUT", path + "/unload", keep=None)
    s.eventually("the consumer is back", lambda: consumers(s, path), timeout=20)
    p.send(payload=b64(b"b"))
    got = p.recv(20, quietly=True)
    s.note("result", got["result"])
    while (got := c.recv(20, quietly=True)) and got["payload"] != b64(b"b"):
        pass  # messages acknowledged just before may come again
    s.note("payload", got["payload"])


@scenario
def ws_stats(s):
    topic = s.topic()
    c = consumer(s, topic)
    p = producer(s, topic)
    r = reader(s, topic)
    p.ask(payload=b64(b"a"))
    c.recv(quietly=True)
    r.recv(quietly=True)
    s.http("GET", "/admin/v2/proxy-stats/" + topic.replace("://", "/") + "/stats")
    s.http("GET", "/admin/v2/proxy-stats/persistent/public/default/none/stats")
    status, body = s.http("GET", "/admin/v2/proxy-stats/stats")
    s.note("own", bool(isinstance(body, dict) and body.get(topic)))
    s.http("GET", "/admin/v2/proxy-stats/metrics")
    s.http("GET", "/ws/v2/proxy-stats/stats")
