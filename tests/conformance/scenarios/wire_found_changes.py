"""What REST and policies change under clients: subscriptions deleted, schemas gone, strategies, the id of a last batch."""

from harness.steps import avro, namespace, published, published_batches, rest
from transcript import scenario

STRING = {"name": "s", "type": "String", "schema_data": b""}
RECORD = {"name": "s", "type": "Avro", "schema_data": avro(("a", "int"))}
OTHER = {"name": "s", "type": "Avro", "schema_data": avro(("a", "string"))}
STRATEGIES = ("UNDEFINED", "ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD_TRANSITIVE", "FULL")  # fmt: skip


@scenario
def connected_subscriptions_deleted_over_rest(s):
    for domain in ("persistent", "non-persistent"):
        for kind in ("Exclusive", "Shared", "Key_Shared"):
            for durable in (True, False):
                topic = s.topic(f"{domain}{kind}{durable}", domain=domain)
                c = s.connect(f"{domain}{kind}{durable}")
                c.subscribe(topic, subType=kind, durable=durable, quietly=True)
                c.subscribe(topic, "other", 2, subType=kind, quietly=True)
                status, _ = s.http("DELETE", rest(topic, "/subscription/sub"), quietly=True)
                s.note("status", status // 100 * 100)
                status, _ = s.http("GET", rest(topic, "/subscriptions"), quietly=True)
                c.send("FLOW", consumer_id=1, messagePermits=1)
                told = [f.type for f in iter(lambda c=c: c.recv_quietly(0.2), None)]
                s.note("told", [kind for kind in told if kind != "ACTIVE_CONSUMER_CHANGE"])


@scenario
def deletion_of_what_is_not_there_takes_the_schema(s):
    for first, second in (("persistent", "non-persistent"), ("non-persistent", "persistent")):
        for query in ("", "?force=true", "?deleteSchema=false"):
            topic, c = s.topic(first[0] + query.strip("?=").replace("=", ""), domain=first), s.connect()
            c.producer(topic, 1, producer_name="p", schema=RECORD)
            other = topic.replace(first, second)
            status, _ = s.http("DELETE", rest(other, query), quietly=True)
            s.note("status", status)
            c.ask("GET_SCHEMA", topic=topic)
            c.ask("GET_SCHEMA", topic=other)


@scenario
def schema_of_a_deleted_partition_stays(s):
    topic, c = s.topic(), s.connect()
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    s.lookup(topic + "-partition-0")
    c.producer(topic + "-partition-0", 1, producer_name="p", schema=RECORD)
    c.ask("CLOSE_PRODUCER", producer_id=1)
    s.note("status", s.http("DELETE", rest(topic + "-partition-0"), quietly=True)[0] // 100)
    c.ask("GET_SCHEMA", topic=topic)
    s.note("status", s.http("DELETE", rest(topic + "-partition-7"), quietly=True)[0])
    c.ask("GET_SCHEMA", topic=topic)


@scenario
def consumers_with_a_schema_on_a_topic_in_use_by_strategy(s):
    for i, strategy in enumerate(STRATEGIES):
        ns = namespace(s, f"ns{i}")
        s.http("PUT", f"/admin/v2/namespaces/{ns}/schemaCompatibilityStrategy", strategy, quietly=True)
        topic, c = s.topic("t", ns), s.connect()
        c.subscribe(topic, "plain", 1, quietly=True)
        s.note("strategy", strategy)
        c.subscribe(topic, "record", 2, schema=RECORD)
        c.subscribe(topic, "string", 3, schema=STRING)
        c.ask("GET_SCHEMA", topic=topic)
        c.producer(topic, 1, producer_name="p", schema=OTHER)
        c.subscribe(topic, "record2", 4, schema=RECORD)
        c.subscribe(topic, "string2", 5, schema=STRING)
        c.producer(topic, 2, producer_name="q", schema=STRING)
        c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=RECORD)


@scenario
def last_message_id_over_rest(s):
    topic = s.topic()
    published(s, topic, 2)
    s.call("GET", rest(topic, "/lastMessageId"), keep=True)
    published_batches(s, topic, [b"a", b"b", b"c"])
    s.call("GET", rest(topic, "/lastMessageId"), keep=True)
    published_batches(s, topic, [b"a"])
    s.call("GET", rest(topic, "/lastMessageId"), keep=True)
    part = s.topic("p")
    s.http("PUT", rest(part, "/partitions"), 2, quietly=True)
    s.lookup(part + "-partition-1")
    published_batches(s, part + "-partition-1", [b"a", b"b"])
    s.call("GET", rest(part + "-partition-1", "/lastMessageId"), keep=True)
    s.call("GET", rest(part, "/lastMessageId"), keep=True)


@scenario
def persistent_topics_in_their_order(s):
    ns = namespace(s)
    c = s.connect()
    for i, name in enumerate(("zz", "a", "b10", "b9", "t-partition-x", "Upper", "B", "b")):
        s.lookup(f"persistent://{ns}/{name}")
        c.producer(f"persistent://{ns}/{name}", i, quietly=True, producer_name="p")
    s.http("PUT", rest(f"persistent://{ns}/part", "/partitions"), 12, quietly=True)
    s.http("PUT", rest(f"persistent://{ns}/another", "/partitions"), 2, quietly=True)
    s.note(
        "topics", list(c.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns, mode="PERSISTENT").command.topics)
    )
    s.note("all", list(c.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns, mode="ALL").command.topics))
    some = c.ask(
        "GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns, mode="PERSISTENT", topics_pattern=f"{ns}/.*[0-9]"
    )
    s.note("some", list(some.command.topics))
    watched = c.ask("WATCH_TOPIC_LIST", quietly=True, watcher_id=1, namespace=ns, topics_pattern=".*")
    s.note("watched", list(watched.command.topic))
    s.call("GET", f"/admin/v2/persistent/{ns}", keep=True)
    s.call("GET", f"/admin/v2/namespaces/{ns}/topics", keep=True)
    s.call("GET", f"/admin/v2/persistent/{ns}/partitioned", keep=True)


@scenario
def namespaces_and_roles_in_their_order(s):
    tenant = s.tag
    roles = ["z", "a", "m", "role-1", "role-2", *(f"r{i}" for i in range(8))]
    path = "/admin/v2/tenants/" + tenant
    s.http("PUT", path, {"allowedClusters": ["standalone"], "adminRoles": roles[:5]}, quietly=True)
    s.call("GET", path, keep=True)
    for n in (11, 12, 13):
        s.http("POST", path, {"allowedClusters": ["standalone"], "adminRoles": roles[:n]}, quietly=True)
        s.call("GET", path, keep=True)
    for name in ("zz", "a", "b10", "b9", "Upper", "x-y"):
        s.http("PUT", f"/admin/v2/namespaces/{tenant}/{name}", {}, quietly=True)
    s.call("GET", "/admin/v2/namespaces/" + tenant, keep=True)


@scenario
def waiting_producer_and_the_owner_on_one_connection_that_is_lost(s):
    for domain in ("persistent", "non-persistent"):
        for mode in ("Shared", "Exclusive"):
            topic = s.topic(domain + mode, domain=domain)
            c, d = s.connect("c" + domain + mode), s.connect("d" + domain + mode)
            c.producer(topic, 1, producer_name="owner", producer_access_mode=mode)
            c.producer(topic, 2, producer_name="waiter", producer_access_mode="WaitForExclusive")
            c.none(0.2)
            c.close()
            d.none(0.6)
            d.producer(topic, 1, producer_name="next")
            d.producer(topic, 2, producer_name="last", producer_access_mode="ExclusiveWithFencing")
