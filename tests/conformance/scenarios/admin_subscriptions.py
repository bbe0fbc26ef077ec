"""Subscriptions over REST: created at each place, moved, expired, described, deleted; on plain and partitioned topics."""

from harness.steps import published, rest
from transcript import scenario

EARLIEST = {"ledgerId": -1, "entryId": -1}
LATEST = {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1}


def filled(s, n=5, name="t"):
    topic = s.topic(name)
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    return "/admin/v2/" + topic.replace("://", "/"), c, c.publish_all(1, [b"m%d" % i for i in range(n)])


def path_of(s, partitions=None):
    s.lookup(f"persistent://public/default/{s.tag}-t")
    t = f"/admin/v2/persistent/public/default/{s.tag}-t"
    s.http("PUT", t + ("/partitions" if partitions else ""), partitions, quietly=True)
    return t


def backlog(s, t):
    found = s.http("GET", t + "/stats", quietly=True)[1]["subscriptions"]
    return {k: v["msgBacklog"] for k, v in sorted(found.items())}


def calls(s, *steps):
    for method, path, *body in steps:
        s.call(method, path, body[0] if body else None, keep=True)


@scenario
def subscription_created_in_every_form(s):
    t = path_of(s) + "/subscription/"
    calls(
        s,
        ("PUT", t + "a"),
        ("PUT", t + "a"),
        ("PUT", t + "b", "earliest"),
        ("PUT", t + "c", "latest"),
        ("PUT", t + "d", "other"),
        ("PUT", t + "e", EARLIEST),
        ("PUT", t + "f", LATEST),
        ("PUT", t + "g", EARLIEST | {"properties": {"p": "q"}}),
        ("GET", t + "g/properties"),
    )
    s.call("PUT", t + "h", raw=b"null")
    s.call("GET", t.removesuffix("/") + "s", keep=sorted)


@scenario
def subscription_at_each_message(s):
    t, _, ids = filled(s)
    for i, each in enumerate(ids):
        s.call("PUT", f"{t}/subscription/at{i}", each)
    s.call("PUT", t + "/subscription/first", "earliest")
    s.call("PUT", t + "/subscription/last", "latest")
    s.note("backlog", backlog(s, t))


@scenario
def subscription_properties_replaced(s):
    t = path_of(s) + "/subscription/"
    calls(
        s,
        ("PUT", t + "a"),
        ("GET", t + "a/properties"),
        ("PUT", t + "a/properties", {"x": "y"}),
        ("GET", t + "a/properties"),
        ("PUT", t + "a/properties", {"z": "1"}),
        ("GET", t + "a/properties"),
        ("PUT", t + "a/properties", {}),
        ("GET", t + "a/properties"),
        ("PUT", t + "none/properties", {"x": "y"}),
        ("GET", t + "none/properties"),
    )


@scenario
def subscription_marked_as_replicated(s):
    t = path_of(s) + "/subscription/"
    status = t + "a/replicatedSubscriptionStatus"

    def marked():
        s.call("GET", status, keep=lambda found: list(found.values()))

    s.call("PUT", t + "a?replicated=true")
    marked()
    s.call("POST", status, False)
    marked()
    s.call("POST", status, True)
    marked()
    s.call("GET", t + "none/replicatedSubscriptionStatus")
    s.call("POST", t + "none/replicatedSubscriptionStatus", True)


@scenario
def subscription_skips(s):
    t, _, _ = filled(s)
    sub = t + "/subscription/a"
    s.call("PUT", sub, "earliest")
    for number in ("0", "2", "100", "-1", "x"):
        s.call("POST", f"{sub}/skip/{number}")
        s.note("backlog", backlog(s, t))
    s.call("POST", t + "/subscription/none/skip/1")
    s.call("POST", t + "/subscription/none/skip_all")


@scenario
def subscription_reset_to_messages(s):
    t, _, ids = filled(s)
    sub = t + "/subscription/a"
    s.call("PUT", sub, "latest")
    for body in (
        ids[2],
        ids[0] | {"isExcluded": True},
        ids[4],
        EARLIEST,
        LATEST,
        ids[1] | {"partitionIndex": -1, "batchIndex": -1},
    ):
        s.call("POST", sub + "/resetcursor", body)
        s.note("backlog", backlog(s, t))
    s.call("POST", t + "/subscription/none/resetcursor", ids[0])


@scenario
def subscription_reset_to_times(s):
    t, _, _ = filled(s)
    sub = t + "/subscription/a"
    s.call("PUT", sub, "latest")
    for time in ("0", "1", "99999999999999", "x"):
        s.call("POST", f"{sub}/resetcursor/{time}")
        s.note("backlog", backlog(s, t))
    s.call("POST", t + "/subscription/none/resetcursor/0")


@scenario
def subscription_expired_by_position(s):
    t, _, ids = filled(s)
    sub = t + "/subscription/a"
    s.call("PUT", sub, "earliest")
    s.call("POST", sub + "/expireMessages", ids[1] | {"partitionIndex": -1})
    s.eventually("the first two are gone", lambda: backlog(s, t)["a"] == 3)
    s.call("POST", t + "/subscription/none/expireMessages", ids[1] | {"partitionIndex": -1})


@scenario
def subscription_expired_by_age(s):
    t, _, _ = filled(s)
    sub = t + "/subscription/a"
    s.call("PUT", sub, "earliest")
    s.call("POST", sub + "/expireMessages/1000")
    s.note("backlog", backlog(s, t))
    s.call("POST", sub + "/expireMessages/x")
    s.call("POST", t + "/subscription/none/expireMessages/1")


@scenario
def subscription_analyzed(s):
    t, c, ids = filled(s)
    sub = t + "/subscription/a"
    keep = ["entries", "messages", "markerMessages", "filterAcceptedEntries", "filterRejectedEntries", "aborted"]
    s.call("PUT", sub, "earliest")
    s.call("POST", sub + "/analyzeBacklog", keep=keep)
    s.call("POST", sub + "/skip/2")
    s.call("POST", sub + "/analyzeBacklog", keep=keep)


@scenario
def subscription_peeked(s):
    t, _, _ = filled(s)
    sub = t + "/subscription/a"
    s.call("PUT", sub, "earliest")
    for position in ("1", "3", "5", "6", "0", "-1", "x"):
        s.call("GET", f"{sub}/position/{position}", keep=True)
    s.call("POST", sub + "/skip/2")
    s.call("GET", sub + "/position/1", keep=True)
    s.call("GET", t + "/subscription/none/position/1")


@scenario
def subscription_names_with_odd_letters(s):
    t = path_of(s) + "/subscription/"
    calls(s, ("PUT", t + "a%2Fb"), ("PUT", t + "c%20d"), ("PUT", t + "%C3%A4"))
    s.call("GET", t.removesuffix("/") + "s", keep=sorted)
    calls(s, ("DELETE", t + "a%2Fb"), ("DELETE", t + "c%20d"), ("DELETE", t + "%C3%A4"))


@scenario
def subscription_creates_the_topic(s):
    t = f"/admin/v2/persistent/public/default/{s.tag}-auto"
    s.lookup(f"persistent://public/default/{s.tag}-auto")
    calls(s, ("PUT", t + "/subscription/a"), ("GET", t + "/subscriptions"), ("GET", t + "/partitions"))


@scenario
def subscription_of_a_partitioned_topic(s):
    t = path_of(s, 2)
    sub = t + "/subscription/a"
    calls(
        s,
        ("PUT", sub),
        ("PUT", sub),
        ("GET", t + "/subscriptions"),
        ("GET", t + "-partition-0/subscriptions"),
        ("POST", sub + "/skip/1"),
        ("POST", sub + "/skip_all"),
        ("POST", sub + "/resetcursor/0"),
        ("POST", sub + "/resetcursor", {"ledgerId": 0, "entryId": 0}),
        ("GET", sub + "/position/1"),
        ("POST", sub + "/analyzeBacklog"),
        ("POST", t + "/subscription/none/skip_all"),
        ("POST", t + "/subscription/none/resetcursor/0"),
        ("DELETE", sub),
        ("DELETE", sub),
        ("DELETE", t + "-partition-0/subscription/none"),
    )


@scenario
def subscription_missing_on_one_partition(s):
    t = path_of(s, 2)
    sub = "/subscription/a"
    calls(s, ("PUT", t + sub), ("DELETE", t + "-partition-1" + sub), ("GET", t + "/subscriptions"), ("DELETE", t + sub))


@scenario
def subscription_properties_of_a_partitioned_topic(s):
    t = path_of(s, 2) + "/subscription/"
    calls(
        s,
        ("PUT", t + "a", EARLIEST | {"properties": {"p": "q"}}),
        ("GET", t + "a/properties"),
        ("PUT", t + "a/properties", {"x": "y"}),
        ("GET", t + "a/properties"),
        ("PUT", t + "none/properties", {"x": "y"}),
        ("GET", t + "none/properties"),
    )


@scenario
def subscription_in_use(s):
    t, c, ids = filled(s)
    c.subscribe("persistent://public/default/" + s.tag + "-t", "a", 1, quietly=True)
    calls(s, ("DELETE", t + "/subscription/a"), ("POST", t + "/subscription/a/skip_all"))
    calls(s, ("DELETE", t + "/subscription/a?force=true"), ("GET", t + "/subscriptions"))


@scenario
def expiry_by_an_age_of_zero(s):
    """With a consumer and a short backlog no message is older; without a consumer the expiry is begun."""
    path, c, _ = filled(s)
    c.subscribe(
        path.removeprefix("/admin/v2/").replace("/", "://", 1), "live", 1, subType="Shared", initialPosition="Earliest"
    )
    s.call("PUT", path + "/subscription/idle", "earliest")

    def backlogs():
        found = s.http("GET", path + "/stats", quietly=True)[1]["subscriptions"]
        return {k: v["msgBacklog"] for k, v in found.items()}

    s.call("POST", path + "/subscription/live/expireMessages/0")
    s.note("backlogs", backlogs())
    s.call("POST", path + "/subscription/idle/expireMessages/0")
    s.eventually("expired", lambda: backlogs()["idle"] == 0)
    s.note("backlogs", backlogs())


@scenario
def indexes_that_cannot_be(s):
    path, _, _ = filled(s)
    for index in (-1, -(2**63), 5, 2**63 - 1):
        _, answer = s.call("GET", path + f"/getMessageIdByIndex?index={index}")
        s.note("reason", answer["reason"])


def marks(s, topic, what):
    """The mark of replication of each subscription."""
    cursors = s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]["cursors"]
    figures = s.http("GET", rest(topic, "/stats"), quietly=True)[1]["subscriptions"]
    shown = {
        name: [row["isReplicated"], row["replicated"], cursors[name]["properties"]] for name, row in figures.items()
    }
    s.note(what, shown)


@scenario
def mark_of_replication_survives_a_load(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "client", 1, quietly=True, replicate_subscription_state=True)
    c.subscribe(topic, "rest", 2, quietly=True)
    c.subscribe(topic, "off", 3, quietly=True, replicate_subscription_state=True)
    c.subscribe(topic, "reader", 4, quietly=True, durable=False, replicate_subscription_state=True)
    for name, on in (("rest", True), ("off", False)):
        s.call("POST", rest(topic, f"/subscription/{name}/replicatedSubscriptionStatus"), on)
    marks(s, topic, "marked")
    published(s, topic, 1)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    for name in "client", "rest", "off":
        status, found = s.http("GET", rest(topic, f"/subscription/{name}/replicatedSubscriptionStatus"), quietly=True)
        s.note(name, [status, list(found.values())])
    marks(s, topic, "loaded")
