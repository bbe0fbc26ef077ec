"""Lists of topics by mode, pattern and hash, and the watchers of these lists."""

from harness.steps import namespace
from transcript import pb, scenario


def topics(c, s, ns, mode, **more):
    """The answer with names sorted; the log shows whether a repeated request gets the same hash."""
    frame = c.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns, mode=mode, **more)
    if frame.type == "ERROR":
        s.note(mode, pb.ServerError.Name(frame.command.error))
        return frame
    found = frame.command
    s.note(mode, [sorted(found.topics), found.filtered, found.changed])
    return found


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
def lengths_of_watched_patterns(s):
    """The scheme of a pattern does not count."""
    c = s.connect()
    watcher = 0
    for scheme in ("", "persistent://", "non-persistent://", "[a-z-]*persistent://", "x://"):
        for length in (50, 51):
            watcher += 1
            pattern = scheme + "z" * length
            answer = c.ask("WATCH_TOPIC_LIST", namespace="public/default", watcher_id=watcher, topics_pattern=pattern)
            if answer.type == "ERROR":
                s.note("text", answer.command.message)
