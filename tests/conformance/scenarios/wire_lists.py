"""Topic lists and their watchers, CONNECT in odd forms, frames nobody should send, clients at the end of a topic."""

import struct
import time

from harness.steps import drained, namespace, published, rest
from transcript import encode, encode_send, pb, scenario


def topics(c, s, ns, mode, **more):
    """The answer with names sorted; its hash is told by whether it is that of the same question again."""
    frame = c.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns, mode=mode, **more)
    if frame.type == "ERROR":
        s.note(mode, pb.ServerError.Name(frame.command.error))
        return frame
    found = frame.command
    s.note(mode, [sorted(found.topics), found.filtered, found.changed])
    return found


def drained_all(c):
    return list(iter(lambda: c.recv_quietly(0.7), None))


def used(s, c, topic, producer_id):
    """A topic with a producer."""
    s.lookup(topic)
    c.producer(topic, producer_id, quietly=True)


@scenario
def lists_by_mode_pattern_and_hash(s):
    ns = namespace(s)
    c = s.connect()
    for i, (domain, name) in enumerate(
        (("persistent", "a1"), ("persistent", "b2"), ("non-persistent", "a3"), ("non-persistent", "c4"))
    ):
        used(s, c, f"{domain}://{ns}/{name}", i)
    s.http("PUT", f"/admin/v2/persistent/{ns}/parts/partitions", 2, quietly=True)
    for mode in ("PERSISTENT", "NON_PERSISTENT", "ALL"):
        found = topics(c, s, ns, mode)
        topics(c, s, ns, mode, topics_hash=found.topics_hash)
        topics(c, s, ns, mode, topics_hash="")
        for pattern in (
            ".*/a.*",
            "persistent://.*/a.*",
            "non-persistent://.*/.*",
            ".*",
            "a.*",
            ".*/[ab]\\d",
            ".*/parts",
            ".*/parts-partition-.*",
            "",
        ):
            topics(c, s, ns, mode, topics_pattern=pattern)
        found = topics(c, s, ns, mode, topics_pattern=".*/b.*")
        topics(c, s, ns, mode, topics_pattern=".*/b.*", topics_hash=found.topics_hash)


@scenario
def lists_with_patterns_of_java(s):
    """Syntax that Java and others do not share."""
    ns = namespace(s)
    c = s.connect()
    for i, name in enumerate(("abc", "ABC", "a.c", "x1", "\u00e4")):
        used(s, c, f"persistent://{ns}/{name}", i)
    for pattern in (
        ".*/\\p{Lower}+", ".*/\\p{Alpha}*", ".*/(?i)abc", ".*/a\\.c", ".*/\\Qa.c\\E", ".*/[a-z&&[^x]]+", ".*/a++bc", ".*/(?<n>a)bc", ".*/\\w+", ".*/\\S+",
        "(?i).*/ABC", ".*/abc$", "^.*/abc", ".*/a(?!x).*", ".*/[[:alpha:]]+", ".*/x\\d{1}", ".*/\\x61bc", ".*/(?:abc|x1)", "[", "(", "*", "a{2,1}", "\\",
    ):  # fmt: skip
        d = s.connect()
        frame = d.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns, mode="PERSISTENT", topics_pattern=pattern)
        kind = None if frame is None else frame.type
        s.note(pattern, [kind, sorted(getattr(frame.command, "topics", [])) if frame else None])
        d.close()


@scenario
def patterns_at_the_limit_of_their_length(s):
    ns = namespace(s)
    c = s.connect()
    used(s, c, f"persistent://{ns}/t", 1)
    for n in (49, 50, 51, 500):
        pattern = ".*" + "t" * (n - 2)
        topics(c, s, ns, "PERSISTENT", topics_pattern=pattern)
        c.send("WATCH_TOPIC_LIST", quietly=True, namespace=ns, topics_pattern=pattern, watcher_id=n, request_id=n)
        s.note("watch", c.recv_quietly().type)


@scenario
def watchers_beside_each_other(s):
    ns = namespace(s)
    c = s.connect()
    for i, pattern in enumerate((".*/a.*", "persistent://.*/a.*", ".*/.*", ".*", "non-persistent://.*/.*")):
        c.ask("WATCH_TOPIC_LIST", quietly=True, namespace=ns, topics_pattern=pattern, watcher_id=i)
    for name in ("a1", "b1"):
        s.http("PUT", f"/admin/v2/persistent/{ns}/{name}", quietly=True)
        s.note(
            name,
            sorted(
                [f.command.watcher_id, list(f.command.new_topics), list(f.command.deleted_topics)]
                for f in iter(lambda: c.recv_quietly(0.7), None)
            ),
        )
    used(s, c, f"non-persistent://{ns}/a2", 1)
    s.note("non-persistent", [f.type for f in iter(lambda: c.recv_quietly(0.5), None)])
    c.ask("WATCH_TOPIC_LIST_CLOSE", watcher_id=0)
    s.http("DELETE", f"/admin/v2/persistent/{ns}/a1", quietly=True)
    s.note(
        "gone",
        sorted(
            [f.command.watcher_id, list(f.command.new_topics), list(f.command.deleted_topics)]
            for f in iter(lambda: c.recv_quietly(0.7), None)
        ),
    )


@scenario
def watcher_id_used_again(s):
    ns = namespace(s)
    c = s.connect()
    c.ask("WATCH_TOPIC_LIST", namespace=ns, topics_pattern=".*/a.*", watcher_id=1)
    c.ask("WATCH_TOPIC_LIST", namespace=ns, topics_pattern=".*/b.*", watcher_id=1)
    c.ask("WATCH_TOPIC_LIST_CLOSE", watcher_id=1)
    c.ask("WATCH_TOPIC_LIST_CLOSE", watcher_id=1)
    frame = c.ask("WATCH_TOPIC_LIST", namespace=ns, topics_pattern=".*/b.*", watcher_id=2)
    s.http("PUT", f"/admin/v2/persistent/{ns}/b1", quietly=True)
    update = c.recv_quietly()
    s.note(
        "update",
        [update.type, list(update.command.new_topics), update.command.topics_hash != frame.command.topics_hash],
    )


@scenario
def watcher_of_a_partitioned_topic_that_grows_and_goes(s):
    ns = namespace(s)
    c = s.connect()
    c.ask("WATCH_TOPIC_LIST", namespace=ns, topics_pattern=".*/.*", watcher_id=1)

    def told(what):
        new, gone = set(), set()
        for f in iter(lambda: c.recv_quietly(1), None):
            new |= set(f.command.new_topics)
            gone |= set(f.command.deleted_topics)
        s.note(what, [sorted(new), sorted(gone)])

    s.http("PUT", f"/admin/v2/persistent/{ns}/t/partitions", 2, quietly=True)
    told("made")
    s.http("POST", f"/admin/v2/persistent/{ns}/t/partitions", 3, quietly=True)
    told("grown")
    s.http("DELETE", f"/admin/v2/persistent/{ns}/t/partitions", quietly=True)
    told("deleted")


@scenario
def connect_in_odd_forms(s):
    for fields in (
        dict(client_version=""), dict(client_version="\u00e4" * 300), dict(protocol_version=2**31 - 1), dict(protocol_version=-(2**31)),
        dict(auth_method_name=""), dict(auth_method_name="none"), dict(auth_method_name="token", auth_data=b"x"), dict(auth_method_name="sasl"),
        dict(auth_method="AuthMethodNone"), dict(auth_method="AuthMethodAthens"), dict(original_principal="x"), dict(original_principal=""),
        dict(original_auth_data="x", original_auth_method="token"), dict(proxy_to_broker_url="localhost:6650"), dict(proxy_to_broker_url="no url"),
        dict(feature_flags={}), dict(feature_flags=dict(supports_topic_watchers=False)), dict(proxy_version="1"),
    ):  # fmt: skip
        c = s.connect(quietly=False, **fields)
        c.ask("LOOKUP", topic="persistent://public/default/x", authoritative=False)
        c.close()


@scenario
def requests_after_a_failed_one_go_on(s):
    c = s.connect()
    topic = s.topic()
    for request in (
        ("PRODUCER", dict(topic="a/b", producer_id=1)), ("SUBSCRIBE", dict(topic="a/b", subscription="s", subType="Shared", consumer_id=1)),
        ("SEEK", dict(consumer_id=5)), ("UNSUBSCRIBE", dict(consumer_id=5)), ("GET_LAST_MESSAGE_ID", dict(consumer_id=5)),
        ("GET_SCHEMA", dict(topic="a/b")), ("LOOKUP", dict(topic="a/b")), ("PARTITIONED_METADATA", dict(topic="a/b")),
        ("CLOSE_CONSUMER", dict(consumer_id=5)), ("CLOSE_PRODUCER", dict(producer_id=5)), ("WATCH_TOPIC_LIST_CLOSE", dict(watcher_id=5)),
        ("NEW_TXN", dict()), ("PRODUCER", dict(topic=topic, producer_id=1, producer_name="a")),
    ):  # fmt: skip
        c.ask(request[0], **request[1])


@scenario
def ids_and_request_ids_at_their_ends(s):
    c = s.connect()
    topic = s.topic()
    for i, number in enumerate((0, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1)):
        c.ask("PRODUCER", topic=topic, producer_id=number, producer_name=f"p{i}", request_id=number)
        c.ask("SUBSCRIBE", topic=topic, subscription="s", subType="Shared", consumer_id=number, request_id=number)
        c.publish(number, number)
        c.recv()


@scenario
def frames_that_are_cut_or_stretched(s):
    good = encode("LOOKUP", topic="persistent://public/default/x", authoritative=False, request_id=1)
    for note, data in (
        ("nothing", b"\0\0\0\0"), ("command of no size", struct.pack(">II", 4, 0)), ("a size too small", struct.pack(">I", 1) + b"\0"),
        ("a size of three", struct.pack(">I", 3) + b"\0\0\0"), ("bytes behind", struct.pack(">I", len(good)) + good[4:] + b"xxxx"),
        ("twice at once", good + good), ("a command cut off", struct.pack(">II", 8, 4) + good[8:12]),
        ("command size beyond", struct.pack(">II", 8, 100) + good[8:12]), ("a huge size", struct.pack(">I", 2**31 - 1)), ("a negative size", b"\xff" * 8),
    ):  # fmt: skip
        c = s.connect()
        c.raw(data, note, tolerant=True)
        if c.recv(0.6) and note == "twice at once":
            c.recv(2)
        c.close()


@scenario
def sends_that_are_damaged(s):
    topic = s.topic()
    good = encode_send(1, 0, b"hello")
    at = good.index(b"\x0e\x01")
    damaged = {
        "magic": good[:at] + b"\x0e\x03" + good[at + 2 :],
        "checksum": good[: at + 2] + b"\0\0\0\0" + good[at + 6 :],
        "metadata size beyond": good[: at + 6] + b"\x7f\xff\xff\xff" + good[at + 10 :],
        "metadata size negative": good[: at + 6] + b"\xff\xff\xff\xff" + good[at + 10 :],
    }
    for note, data in damaged.items():
        c = s.connect()
        c.producer(topic, 1, quietly=True, producer_name=note)
        c.raw(data, note, tolerant=True)
        c.recv(1)
        c.close()


@scenario
def clients_at_the_unload_of_a_topic(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="a")
    c.producer(topic, 2, quietly=True, producer_name="b")
    for i, sub_type in enumerate(("Exclusive", "Shared", "Failover", "Key_Shared")):
        c.subscribe(topic, sub_type, i, quietly=True, subType=sub_type)
    c.subscribe(topic, "reader", 9, quietly=True, durable=False)
    time.sleep(1.3)
    drained(c, 0.1)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv_sorted(7)
    c.none(0.3)
    c.send("FLOW", consumer_id=1, messagePermits=1)
    c.publish(1, 0)
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    c.ask("UNSUBSCRIBE", consumer_id=2)


@scenario
def clients_at_the_deletion_of_a_topic(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="a")
    c.subscribe(topic, "s", 1, quietly=True, subType="Shared")
    c.subscribe(topic, "reader", 2, quietly=True, durable=False)
    s.http("DELETE", rest(topic))
    c.none(0.2)
    s.http("DELETE", rest(topic, "?force=true"))
    c.recv_sorted(3)
    c.publish(1, 0)
    c.ask("SEEK", consumer_id=1, message_publish_time=0)
    s.lookup(topic)
    c.producer(topic, 1, producer_name="a", epoch=1)
    c.publish(1, 0)
    c.recv()


@scenario
def clients_at_the_deletion_of_a_namespace(s):
    ns = namespace(s)
    c = s.connect()
    for i, domain in enumerate(("persistent", "non-persistent")):
        topic = f"{domain}://{ns}/t"
        s.lookup(topic)
        c.producer(topic, i, quietly=True, producer_name="a")
        c.subscribe(topic, "s", i, quietly=True)
    s.http("DELETE", f"/admin/v2/namespaces/{ns}?force=true", quietly=True)
    c.recv_sorted(4)
    c.none(0.2)
    c.ask("LOOKUP", topic=f"persistent://{ns}/t", authoritative=False)
    c.ask("PARTITIONED_METADATA", topic=f"persistent://{ns}/t")


@scenario
def clients_at_the_termination_of_a_topic(s):
    topic = s.topic()
    published(s, topic, 1)
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="a")
    c.subscribe(topic, "shared", 1, quietly=True, subType="Shared")
    c.subscribe(topic, "behind", 2, 5, quietly=True, initialPosition="Earliest")
    frame = c.recv_quietly()
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    c.recv_sorted(2)
    time.sleep(0.3)
    c.send("ACK", consumer_id=2, ack_type="Individual", message_id=[frame.message_id])
    s.note("told", {f.type for f in drained_all(c)} == {"REACHED_END_OF_TOPIC"})
    c.producer(topic, 1, producer_name="a", epoch=1)
    c.subscribe(topic, "new", 3, 5, initialPosition="Earliest")
    c.recv(2)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=3)
    c.ask("UNSUBSCRIBE", consumer_id=3)


@scenario
def peers_of_each_version_at_the_unload(s):
    for version in (0, 4, 5, 11, 12, 21):
        topic = s.topic(f"t{version}")
        c = s.connect(protocol_version=version)
        c.producer(topic, 1, quietly=True, producer_name="a")
        c.subscribe(topic, "s", 1, quietly=True, subType="Shared")
        s.http("PUT", rest(topic, "/unload"), quietly=True)
        c.recv_sorted(2, 2)


@scenario
def messages_for_peers_of_each_version(s):
    topic = s.topic()
    published(s, topic, 1)
    for version in (0, 3, 6, 10, 11, 17, 18, 21):
        for flag in (False, True):
            c = s.connect(protocol_version=version, feature_flags=dict(supports_broker_entry_metadata=flag))
            c.subscribe(topic, f"s{version}{flag}", 1, 1, quietly=True, initialPosition="Earliest")
            c.recv()
            c.close()
