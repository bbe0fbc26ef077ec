"""Schemas of topics in use and of deleted topics, and the compatibility strategy that consumers meet."""

from harness.steps import avro, namespace, rest
from transcript import scenario

RECORD = {"name": "s", "type": "Avro", "schema_data": avro(("a", "int"))}
OTHER = {"name": "s", "type": "Avro", "schema_data": avro(("a", "string"))}
STRING = {"name": "s", "type": "String", "schema_data": b""}
STRATEGIES = ("UNDEFINED", "ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD_TRANSITIVE", "FULL")  # fmt: skip


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
