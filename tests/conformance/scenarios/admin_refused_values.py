"""Texts for values out of range, schemas that no strategy takes, missing namespaces; the backlog of deduplication."""

from harness.steps import avro, namespace, rest
from transcript import scenario

QUORUMS = {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 1}
VALUES = (
    ("messageTTL?messageTTL=-3", None), ("messageTTL?messageTTL=2147483648", None),
    ("subscriptionExpirationTime?subscriptionExpirationTime=-1", None), ("maxProducers", -1), ("maxConsumers", -1),
    ("maxMessageSize", -1), ("maxUnackedMessagesOnConsumer", -1), ("maxUnackedMessagesOnSubscription", -1),
    ("maxSubscriptionsPerTopic", -1), ("maxConsumersPerSubscription", -1), ("deduplicationSnapshotInterval", -1),
    ("compactionThreshold", -1), ("retention", {"retentionTimeInMinutes": -2, "retentionSizeInMB": 1}),
    ("persistence", QUORUMS), ("inactiveTopicPolicies", {}), ("backlogQuota", {}), ("dispatchRate", {}),
    ("offloadPolicies", {"managedLedgerOffloadDriver": "none"}), ("replication", ["none"]),
    ("delayedDelivery", {"active": True, "tickTime": 0}),
    ("delayedDelivery", {"active": True, "tickTime": 1, "maxDeliveryDelayInMillis": -2}),
)  # fmt: skip


def said(s, method, path, body=None):
    """Note the status and, of a refusal, the text."""
    status, found = s.http(method, path, body, quietly=True)
    text = found.get("reason") if isinstance(found, dict) and status >= 400 else None
    s.note(
        f"{method} {path}".replace(s.tag, "$"), [status if status >= 400 else "done", text and text.replace(s.tag, "$")]
    )


@scenario
def values_of_topic_policies_out_of_range(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    for path, body in VALUES:
        said(s, "POST", rest(topic, "/" + path), body)


@scenario
def deletion_of_namespaces_that_are_not_there(s):
    for name in f"public/{s.tag}-none", f"{s.tag}-none/n":
        for query in "", "?force=true":
            said(s, "DELETE", f"/admin/v2/namespaces/{name}{query}")


@scenario
def compatibility_where_no_schema_is_compatible(s):
    """The check accepts the text of the last version, also with other properties."""
    ns = namespace(s)
    s.lookup(f"persistent://{ns}/t")
    s.http("PUT", f"/admin/v2/namespaces/{ns}/schemaCompatibilityStrategy", "ALWAYS_INCOMPATIBLE", quietly=True)
    path = f"/admin/v2/schemas/{ns}/t"

    def post(route, *fields, kind="AVRO", **properties):
        body = {"type": kind, "schema": avro(*fields).decode(), "properties": properties}
        return s.http("POST", path + route, body, quietly=True)[0]

    s.note("first", [post("/compatibility", ("a", "int")), post("/schema", ("a", "int"))])
    s.note("same", [post("/compatibility", ("a", "int")), post("/schema", ("a", "int"))])
    s.note("with a property", post("/compatibility", ("a", "int"), x="y"))
    s.note("other", [post("/compatibility", ("b", "int")), post("/schema", ("b", "int"))])
    s.note("other type", post("/compatibility", ("a", "int"), kind="JSON"))


@scenario
def backlog_of_deduplication(s):
    """Without subscriptions the backlog is that of the cursor of deduplication, before and behind a snapshot."""
    ns = namespace(s, deduplication=True)
    topic = f"persistent://{ns}/t"
    s.lookup(topic)
    for turn in "first", "loaded":
        c = s.connect(turn)
        c.producer(topic, 1, quietly=True, producer_name="p")
        keep, s.lines = s.lines, []
        for number in range(3):
            c.publish(1, number + (3 if turn == "loaded" else 0), b"x" * 10)
            c.recv()
        s.lines = keep
        s.note(turn, s.http("GET", rest(topic, "/stats"), quietly=True)[1]["backlogSize"])
        cursor = s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]["cursors"]["pulsar.dedup"]
        s.note(turn, cursor["markDeletePosition"].split(":")[1])
        s.http("PUT", rest(topic, "/unload"), quietly=True)
        s.lookup(topic)


@scenario
def policies_of_namespaces_that_are_not_there(s):
    path = f"/admin/v2/namespaces/public/{s.tag}-none"
    for name in "retention", "inactiveTopicPolicies", "resourcegroup", "persistence", "messageTTL":
        said(s, "DELETE", f"{path}/{name}")
    for name in "replicatorDispatchRate", "dispatcherPauseOnAckStatePersistent", "dispatchRate":
        said(s, "GET", f"{path}/{name}")
    said(s, "PUT", path + "/unload")


@scenario
def topics_named_like_partitions(s):
    for domain in "persistent", "non-persistent":
        base = f"/admin/v2/{domain}/{namespace(s, domain[:3])}"
        s.http("PUT", base + "/p/partitions", 2, quietly=True)
        for name in "p-partition-2", "p-partition-02", "p-partition--1", "p-partition-x", "p-partition-99999999999":
            said(s, "PUT", f"{base}/{name}")
        for name in "z-partition-7", "z-partition-0", "z-partition-01", "z-partition-+1":
            said(s, "PUT", f"{base}/{name}")
