"""Topic list watchers that see changes: hashes of an earlier list, partitions, patterns, topics of clients."""

from harness.steps import namespace, rest
from transcript import scenario

RECONCILES = dict(supports_topic_watchers=True, supports_topic_watcher_reconcile=True)


def watch(c, ns, pattern=".*", watcher_id=1, **more):
    fields = dict(watcher_id=watcher_id, namespace=ns, topics_pattern=f"persistent://public/.*/{pattern}")
    frame = c.ask("WATCH_TOPIC_LIST", True, **fields, **more)
    seen(c.session, frame)
    return frame


def seen(s, frame):
    """Note a list or a change without its hash, which depends on the names of the run."""
    if not frame:
        return s.note("seen", None)
    what = frame.command
    fields = ("topic", "new_topics", "deleted_topics", "watcher_id", "error")
    s.note(frame.type, {f: v if isinstance(v, int) else sorted(v) for f in fields if (v := getattr(what, f, None))})
    hashes = s.__dict__.setdefault("hashes", [])
    found = getattr(what, "topics_hash", "")
    if found not in hashes:
        hashes.append(found)
    return s.note("hash", hashes.index(found))


def put(s, ns, *names):
    for name in names:
        s.http("PUT", f"/admin/v2/persistent/{ns}/{name}", quietly=True)


def away(s, ns, *names):
    for name in names:
        s.http("DELETE", f"/admin/v2/persistent/{ns}/{name}?force=true", quietly=True)


@scenario
def reconciling_watcher_sees_changes(s):
    ns = namespace(s)
    put(s, ns, "a", "b")
    c = s.connect(feature_flags=RECONCILES)
    watch(c, ns, "[ac].*")
    put(s, ns, "c1")
    seen(s, c.recv_quietly(3))
    put(s, ns, "d")
    seen(s, c.recv_quietly(0.6))
    away(s, ns, "a")
    seen(s, c.recv_quietly(3))
    c.ask("WATCH_TOPIC_LIST_CLOSE", watcher_id=1)
    put(s, ns, "c2")
    seen(s, c.recv_quietly(0.6))


@scenario
def reconciling_watcher_with_the_hash_of_before(s):
    ns = namespace(s)
    put(s, ns, "a", "b")
    c = s.connect(feature_flags=RECONCILES)
    known = watch(c, ns).command.topics_hash
    c.close()
    d = s.connect(feature_flags=RECONCILES)
    watch(d, ns, topics_hash=known)
    put(s, ns, "c")
    seen(s, d.recv_quietly(3))
    d.close()
    e = s.connect(feature_flags=RECONCILES)
    watch(e, ns, topics_hash=known)
    watch(e, ns, watcher_id=2, topics_hash="")
    watch(e, ns, watcher_id=3, topics_hash="nonsense")


@scenario
def watcher_asked_for_twice_with_one_id(s):
    ns = namespace(s)
    put(s, ns, "a")
    c = s.connect(feature_flags=RECONCILES)
    known = watch(c, ns).command.topics_hash
    watch(c, ns)
    watch(c, ns, topics_hash=known)
    put(s, ns, "b")
    seen(s, c.recv_quietly(3))
    seen(s, c.recv_quietly(0.6))
    watch(c, ns, "x.*")
    put(s, ns, "c")
    seen(s, c.recv_quietly(1))


@scenario
def watcher_of_partitions_that_are_added(s):
    ns = namespace(s)
    c = s.connect(feature_flags=RECONCILES)
    watch(c, ns)
    s.http("PUT", f"/admin/v2/persistent/{ns}/p/partitions", 1, quietly=True)
    seen(s, c.recv_quietly(3))
    s.http("POST", f"/admin/v2/persistent/{ns}/p/partitions", 2, quietly=True)
    seen(s, c.recv_quietly(3))
    seen(s, c.recv_quietly(0.6))
    s.http("DELETE", f"/admin/v2/persistent/{ns}/p/partitions?force=true", quietly=True)
    frames = [c.recv_quietly(1) for _ in range(2)]
    s.note("deleted", sorted(t.replace(s.tag, "$") for f in frames if f for t in f.command.deleted_topics))


@scenario
def watcher_and_topics_of_clients(s):
    ns = namespace(s)
    c, d = s.connect(feature_flags=RECONCILES), s.connect()
    watch(c, ns)
    for domain in ("persistent", "non-persistent"):
        s.lookup(f"{domain}://{ns}/t")
        d.producer(f"{domain}://{ns}/t", len(domain), producer_name="p")
        seen(s, c.recv_quietly(1.5))
    s.http("PUT", f"/admin/v2/persistent/{ns}/t/unload", quietly=True)
    seen(s, d.recv_quietly(1))
    seen(s, c.recv_quietly(0.6))


@scenario
def watcher_with_patterns_of_each_form(s):
    ns = namespace(s)
    put(s, ns, "a", "ab", "b.c")
    c = s.connect(feature_flags=RECONCILES)
    for i, pattern in enumerate(("a", "a.*", "b\\.c", "", ".+", "(a|b.c)", "^a$", "A", "(?i)A")):
        fields = dict(watcher_id=i, namespace=ns, topics_pattern=f"persistent://public/.*/{pattern}")
        frame = c.ask("WATCH_TOPIC_LIST", True, **fields)
        s.note(pattern, sorted(getattr(frame.command, "topic", [])))
    for i, pattern in enumerate(("public/.*/a.*", ".*", "non-persistent://.*/.*", "a"), 20):
        frame = c.ask("WATCH_TOPIC_LIST", True, watcher_id=i, namespace=ns, topics_pattern=pattern)
        s.note(pattern, sorted(getattr(frame.command, "topic", [])))


@scenario
def watcher_beside_system_topics_and_policies(s):
    ns = namespace(s)
    topic = f"persistent://{ns}/t"
    put(s, ns, "t")
    c = s.connect(feature_flags=RECONCILES)
    watch(c, ns)
    s.http("POST", rest(topic, "/maxConsumers"), 3, quietly=True)
    seen(s, c.recv_quietly(0.6))
    s.http("DELETE", f"/admin/v2/namespaces/{ns}?force=true", quietly=True)
    while frame := c.recv_quietly(1):
        seen(s, frame)
