"""Topics over REST: created, described, changed and deleted, plain and partitioned, persistent and not."""

from harness.steps import published, published_batches, rest
from transcript import scenario

PARTITIONED = {"Content-Type": "application/vnd.partitioned-topic-metadata+json"}


def path_of(s, name="t", domain="persistent"):
    s.lookup(f"{domain}://public/default/{s.tag}-{name}")
    return f"/admin/v2/{domain}/public/default/{s.tag}-{name}"


def filled(s, n=5, **metadata):
    """A topic with n messages m0..; its path, connection (producer 1) and message ids."""
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    return "/admin/v2/" + topic.replace("://", "/"), c, c.publish_all(1, [b"m%d" % i for i in range(n)], **metadata)


def calls(s, *steps):
    for method, path, *body in steps:
        s.call(method, path, body[0] if body else None, keep=True)


@scenario
def plain_topic_created_twice_and_deleted_twice(s):
    t = path_of(s)
    calls(
        s,
        ("PUT", t),
        ("PUT", t),
        ("PUT", t + "/partitions", 2),
        ("GET", t + "/partitions"),
        ("DELETE", t),
        ("DELETE", t),
    )


@scenario
def plain_topic_is_not_partitioned(s):
    t = path_of(s)
    calls(
        s,
        ("PUT", t),
        ("POST", t + "/partitions", 3),
        ("DELETE", t + "/partitions"),
        ("GET", t + "/partitioned-stats"),
        ("GET", t + "/partitioned-internalStats"),
        ("POST", t + "/terminate/partitions"),
        ("POST", t + "/createMissedPartitions"),
    )


@scenario
def properties_of_a_plain_topic(s):
    t = path_of(s)
    calls(
        s,
        ("PUT", t, {"a": "b", "n": 1}),
        ("GET", t + "/properties"),
        ("PUT", t + "/properties", {"k": "v"}),
        ("GET", t + "/properties"),
        ("DELETE", t + "/properties?key=a"),
        ("DELETE", t + "/properties?key=unknown"),
        ("PUT", t + "/properties", {}),
        ("GET", t + "/properties"),
    )


@scenario
def properties_of_a_partitioned_topic(s):
    t = path_of(s)
    s.call("PUT", t + "/partitions", {"partitions": 2, "properties": {"a": "b"}}, headers=PARTITIONED)
    calls(
        s,
        ("GET", t + "/partitions"),
        ("GET", t + "/properties"),
        ("PUT", t + "/properties", {"k": "v"}),
        ("GET", t + "/partitions"),
        ("DELETE", t + "/properties?key=a"),
        ("DELETE", t + "/properties?key=k"),
        ("GET", t + "/properties"),
        ("GET", t + "/partitions"),
    )


@scenario
def partitioned_topic_without_properties(s):
    t = path_of(s)
    calls(s, ("PUT", t + "/partitions", 2), ("GET", t + "/properties"), ("GET", t + "/partitions"))


@scenario
def numbers_of_partitions(s):
    t = path_of(s)
    for body in (0, -1, 2.5, "x"):
        s.call("PUT", t + "/partitions", body)
    s.call("PUT", t + "/partitions", raw=b"null")
    for body in ({"partitions": 0}, {}):
        s.call("PUT", t + "2/partitions", body, headers=PARTITIONED)
    for body in (3, 3, 2, 0, -1):
        s.call("POST", t + "/partitions", body)
        s.call("GET", t + "/partitions", keep=["partitions"])
    s.call("POST", t + "/partitions", raw=b"null")


@scenario
def partitioned_topic_is_not_plain(s):
    t = path_of(s)
    calls(
        s,
        ("PUT", t + "/partitions", 2),
        ("PUT", t),
        ("PUT", t + "/partitions", 2),
        ("GET", t + "/stats"),
        ("GET", t + "/internalStats"),
        ("GET", t + "/lastMessageId"),
        ("GET", t + "/messageid/5"),
        ("GET", t + "/examinemessage"),
        ("GET", t + "/compaction"),
        ("GET", t + "/offload"),
        ("GET", t + "/ledger/1/entry/1"),
        ("GET", t + "/getMessageIdByIndex?index=0"),
        ("POST", t + "/terminate"),
        ("DELETE", t),
        ("DELETE", t + "?force=true"),
    )


@scenario
def operations_for_all_partitions(s):
    t = path_of(s)
    calls(
        s,
        ("PUT", t + "/partitions", 2),
        ("PUT", t + "/compaction"),
        ("PUT", t + "/unload"),
        ("DELETE", t + "/truncate"),
        ("POST", t + "/trim"),
        ("POST", t + "/terminate/partitions"),
        ("POST", t + "/terminate/partitions"),
        ("DELETE", t + "/partitions"),
        ("DELETE", t + "/partitions"),
        ("DELETE", t + "/partitions?force=true"),
    )


@scenario
def a_partition_by_its_own_name(s):
    t = path_of(s)
    calls(
        s,
        ("PUT", t + "/partitions", 2),
        ("GET", t + "-partition-0/partitions"),
        ("GET", t + "-partition-7/partitions"),
        ("PUT", t + "-partition-0"),
        ("PUT", t + "-partition-7"),
        ("PUT", t + "-partition-0/partitions", 2),
        ("POST", t + "-partition-0/partitions", 2),
        ("DELETE", t + "-partition-0/partitions"),
        ("GET", t + "-partition-0/partitioned-stats"),
        ("DELETE", t + "-partition-0"),
        ("DELETE", t + "-partition-0"),
        ("GET", t + "-partition-0/stats"),
        ("POST", t + "/createMissedPartitions"),
        ("GET", t + "-partition-0/subscriptions"),
    )


@scenario
def names_like_partitions(s):
    t = path_of(s)
    calls(
        s,
        ("PUT", t + "-partition-0"),
        ("PUT", t + "-partition-0/partitions", 2),
        ("PUT", t + "-partition-x"),
        ("GET", t + "-partition-x/partitions"),
        ("PUT", t + "-partition-1/subscription/s"),
        ("PUT", t + "%2Fd"),
        ("GET", t + "%2Fd/partitions"),
        ("DELETE", t + "%2Fd"),
    )


@scenario
def last_message_of_an_empty_topic_and_its_end(s):
    t = path_of(s)
    calls(
        s,
        ("PUT", t),
        ("GET", t + "/lastMessageId"),
        ("GET", t + "/messageid/5"),
        ("POST", t + "/terminate"),
        ("POST", t + "/terminate"),
        ("GET", t + "/lastMessageId"),
    )


@scenario
def message_ids_by_index_and_bytes_behind_them(s):
    t, _, ids = filled(s)
    for index in (0, 2, 4, 5, 100, -1):
        s.call("GET", f"{t}/getMessageIdByIndex?index={index}", keep=True)
    s.call("GET", t + "/getMessageIdByIndex")
    s.call("PUT", t + "/backlogSize", ids[2], keep=True)
    s.call("PUT", t + "/backlogSize", ids[4], keep=True)
    s.call("PUT", t + "/backlogSize", {"ledgerId": -1, "entryId": -1}, keep=True)


@scenario
def message_ids_by_an_index_in_a_batch(s):
    topic = s.topic()
    published_batches(s, topic, [b"a", b"b", b"c"], [b"d"], [b"e", b"f"])
    for index in range(8):
        s.call("GET", rest(topic, f"/getMessageIdByIndex?index={index}"), keep=True)


@scenario
def the_index_among_the_properties(s):
    t, _, _ = filled(s)
    s.call("GET", t + "/properties", keep=True)
    s.call("PUT", t + "/properties", {"a": "b"})
    s.call("GET", t + "/properties", keep=True)
    s.call("PUT", t + "/unload")
    s.call("GET", t + "/properties", keep=True)


@scenario
def examined_messages(s):
    t, _, _ = filled(s)
    for query in (
        "initialPosition=earliest&messagePosition=1",
        "initialPosition=earliest&messagePosition=5",
        "initialPosition=latest&messagePosition=1",
        "initialPosition=latest&messagePosition=5",
        "initialPosition=other&messagePosition=1",
        "",
    ):
        s.call("GET", f"{t}/examinemessage?{query}", keep=True)


@scenario
def a_message_by_its_position(s):
    t, _, ids = filled(s)
    path = f"{t}/ledger/{ids[1]['ledgerId']}/entry/"
    for entry in (0, 1, 4, 5):
        status, body = s.http("GET", f"{path}{entry}", quietly=True)
        s.note("entry", [entry, status, body if status == 200 else None])


@scenario
def non_persistent_topic_has_less(s):
    t = path_of(s, domain="non-persistent")
    calls(
        s,
        ("PUT", t),
        ("PUT", t),
        ("GET", t + "/partitions"),
        ("GET", t + "/internalStats"),
        ("GET", t + "/lastMessageId"),
        ("GET", t + "/messageid/5"),
        ("GET", t + "/examinemessage"),
        ("GET", t + "/getMessageIdByIndex?index=0"),
        ("POST", t + "/trim"),
        ("DELETE", t + "/truncate"),
        ("GET", t + "/properties"),
        ("PUT", t + "/properties", {"k": "v"}),
        ("POST", t + "/terminate"),
        ("POST", t + "/terminate/partitions"),
        ("PUT", t + "/unload"),
    )


@scenario
def non_persistent_topic_and_subscriptions(s):
    t = path_of(s, domain="non-persistent")
    calls(
        s,
        ("PUT", t),
        ("GET", t + "/subscriptions"),
        ("PUT", t + "/subscription/s"),
        ("DELETE", t + "/subscription/s"),
        ("POST", t + "/subscription/s/skip/1"),
        ("POST", t + "/subscription/s/skip_all"),
        ("POST", t + "/subscription/s/expireMessages/1"),
        ("POST", t + "/all_subscription/expireMessages/1"),
        ("POST", t + "/subscription/s/resetcursor/1"),
        ("GET", t + "/subscription/s/position/1"),
    )


@scenario
def non_persistent_partitioned_topic(s):
    t = path_of(s, domain="non-persistent")
    calls(
        s,
        ("PUT", t + "/partitions", 2),
        ("PUT", t + "/partitions", 2),
        ("GET", t + "/partitions"),
        ("POST", t + "/partitions", 3),
        ("GET", t + "/partitions"),
        ("GET", t + "-partition-0/internalStats"),
        ("DELETE", t),
        ("DELETE", t + "/partitions"),
        ("DELETE", t + "/partitions"),
    )


@scenario
def non_persistent_topic_nobody_knows_is_deleted_without_fuss(s):
    t = path_of(s, domain="non-persistent")
    calls(s, ("DELETE", t), ("DELETE", t + "?force=true"), ("DELETE", t + "/partitions"))


@scenario
def permissions_on_a_topic(s):
    t = path_of(s)
    calls(
        s,
        ("PUT", t),
        ("GET", t + "/permissions"),
        ("POST", t + "/permissions/r", ["produce", "consume"]),
        ("GET", t + "/permissions"),
        ("POST", t + "/permissions/r", ["consume"]),
        ("POST", t + "/permissions/q", ["produce"]),
        ("GET", t + "/permissions"),
        ("DELETE", t + "/permissions/r"),
        ("DELETE", t + "/permissions/q"),
        ("GET", t + "/permissions"),
    )


@scenario
def permissions_on_many_topics_at_once(s):
    t = path_of(s)
    topic = f"persistent://public/default/{s.tag}-t"
    calls(
        s,
        ("PUT", t),
        (
            "POST",
            "/admin/v2/namespaces/grantPermissionsOnTopics",
            [{"topic": topic, "role": "r", "actions": ["produce"]}],
        ),
        ("GET", t + "/permissions"),
        ("POST", "/admin/v2/namespaces/revokePermissionsOnTopics", [{"topic": topic, "role": "r"}]),
        ("GET", t + "/permissions"),
    )


@scenario
def shadow_topics(s):
    t = path_of(s)
    calls(s, ("PUT", t), ("GET", t + "/shadowTopics"), ("DELETE", t + "/shadowTopics"), ("GET", t + "/shadowTopics"))


@scenario
def ledgers_of_a_topic_that_was_unloaded(s):
    """Which ledgers there are once the topic is loaded again by the question itself."""
    kept = lambda r: [[x["entries"], x["size"]] for x in r["ledgers"]] + [r["currentLedgerEntries"], r["state"]]  # noqa: E731
    base = "/admin/v2/" + s.topic("p").replace("://", "/")
    s.http("PUT", base + "/partitions", 1, quietly=True)
    for topic in (s.topic("t"), s.topic("p-partition-0"), s.topic("u")):
        if not topic.endswith("u"):
            published(s, topic, 2)
        else:
            s.http("PUT", rest(topic), quietly=True)
        s.call("GET", rest(topic, "/internalStats"), keep=kept)
        s.call("PUT", rest(topic, "/unload"))
        s.call("GET", rest(topic, "/internalStats"), keep=kept)
        s.call("PUT", rest(topic, "/unload"))
        s.lookup(topic)
        s.call("GET", rest(topic, "/internalStats"), keep=kept)
        c = s.connect()
        c.producer(topic, 1, quietly=True, producer_name="p")
        s.call("GET", rest(topic, "/internalStats"), keep=kept)


@scenario
def deletion_of_a_partitioned_topic_in_use(s):
    """Refused; then without its consumers."""
    for count, used in ((2, 0), (3, 1)):
        topic = s.topic(f"{count}-{used}")
        s.http("PUT", rest(topic, "/partitions"), count, quietly=True)
        c, part = s.connect(), f"{topic}-partition-{used}"
        s.lookup(part)
        c.subscribe(part, quietly=True)
        s.call("DELETE", rest(topic, "/partitions"))
        names = s.http("GET", "/admin/v2/persistent/public/default", quietly=True)[1]
        s.note("left", sorted(name for name in names if name.startswith(topic)))
        s.call("GET", rest(topic, "/partitions"), keep=["partitions"])
        c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
        s.call("DELETE", rest(topic, "/partitions"))
        s.call("GET", rest(topic, "/partitions"))
