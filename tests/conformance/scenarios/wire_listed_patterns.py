"""Lists of topics by pattern and hash over a namespace that changes; watchers beside them, closed, limited, of each mode."""

from harness.steps import namespace, rest
from transcript import scenario

WATCHES = dict(supports_topic_watchers=True)
RECONCILES = WATCHES | dict(supports_topic_watcher_reconcile=True)
PLACE = "persistent://public/.*/"  # a pattern has at most 50 characters
MODES = ("PERSISTENT", "NON_PERSISTENT", "ALL")


def put(s, ns, *names, domain="persistent"):
    for name in names:
        s.http("PUT", f"/admin/v2/{domain}/{ns}/{name}", quietly=True)


def away(s, ns, *names, domain="persistent", more="?force=true"):
    for name in names:
        s.http("DELETE", f"/admin/v2/{domain}/{ns}/{name}{more}", quietly=True)


def note(s, what, frame):
    """Note a list or an update; hashes by the order of their first appearance."""
    if not frame:
        return s.note(what, None)
    command, found = frame.command, {}
    for field in ("topics", "topic", "new_topics", "deleted_topics"):
        if getattr(command, field, None):
            found[field] = sorted(t.replace(s.tag, "$") for t in getattr(command, field))
    for field in ("filtered", "changed", "error", "watcher_id"):
        if command.HasField(field) if field in command.DESCRIPTOR.fields_by_name else False:
            found[field] = getattr(command, field)
    for field in ("topics_hash",):
        if field in command.DESCRIPTOR.fields_by_name and command.HasField(field):
            known = s.__dict__.setdefault("hashes", [])
            value = getattr(command, field)
            if value not in known:
                known.append(value)
            found[field] = known.index(value)
    return s.note(what, [frame.type, found])


def listed(s, c, ns, what, **more):
    frame = c.ask("GET_TOPICS_OF_NAMESPACE", True, namespace=ns, **({"mode": "PERSISTENT"} | more))
    note(s, what, frame)
    return getattr(frame.command, "topics_hash", "") if frame else ""


def watch(s, c, ns, pattern, watcher_id=1, **more):
    frame = c.ask("WATCH_TOPIC_LIST", True, watcher_id=watcher_id, namespace=ns, topics_pattern=pattern, **more)
    note(s, f"watch {watcher_id}", frame)
    return getattr(frame.command, "topics_hash", "") if frame else ""


def updates(s, *connections, seconds=1.0):
    for c in connections:
        note(s, c.name, c.recv_quietly(seconds))


@scenario
def list_with_a_hash_over_changes(s):
    ns = namespace(s)
    put(s, ns, "a", "b", "ab")
    c = s.connect()
    base = PLACE
    known = listed(s, c, ns, "first", topics_pattern=base + "a.*")
    listed(s, c, ns, "unchanged", topics_pattern=base + "a.*", topics_hash=known)
    put(s, ns, "c")
    listed(s, c, ns, "another topic", topics_pattern=base + "a.*", topics_hash=known)
    put(s, ns, "ac")
    listed(s, c, ns, "a matching topic", topics_pattern=base + "a.*", topics_hash=known)
    away(s, ns, "ac")
    listed(s, c, ns, "as before", topics_pattern=base + "a.*", topics_hash=known)
    listed(s, c, ns, "another pattern", topics_pattern=base + ".*", topics_hash=known)
    listed(s, c, ns, "no pattern", topics_hash=known)
    away(s, ns, "a", "ab")
    empty = listed(s, c, ns, "empty", topics_pattern=base + "a.*", topics_hash=known)
    listed(s, c, ns, "still empty", topics_pattern=base + "a.*", topics_hash=empty)


@scenario
def lists_of_each_mode_with_patterns(s):
    ns = namespace(s)
    put(s, ns, "a", "b")
    c = s.connect()
    for name in ("a", "n"):
        s.lookup(f"non-persistent://{ns}/{name}")
        c.producer(f"non-persistent://{ns}/{name}", len(name) + ord(name), quietly=True, producer_name="p")
    s.http("PUT", f"/admin/v2/persistent/{ns}/p/partitions", 2, quietly=True)
    for mode in MODES:
        for pattern in (
            PLACE + "a.*",
            "non-" + PLACE + ".*",
            "public/.*/[an]",
            PLACE + "p",
            PLACE + "p-partition-.*",
            "",
        ):
            listed(s, c, ns, f"{mode} {pattern}", mode=mode, topics_pattern=pattern)
    listed(s, c, ns, "no mode given", mode="ALL")


@scenario
def lists_with_properties_and_system_topics(s):
    ns = namespace(s)
    put(s, ns, "t", "__made", "__transaction_buffer_snapshot")
    s.http("POST", f"/admin/v2/persistent/{ns}/t/maxConsumers", 3, quietly=True)
    c = s.connect()
    listed(s, c, ns, "all")
    listed(s, c, ns, "by pattern", topics_pattern=PLACE + ".*")
    listed(s, c, ns, "by a pattern of system topics", topics_pattern=PLACE + "__.*")
    listed(s, c, ns, "properties", properties=[{"key": "k", "value": "v"}])
    listed(
        s,
        c,
        ns,
        "pattern and properties",
        topics_pattern=PLACE + "t",
        properties=[{"key": "k", "value": "v"}],
    )
    watch(s, c, ns, PLACE + ".*")
    watch(s, c, ns, PLACE + "__.*", 2)


@scenario
def watchers_of_two_connections(s):
    ns = namespace(s)
    put(s, ns, "a")
    c, d = s.connect(feature_flags=WATCHES), s.connect(feature_flags=RECONCILES)
    watch(s, c, ns, PLACE + "a.*")
    watch(s, d, ns, PLACE + ".*")
    put(s, ns, "ab")
    updates(s, c, d)
    put(s, ns, "x")
    updates(s, c, d)
    d.ask("WATCH_TOPIC_LIST_CLOSE", quietly=True, watcher_id=1)
    away(s, ns, "a", "x")
    updates(s, c, d)
    c.close()
    put(s, ns, "ac")
    watch(s, d, ns, PLACE + "a.*")


@scenario
def several_watchers_of_a_connection(s):
    ns, other = namespace(s), namespace(s, "other")
    c = s.connect(feature_flags=WATCHES)
    watch(s, c, ns, PLACE + "a.*", 1)
    watch(s, c, ns, PLACE + "b.*", 2)
    watch(s, c, other, PLACE + "a.*", 3)
    put(s, ns, "b1")
    updates(s, c)
    put(s, other, "a1")
    updates(s, c)
    put(s, ns, "c1")
    updates(s, c)
    c.ask("WATCH_TOPIC_LIST_CLOSE", watcher_id=2)
    put(s, ns, "b2", "a2")
    updates(s, c)
    updates(s, c, seconds=0.5)
    away(s, ns, "b1")
    updates(s, c, seconds=0.7)


@scenario
def watcher_and_the_list_agree(s):
    ns = namespace(s)
    put(s, ns, "a", "ab", "b")
    c = s.connect(feature_flags=WATCHES)
    pattern = PLACE + "a.*"
    known = watch(s, c, ns, pattern)
    listed(s, c, ns, "list", topics_pattern=pattern, topics_hash=known)
    put(s, ns, "ac")
    frame = c.recv_quietly(3)
    note(s, "update", frame)
    listed(s, c, ns, "list", topics_pattern=pattern, topics_hash=frame.command.topics_hash if frame else "")
    watch(s, c, ns, pattern, 2, topics_hash=known)
    watch(s, c, ns, pattern, 3, topics_hash=frame.command.topics_hash if frame else "")


@scenario
def watcher_of_an_unusual_name(s):
    ns = namespace(s)
    put(s, ns, "a.b", "a-b", "a+b", "a%20b", "A")
    c = s.connect(feature_flags=WATCHES)
    for i, pattern in enumerate(("a[.]b", "a\\-b", "a\\+b", "a b", "a.b", "\\Qa.b\\E", "(?i:a)", "[[:upper:]]", "\\w")):
        watch(s, c, ns, f"{PLACE}{pattern}", i)


@scenario
def watcher_of_a_namespace_that_is_deleted_and_made_again(s):
    ns = namespace(s)
    put(s, ns, "a")
    c = s.connect(feature_flags=WATCHES)
    watch(s, c, ns, PLACE + ".*")
    away(s, ns, "a")
    updates(s, c)
    s.http("DELETE", f"/admin/v2/namespaces/{ns}", quietly=True)
    updates(s, c, seconds=0.5)
    s.http("PUT", f"/admin/v2/namespaces/{ns}", {}, quietly=True)
    put(s, ns, "b")
    updates(s, c, seconds=2)


@scenario
def watcher_and_a_topic_that_changes_its_kind(s):
    ns = namespace(s)
    c = s.connect(feature_flags=WATCHES)
    watch(s, c, ns, PLACE + ".*")
    put(s, ns, "t")
    updates(s, c)
    away(s, ns, "t")
    updates(s, c)
    s.http("PUT", f"/admin/v2/persistent/{ns}/t/partitions", 1, quietly=True)
    updates(s, c)
    s.http("POST", f"/admin/v2/persistent/{ns}/t/partitions", 3, quietly=True)
    s.note("grown", sum(len(f.command.new_topics) for f in iter(lambda: c.recv_quietly(1), None)))
    away(s, ns, "t/partitions")
    gone = [t for f in iter(lambda: c.recv_quietly(1), None) for t in f.command.deleted_topics]
    s.note("gone", sorted(t.replace(s.tag, "$") for t in gone))


@scenario
def watcher_beside_the_creation_by_consumers(s):
    ns = namespace(s)
    s.http(
        "POST",
        f"/admin/v2/namespaces/{ns}/autoTopicCreation",
        {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 2},
        quietly=True,
    )
    c, d = s.connect(feature_flags=WATCHES), s.connect()
    watch(s, c, ns, PLACE + ".*")
    topic = f"persistent://{ns}/t"
    d.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=True)
    updates(s, c, seconds=0.7)
    for i in range(2):
        s.lookup(f"{topic}-partition-{i}")
        d.subscribe(f"{topic}-partition-{i}", "sub", i, quietly=True)
        updates(s, c, seconds=0.7)
    listed(s, d, ns, "list", topics_pattern=PLACE + "t")
    listed(s, d, ns, "list", topics_pattern=PLACE + "t-.*")
    s.http("PUT", rest(topic + "-partition-0", "/unload"), quietly=True)
    updates(s, c, seconds=0.7)


@scenario
def watchers_by_feature_and_version(s):
    ns = namespace(s)
    put(s, ns, "a")
    for flags in ({}, WATCHES, RECONCILES):
        for version in (19, 20, 21):
            c = s.connect(feature_flags=flags, protocol_version=version)
            known = watch(s, c, ns, PLACE + ".*")
            watch(s, c, ns, PLACE + ".*", 2, topics_hash=known)
            c.close()


@scenario
def requests_about_lists_in_odd_orders(s):
    ns = namespace(s)
    put(s, ns, "a")
    c = s.connect(feature_flags=WATCHES)
    c.ask("WATCH_TOPIC_LIST_CLOSE", watcher_id=1)
    watch(s, c, ns, PLACE + ".*", 2**63)
    put(s, ns, "b")
    updates(s, c)
    c.ask("WATCH_TOPIC_LIST_CLOSE", watcher_id=2**63)
    for pattern in ("(", "[", "a{2,1}", "*", "\\"):
        watch(s, c, ns, f"{PLACE}{pattern}", 5)
        listed(s, c, ns, pattern, topics_pattern=f"{PLACE}{pattern}")
    watch(s, c, ns, PLACE + ".*", 5)
    c.send("WATCH_TOPIC_UPDATE", watcher_id=5, new_topics=[], deleted_topics=[], topics_hash="x")
    c.recv(1)
