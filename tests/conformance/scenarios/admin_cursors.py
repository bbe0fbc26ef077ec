"""Where cursors stand: moved by REST to times, messages and beyond the end; their state in internal stats."""

from harness.steps import backlog, plain_and_partitioned, published, rest
from transcript import scenario

FIRST = {"ledgerId": 0, "entryId": 0, "partitionIndex": -1}


def filled(s, n=3):
    """A topic with n messages; its path and their ids."""
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    return rest(topic), c.publish_all(1, [b"m%d" % i for i in range(n)])


def body_of(message, moved=0):
    return {"ledgerId": message["ledgerId"], "entryId": message["entryId"] + moved, "partitionIndex": -1}


@scenario
def cursor_reset_of_a_non_persistent_topic(s):
    topic = s.topic(domain="non-persistent")
    s.connect().subscribe(topic, "s", quietly=True)
    for name in ("s", "other"):
        s.call("POST", f"{rest(topic)}/subscription/{name}/resetcursor/0")
        s.call("POST", f"{rest(topic)}/subscription/{name}/resetcursor", FIRST)
    s.call("POST", f"{rest(topic)}-gone/subscription/s/resetcursor/0")
    s.call("POST", f"{rest(topic)}-gone/subscription/s/resetcursor", FIRST)


@scenario
def cursor_reset_of_a_non_persistent_partitioned_topic(s):
    name = f"non-persistent://public/default/{s.tag}-t"
    s.call("PUT", rest(name) + "/partitions", 2)
    s.call("POST", rest(name) + "/subscription/s/resetcursor/0")
    s.call("POST", rest(name) + "/subscription/s/resetcursor", FIRST)
    s.lookup(name + "-partition-0")
    s.connect().subscribe(name + "-partition-0", "s", quietly=True)
    s.call("POST", rest(name) + "/subscription/s/resetcursor/0")
    s.call("POST", rest(name) + "-partition-0/subscription/s/resetcursor/0")
    s.call("POST", rest(name) + "-partition-0/subscription/other/resetcursor/0")


@scenario
def message_ids_at_the_beginning_of_time(s):
    """Of an empty topic, of a topic with messages, of a partition; before 1970 there are no messages."""
    empty = rest(s.topic("empty"))
    s.call("PUT", empty)
    path, _ = filled(s)
    s.call("PUT", f"{empty}-p/partitions", 2)
    for topic in (empty, path, f"{empty}-p", f"{empty}-p-partition-1"):
        for time in (0, 1, -1, 99999999999999, "x"):
            s.call("GET", f"{topic}/messageid/{time}", keep=True)


@scenario
def expiry_of_messages_that_are_not_there(s):
    path, ids = filled(s)
    s.call("PUT", path + "/subscription/s", "earliest")

    def left():
        return s.http("GET", path + "/stats", quietly=True)[1]["subscriptions"]["s"]["msgBacklog"]

    later = body_of(ids[2]) | {"ledgerId": ids[2]["ledgerId"] + 1000}
    for message in (body_of(ids[0], -1), FIRST | {"ledgerId": -1}, body_of(ids[2], 1), body_of(ids[2], 100), later):
        s.call("POST", path + "/subscription/s/expireMessages", message)
        s.note("left", left())
    s.call("POST", path + "/subscription/s/expireMessages", body_of(ids[1]))
    s.eventually("one is left", lambda: left() == 1)


@scenario
def backlog_of_an_unknown_subscription_analyzed(s):
    path, _ = filled(s)
    s.call("POST", path + "/subscription/s/analyzeBacklog")
    s.call("POST", path + "/subscription/s/analyzeBacklog", FIRST)
    s.call("GET", path + "/subscriptions", keep=True)
    s.call("PUT", path + "-p/partitions", 2)
    s.call("POST", path + "-p/subscription/s/analyzeBacklog")
    s.call("POST", path + "-p-partition-0/subscription/s/analyzeBacklog")
    s.call("GET", path + "-p-partition-0/subscriptions", keep=True)


def states(stats):
    """The fields that do not depend on ledger ids."""
    return {
        name: [
            cursor["state"],
            cursor["numberOfEntriesSinceFirstNotAckedMessage"],
            cursor["markDeletePosition"].partition(":")[2],
            cursor["readPosition"].partition(":")[2],
            cursor["active"],
        ]
        for name, cursor in stats["cursors"].items()
    }


@scenario
def cursor_states_before_and_after_a_load(s):
    """A cursor whose position was stored since the topic was loaded is open, others have no ledger."""
    path, ids = filled(s)
    for name, start in (("earliest", "earliest"), ("second", body_of(ids[1]))):
        s.call("PUT", f"{path}/subscription/{name}", start)
    s.call("GET", path + "/internalStats", keep=states)
    s.call("POST", path + "/subscription/earliest/skip/1")
    s.call("GET", path + "/internalStats", keep=states)
    s.call("PUT", path + "/unload")
    s.call("GET", path + "/internalStats", keep=states)
    s.call("POST", path + "/subscription/second/skip/1")
    s.call("POST", path + "/subscription/earliest/resetcursor", body_of(ids[2]))
    s.call("GET", path + "/internalStats", keep=states)


@scenario
def cursor_states_of_a_consumer(s):
    path, ids = filled(s)
    topic = path.removeprefix("/admin/v2/persistent/")
    c = s.connect()
    c.subscribe("persistent://" + topic, "s", quietly=True, initialPosition="Earliest")
    s.call("GET", path + "/internalStats", keep=states)
    c.send("FLOW", quietly=True, consumer_id=1, messagePermits=2)
    for _ in range(2):
        c.recv_quietly()
    s.call("GET", path + "/internalStats", keep=states)
    s.call("GET", path + "/stats", keep=lambda x: [p["supportsPartialProducer"] for p in x["publishers"]])


def affinity(s, *steps):
    """A new namespace, the steps on it, and its bookie affinity after each step."""
    ns = s.namespace()
    s.call("PUT", "/admin/v2/namespaces/" + ns)
    for method, path, *body in steps:
        s.call(method, path.replace("NS", ns), body[0] if body else None)
        s.call("GET", f"/admin/v2/namespaces/{ns}/persistence/bookieAffinity", keep=True)


@scenario
def bookie_affinity_of_a_namespace_that_is_looked_at(s):
    policies = "/admin/v2/namespaces/NS"
    affinity(
        s,
        ("GET", policies + "/bundles"),
        ("GET", policies + "/topics"),
        ("GET", "/admin/v2/persistent/NS"),
        ("GET", "/admin/v2/persistent/NS/t/partitions"),
        ("GET", "/admin/v2/persistent/NS/t/retention"),
        ("PUT", "/admin/v2/persistent/NS/t/partitions", 1),
        ("GET", policies + "/permissions"),
    )


@scenario
def bookie_affinity_of_a_namespace_after_a_lookup(s):
    affinity(s, ("GET", "/lookup/v2/topic/persistent/NS/t"))


@scenario
def bookie_affinity_of_a_namespace_after_stats(s):
    affinity(s, ("GET", "/admin/v2/persistent/NS/t/stats"))


@scenario
def bookie_affinity_of_a_namespace_after_a_backlog_was_cleared(s):
    affinity(s, ("POST", "/admin/v2/namespaces/NS/clearBacklog"))


@scenario
def bookie_affinity_of_a_namespace_with_a_group(s):
    affinity(s, ("POST", "/admin/v2/namespaces/NS/antiAffinity", "group"))


@scenario
def bookie_affinity_of_a_namespace_with_a_topic(s):
    affinity(s, ("PUT", "/admin/v2/persistent/NS/t"))


@scenario
def bookie_affinity_set_and_removed(s):
    path = "/admin/v2/namespaces/NS/persistence/bookieAffinity"
    groups = {"bookkeeperAffinityGroupPrimary": "a", "bookkeeperAffinityGroupSecondary": "b"}
    affinity(s, ("POST", path, groups), ("POST", path, {}), ("DELETE", path), ("DELETE", path))


@scenario
def expiry_up_to_an_end_of_the_topic(s):
    """The texts "earliest" and "latest" are positions, as for resets."""
    base = plain_and_partitioned(s)
    topic = base.removeprefix("/admin/v2/").replace("/", "://", 1) + "/t"
    s.lookup(topic)
    for path in ("t", "p", "p-partition-0"):
        s.http("PUT", f"{base}/{path}/subscription/s", "earliest", quietly=True)
    for messages in (0, 2):
        if messages:
            published(s, topic, messages)
        for body in ("earliest", "latest", "first"):
            for path in ("t", "p", "p-partition-0", "none"):
                status, answer = s.http("POST", f"{base}/{path}/subscription/s/expireMessages", body, quietly=True)
                s.note(f"{path} {body}", [status, answer and status != 400 and answer["reason"]])
        s.note("backlog", backlog(s, topic))
