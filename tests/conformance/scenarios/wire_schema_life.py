"""Schemas over the life of a topic: the clients that may add a schema, and the effect of deletions."""

import json
import struct

from harness.steps import avro, namespace, rest, schema
from transcript import encode, scenario

ONE = avro(("a", "int"))
TWO = avro(("a", "int"), ("b", ["null", "int"], None))
OTHER = avro(("a", "string"))
KINDS = ("String", "Bool", "Int8", "Int16", "Int32", "Int64", "Float", "Double", "Date", "Time", "Timestamp")
STRATEGIES = ("ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE")
SUBTYPES = ("Exclusive", "Shared", "Failover", "Key_Shared")


def produced(c, topic, producer_id, *what, **more):
    """A producer of that schema (none without), closed again."""
    frame = c.producer(topic, producer_id, **({"schema": schema(*what)} if what else {}), **more)
    c.ask("CLOSE_PRODUCER", quietly=True, producer_id=producer_id)
    return frame


def consumed(c, topic, consumer_id, *what, **more):
    frame = c.subscribe(
        topic, "sub", consumer_id, **({"schema": schema(*what)} if what else {}), **({"subType": "Shared"} | more)
    )
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=consumer_id)
    return frame


def schemas_path(topic, more="/schema"):
    return "/admin/v2/schemas/" + topic.partition("://")[2] + more


def key_value(key, value):
    return struct.pack(">i", len(key)) + key + struct.pack(">i", len(value)) + value


@scenario
def plain_producers_beside_those_with_a_schema(s):
    topic = s.topic()
    c = s.connect()
    produced(c, topic, 1)
    produced(c, topic, 2, "Avro", ONE)
    produced(c, topic, 3)
    c.producer(topic, 4, producer_name="plain")
    c.publish(4, 0, schema_version=b"\0" * 8)
    c.recv()
    c.publish(4, 1)
    c.recv()
    produced(c, topic, 5, "Avro", OTHER)
    c.ask("GET_SCHEMA", topic=topic)


@scenario
def enforced_schemas_and_everybody(s):
    ns = namespace(s, schemaValidationEnforced=True)
    topic = f"persistent://{ns}/t"
    s.lookup(topic)
    c = s.connect()
    produced(c, topic, 1)
    consumed(c, topic, 1)
    produced(c, topic, 2, "Avro", ONE)
    produced(c, topic, 3)
    produced(c, topic, 3, "None")
    produced(c, topic, 3, "AutoConsume")
    produced(c, topic, 4, producer_access_mode="Exclusive")
    consumed(c, topic, 5)
    consumed(c, topic, 6, "AutoConsume")
    consumed(c, topic, 7, "None")
    c.subscribe(topic, "reader", 8, durable=False)
    s.call("DELETE", schemas_path(topic))
    produced(c, topic, 9)


@scenario
def bytes_schemas_and_none(s):
    """A schema of type None and no schema, on topics with and without a schema."""
    c = s.connect()
    for i, first in enumerate(((), ("None",), ("None", b"x"), ("String",))):
        topic = s.topic(f"t{i}")
        produced(c, topic, 1, *first)
        produced(c, topic, 2, "None")
        produced(c, topic, 3)
        consumed(c, topic, 4, "None")
        consumed(c, topic, 5)
        c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=schema("None"))
        c.ask("GET_SCHEMA", topic=topic)


@scenario
def every_strategy_for_producers_and_consumers(s):
    c = s.connect()
    for i, strategy in enumerate(STRATEGIES):
        ns = namespace(s, f"ns{i}")
        s.call("PUT", f"/admin/v2/namespaces/{ns}/schemaCompatibilityStrategy", strategy)
        topic = f"persistent://{ns}/t"
        s.lookup(topic)
        for j, what in enumerate(
            (("Avro", ONE), ("Avro", TWO), ("Avro", ONE), ("Avro", OTHER), ("Json", ONE), ("String",))
        ):
            produced(c, topic, j, *what)
            consumed(c, topic, j, *what)


@scenario
def strategy_of_the_topic_against_that_of_the_namespace(s):
    ns = namespace(s)
    s.call("PUT", f"/admin/v2/namespaces/{ns}/schemaCompatibilityStrategy", "ALWAYS_INCOMPATIBLE")
    topic = f"persistent://{ns}/t"
    s.lookup(topic)
    c = s.connect()
    produced(c, topic, 1, "Avro", ONE)
    produced(c, topic, 2, "Avro", OTHER)
    s.call("PUT", rest(topic, "/schemaCompatibilityStrategy"), "ALWAYS_COMPATIBLE")
    d = s.connect()
    wanted = schema("Avro", OTHER)
    s.eventually("in force", lambda: d.producer(topic, 3, quietly=True, schema=wanted).type == "PRODUCER_SUCCESS")
    c.ask("GET_OR_CREATE_SCHEMA", topic=topic, request_id=7, schema=schema("String"))
    c.ask("GET_SCHEMA", topic=topic, request_id=8)


@scenario
def updates_not_allowed_to_clients(s):
    ns = namespace(s, isAllowAutoUpdateSchema=False)
    topic = f"persistent://{ns}/t"
    s.lookup(topic)
    c = s.connect()
    produced(c, topic, 1, "Avro", ONE)
    consumed(c, topic, 1, "Avro", ONE)
    c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=schema("Avro", ONE))
    produced(c, topic, 2)
    s.call("POST", schemas_path(topic), {"type": "AVRO", "schema": ONE.decode(), "properties": {}})
    produced(c, topic, 3, "Avro", ONE)
    produced(c, topic, 4, "Avro", TWO)
    consumed(c, topic, 5, "Avro", TWO)
    consumed(c, topic, 6, "Avro", OTHER)
    c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=schema("Avro", TWO))
    c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=schema("Avro", ONE, "other name"))


@scenario
def versions_of_every_length(s):
    topic = s.topic()
    c = s.connect()
    produced(c, topic, 1, "Avro", ONE)
    produced(c, topic, 2, "Avro", TWO)
    for version in (0, 1, 2, -1, 2**63 - 1, -(2**63)):
        c.ask("GET_SCHEMA", topic=topic, schema_version=struct.pack(">q", version))
    for n in (0, 1, 7, 9, 16):
        d = s.connect(f"d{n}")
        d.send("GET_SCHEMA", topic=topic, request_id=1, schema_version=b"\0" * n)
        d.recv(2)


@scenario
def schemas_of_places_that_are_not_there(s):
    c = s.connect()
    for topic in (
        s.topic(),
        s.topic("p") + "-partition-1",
        s.topic("n", domain="non-persistent"),
        "persistent://public/none/t",
        "persistent://none/none/t",
    ):
        c.ask("GET_SCHEMA", topic=topic)
        c.ask("GET_SCHEMA", topic=topic, schema_version=b"\0" * 8)
        c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=schema("String"))


@scenario
def deleted_schemas_by_kind_of_deletion(s):
    c = s.connect()
    for i, path in enumerate(("/schema", "/schema?force=true", "/schema?force=false")):
        topic = s.topic(f"t{i}")
        produced(c, topic, 1, "Avro", ONE)
        produced(c, topic, 2, "Avro", TWO)
        s.call("DELETE", schemas_path(topic, path))
        c.ask("GET_SCHEMA", topic=topic)
        for version in (0, 1, 2, 3):
            c.ask("GET_SCHEMA", topic=topic, schema_version=struct.pack(">q", version))
        consumed(c, topic, 3, "String")
        produced(c, topic, 4, "String")
        c.ask("GET_SCHEMA", topic=topic)
        produced(c, topic, 5, "Avro", ONE)
        s.call("DELETE", schemas_path(topic, path))
        s.call("DELETE", schemas_path(topic, path))
        produced(c, topic, 6, "Avro", ONE)


@scenario
def schema_deleted_under_its_clients(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="a", schema=schema("Avro", ONE))
    c.subscribe(topic, "sub", 1, permits=5, schema=schema("Avro", ONE))
    s.call("DELETE", schemas_path(topic))
    c.none(0.3)
    c.publish(1, 0, schema_version=b"\0" * 8)
    c.recv_sorted(2)
    c.producer(topic, 2, producer_name="b", schema=schema("String"))
    c.subscribe(topic, "sub2", 2, schema=schema("Avro", ONE))
    c.subscribe(topic, "sub3", 3, schema=schema("String"))


@scenario
def schema_goes_with_its_topic(s):
    c = s.connect()
    for i, path in enumerate(("?force=true", "?force=true&deleteSchema=true", "?force=true&deleteSchema=false")):
        topic = s.topic(f"t{i}")
        produced(c, topic, 1, "Avro", ONE)
        s.call("DELETE", rest(topic, path))
        c.ask("GET_SCHEMA", topic=topic)
        produced(c, topic, 2, "String")
        c.ask("GET_SCHEMA", topic=topic)


@scenario
def schema_of_partitions_goes_with_the_last(s):
    topic = s.topic()
    s.call("PUT", rest(topic, "/partitions"), 2)
    c = s.connect()
    s.lookup(topic + "-partition-0")
    s.lookup(topic + "-partition-1")
    produced(c, topic + "-partition-0", 1, "Avro", ONE)
    c.ask("GET_SCHEMA", topic=topic)
    c.ask("GET_SCHEMA", topic=topic + "-partition-1")
    c.ask("GET_SCHEMA", topic=topic + "-partition-9")
    c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=schema("Avro", TWO))
    c.ask("GET_OR_CREATE_SCHEMA", topic=topic + "-partition-1", schema=schema("Avro", TWO))
    produced(c, topic + "-partition-1", 2, "String")
    s.call("DELETE", rest(topic, "/partitions?force=true"))
    c.ask("GET_SCHEMA", topic=topic)


@scenario
def schemas_over_an_unload(s):
    topic = s.topic()
    c = s.connect()
    produced(c, topic, 1, "Avro", ONE)
    produced(c, topic, 2, "Avro", TWO)
    s.call("PUT", rest(topic, "/unload"))
    s.lookup(topic)
    produced(c, topic, 3, "Avro", ONE)
    produced(c, topic, 4, "Avro", OTHER)
    c.ask("GET_SCHEMA", topic=topic)
    s.call("GET", schemas_path(topic, "/schemas"), keep=lambda b: [x["version"] for x in b["getSchemaResponses"]])


@scenario
def consumers_of_every_type_bring_the_first_schema(s):
    c = s.connect()
    for kind in SUBTYPES:
        topic = s.topic(kind)
        consumed(c, topic, 1, "Avro", ONE, subType=kind)
        c.ask("GET_SCHEMA", topic=topic)
        consumed(c, topic, 2, "Avro", OTHER, subType=kind)
        produced(c, topic, 3, "Avro", TWO)
    topic = s.topic("reader")
    consumed(c, topic, 1, "Avro", ONE, durable=False)
    c.ask("GET_SCHEMA", topic=topic)


@scenario
def plain_producer_connected_when_a_consumer_brings_a_schema(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="plain")
    consumed(c, topic, 1, "Avro", ONE)
    consumed(c, topic, 2, "AutoConsume")
    consumed(c, topic, 3, "String")
    c.publish(1, 0)
    c.recv()
    c.ask("CLOSE_PRODUCER", producer_id=1)
    consumed(c, topic, 4, "Avro", ONE)
    c.ask("GET_SCHEMA", topic=topic)


@scenario
def primitives_against_each_other(s):
    c = s.connect()
    for i, kind in enumerate(KINDS):
        topic = s.topic(kind)
        produced(c, topic, 1, kind)
        produced(c, topic, 2, KINDS[(i + 1) % len(KINDS)])
        consumed(c, topic, 3, kind)
        consumed(c, topic, 4, KINDS[(i + 1) % len(KINDS)])


@scenario
def properties_of_schemas(s):
    topic = s.topic()
    c = s.connect()
    produced(c, topic, 1, "Avro", ONE)
    for i, properties in enumerate(({"a": "1"}, {"b": "2", "a": "1"}, {"": ""}, {"__alwaysAllowNull": "true"})):
        c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=schema("Avro", ONE, **properties))
        c.ask("GET_OR_CREATE_SCHEMA", topic=s.topic(f"t{i}"), schema=schema("Avro", ONE, **properties))
    c.ask("GET_SCHEMA", topic=topic)
    twice = schema("String") | {"properties": [{"key": "k", "value": "1"}, {"key": "k", "value": "2"}]}
    other = s.topic("other")
    for i, kind in enumerate(("GET_OR_CREATE_SCHEMA", "PRODUCER", "SUBSCRIBE")):
        d = s.connect()
        ids = {
            "PRODUCER": {"producer_id": 1},
            "SUBSCRIBE": {"consumer_id": 1, "subscription": "s", "subType": "Shared"},
        }
        d.send(kind, topic=topic if i == 0 else other, request_id=i, schema=twice, **ids.get(kind, {}))
        d.recv(2)
    c.ask("GET_SCHEMA", topic=other)


@scenario
def key_values_with_types_in_their_properties(s):
    """The properties have the types of the parts; without properties the parts are bytes."""
    for i, (key, value) in enumerate(
        (("AVRO", "AVRO"), ("STRING", "JSON"), ("BYTES", "BYTES"), ("INT32", "AVRO"), ("NONE", "NONE"))
    ):
        c, topic = s.connect(), s.topic(f"t{i}")
        types = {"key.schema.type": key, "value.schema.type": value}
        first = ONE if key == "AVRO" else b""
        for j, (a, b, more) in enumerate(
            (
                (first, ONE, types),
                (first, TWO, types),
                (first, OTHER, types),
                (first, ONE, {}),
                (first, ONE, types | {"key.schema.type": "BOOLEAN"}),
                (first, ONE, types | {"kv.encoding.type": "SEPARATED"}),
                (b"x", ONE, types),
            )
        ):
            frame = c.producer(topic, j, quietly=True, schema=schema("KeyValue", key_value(a, b), **more))
            told = frame and [
                frame.type,
                getattr(frame.command, "error", None),
                getattr(frame.command, "schema_version", b"").hex(),
            ]
            s.note(f"{key} {value} {j}", told)
            frame = c.subscribe(topic, f"s{j}", j, quietly=True, schema=schema("KeyValue", key_value(a, b), **more))
            s.note(f"{key} {value} {j} consumer", frame and [frame.type, getattr(frame.command, "error", None)])


@scenario
def key_values_of_every_parts(s):
    c = s.connect()
    pairs = {
        "both": key_value(ONE, ONE),
        "texts": key_value(b"", b""),
        "key": key_value(ONE, b""),
        "value": key_value(b"", ONE),
    }
    for name, data in pairs.items():
        topic = s.topic(name)
        produced(c, topic, 1, "KeyValue", data)
        for i, other in enumerate(pairs.values(), 2):
            produced(c, topic, i, "KeyValue", other)
            consumed(c, topic, i, "KeyValue", other)
        c.ask("GET_SCHEMA", topic=topic)


@scenario
def schema_requests_in_one_write(s):
    topic = s.topic()
    c = s.connect()
    produced(c, topic, 1, "Avro", ONE)
    wanted = [encode("GET_SCHEMA", topic=topic, request_id=i) for i in range(5)]
    wanted += [
        encode("GET_OR_CREATE_SCHEMA", topic=topic, request_id=i, schema=schema("Avro", ONE)) for i in range(5, 10)
    ]
    c.raw(b"".join(wanted), "5 GET_SCHEMA, 5 GET_OR_CREATE_SCHEMA")
    c.recv_sorted(10)


@scenario
def names_of_fields_and_what_avro_says_of_them(s):
    """Aliases, docs, orders and logical types: whether they make another schema."""
    c = s.connect()
    topic = s.topic()
    base = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    field = base["fields"][0]
    for i, text in enumerate(
        (
            base,
            base | {"namespace": "x"},
            base | {"doc": "text"},
            base | {"aliases": ["Q"]},
            base | {"name": "Q"},
            base | {"fields": [field | {"doc": "text"}]},
            base | {"fields": [field | {"aliases": ["z"]}]},
            base | {"fields": [field | {"order": "ignore"}]},
            base | {"fields": [field | {"default": 5}]},
            base | {"fields": [{"name": "a", "type": {"type": "int", "logicalType": "date"}}]},
            base | {"fields": [{"name": "a", "type": {"type": "int"}}]},
            base | {"fields": [{"name": "a", "type": "long"}]},
            base | {"own": "property"},
        )
    ):
        produced(c, topic, i, "Avro", json.dumps(text).encode())
