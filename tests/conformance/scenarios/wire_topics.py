"""Finding topics: LOOKUP, PARTITIONED_METADATA, lists of a namespace, watchers."""

import struct
import time

import crc32c

from harness.steps import drained, namespace, published, read, rest, told
from transcript import scenario


def hash_of(names):
    return struct.pack("<I", crc32c.crc32c(",".join(sorted(names)).encode())).hex() if names else "00000000"


def make(s, ns, *names, domain="persistent"):
    """Plain topics of that namespace; their full names."""
    topics = [f"{domain}://{ns}/{name}" for name in names]
    for topic in topics:
        s.lookup(topic)
        s.http("PUT", rest(topic), quietly=True)
    return topics


def listed(s, c, what, ns, **fields):
    answer = c.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns, **fields)
    if answer.type == "ERROR":
        s.note(what, answer.command.error)
        return answer
    answer = answer.command
    s.note(what, [sorted(answer.topics), answer.filtered, answer.changed, answer.topics_hash == hash_of(answer.topics)])
    return answer


def noted(s, frame):
    """An update of a watcher, its hash compared with that of all names of the watcher."""
    if frame is None:
        s.note("nothing", None)
    elif frame.type == "WATCH_TOPIC_UPDATE":
        told = frame.command
        s.note(frame.type, [sorted(told.new_topics), sorted(told.deleted_topics), told.watcher_id])
    else:
        s.note(frame.type, sorted(frame.command.topic))
    return frame


@scenario
def lookup_with_an_unknown_listener_name(s):
    c, topic = s.connect(), s.topic()
    c.ask("LOOKUP", topic=topic, advertised_listener_name="no-such-listener")
    c.ask("LOOKUP", topic=topic, advertised_listener_name="")


@scenario
def lookup_with_properties_and_original_principal(s):
    c, topic = s.connect(), s.topic()
    c.ask("LOOKUP", topic=topic, properties=[dict(key="k", value="v")])
    c.ask("LOOKUP", topic=topic, original_principal="x", original_auth_data="y", original_auth_method="token")


@scenario
def lookup_of_short_and_legacy_names(s):
    c = s.connect()
    for name in "t-short", "public/default/t", "persistent://public/standalone/default/t", "public/standalone/ns/t":
        c.ask("LOOKUP", topic=name)
        c.ask("PARTITIONED_METADATA", topic=name)


@scenario
def lookup_of_partition_names(s):
    c, topic = s.connect(), s.topic()
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    for name in topic, topic + "-partition-0", topic + "-partition-7", topic + "-partition-x":
        c.ask("LOOKUP", topic=name)


@scenario
def lookup_of_a_non_persistent_topic(s):
    c = s.connect()
    c.ask("LOOKUP", topic=f"non-persistent://public/default/{s.tag}")
    c.ask("LOOKUP", topic=f"non-persistent://public/{s.tag}/t")
    c.ask("PARTITIONED_METADATA", topic=f"non-persistent://public/default/{s.tag}")
    c.ask(
        "PARTITIONED_METADATA", topic=f"non-persistent://public/default/{s.tag}", metadata_auto_creation_enabled=False
    )
    c.ask("PARTITIONED_METADATA", topic=f"non-persistent://public/{s.tag}/t")


@scenario
def lookup_of_names_with_odd_characters(s):
    c = s.connect()
    for name in "a b", "ümlaut", "a%2Fb", "a+b", "a:b", "a?b", "x" * 300:
        c.ask("LOOKUP", topic=f"persistent://public/default/{name}")


@scenario
def topic_with_odd_characters_keeps_its_name(s):
    c = s.connect()
    ns = namespace(s)
    names = [f"persistent://{ns}/{name}" for name in ("a b", "ümlaut", "a+b", "a%2Fb", "a:b&c=d")]
    for i, name in enumerate(names):
        s.lookup(name)
        c.producer(name, i, quietly=True)
        published(s, name, 1)
    listed(s, c, "topics", ns)


@scenario
def partitioned_metadata_of_partitions(s):
    c, topic = s.connect(), s.topic()
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    for name in "-partition-0", "-partition-1", "-partition-2", "-partition-01", "-partition--1", "-partition-":
        for auto in True, False:
            c.ask("PARTITIONED_METADATA", topic=topic + name, metadata_auto_creation_enabled=auto)


@scenario
def partitioned_metadata_of_a_partition_without_its_topic(s):
    c, topic = s.connect(), s.topic()
    c.ask("PARTITIONED_METADATA", topic=topic + "-partition-0", metadata_auto_creation_enabled=False)
    c.ask("PARTITIONED_METADATA", topic=topic + "-partition-0")
    c.producer(topic + "-partition-0", 1, producer_name="p")
    c.subscribe(topic + "-partition-1", "sub", 1)
    c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=False)


@scenario
def partitioned_topic_made_by_automatic_creation(s):
    """Asking for the partitions creates the topic's metadata but no partition."""
    ns = namespace(s)
    override = dict(allowAutoTopicCreation=True, topicType="partitioned", defaultNumPartitions=3)
    s.http("POST", f"/admin/v2/namespaces/{ns}/autoTopicCreation", override, quietly=True)
    c, topic = s.connect(), s.topic("t", ns)
    c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=False)
    c.ask("PARTITIONED_METADATA", topic=topic)
    c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=False)
    listed(s, c, "topics", ns)
    s.lookup(topic + "-partition-2")
    c.producer(topic + "-partition-2", 1, producer_name="p")
    listed(s, c, "with a producer", ns)
    c.producer(topic, 2, producer_name="p")
    other = s.topic("other", ns)
    c.producer(other, 3, producer_name="p")


@scenario
def automatic_creation_switched_off(s):
    ns = namespace(s)
    s.http("POST", f"/admin/v2/namespaces/{ns}/autoTopicCreation", dict(allowAutoTopicCreation=False), quietly=True)
    c, topic = s.connect(), s.topic("t", ns)
    c.ask("LOOKUP", topic=topic)
    c.ask("PARTITIONED_METADATA", topic=topic)
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, "sub", 1)
    s.http("PUT", rest(topic), quietly=True)
    c.ask("PARTITIONED_METADATA", topic=topic)
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, "sub", 1)


@scenario
def subscribe_without_force_topic_creation(s):
    c, topic = s.connect(), s.topic()
    c.subscribe(topic, force_topic_creation=False)
    c.subscribe(topic, force_topic_creation=True)
    c.subscribe(topic, "other", 2, force_topic_creation=False)


@scenario
def subscribe_to_the_base_of_a_partitioned_topic(s):
    c, topic = s.connect(), s.topic()
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    c.subscribe(topic, "sub", 1)
    c.subscribe(topic + "-partition-2", "sub", 2)
    c.subscribe(topic + "-partition-1", "sub", 3)


@scenario
def partitions_added_while_in_use(s):
    c, topic = s.connect(), s.topic()
    s.http("PUT", rest(topic, "/partitions"), 1, quietly=True)
    c.subscribe(topic + "-partition-0", "sub", 1)
    c.producer(topic + "-partition-1", 1, producer_name="p")
    s.http("POST", rest(topic, "/partitions"), 3)
    c.ask("PARTITIONED_METADATA", topic=topic)
    c.producer(topic + "-partition-1", 1, producer_name="p")
    s.http("GET", rest(topic + "-partition-2", "/subscriptions"), keep=True)


@scenario
def topics_filtered_by_a_pattern(s):
    """Only the local name part without partition suffix is matched, the whole of it."""
    ns, c = namespace(s), s.connect()
    make(s, ns, "apple", "apricot", "banana")
    make(s, ns, "almond", domain="non-persistent")
    s.http("PUT", f"/admin/v2/persistent/{ns}/avocado/partitions", 2, quietly=True)
    for pattern in "a.*", ".*/a.*", "persistent://.*/a.*", "non-persistent://.*/a.*", "x://.*/a.*", ".*/app", ".*", "":
        listed(s, c, pattern, ns, topics_pattern=pattern)
    listed(s, c, "all", ns, topics_pattern=".*/a.*", mode="ALL")
    listed(s, c, "non-persistent", ns, topics_pattern=".*/a.*", mode="NON_PERSISTENT")


@scenario
def topics_with_a_short_pattern(s):
    """The broker evaluates patterns up to 50 characters and leaves longer patterns to the client."""
    ns, c = namespace(s), s.connect()
    make(s, ns, "a", "b")
    for pattern in ".*/a", ".*/a" + "|x" * 23, ".*/a" + "|x" * 24, ".*partition.*":
        listed(s, c, str(len(pattern)), ns, topics_pattern=pattern)


@scenario
def topics_with_a_broken_pattern(s):
    c = s.connect()
    c.ask("GET_TOPICS_OF_NAMESPACE", namespace=namespace(s), topics_pattern="(((")
    c.none()


@scenario
def topics_unchanged_by_hash(s):
    ns, c = namespace(s), s.connect()
    make(s, ns, "a", "b")
    first = listed(s, c, "first", ns)
    listed(s, c, "same", ns, topics_hash=first.topics_hash)
    listed(s, c, "other", ns, topics_hash="0badbeef")
    only = listed(s, c, "pattern", ns, topics_pattern=".*/a")
    listed(s, c, "pattern and hash", ns, topics_pattern=".*/a", topics_hash=only.topics_hash)
    listed(s, c, "pattern and hash of all", ns, topics_pattern=".*/a", topics_hash=first.topics_hash)


@scenario
def topics_hash_in_capitals(s):
    ns, c = namespace(s), s.connect()
    # A hash of digits alone has no capitals, and one namespace in forty gets such a hash: take a name that gives a
    # letter.
    names = (f"t{number}" for number in range(1000))
    make(s, ns, next(name for name in names if not hash_of([f"persistent://{ns}/{name}"]).isdigit()))
    first = c.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns).command
    for what, known in ("as given", first.topics_hash), ("in capitals", first.topics_hash.upper()):
        answer = c.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns, topics_hash=known).command
        s.note(what, [len(answer.topics), answer.changed, answer.topics_hash == first.topics_hash])


@scenario
def topics_of_names_that_are_no_namespace(s):
    for name in "public", "", "a/b/c/d", "public/no such":
        c = s.connect(name or "empty")
        c.send("GET_TOPICS_OF_NAMESPACE", namespace=name, request_id=1)
        c.recv(3)


@scenario
def topics_of_an_unknown_namespace(s):
    c = s.connect()
    c.ask("GET_TOPICS_OF_NAMESPACE", namespace="public/" + s.tag)
    for mode in "PERSISTENT", "NON_PERSISTENT", "ALL":
        c.ask("GET_TOPICS_OF_NAMESPACE", namespace="public/" + s.tag, mode=mode)
        c.ask("GET_TOPICS_OF_NAMESPACE", namespace=s.tag + "/default", mode=mode)


def names(c, ns):
    return list(c.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns, mode="NON_PERSISTENT").command.topics)


@scenario
def non_persistent_topics_are_listed_while_in_use(s):
    ns, c = namespace(s), s.connect()
    topic = f"non-persistent://{ns}/n"
    s.lookup(topic)
    c.subscribe(topic, quietly=True)
    listed(s, c, "in use", ns, mode="NON_PERSISTENT")
    listed(s, c, "all", ns, mode="ALL")
    listed(s, c, "persistent", ns, mode="PERSISTENT")
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    s.eventually("gone when closed", lambda: not names(c, ns))


@scenario
def topic_watcher_hears_of_new_and_deleted_topics(s):
    """Only of those that its pattern matches; the hash is that of all that match now."""
    ns, c = namespace(s), s.connect()
    a, _ = make(s, ns, "a1", "b1")
    watch = dict(watcher_id=5, namespace=ns, topics_pattern=".*/a.*")
    noted(s, c.ask("WATCH_TOPIC_LIST", quietly=True, **watch))
    make(s, ns, "b2")
    c.none()
    (a2,) = make(s, ns, "a2")
    frame = noted(s, c.recv_quietly())
    s.note("hash of all", frame and frame.command.topics_hash == hash_of([a, a2]))
    s.http("DELETE", rest(a), quietly=True)
    frame = noted(s, c.recv_quietly())
    s.note("hash of what is left", frame and frame.command.topics_hash == hash_of([a2]))
    c.ask("WATCH_TOPIC_LIST_CLOSE", watcher_id=5)
    make(s, ns, "a3")
    c.none()


@scenario
def topic_watcher_and_partitions(s):
    ns, c = namespace(s), s.connect()
    c.ask("WATCH_TOPIC_LIST", watcher_id=1, namespace=ns, topics_pattern="persistent://.*/p.*")
    s.http("PUT", f"/admin/v2/persistent/{ns}/p/partitions", 1, quietly=True)
    noted(s, c.recv_quietly())
    topic = f"non-persistent://{ns}/pn"
    s.lookup(topic)
    s.connect("np").producer(topic, 1, quietly=True)
    noted(s, c.recv_quietly(1))


@scenario
def topic_watcher_hears_of_topics_made_by_use(s):
    ns, c = namespace(s), s.connect()
    c.ask("WATCH_TOPIC_LIST", watcher_id=1, namespace=ns, topics_pattern=".*")
    topic = s.topic("t", ns)
    s.connect("user").producer(topic, 1, quietly=True)
    noted(s, c.recv_quietly())


@scenario
def topic_watcher_with_the_hash_it_knows(s):
    ns, c = namespace(s), s.connect()
    topics = make(s, ns, "a1")
    watch = dict(namespace=ns, topics_pattern=".*")
    noted(s, c.ask("WATCH_TOPIC_LIST", quietly=True, watcher_id=1, topics_hash="00000000", **watch))
    frame = noted(s, c.ask("WATCH_TOPIC_LIST", quietly=True, watcher_id=2, topics_hash=hash_of(topics), **watch))
    s.note("same hash", frame.command.topics_hash == hash_of(topics))


@scenario
def topic_watcher_repeated_and_unknown(s):
    ns, c = namespace(s), s.connect()
    c.ask("WATCH_TOPIC_LIST", watcher_id=1, namespace=ns, topics_pattern=".*/x")
    c.ask("WATCH_TOPIC_LIST", watcher_id=1, namespace=ns, topics_pattern=".*")
    c.ask("WATCH_TOPIC_LIST_CLOSE", watcher_id=77)
    c.ask("WATCH_TOPIC_LIST", watcher_id=2, namespace=ns, topics_pattern="(((")
    c.ask("WATCH_TOPIC_LIST", watcher_id=3, namespace=ns, topics_pattern="x" * 51)
    c.ask("WATCH_TOPIC_LIST", watcher_id=4, namespace=ns, topics_pattern="x" * 50)
    c.ask("WATCH_TOPIC_LIST", watcher_id=6, namespace="public/" + s.tag, topics_pattern=".*")


@scenario
def topic_watcher_on_no_namespace(s):
    c = s.connect()
    c.send("WATCH_TOPIC_LIST", request_id=1, watcher_id=1, namespace="public", topics_pattern=".*")
    c.recv(3)


@scenario
def topics_per_namespace_limited(s):
    ns, c = namespace(s, maxTopicsPerNamespace=2), s.connect()
    c.producer(s.topic("a", ns), 1, producer_name="p")
    c.producer(s.topic("b", ns), 2, producer_name="p")
    c.producer(s.topic("c", ns), 3, producer_name="p")
    c.subscribe(s.topic("d", ns), "sub", 1)
    time.sleep(0.1)
    c.producer(s.topic("e", ns, "non-persistent"), 4, producer_name="p")


@scenario
def partitioned_topic_made_again_with_more_partitions(s):
    topic = s.topic()
    c = s.connect()
    s.http("PUT", rest(topic, "/partitions"), 1, quietly=True)
    c.subscribe(topic + "-partition-0", permits=10, quietly=True)
    published(s, topic + "-partition-0", 1)
    read(c, 1)
    s.http("DELETE", rest(topic, "/partitions?force=true"), quietly=True)
    c.recv()
    s.http("PUT", rest(topic, "/partitions"), 3)
    c.ask("PARTITIONED_METADATA", topic=topic)
    c.subscribe(topic + "-partition-0", permits=10, initialPosition="Earliest")
    s.note("nothing of before", told(drained(c)))


@scenario
def lookup_with_a_blank_listener_name(s):
    c, topic = s.connect(), s.topic()
    for name in (" ", "\t\n", " x"):
        c.ask("LOOKUP", topic=topic, advertised_listener_name=name)
