"""Schemas beside partitions, unloads, deletions and switches of a namespace."""

from harness.steps import avro, namespace, rest, schema
from transcript import scenario


@scenario
def schemas_beside_partitions_and_unloads(s):
    ns = namespace(s)
    topic = s.topic("p", ns)
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    c = s.connect()
    for n in range(2):
        s.lookup(f"{topic}-partition-{n}")
    one = schema("Json", avro(("a", "int")))
    two = schema("Json", avro(("a", "int"), ("b", "string", "")))
    bad = schema("Json", avro(("a", "string")))
    c.producer(topic + "-partition-0", 1, producer_name="p", schema=one)
    c.producer(topic + "-partition-1", 2, producer_name="p", schema=two)
    c.producer(topic + "-partition-0", 3, producer_name="q", schema=bad)
    c.ask("GET_SCHEMA", topic=topic)
    c.ask("GET_SCHEMA", topic=topic + "-partition-1")
    s.call("PUT", rest(topic, "/unload"))
    c.recv_sorted(2)
    for n in range(2):
        s.lookup(f"{topic}-partition-{n}")
    c.producer(topic + "-partition-1", 4, producer_name="p", schema=one)
    c.subscribe(topic + "-partition-0", "s", 5, schema=bad)
    c.subscribe(topic + "-partition-0", "s", 6, schema=two)
    s.call("DELETE", rest(topic, "/partitions?force=true"))
    s.call("GET", "/admin/v2/schemas/" + topic.replace("persistent://", "") + "/schemas", keep=True)


@scenario
def schema_deleted_under_clients(s):
    topic = s.topic(namespace=namespace(s))
    path = "/admin/v2/schemas/" + topic.replace("persistent://", "")
    c = s.connect()
    one = schema("Avro", avro(("a", "int")))
    c.producer(topic, 1, producer_name="p", schema=one)
    c.subscribe(topic, "s", 1, 5, schema=one)
    s.call("DELETE", path + "/schema")
    c.publish(1, 0, schema_version=b"\0" * 8)
    c.recv_sorted(2)
    c.producer(topic, 2, producer_name="q", schema=schema("Avro", avro(("a", "string"))))
    c.producer(topic, 3, producer_name="r", schema=one)
    c.subscribe(topic, "t", 2, 5, schema=one)
    c.ask("GET_SCHEMA", topic=topic)
    c.ask("GET_SCHEMA", topic=topic, schema_version=b"\0" * 8)
    s.call("DELETE", path + "/schema?force=true")
    c.ask("GET_SCHEMA", topic=topic)
    c.producer(topic, 4, producer_name="s", schema=schema("Avro", avro(("a", "string"))))


@scenario
def schemas_without_automatic_updates(s):
    ns = namespace(s)
    s.call("POST", f"/admin/v2/namespaces/{ns}/isAllowAutoUpdateSchema", False)
    topic = s.topic(namespace=ns)
    c = s.connect()
    one = schema("Avro", avro(("a", "int")))
    c.producer(topic, 1, producer_name="p", schema=one)
    c.subscribe(topic, "s", 1, 5, schema=one)
    c.producer(topic, 2, producer_name="q")
    s.call(
        "POST",
        "/admin/v2/schemas/" + topic.replace("persistent://", "") + "/schema",
        {"type": "AVRO", "schema": avro(("a", "int")).decode(), "properties": {}},
        keep=True,
    )
    c.producer(topic, 3, producer_name="r", schema=one)
    c.producer(topic, 4, producer_name="t", schema=schema("Avro", avro(("a", "int"), ("b", "int", 0))))
    c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=schema("Avro", avro(("a", "int"), ("b", "int", 0))))
    s.call("POST", f"/admin/v2/namespaces/{ns}/schemaValidationEnforced", True)
    c.producer(topic, 5, producer_name="u")
    c.subscribe(topic, "u", 5)
    c.producer(topic, 6, producer_name="v", schema=schema("AutoConsume"))
    c.subscribe(topic, "v", 6, schema=schema("AutoConsume"))
