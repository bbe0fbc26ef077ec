"""Kinds of schemas that the broker does not compare, and definitions of JSON types in the form of JSON Schema."""

import json
import struct
import time

from harness.steps import avro, namespace, schema
from transcript import scenario

VERSIONS = (avro(("a", "int")), avro(("a", "long")), avro(("b", "string")), avro(("a", "int")))


def with_strategy(s, strategy):
    """The name of a topic in a namespace of its own that has that strategy."""
    ns = namespace(s, strategy.lower())
    s.http("PUT", f"/admin/v2/namespaces/{ns}/schemaCompatibilityStrategy", strategy, quietly=True)
    return s.topic(namespace=ns)


def tried(c, topic, definition):
    """Answers to a producer, to a consumer and to a request for the schema, each closed at once."""
    frames = [c.producer(topic, 1, quietly=True, producer_name="p", schema=definition)]
    frames.append(c.subscribe(topic, quietly=True, subType="Shared", schema=definition))
    frames.append(c.ask("GET_OR_CREATE_SCHEMA", quietly=True, topic=topic, schema=definition))
    c.ask("CLOSE_PRODUCER", quietly=True, producer_id=1)
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
    return [answer(f) for f in frames]


def answer(frame):
    found = {field.name: value for field, value in frame.command.ListFields()}
    return [frame.type, found.get("error") or found.get("error_code"), found.get("schema_version", b"").hex()]


@scenario
def protobuf_schemas_by_strategy(s):
    c = s.connect()
    for strategy in ("ALWAYS_COMPATIBLE", "ALWAYS_INCOMPATIBLE", "BACKWARD", "FORWARD_TRANSITIVE", "FULL", "UNDEFINED"):
        topic = with_strategy(s, strategy)
        for definition in VERSIONS:
            s.note(strategy, tried(c, topic, schema("Protobuf", definition)))


@scenario
def protobuf_schemas_in_key_values(s):
    c = s.connect()
    types = {"key.schema.type": "STRING", "value.schema.type": "PROTOBUF", "kv.encoding.type": "INLINE"}
    names = {"key.schema.name": "k", "value.schema.name": "v"}
    for strategy in ("BACKWARD", "FULL_TRANSITIVE", "ALWAYS_INCOMPATIBLE"):
        topic = with_strategy(s, strategy)
        for definition in VERSIONS:
            data = bytes(4) + struct.pack(">i", len(definition)) + definition
            s.note(strategy, tried(c, topic, schema("KeyValue", data, **types, **names)))


@scenario
def protobuf_schemas_need_a_definition(s):
    c = s.connect()
    for i, text in enumerate((b"", b"{}", b"no json", b'"int"', b'["null","int"]', b'{"type":"record","name":"R"}')):
        s.note(text.decode(), tried(c, s.topic(str(i)), schema("Protobuf", text)))


@scenario
def consumers_with_a_json_schema(s):
    c = s.connect()
    old = json.dumps({"type": "object", "id": "urn:jsonschema:R", "properties": {"a": {"type": "integer"}}}).encode()
    for strategy in ("FULL", "BACKWARD", "FORWARD_TRANSITIVE", "ALWAYS_COMPATIBLE", "ALWAYS_INCOMPATIBLE"):
        topic = with_strategy(s, strategy)
        for definition in (old, VERSIONS[0], old):
            s.note(strategy, tried(c, topic, schema("Json", definition)))


@scenario
def consumers_with_an_impossible_schema(s):
    c = s.connect()
    undefined, twice = avro(("a", "Nope")), avro(("a", "int"), ("a", "int"))
    for kind in ("Avro", "Json", "Protobuf"):
        topic = s.topic(kind)
        for definition in (VERSIONS[0], undefined, twice, b'{"type":"record","name":"R"}', b'{"type":"object"}'):
            s.note(kind, tried(c, topic, schema(kind, definition)))


def pair(key, value):
    return b"".join(len(part).to_bytes(4, "big") + part for part in (key, value))


def key_value(kinds, data, **properties):
    """A KeyValue schema of parts of these types; `properties` are those of its parts as JSON."""
    names = zip(("key", "value"), kinds, strict=True)
    return schema("KeyValue", data, **{f"{n}.schema.type": k for n, k in names}, **properties)


@scenario
def key_values_inside_key_values(s):
    c = s.connect()
    a, b, text = avro(("a", "int")), avro(("a", "int"), ("b", "int", 0)), avro(("a", "string"))
    inner = {"value.schema.properties": json.dumps({"key.schema.type": "AVRO", "value.schema.type": "STRING"})}
    whole = ((a, pair(a, b""), inner), (b, pair(b, b""), inner), (a, pair(text, b""), inner), (a, pair(a, b""), {}))
    untyped = ((a, pair(a, b""), {}), (a, pair(text, text), {}), (a, pair(text, b""), inner), (a, b"junk", {}))
    for name, definitions in (("whole", whole), ("untyped", untyped)):
        topic = s.topic(name)
        for n, (key, value, more) in enumerate(definitions):
            wanted = key_value(("AVRO", "KEY_VALUE"), pair(key, value), **more)
            c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=wanted)
            c.subscribe(topic, f"{name}{n}", s.next_request(), schema=wanted)
            c.ask("GET_SCHEMA", topic=topic)


BROKEN = {
    "empty": b"", "cut": b"{", "union": b"[]", "no type": b"{}", "no name": b'{"type":"record"}', "no text": b"\xff", "primitive": b'"int"',
    "undefined": b'{"type":"record","name":"R","fields":[{"name":"a","type":"nope"}]}', "sound": avro(("z", "int")),
}  # fmt: skip


@scenario
def broken_definitions_where_no_schema_may_be_added(s):
    c = s.connect()
    for first in ("Avro", "Json", "String", None):
        ns = namespace(s, str(first).lower())
        topic = s.topic(namespace=ns)
        if first:
            c.producer(topic, 9, quietly=True, schema=schema(first, b"" if first == "String" else VERSIONS[0]))
        s.http("POST", f"/admin/v2/namespaces/{ns}/isAllowAutoUpdateSchema", False, quietly=True)
        time.sleep(0.6)  # until the topic follows its namespace
        for kind in ("Avro", "Json", "Protobuf"):
            for name, text in BROKEN.items():
                s.note(f"{kind} {name} after {first}", tried(c, topic, schema(kind, text)))


@scenario
def broken_definitions_where_none_is_compatible(s):
    c = s.connect()
    for first in ("Avro", "Json", "String"):
        topic = with_strategy(s, "ALWAYS_INCOMPATIBLE") + "-" + first
        s.lookup(topic)
        c.producer(topic, 9, quietly=True, schema=schema(first, b"" if first == "String" else VERSIONS[0]))
        for kind in ("Avro", "Json"):
            for name, text in BROKEN.items():
                s.note(f"{kind} {name} after {first}", tried(c, topic, schema(kind, text)))
