"""KeyValue schemas of each pair of types under each strategy, on the wire and over REST."""

import json
import struct

from harness.steps import avro, namespace, schema
from transcript import scenario

RECORDS = {
    "int": avro(("a", "int")), "two": avro(("a", "int"), ("b", "string", "x")), "text": avro(("a", "string")),
}  # fmt: skip
PAIRS = (
    ("AVRO", "AVRO"), ("AVRO", "STRING"), ("STRING", "AVRO"), ("JSON", "JSON"), ("INT32", "STRING"), ("BYTES", "JSON"),
)  # fmt: skip


def pair(key, value, key_type, value_type, encoding=None):
    """A KeyValue of two parts, each a record by its name in RECORDS or nothing."""
    parts = [RECORDS.get(name, b"") for name in (key, value)]
    data = b"".join(struct.pack(">i", len(part)) + part for part in parts)
    types = {"key.schema.type": key_type, "value.schema.type": value_type}
    return schema("KeyValue", data, **types, **({"kv.encoding.type": encoding} if encoding else {}))


def of(kinds, key="int", value="int", **more):
    """The pair of these types; parts of primitive types have no text."""
    parts = [name if kind in {"AVRO", "JSON"} else "" for name, kind in zip((key, value), kinds, strict=True)]
    return pair(*parts, *kinds, **more)


def topic_under(s, strategy, name="t"):
    ns = namespace(s, f"{name}-{strategy.lower()}")
    s.http("PUT", f"/admin/v2/namespaces/{ns}/schemaCompatibilityStrategy", strategy, quietly=True)
    return s.topic(namespace=ns)


def answered(frame):
    """Kind of the answer, error and words."""
    found = {field.name: value for field, value in frame.command.ListFields()}
    words = (found.get("message") or found.get("error_message") or "").partition("\n")[0]
    return [frame.type, found.get("error") or found.get("error_code"), words, found.get("schema_version", b"").hex()]


def declared(c, topic, what):
    """The answers to a producer, a consumer and a question with that schema; both are closed at once."""
    frames = [c.producer(topic, 1, quietly=True, producer_name="p", schema=what)]
    frames.append(c.subscribe(topic, quietly=True, subType="Shared", schema=what))
    frames.append(c.ask("GET_OR_CREATE_SCHEMA", quietly=True, topic=topic, schema=what))
    c.ask("CLOSE_PRODUCER", quietly=True, producer_id=1)
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
    return [answered(f) for f in frames]


def by_strategy(*strategies):
    def decorate(function):
        for strategy in strategies:

            def run(s, strategy=strategy):
                function(s, strategy)

            run.__name__ = f"{function.__name__}_{strategy.lower()}"
            scenario(run)
        return function

    return decorate


@by_strategy("ALWAYS_INCOMPATIBLE", "BACKWARD", "FORWARD", "FULL_TRANSITIVE", "ALWAYS_COMPATIBLE")
def pairs_of_all_types(s, strategy):
    c = s.connect()
    for kinds in PAIRS:
        topic = topic_under(s, strategy, "-".join(kinds).lower())
        for what in (of(kinds), of(kinds), of(kinds, value="two"), of(kinds, key="two"), of(kinds, key="text")):
            s.note("-".join(kinds), declared(c, topic, what))


@by_strategy("ALWAYS_INCOMPATIBLE", "BACKWARD", "FULL")
def pairs_that_change_their_types(s, strategy):
    c = s.connect()
    topic = topic_under(s, strategy)
    s.note("first", declared(c, topic, of(("AVRO", "AVRO"))))
    for kinds in PAIRS[1:]:
        s.note("-".join(kinds), declared(c, topic, of(kinds)))
    for kind in ("String", "Avro"):
        s.note(kind, declared(c, topic, schema(kind, RECORDS["int"] if kind == "Avro" else b"")))


@scenario
def pairs_of_other_encodings(s):
    c = s.connect()
    topic = topic_under(s, "FULL")
    for encoding in ("INLINE", "SEPARATED", None, "OTHER"):
        s.note(encoding, declared(c, topic, of(("AVRO", "STRING"), encoding=encoding)))
    c.ask("GET_SCHEMA", topic=topic)


@by_strategy("ALWAYS_INCOMPATIBLE", "BACKWARD")
def pairs_over_rest(s, strategy):
    topic = topic_under(s, strategy)
    path = "/admin/v2/schemas/" + topic.split("://")[1]
    texts = {name: json.loads(text) for name, text in RECORDS.items()}
    for key, value in (("int", "int"), ("int", "two"), ("text", "int"), ("int", "int")):
        body = {
            "type": "KEY_VALUE", "schema": json.dumps({"key": texts[key], "value": texts[value]}),
            "properties": {"key.schema.type": "AVRO", "value.schema.type": "AVRO", "kv.encoding.type": "INLINE"},
        }  # fmt: skip
        for route in ("/compatibility", "/schema", "/version"):
            status, found = s.http("POST", path + route, body, quietly=True)
            s.note(f"{key} {value} {route}", [status, found if status < 300 else None])
    s.call("GET", path + "/schemas", keep=lambda b: [[v["version"], v["type"]] for v in b["getSchemaResponses"]])


@by_strategy("BACKWARD", "FORWARD_TRANSITIVE", "BACKWARD_TRANSITIVE", "UNDEFINED")
def pairs_of_the_same_text_and_other_types(s, strategy):
    """The types of the parts lie in the properties, which do not make another version."""
    c = s.connect()
    for kinds in (("AVRO", "AVRO"), ("JSON", "JSON")):
        topic = topic_under(s, strategy, "-".join(kinds).lower())
        s.note("first", declared(c, topic, of(kinds)))
        for other in (("JSON", "JSON"), ("AVRO", "JSON"), ("JSON", "AVRO"), ("AVRO", "AVRO")):
            for value in ("int", "two", "text"):
                s.note(f"{'-'.join(other)} {value}", declared(c, topic, of(other, value=value)))


@by_strategy("ALWAYS_INCOMPATIBLE", "BACKWARD_TRANSITIVE")
def schemas_without_parts_under(s, strategy):
    """Types that are compared by their text alone."""
    c = s.connect()
    texts = (b"", RECORDS["int"], RECORDS["two"])
    for kind in ("String", "Int32", "Timestamp", "LocalDate", "Protobuf"):
        topic = topic_under(s, strategy, kind.lower())
        for text in texts[kind == "Protobuf" :]:
            s.note(kind, declared(c, topic, schema(kind, text)))
