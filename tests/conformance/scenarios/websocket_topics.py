"""Consumers of several topics at /ws/v3/consumer, as Apache Pulsar's WebSocket service serves them."""

import urllib.parse

from transcript import scenario


def consumer(s, subscription="sub", **query):
    return s.web_socket_at(f"/ws/v3/consumer/{subscription}?" + urllib.parse.urlencode(query, safe="/:,*"))


def pair(s, namespace="public/default"):
    return s.topic("a", namespace), s.topic("b", namespace)


def publish(s, topic, *payloads):
    """Messages by a producer of the binary protocol."""
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.publish_all(1, payloads)


def path(topic):
    return "/admin/v2/" + topic.replace("://", "/")


def backlogs(s, *topics, name="sub"):
    for topic in topics:
        s.log("backlog", "<", "of", {"topic": topic, "messages": stats(s, topic, name)})


def stats(s, topic, name):
    found = s.http("GET", path(topic) + "/stats", quietly=True)[1]["subscriptions"].get(name)
    return found and found["msgBacklog"]


def subscriptions(s, **topics):
    for name, topic in topics.items():
        status, found = s.http("GET", path(topic) + "/subscriptions", quietly=True)
        s.log("subscriptions", "<", name, {"status": status, "found": found if status == 200 else None})


@scenario
def ws_topics_paths(s):
    a, b = pair(s)
    for at in (
        "/ws/v3/consumer",
        "/ws/v3/consumer/",
        "/ws/v3/consumer/sub",
        f"/ws/v3/consumer?topics={a}",
        f"/ws/v3/consumer/?topics={a}",
        f"/ws/v3/consumer/%20?topics={a}",
        f"/ws/v3/consumer/sub/more?topics={a}",
        f"/ws/v3/consumer/sub/?topics={a}",
        f"/ws/v3/consumer/s%2Ft?topics={a}",
        f"/ws/v3/consumers/sub?topics={a}",
        f"/ws/v3/producer/sub?topics={a}",
        f"/ws/v3/reader/sub?topics={a}",
        f"/ws/v2/consumer/sub?topics={a}",
        f"/ws/v3/consumer/sub?topics={a}&topics={b}",
        f"/ws/v3/consumer/sub?topics={a}&topicsPattern={b}.*",
    ):
        s.web_socket_at(at).close()
    s.http("GET", path(a) + "/subscriptions", keep=True)
    s.http("GET", path(b) + "/subscriptions", keep=True)


@scenario
def ws_topics_without_upgrade(s):
    a = s.topic()
    s.http("GET", f"/ws/v3/consumer/sub?topics={a}")
    s.http("POST", f"/ws/v3/consumer/sub?topics={a}", {})
    s.http("GET", "/ws/v3/consumer")
    s.http("GET", "/ws/v3/consumer/sub/more")
    s.http("GET", f"/ws/v3/other/sub?topics={a}")


@scenario
def ws_topics_names(s):
    a, b = pair(s)
    for names in (
        "",
        " ",
        ",",
        f",{a}",
        f"{a},",
        f"{a}, ,{b}",
        f"{a}, {b}",
        f" {a}",
        f"{a},{a}",
        "bad://x/y",
        f"{a},bad://x/y",
        f"{a},persistent://public/x",
        f"{a},persistent://public/default/x/y",
        f"{a},persistent://missing/ns/x",
        f"{a},persistent://public/missing/x",
        f"{a},{b}-partition-0",
        f"{a},non-persistent://public/default/{s.tag}-n",
        a.removeprefix("persistent://"),
        a.rpartition("/")[2],
    ):
        consumer(s, topics=names).close()


@scenario
def ws_topics_patterns(s):
    for pattern in (
        "",
        " ",
        "[",
        "persistent://public/default/(",
        "public/missing/.*",
        "missing/ns/.*",
        "persistent://public/default/x/y",
        "persistent://public/.*/x",
        f"{s.tag}.*",
    ):
        consumer(s, topicsPattern=pattern).close()


@scenario
def ws_topics_parameters(s):
    a, b = pair(s)
    for name, values in {
        "subscriptionType": ("Exclusive", "Shared", "Failover", "Key_Shared", "x"),
        "subscriptionMode": ("Durable", "NonDurable", "x"),
        "receiverQueueSize": ("0", "1", "x"),
        "ackTimeoutMillis": ("500", "1000"),
        "maxRedeliverCount": ("1", "0"),
        "pullMode": ("true",),
    }.items():
        for value in values:
            consumer(s, f"{name}-{value}", topics=f"{a},{b}", **{name: value}).close()


@scenario
def ws_topics_are_consumed_and_acknowledged(s):
    a, b = pair(s)
    c = consumer(s, topics=f"{a},{b}")
    publish(s, a, b"a1")
    first = c.recv()
    publish(s, b, b"b1", b"b2")
    second, _ = c.recv(), c.recv()
    c.send(messageId=first["messageId"])
    c.send(messageId=second["messageId"])
    c.none()
    c.close()
    backlogs(s, a, b)
    again = consumer(s, topics=f"{b},{a}")
    again.recv()
    again.none()


@scenario
def ws_topics_window_counts_all_topics(s):
    a, b = pair(s)
    c = consumer(s, topics=f"{a},{b}", receiverQueueSize=2)
    publish(s, a, b"a1", b"a2")
    first, _ = c.recv(), c.recv()
    publish(s, b, b"b1")
    c.none()
    c.send(messageId=first["messageId"])
    c.recv()
    c.none()


@scenario
def ws_topics_pull(s):
    a, b = pair(s)
    c = consumer(s, topics=f"{a},{b}", pullMode="true")
    publish(s, a, b"a1", b"a2")
    c.none()
    c.send(type="permit", permitMessages=1)
    c.recv()
    c.none()
    c.send(type="permit", permitMessages=5)
    c.recv()
    publish(s, b, b"b1")
    c.recv()


@scenario
def ws_topics_partitions(s):
    a, b = pair(s)
    s.http("PUT", path(a) + "/partitions", 2)
    c = consumer(s, topics=f"{b},{a}")
    publish(s, a + "-partition-1", b"one")
    one = c.recv()
    publish(s, a + "-partition-0", b"zero")
    c.recv()
    publish(s, b, b"plain")
    plain = c.recv()
    c.send(messageId=one["messageId"])
    c.send(messageId=plain["messageId"])
    c.none()
    c.close()
    backlogs(s, a + "-partition-0", a + "-partition-1", b)


@scenario
def ws_topics_negative_acknowledgement(s):
    a, b = pair(s)
    c = consumer(s, topics=f"{a},{b}", subscriptionType="Shared", negativeAckRedeliveryDelay=100)
    publish(s, b, b"b1")
    got = c.recv()
    c.send(type="negativeAcknowledge", messageId=got["messageId"])
    got = c.recv()
    c.send(messageId=got["messageId"])
    c.none()


@scenario
def ws_topics_dead_letters_of_all_go_to_the_topic_of_the_first(s):
    a, b = pair(s)
    c = consumer(s, topics=f"{a},{b}", subscriptionType="Shared", negativeAckRedeliveryDelay=100, maxRedeliverCount=1)
    for topic in (a, b):
        publish(s, topic, b"x")
        for _ in range(2):
            got = c.recv()
            c.send(type="negativeAcknowledge", messageId=got["messageId"])
        c.none(1.5)
    for topic in (a, b):
        s.http("GET", path(f"{topic}-sub-DLQ") + "/stats", keep=["msgInCounter"])
    c.none(2)
    backlogs(s, a, b)


@scenario
def ws_topics_message_of_another_topic(s):
    a, b = pair(s)
    other = s.topic("other")
    foreign = s.web_socket("consumer", other, "sub")
    c = consumer(s, topics=f"{a},{b}", receiverQueueSize=2)
    publish(s, other, b"x")
    publish(s, a, b"a1", b"a2")
    message = foreign.recv()
    c.recv()
    c.recv()
    publish(s, b, b"b1")
    c.none()
    c.send(messageId=message["messageId"])
    c.recv()
    c.send(type="negativeAcknowledge", messageId=message["messageId"])
    c.recv()


@scenario
def ws_topics_end_and_unsubscribe(s):
    a, b = pair(s)
    c = consumer(s, topics=f"{a},{b}")
    c.ask(type="isEndOfTopic")
    s.http("POST", path(a) + "/terminate")
    c.none()
    c.ask(type="isEndOfTopic")
    s.http("POST", path(b) + "/terminate")
    c.none()
    c.ask(type="isEndOfTopic")
    c.send(type="unsubscribe")
    c.none()
    for topic in (a, b):
        s.http("GET", path(topic) + "/subscriptions", keep=True)


@scenario
def ws_topics_taken(s):
    a, b = pair(s)
    consumer(s, topics=f"{a},{b}")
    consumer(s, topics=f"{b},{a}")
    s.web_socket("consumer", b, "sub")
    consumer(s, "other", topics=f"{b},{a}")


@scenario
def ws_topics_after_an_unload(s):
    a, b = pair(s)
    c = consumer(s, topics=f"{a},{b}", subscriptionType="Shared")
    publish(s, a, b"a1")
    c.recv()
    s.http("PUT", path(a) + "/unload")
    c.recv()
    publish(s, b, b"b1")
    c.recv()


@scenario
def ws_pattern_follows_topics(s):
    base = f"persistent://public/default/{s.tag[-8:]}"  # a broker watches no long patterns
    old, new, unlike = base + "x-old", base + "x-new", base + "y"
    producers = {}
    for topic in (old, new, unlike):
        s.lookup(topic)
    for topic, payload in ((old, b"before"), (None, b""), (old, b"old"), (new, b"first"), (unlike, b"y")):
        if topic is None:
            c = s.web_socket_at(f"/ws/v3/consumer/sub?topicsPattern={base}x.*", shown="pattern")
            continue
        if topic not in producers:
            producers[topic] = s.connect()
            producers[topic].producer(topic, 1, quietly=True, producer_name="p")
            if topic != old:
                c.none(2)
        producers[topic].publish_all(1, [payload], first=len(payload))
        if topic == old and payload == b"old":
            c.send(messageId=c.recv()["messageId"])
    c.recv()
    c.none()
    subscriptions(s, new=new, unlike=unlike)
    producers[old].close()
    s.http("DELETE", path(old) + "?force=true", quietly=True)
    c.none(2)
    subscriptions(s, old=old)
    again = s.connect()
    again.producer(old, 1, quietly=True, producer_name="p")
    c.none(2)
    again.publish_all(1, [b"again"])
    c.recv()


@scenario
def ws_pattern_of_many_characters(s):
    """No watcher: the topics are listed once a minute."""
    namespace = s.namespace()
    s.http("PUT", "/admin/v2/namespaces/" + namespace, {})
    old, new = f"persistent://{namespace}/x-old", f"persistent://{namespace}/x-new"
    s.lookup(old)
    first = s.connect()
    first.producer(old, 1, quietly=True, producer_name="p")
    c = consumer(s, topicsPattern=f"persistent://{namespace}/x.*")
    first.publish_all(1, [b"old"])
    c.recv()
    s.lookup(new)
    publish(s, new, b"new")
    c.none(2)
    s.http("GET", path(new) + "/subscriptions", keep=True)


@scenario
def ws_pattern_partitions(s):
    namespace = s.namespace()
    s.http("PUT", "/admin/v2/namespaces/" + namespace, {})
    topic = f"persistent://{namespace}/x"
    s.http("PUT", path(topic) + "/partitions", 2)
    c = consumer(s, topicsPattern=f"{namespace}/x.*")
    for partition in (0, 1):
        s.lookup(f"{topic}-partition-{partition}")
    publish(s, topic + "-partition-1", b"one")
    c.recv()
    publish(s, topic + "-partition-0", b"zero")
    c.recv()
