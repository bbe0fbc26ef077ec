"""LOOKUP, PARTITIONED_METADATA, lists and watchers: their answers for the same name, before and after its first use."""

import time

from harness.steps import namespace, rest
from transcript import encode, scenario

DOMAINS = ("persistent", "non-persistent")


def asked(c, topic):
    """All requests about a name that do not use it."""
    c.ask("LOOKUP", topic=topic, authoritative=False)
    c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=False)
    c.ask("GET_SCHEMA", topic=topic)


def put_partitions(s, topic, n):
    s.call("PUT", rest(topic, "/partitions"), n)


def names(s, c, ns, mode="ALL", **more):
    """The topics of a namespace, sorted, as a note."""
    frame = c.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns, mode=mode, **more)
    s.note(f"topics {mode} {more}", sorted(t.replace(s.tag, "$") for t in frame.command.topics))


def used(s, ns, *locals_):
    """Names looked up, as a client does before it uses them."""
    for local in locals_:
        for domain in DOMAINS:
            s.lookup(f"{domain}://{ns}/{local}")


def auto_creation(s, ns, **policy):
    s.call("POST", f"/admin/v2/namespaces/{ns}/autoTopicCreation", policy)


@scenario
def questions_about_a_name_before_and_after_its_use(s):
    c = s.connect()
    for domain in DOMAINS:
        topic = s.topic(domain[:3], domain=domain)
        asked(c, topic)
        c.producer(topic, 1, producer_name="p")
        asked(c, topic)
        c.ask("CLOSE_PRODUCER", producer_id=1)
        asked(c, topic)
        s.call("DELETE", rest(topic))
        asked(c, topic)


@scenario
def questions_about_partitioned_topics(s):
    c = s.connect()
    for domain in DOMAINS:
        topic = s.topic(domain[:3], domain=domain)
        put_partitions(s, topic, 2)
        for name in (topic, topic + "-partition-0", topic + "-partition-1", topic + "-partition-2"):
            asked(c, name)
            c.ask("PARTITIONED_METADATA", topic=name, metadata_auto_creation_enabled=True)
            c.ask("PARTITIONED_METADATA", topic=name)


@scenario
def questions_about_a_deleted_partitioned_topic(s):
    c = s.connect()
    topic = s.topic()
    put_partitions(s, topic, 2)
    c.producer(topic + "-partition-0", 1, producer_name="p")
    s.call("DELETE", rest(topic, "/partitions?force=true"))
    c.recv()
    for name in (topic, topic + "-partition-0", topic + "-partition-1"):
        asked(c, name)
        c.producer(name, 5, producer_name="q")
        c.ask("CLOSE_PRODUCER", quietly=True, producer_id=5)


@scenario
def metadata_with_creation_and_what_it_leaves(s):
    ns = namespace(s)
    c = s.connect()
    s.lookup(f"persistent://{ns}/x")
    for i, more in enumerate(({}, {"metadata_auto_creation_enabled": True}, {"metadata_auto_creation_enabled": False})):
        for domain in DOMAINS:
            c.ask("PARTITIONED_METADATA", topic=f"{domain}://{ns}/t{i}", **more)
    names(s, c, ns)
    s.call("GET", f"/admin/v2/persistent/{ns}", keep=True)
    s.call("GET", f"/admin/v2/persistent/{ns}/partitioned", keep=True)


@scenario
def partitioned_creation_by_metadata(s):
    ns = namespace(s)
    auto_creation(s, ns, allowAutoTopicCreation=True, topicType="partitioned", defaultNumPartitions=3)
    c = s.connect()
    for domain in DOMAINS:
        topic = f"{domain}://{ns}/t"
        for name in (topic, topic + "-partition-1", topic + "-partition-3"):
            s.lookup(name)
        c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=False)
        c.ask("PARTITIONED_METADATA", topic=topic + "-partition-1", metadata_auto_creation_enabled=True)
        c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=True)
        c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=False)
        c.ask("PARTITIONED_METADATA", topic=topic + "-partition-1")
        c.ask("PARTITIONED_METADATA", topic=topic + "-partition-3")
        names(s, c, ns)
        c.producer(topic + "-partition-1", 1, producer_name="p")
        c.producer(topic + "-partition-3", 2, producer_name="p")
        c.producer(topic, 3, producer_name="p")
        names(s, c, ns)
    s.call("GET", f"/admin/v2/persistent/{ns}/partitioned", keep=True)


@scenario
def plain_topic_in_a_namespace_of_partitioned_ones(s):
    ns = namespace(s)
    auto_creation(s, ns, allowAutoTopicCreation=True, topicType="partitioned", defaultNumPartitions=2)
    c = s.connect()
    topic = f"persistent://{ns}/t"
    used(s, ns, "t", "u-partition-0")
    c.subscribe(topic, "sub", 1)
    c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=True)
    c.producer(f"persistent://{ns}/u-partition-0", 2, producer_name="p")
    c.subscribe(f"persistent://{ns}/u-partition-0", "sub", 2)
    names(s, c, ns)


@scenario
def creation_switched_off_for_a_namespace(s):
    ns = namespace(s)
    c = s.connect()
    used(s, ns, "old", "t")
    c.producer(f"persistent://{ns}/old", 1, producer_name="p", quietly=True)
    auto_creation(s, ns, allowAutoTopicCreation=False)
    for i, domain in enumerate(DOMAINS):
        topic = f"{domain}://{ns}/t"
        s.lookup(topic)
        asked(c, topic)
        c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=True)
        c.ask("PARTITIONED_METADATA", topic=topic + "-partition-0", metadata_auto_creation_enabled=True)
        c.producer(topic, 10 + i, producer_name="p")
        c.subscribe(topic, "sub", 10 + i)
        c.subscribe(topic, "sub", 10 + i, force_topic_creation=True)
        c.subscribe(topic, "reader", 20 + i, durable=False)
        c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=dict(name="s", schema_data=b"", type="String"))
    c.producer(f"persistent://{ns}/old", 2, producer_name="q")
    s.call("DELETE", f"/admin/v2/namespaces/{ns}/autoTopicCreation")
    c.producer(f"persistent://{ns}/t", 3, producer_name="p")


@scenario
def creation_switched_off_while_a_topic_is_unloaded(s):
    ns = namespace(s)
    c = s.connect()
    topic = f"persistent://{ns}/t"
    s.lookup(topic)
    c.producer(topic, 1, producer_name="p", quietly=True)
    auto_creation(s, ns, allowAutoTopicCreation=False)
    s.call("PUT", rest(topic, "/unload"))
    c.recv()
    s.lookup(topic)
    c.producer(topic, 1, producer_name="p")
    s.call("DELETE", rest(topic, "?force=true"))
    c.recv()
    c.producer(topic, 1, producer_name="p")


@scenario
def subscriptions_not_made_by_themselves(s):
    ns = namespace(s)
    c = s.connect()
    topic = f"persistent://{ns}/t"
    s.lookup(topic)
    s.call("POST", f"/admin/v2/namespaces/{ns}/autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False})
    c.subscribe(topic, "sub", 1)
    names(s, c, ns)
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, "sub", 1)
    c.subscribe(topic, "reader", 2, durable=False)
    c.producer(topic, 2, producer_name="q", initial_subscription_name="first")
    s.call("PUT", rest(topic, "/subscription/made"))
    c.subscribe(topic, "made", 3)
    c.producer(topic, 3, producer_name="r", initial_subscription_name="made")
    s.lookup("non-" + topic)
    c.subscribe("non-" + topic, "sub", 4)


@scenario
def lookups_of_an_authoritative_kind(s):
    c = s.connect()
    topic = s.topic()
    for more in (
        {"authoritative": True},
        {"authoritative": False},
        {"advertised_listener_name": ""},
        {"advertised_listener_name": "internal"},
        {"advertised_listener_name": "none"},
        {"properties": [{"key": "k", "value": "v"}, {"key": "k", "value": "w"}]},
        {"original_principal": "x", "original_auth_data": "y", "original_auth_method": "z"},
        {"authoritative": True, "advertised_listener_name": ""},
    ):
        c.ask("LOOKUP", topic=topic, **more)


@scenario
def lookups_in_one_write_are_all_answered(s):
    c = s.connect()
    good = s.topic()
    topics = (good, "bad://x", "persistent://none/none/t", good + "-partition-3", "non-" + good, "", "a/b")
    c.raw(
        b"".join(encode("LOOKUP", topic=t, request_id=i, authoritative=False) for i, t in enumerate(topics)), "LOOKUPs"
    )
    c.recv_sorted(len(topics))
    c.raw(b"".join(encode("PARTITIONED_METADATA", topic=t, request_id=i) for i, t in enumerate(topics)), "METADATAs")
    c.recv_sorted(len(topics))


@scenario
def list_grows_and_shrinks(s):
    ns = namespace(s)
    c = s.connect()
    used(s, ns, "a", "b", "q-partition-1")
    names(s, c, ns)
    c.producer(f"persistent://{ns}/a", 1, producer_name="p", quietly=True)
    c.subscribe(f"non-persistent://{ns}/b", "sub", 2, quietly=True)
    put_partitions(s, f"persistent://{ns}/p", 2)
    put_partitions(s, f"non-persistent://{ns}/q", 2)
    for mode in ("PERSISTENT", "NON_PERSISTENT", "ALL"):
        names(s, c, ns, mode)
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=2)
    c.producer(f"non-persistent://{ns}/q-partition-1", 3, producer_name="p", quietly=True)
    names(s, c, ns, "NON_PERSISTENT")
    s.call("DELETE", rest(f"persistent://{ns}/a", "?force=true"))
    s.call("DELETE", rest(f"persistent://{ns}/p", "/partitions"))
    names(s, c, ns)


@scenario
def lists_filtered_by_patterns(s):
    ns = namespace(s)
    c = s.connect()
    for name in ("a1", "a2", "b1", "a.b", "a-partition-x", "A1", "x-a1"):
        s.call("PUT", rest(f"persistent://{ns}/{name}"))
    put_partitions(s, f"persistent://{ns}/p", 2)
    for local in (
        "a.*", "a[0-9]", "(a|b)1", "[^a].*", ".*", "a1", "A.*", "(?i)a1", "p", "p-partition-.*", ".*1$", "^a1$", "a1|b1", r"\w+", "a{1}1", "", "a1 ",
    ):  # fmt: skip
        frame = c.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns, mode="ALL", topics_pattern=f"{ns}/{local}")
        own = sorted(t.rpartition("/")[2] for t in frame.command.topics)
        s.note(
            local, [frame.type, getattr(frame.command, "filtered", None), own] if len(f"{ns}/{local}") <= 50 else "long"
        )


@scenario
def properties_given_with_lists(s):
    ns = namespace(s)
    c = s.connect()
    s.call("PUT", rest(f"persistent://{ns}/a"), {"k": "v"})
    s.call("PUT", rest(f"persistent://{ns}/b"))
    for properties in ([], [{"key": "k", "value": "v"}], [{"key": "k", "value": "w"}], [{"key": "", "value": ""}]):
        frame = c.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns, mode="PERSISTENT", properties=properties)
        s.note(str(properties), sorted(t.rpartition("/")[2] for t in frame.command.topics))


def watch(c, watcher_id, ns, pattern, **more):
    return c.ask("WATCH_TOPIC_LIST", quietly=True, watcher_id=watcher_id, namespace=ns, topics_pattern=pattern, **more)


def updates(s, c, seconds=2.0):
    """The updates of watchers until none comes for a while: watcher, new and deleted topics."""
    heard = []
    while frame := c.recv_quietly(seconds):
        told = frame.command
        if frame.type == "WATCH_TOPIC_UPDATE":
            heard.append(
                [
                    told.watcher_id,
                    [t.rpartition("/")[2] for t in told.new_topics],
                    [t.rpartition("/")[2] for t in told.deleted_topics],
                ]
            )
        else:
            heard.append(frame.type)
    return sorted(heard, key=str)


@scenario
def watchers_hear_of_every_way_a_topic_comes(s):
    ns = f"public/w{time.monotonic_ns() % 10**9}"
    s.http("PUT", f"/admin/v2/namespaces/{ns}", {}, quietly=True)
    c, d = s.connect(), s.connect()
    used(s, ns, "a", "b", "d")
    s.note("first", watch(c, 1, ns, f"{ns}/.*").type)
    d.producer(f"persistent://{ns}/a", 1, quietly=True, producer_name="p")
    s.note("producer", updates(s, c))
    d.subscribe(f"persistent://{ns}/b", "sub", 1, quietly=True)
    s.note("consumer", updates(s, c))
    s.http("PUT", rest(f"persistent://{ns}/c"), quietly=True)
    s.note("rest", updates(s, c))
    d.subscribe(f"non-persistent://{ns}/d", "sub", 2, quietly=True)
    s.note("non-persistent", updates(s, c))
    s.http("PUT", rest(f"persistent://{ns}/c", "/unload"), quietly=True)
    s.note("unload", updates(s, c))
    s.http("DELETE", rest(f"persistent://{ns}/c"), quietly=True)
    s.note("deletion", updates(s, c))
    s.http("PUT", rest(f"persistent://{ns}/c"), quietly=True)
    s.note("again", updates(s, c))


@scenario
def watchers_of_several_patterns_and_namespaces(s):
    number = time.monotonic_ns() % 10**9
    one, two = f"public/v{number}", f"public/v{number}x"
    for ns in (one, two):
        s.http("PUT", f"/admin/v2/namespaces/{ns}", {}, quietly=True)
    c = s.connect()
    watch(c, 1, one, f"{one}/a.*")
    watch(c, 2, one, f"{one}/.*1")
    watch(c, 3, two, f"{two}/.*")
    watch(c, 4, one, f"{one}/none")
    for ns in (one, two):
        for name in ("a1", "a2", "b1"):
            s.http("PUT", rest(f"persistent://{ns}/{name}"), quietly=True)
    s.note("heard", updates(s, c))
    c.ask("WATCH_TOPIC_LIST_CLOSE", watcher_id=1)
    c.ask("WATCH_TOPIC_LIST_CLOSE", watcher_id=1)
    s.http("DELETE", rest(f"persistent://{one}/a1"), quietly=True)
    s.note("heard after one is closed", updates(s, c))
    frame = watch(c, 1, two, f"{two}/b.*")
    s.note("id in use again", [t.rpartition("/")[2] for t in frame.command.topic])


@scenario
def watchers_of_a_namespace_that_goes_and_comes_back(s):
    ns = f"public/u{time.monotonic_ns() % 10**9}"
    s.http("PUT", f"/admin/v2/namespaces/{ns}", {}, quietly=True)
    c = s.connect()
    watch(c, 1, ns, f"{ns}/.*")
    s.http("PUT", rest(f"persistent://{ns}/a"), quietly=True)
    s.note("made", updates(s, c))
    s.http("DELETE", f"/admin/v2/namespaces/{ns}?force=true", quietly=True)
    s.note("gone", updates(s, c))
    s.http("PUT", f"/admin/v2/namespaces/{ns}", {}, quietly=True)
    s.http("PUT", rest(f"persistent://{ns}/b"), quietly=True)
    s.note("back", updates(s, c))
