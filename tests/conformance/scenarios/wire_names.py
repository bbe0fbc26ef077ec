"""Odd names of topics and namespaces, in every command that carries such a name."""

from harness.steps import namespace, published, rest
from transcript import scenario

PASSING = (
    "t%2Fu", "%", "a b", " a", "a ", "\t", "a\nb", "\u00e4\u00f6\u20ac", "\U0001f600", "a,b;c", "a|b*c?", "<t>", "'t'", '"t"',
    "\\", "..", "a..b", "-", "_", "~!@$^&()=+[]{}", "a:b", "#x", "x" * 200, "0", "\x00", "\x7f",
)  # fmt: skip
PARTITIONS = (
    "-partition-0", "-partition-00", "-partition-01", "-partition-", "-partition--1", "-partition-x", "-partition-1x",
    "-partition-2147483647", "-partition-2147483648", "-partition-99999999999", "-partition-0-partition-1",
    "-PARTITION-0", "-partition- 1", "-partition-+1", "-partition-1 ", "partition-0", "--partition-1", "-partition-1.0",
)  # fmt: skip


ODD = (
    "", " ", "/", "//", "a/b", "a/b/c", "a/b/c/d", "a/b/c/d/e", "public/default/", "public//t", "/public/default/t",
    "persistent://", "persistent:///", "persistent:////", "persistent://public", "persistent://public/default",
    "persistent://public/default/", "persistent://public/default//", "persistent://public/default/ ",
    "persistent://public//t", "persistent:///default/t", "persistent://pub lic/default/t", "persistent://public/def ault/t",
    "persistent://public/default/a/b", "persistent://public/standalone/default/t", "non-persistent://public/default/",
    "Persistent://public/default/t", "PERSISTENT://public/default/t", "topic://public/default/t", "segment://public/default/t",
    "x://public/default/t", "://public/default/t", "persistent:/public/default/t", "persistent//public/default/t",
    "persistent://public/default/t://x", "a://b://c", "http://public/default/t", "persistent://../default/t",
    "persistent://public/default/..", "persistent://public/default/.", "persistent://pu%62lic/default/t",
    "persistent://public/def\u00e4ult/t", "persistent://public/default\n/t", "public/default/t?x=1#y",
)  # fmt: skip


@scenario
def lookup_of_odd_names(s):
    c = s.connect()
    for name in ODD:
        c.ask("LOOKUP", topic=name, authoritative=False)


@scenario
def partitions_of_odd_names(s):
    c = s.connect()
    for name in ODD:
        c.ask("PARTITIONED_METADATA", topic=name)


@scenario
def producers_of_odd_names(s):
    c = s.connect()
    for i, name in enumerate(ODD):
        if "public/default/t" not in name:
            c.ask("PRODUCER", topic=name, producer_id=i)


@scenario
def consumers_of_odd_names(s):
    c = s.connect()
    for i, name in enumerate(ODD):
        if "public/default/t" not in name:
            c.ask("SUBSCRIBE", topic=name, subscription="s", subType="Shared", consumer_id=i)


@scenario
def schemas_of_odd_names(s):
    for name in ODD[::3]:
        c = s.connect()
        c.send("GET_SCHEMA", topic=name, request_id=1)
        c.recv(2)


@scenario
def names_with_every_character_are_topics(s):
    c = s.connect()
    base = s.topic("t")
    for i, tail in enumerate(PASSING):
        topic = base + tail
        s.lookup(topic)
        c.ask("LOOKUP", topic=topic, authoritative=False)
        c.ask("PRODUCER", topic=topic, producer_id=i, producer_name="p")


@scenario
def messages_over_names_with_every_character(s):
    c = s.connect()
    base = s.topic("t")
    for i, tail in enumerate(PASSING[:14]):
        topic = base + tail
        s.lookup(topic)
        c.producer(topic, i, quietly=True, producer_name="p")
        c.subscribe(topic, "sub", i, 5, quietly=True, initialPosition="Earliest")
        c.publish_all(i, [b"x"])
        c.recv()


@scenario
def names_that_look_like_partitions(s):
    c = s.connect()
    base = s.topic("t")
    for i, tail in enumerate(PARTITIONS):
        topic = base + tail
        s.lookup(topic)
        c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=False)
        c.ask("PARTITIONED_METADATA", topic=topic)
        c.ask("PRODUCER", topic=topic, producer_id=i, producer_name="p")
        c.ask("PARTITIONED_METADATA", topic=topic)


@scenario
def names_that_look_like_partitions_of_a_topic_with_two(s):
    c = s.connect()
    base = s.topic("t")
    s.http("PUT", rest(base, "/partitions"), 2, quietly=True)
    for i, tail in enumerate(("", *PARTITIONS, "-partition-1", "-partition-2")):
        topic = base + tail
        s.lookup(topic)
        c.ask("PARTITIONED_METADATA", topic=topic)
        c.ask("SUBSCRIBE", topic=topic, subscription="s", subType="Shared", consumer_id=i)


@scenario
def non_persistent_names_that_look_like_partitions(s):
    c = s.connect()
    base = s.topic("t", domain="non-persistent")
    for i, tail in enumerate(PARTITIONS[:8]):
        topic = base + tail
        s.lookup(topic)
        c.ask("PARTITIONED_METADATA", topic=topic)
        c.ask("PRODUCER", topic=topic, producer_id=i, producer_name="p")


@scenario
def namespaces_with_every_character(s):
    c = s.connect()
    tag = s.topic().split("/")[-1]
    for name in ("public/%s", "public/%s=1", "public/%s:x", "public/%s.y", "public/%s_z", "public/%s-", "public/.%s"):
        ns = name % tag
        s.http("PUT", f"/admin/v2/namespaces/{ns}", {}, quietly=True)
        topic = f"persistent://{ns}/t"
        s.lookup(topic)
        c.ask("LOOKUP", topic=topic, authoritative=False)
        c.ask("PRODUCER", topic=topic, producer_id=1)
        c.ask("CLOSE_PRODUCER", producer_id=1)
        found = c.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns, mode="ALL")
        s.note("topics", list(found.command.topics))


@scenario
def lists_of_odd_namespaces(s):
    for name in ("public", "public/default/", "a/b/c", "a/b/c/d", "/", "", " / ", "public/%", "public/d\u00e4"):
        c = s.connect()
        c.send("GET_TOPICS_OF_NAMESPACE", namespace=name, request_id=1)
        c.recv(2)


@scenario
def watchers_of_odd_namespaces(s):
    for name in ("public", "public/default/", "a/b/c", "a/b/c/d", "", "public/unheard-of", "unheard-of/default"):
        c = s.connect()
        c.send(
            "WATCH_TOPIC_LIST", namespace=name, topics_pattern="public/default/nothing-.*", watcher_id=1, request_id=1
        )
        c.recv(2)


@scenario
def short_names_and_full_names_are_one_topic(s):
    topic = s.topic()
    short = topic.split("/")[-1]
    c = s.connect()
    c.producer(short, 1, producer_name="a")
    c.producer(topic, 2, producer_name="a")
    c.producer("public/default/" + short, 3, producer_name="a")
    c.subscribe(short, "sub", 1)
    c.subscribe("public/default/" + short, "sub", 2)
    s.http("GET", "/admin/v2/persistent/public/default/" + short + "/subscriptions", keep=True)


@scenario
def system_names_are_taken_or_refused(s):
    ns = namespace(s)
    c = s.connect()
    for i, name in enumerate(
        ("__change_events", "__transaction_buffer_snapshot", "__transaction_log_0", "t-multiTopicsReader-x",
         "__transaction_pending_ack", "a__transaction_pending_ack", "__x", "transaction_coordinator_assign")
    ):  # fmt: skip
        topic = f"persistent://{ns}/{name}"
        s.lookup(topic)
        c.ask("LOOKUP", topic=topic, authoritative=False)
        c.ask("PARTITIONED_METADATA", topic=topic)
        c.ask("SUBSCRIBE", topic=topic, subscription="s", subType="Shared", consumer_id=i)
    found = c.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns, mode="ALL")
    s.note("topics", sorted(found.command.topics))


@scenario
def very_long_names(s):
    c = s.connect()
    base = s.topic("t")
    for n in (500, 5000, 60000):
        c.ask("LOOKUP", topic=base + "x" * n, authoritative=False)
        c.ask("PARTITIONED_METADATA", topic=base + "x" * n)


@scenario
def unknown_places_in_every_command(s):
    c = s.connect()
    for place in ("public/unheard-of", "unheard-of/default", "unheard-of/unheard-of"):
        for domain in ("persistent", "non-persistent"):
            topic = f"{domain}://{place}/t"
            c.ask("LOOKUP", topic=topic, authoritative=False)
            c.ask("LOOKUP", topic=topic, authoritative=True)
            c.ask("PARTITIONED_METADATA", topic=topic)
            c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=False)
            c.ask("GET_SCHEMA", topic=topic)
            c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=dict(name="s", schema_data=b"", type="String"))


@scenario
def existing_and_missing_topics_without_creation(s):
    c = s.connect()
    topic, missing = s.topic(), s.topic("missing")
    c.producer(topic, 1, quietly=True)
    s.http("PUT", rest(s.topic("parts"), "/partitions"), 3, quietly=True)
    names = (
        topic,
        missing,
        missing + "-partition-0",
        topic.replace("-t", "-parts"),
        topic.replace("-t", "-parts") + "-partition-2",
    )
    for i, name in enumerate(names):
        c.ask("PARTITIONED_METADATA", topic=name, metadata_auto_creation_enabled=False)
        c.ask("SUBSCRIBE", topic=name, subscription="s", subType="Shared", consumer_id=i, force_topic_creation=False)
        c.ask("LOOKUP", topic=name, authoritative=False)


@scenario
def topics_of_one_name_in_two_namespaces(s):
    a, b = namespace(s, "a"), namespace(s, "b")
    c = s.connect()
    c.subscribe(s.topic("t", a), "sub", 1, permits=10, quietly=True)
    c.subscribe(s.topic("t", b), "sub", 2, permits=10, quietly=True)
    published(s, s.topic("t", b), 1)
    c.recv()
    c.none()


@scenario
def persistent_and_non_persistent_topics_of_one_name(s):
    a, b = s.topic(), s.topic(domain="non-persistent")
    c = s.connect()
    c.subscribe(a, "sub", 1, permits=10, quietly=True)
    c.subscribe(b, "sub", 2, permits=10, quietly=True)
    published(s, b, 1)
    c.recv()
    published(s, a, 1)
    c.recv()
    c.none()


@scenario
def topic_used_by_its_short_name(s):
    topic = s.topic()
    short = topic.removeprefix("persistent://public/default/")
    a, b = s.connect(), s.connect()
    a.producer(short, 1, producer_name="p")
    b.subscribe("public/default/" + short, permits=10)
    a.publish(1, 0)
    a.recv()
    b.recv()
    s.http("GET", rest(topic, "/subscriptions"), keep=True)


@scenario
def schemas_of_names_with_odd_characters(s):
    """The schema in an answer is named after the encoded topic."""
    c = s.connect()
    for tail in ("\xe4", "a b", "a+b", "a%20b", "a:b*~-_.", "\x00"):
        topic = s.topic(tail)
        c.producer(topic, s.next_request(), quietly=True, schema=dict(name="s", schema_data=b"", type="String"))
        c.ask("GET_SCHEMA", topic=topic)
    s.call("PUT", rest(s.topic("\xe4 p"), "/partitions").replace("\xe4 p", "%C3%A4%20p"), 2)
    topic = s.topic("\xe4 p-partition-1")
    c.producer(topic, s.next_request(), quietly=True, schema=dict(name="s", schema_data=b"", type="String"))
    c.ask("GET_SCHEMA", topic=topic)
