"""Every wire command from every kind of role, on existing and missing objects."""

from harness.steps import rest
from harness.tenancy import as_role, grant, world
from transcript import jwt, scenario

GRANTS = {
    "writer": ["produce"],
    "reader": ["consume"],
    "both": ["produce", "consume"],
    "functions": ["functions"],
    "sources": ["sources"],
    "sinks": ["sinks"],
    "packages": ["packages"],
}
TOPIC_GRANTS = {"topic-writer": ["produce"], "topic-reader": ["consume"], "topic-functions": ["functions"]}
ROLES = ("", "nobody", "boss", "superUser", *GRANTS, *TOPIC_GRANTS)
STRING = {"name": "s", "schema_data": b"", "type": "String"}


def places(namespace, topic):
    tenant = namespace.partition("/")[0]
    return (
        topic,
        topic + "-none",
        topic + "p",
        topic + "p-partition-1",
        topic + "p-partition-7",
        f"persistent://{tenant}/none/t",
        f"persistent://{tenant}-none/ns/t",
        "persistent://public/default/any",
        "non-" + topic,
        "bad://name",
    )


def granted(s):
    """A namespace and a topic, with partitions beside the topic and all the grants of the tables."""
    namespace, topic = world(s)
    s.http("PUT", rest(topic + "p", "/partitions"), 2, quietly=True)
    grant(s, f"/admin/v2/namespaces/{namespace}", GRANTS)
    grant(s, rest(topic), TOPIC_GRANTS)
    _, *others = places(namespace, topic)
    for place in (*others, topic + "p-partition-0"):
        s.lookup(place)
    return namespace, topic


def everybody(steps):
    """A scenario in which every role takes the steps, on connections of its own."""

    def run(s):
        namespace, topic = granted(s)
        for role in ROLES:
            steps(s, as_role(s, role), namespace, topic)

    run.__name__ = run.__qualname__ = "rights_of_everybody_on_" + steps.__name__
    run.__doc__ = steps.__doc__
    return scenario(run)


@everybody
def lookups(s, c, namespace, topic):
    for place in places(namespace, topic):
        c.ask("LOOKUP", topic=place, authoritative=False)


@everybody
def partitions(s, c, namespace, topic):
    for place in places(namespace, topic):
        c.ask("PARTITIONED_METADATA", topic=place, metadata_auto_creation_enabled=False)


@everybody
def producers(s, c, namespace, topic):
    for i, place in enumerate(places(namespace, topic)):
        if "none" not in place and "public" not in place:
            c.producer(place, i, producer_name=f"{c.name}-p")
            c.ask("CLOSE_PRODUCER", quietly=True, producer_id=i)


@everybody
def consumers(s, c, namespace, topic):
    for i, place in enumerate(places(namespace, topic)):
        if "none" not in place and "public" not in place:
            c.subscribe(place, f"{c.name}-s", i)


@everybody
def readers(s, c, namespace, topic):
    c.subscribe(topic, f"{c.name}-r", 1, durable=False, subType="Shared")
    c.subscribe(topic + "p-partition-0", f"{c.name}-r", 2, durable=False)


@everybody
def lists(s, c, namespace, topic):
    tenant = namespace.partition("/")[0]
    for i, place in enumerate((namespace, f"{tenant}/none", f"{tenant}-none/ns", "public/default")):
        for mode in ("PERSISTENT", "NON_PERSISTENT", "ALL"):
            frame = c.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=place, mode=mode)
            s.note(f"{c.name} {i} {mode}", [frame.type, getattr(frame.command, "error", None)])


@everybody
def watchers(s, c, namespace, topic):
    tenant = namespace.partition("/")[0]
    for i, place in enumerate((namespace, f"{tenant}/none", f"{tenant}-none/ns", "public/default")):
        frame = c.ask("WATCH_TOPIC_LIST", quietly=True, watcher_id=i, namespace=place, topics_pattern="x.*")
        s.note(f"{c.name} {i}", [frame and frame.type, frame and getattr(frame.command, "error", None)])
        c.ask("WATCH_TOPIC_LIST_CLOSE", watcher_id=i)


@everybody
def transactions(s, c, namespace, topic):
    ids = {"txnid_least_bits": 1, "txnid_most_bits": 0}
    subscription = {"topic": topic, "subscription": "none"}
    c.ask("TC_CLIENT_CONNECT_REQUEST", tc_id=0)
    c.ask("NEW_TXN", tc_id=0)
    c.ask("ADD_PARTITION_TO_TXN", partitions=[topic], **ids)
    c.ask("ADD_SUBSCRIPTION_TO_TXN", subscription=[subscription], **ids)
    c.ask("END_TXN", txn_action="COMMIT", **ids)
    c.ask("END_TXN_ON_PARTITION", topic=topic, txn_action="COMMIT", **ids)
    c.ask("END_TXN_ON_SUBSCRIPTION", subscription=subscription, txn_action="COMMIT", **ids)
    c.ask("END_TXN_ON_PARTITION", topic=topic + "-none", txn_action="COMMIT", **ids)
    s.http("PUT", rest(topic, "/subscription/known"), quietly=True)
    known = subscription | {"subscription": "known"}
    c.ask("END_TXN_ON_SUBSCRIPTION", subscription=known, txn_action="COMMIT", **ids)


@everybody
def what_is_nobodys(s, c, namespace, topic):
    c.ask("CONSUMER_STATS", consumer_id=5)


@everybody
def clients_that_are_not_there(s, c, namespace, topic):
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=5)
    c.ask("SEEK", consumer_id=5, message_publish_time=1)
    c.ask("UNSUBSCRIBE", consumer_id=5)
    c.ask("CLOSE_CONSUMER", consumer_id=5)
    c.ask("CLOSE_PRODUCER", producer_id=5)
    c.send("ACK", consumer_id=5, ack_type="Individual", message_id=[dict(ledgerId=1, entryId=1)])
    c.send("FLOW", consumer_id=5, messagePermits=1)
    c.none(0.2)


@everybody
def producers_with_a_first_subscription(s, c, namespace, topic):
    c.producer(topic, 1, producer_name=f"{c.name}-p", initial_subscription_name=f"{c.name}-s")


@everybody
def producers_in_bad_places(s, c, namespace, topic):
    tenant = namespace.partition("/")[0]
    for i, place in enumerate((f"persistent://{tenant}/none/t", f"persistent://{tenant}-none/ns/t")):
        c.producer(place, i, producer_name="p")
        c.subscribe(place, "sub", i)
    for producer_id, more in ((5, {}), (5, {"epoch": 1}), (6, {"producer_access_mode": "Exclusive"})):
        c.producer("bad://name", producer_id, producer_name="p", **more)


@everybody
def consumers_with_a_schema(s, c, namespace, topic):
    c.subscribe(topic, f"{c.name}-s", 1, schema=STRING)
    c.producer(topic, 1, producer_name=f"{c.name}-p", schema=STRING)


@everybody
def the_same_id_twice(s, c, namespace, topic):
    """Whether the broker checks rights before existence."""
    for _ in range(2):
        c.producer(topic, 1, producer_name=f"{c.name}-p")
        c.subscribe(topic, f"{c.name}-s", 1)


@scenario
def rights_of_roles_with_odd_names(s):
    namespace, topic = granted(s)
    for i, role in enumerate(("a b", "a*", "*", "ü", "a/b", "a.b", "A", " writer", "WRITER", "writer ", "x" * 200)):
        c = s.connect(f"c{i}", token=jwt(role))
        c.ask("LOOKUP", topic=topic, authoritative=False)
    for role in ("a*", "*", "*b"):
        s.http("POST", f"/admin/v2/namespaces/{namespace}/permissions/{role}", ["produce"], quietly=True)
    for i, role in enumerate(("a b", "a*", "*", "nobody", "ab")):
        c = s.connect(f"d{i}", token=jwt(role))
        c.producer(topic, 1, producer_name=f"p{i}")


@scenario
def schemas_asked_for_by_those_who_may(s):
    _, topic = granted(s)
    for role in ("superUser", "boss", "both", "writer", "reader", "topic-writer", "topic-reader"):
        c = as_role(s, role)
        c.ask("GET_SCHEMA", topic=topic)
        c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=STRING)
        c.ask("GET_SCHEMA", topic=topic, schema_version=b"\0" * 8)
