"""Schemas whose default values are no values of their type: accepted as the first schema of a topic, refused later."""

import json

from harness.runner import SCENARIOS
from harness.steps import namespace, rest, schema
from transcript import scenario

A = {"name": "a", "type": "int"}


def text(*fields):
    return json.dumps({"type": "record", "name": "R", "fields": list(fields)})


def named(kind, **more):
    return {"type": kind, "name": "N"} | more


def record_of(**b):
    return named("record", fields=[{"name": "b"} | b])


FIRST = text(A | {"default": 1})
INVALID = text(A | {"default": "x"})
NESTED = text({"name": "f", "type": record_of(type="int"), "default": {}})
OTHER_SYMBOL = text({"name": "e", "type": named("enum", symbols=["C"]), "default": "A"})
OTHER_DEFAULT = text({"name": "e", "type": named("enum", symbols=["C"], default="A")})
PAIRS = (
    *((FIRST, INVALID), (INVALID, INVALID), (INVALID, FIRST), (FIRST, NESTED)),
    *((FIRST, OTHER_SYMBOL), (FIRST, OTHER_DEFAULT), (OTHER_SYMBOL, FIRST)),
)
ENUM = named("enum", symbols=["C"])
FIXED = named("fixed", size=2)
VALUES = {
    "numbers": [("int", 1.0), ("int", 2**31), ("int", 2**31 - 1), ("int", True), ("long", 2**63), ("long", 2**40)],
    "fractions": [("float", 1), ("float", "1.5"), ("float", "x"), ("float", " 1 "), ("float", "1f"), ("float", "NaN")],
    "texts_of_fractions": [("double", "1_0"), ("double", "0x1p3"), ("double", ""), ({"type": "double"}, "y")],
    "texts": [("string", 1), ("bytes", "\u00ff"), ("bytes", "\u0100"), ("boolean", "true"), ("double", True)],
    "nulls": [("int", None), ("null", None), ("null", 0), (["int", "string"], None), ([], None)],
    "arrays": [({"type": "array", "items": "int"}, each) for each in ([1, "x"], [], {})],
    "arrays_of_unions": [({"type": "array", "items": ["int", "string"]}, each) for each in (["x", 1], [None])],
    "maps": [({"type": "map", "values": "int"}, each) for each in ({"a": 1}, {"a": "1"}, [])],
    "unions": [(["int", "string"], "x"), (["null", "string"], "x"), (["float", "string"], "1.5")],
    "fixed": [(FIXED, "x"), (FIXED, "xxx"), (FIXED, 1), ({"type": "int", "logicalType": "date"}, "x")],
    "enums": [(ENUM, "A"), (ENUM, "C"), *((ENUM | {"default": each}, "C") for each in ("A", 1, None))],
    "records": [(record_of(type="int", default=1), {}), (record_of(type="int"), {"b": 2}), (named("record", fields=[]), [])],
    "records_in_records": [(record_of(type=["null", "N"], default=None), {}), (record_of(type="int"), {"b": "2"})],
}  # fmt: skip


def _body(kind, definition):
    if kind == "AVRO":
        return {"type": kind, "schema": definition, "properties": {}}
    parts = {f"{part}.schema.{what}": value for part in ("key", "value") for what, value in
             (("name", part), ("type", "AVRO"), ("properties", "{}"))}  # fmt: skip
    both = json.dumps({"key": json.loads(definition), "value": json.loads(definition)})
    return {"type": kind, "schema": both, "properties": parts | {"kv.encoding.type": "INLINE"}}


def _declare(kind, what, values):
    def defaults(s):
        base = f"/admin/v2/schemas/{namespace(s)}/"
        for n, (of, default) in enumerate(values):
            without, new = text(A), text(A, {"name": "v", "type": of, "default": default})
            s.note("default", [of, default])
            for topic, order in (("after", (without, new)), ("before", (new, without)), ("twice", (new, new))):
                path, found = f"{base}{topic}{n}/", []
                for definition in order:
                    body = _body(kind, definition)
                    found += [
                        s.http("POST", path + last, body, quietly=True)[0] for last in ("compatibility", "schema")
                    ]
                s.note(topic, found)

    SCENARIOS[f"defaults_of_{what}_in_{kind.lower()}"] = defaults


for each, found in VALUES.items():
    for form in ("AVRO", "KEY_VALUE"):
        _declare(form, each, found)


def _clients(kind, strategy):
    def defaults(s):
        ns, c = namespace(s), s.connect()
        s.http("PUT", f"/admin/v2/namespaces/{ns}/schemaCompatibilityStrategy", strategy, quietly=True)
        for n, (first, second) in enumerate(PAIRS):
            topic = s.topic(f"t{n}", namespace=ns)
            s.http("PUT", rest(topic), quietly=True)
            path = "/admin/v2/schemas/" + topic.partition("://")[2]
            body = {"type": kind.upper(), "schema": first, "properties": {}}
            s.note("first", s.http("POST", path + "/schema", body, quietly=True)[0])
            given = schema(kind, second.encode())
            producer = c.producer(topic, n, quietly=True, schema=given)
            consumer = c.subscribe(topic, "s", n, quietly=True, schema=given)
            asked = c.ask("GET_OR_CREATE_SCHEMA", quietly=True, topic=topic, schema=given)
            codes = [getattr(each.command, "error", None) for each in (producer, consumer)]
            s.note("clients", [producer.type, consumer.type, *codes, asked.command.error_code])
            body = {"type": kind.upper(), "schema": second, "properties": {}}
            s.note(
                "second", [s.http("POST", path + last, body, quietly=True)[0] for last in ("/compatibility", "/schema")]
            )

    SCENARIOS[f"defaults_of_clients_{kind.lower()}_{strategy.lower()}"] = defaults


for each in ("Avro", "Json"):
    for rule in ("FULL", "BACKWARD_TRANSITIVE", "ALWAYS_COMPATIBLE", "ALWAYS_INCOMPATIBLE"):
        _clients(each, rule)


@scenario
def defaults_where_no_schema_may_be_added(s):
    ns, c = namespace(s), s.connect()
    s.http("POST", f"/admin/v2/namespaces/{ns}/isAllowAutoUpdateSchema", False, quietly=True)
    for n, (first, second) in enumerate(PAIRS[:5]):
        topic = s.topic(f"t{n}", namespace=ns)
        s.http("PUT", rest(topic), quietly=True)
        body = {"type": "AVRO", "schema": first, "properties": {}}
        s.http("POST", "/admin/v2/schemas/" + topic.partition("://")[2] + "/schema", body, quietly=True)
        found = c.producer(topic, n, quietly=True, schema=schema("Avro", second.encode()))
        s.note("producer", [found.type, getattr(found.command, "error", None)])


@scenario
def version_of_a_schema_in_another_text(s):
    path = f"/admin/v2/schemas/{namespace(s)}/"
    for kind in ("AVRO", "JSON"):
        s.http("POST", f"{path}{kind}/schema", {"type": kind, "schema": FIRST, "properties": {}}, quietly=True)
        for definition in (FIRST, FIRST + " ", text(A | {"default": 1, "doc": "x"})):
            body = {"type": kind, "schema": definition, "properties": {"a": "1"}}
            for last in ("version", "schema", "version"):
                s.note(last, s.http("POST", f"{path}{kind}/{last}", body, quietly=True))
        s.note(
            "other",
            s.http("POST", f"{path}{kind}/version", {"type": "STRING", "schema": "", "properties": {}}, quietly=True),
        )
