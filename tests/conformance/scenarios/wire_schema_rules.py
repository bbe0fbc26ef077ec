"""Schemas: refused and accepted schemas, type by type, for producers, consumers and clients that only request."""

import json
import struct

from harness.steps import avro, namespace, published, rest, schema
from transcript import scenario

TYPES = (
    "None", "String", "Json", "Protobuf", "Avro", "Bool", "Int8", "Int16", "Int32", "Int64", "Float", "Double", "Date", "Time",
    "Timestamp", "KeyValue", "Instant", "LocalDate", "LocalTime", "LocalDateTime", "ProtobufNative", "AutoConsume",
)  # fmt: skip
RECORD = avro(("a", "int"))
BAD = (b"", b"{", b"{}", b"null", b'"int"', b'"nothing"', b"[]", b'["null","int"]', b'{"type":"record","name":"R"}', b'{"type":"record","fields":[]}',
       b'{"type":"record","name":"R","fields":[]}', b'{"type":"enum","name":"E","symbols":["A"]}', b'{"type":"array","items":"int"}',
       b'{"type":"record","name":"1R","fields":[]}', b'{"type":"record","name":"R","fields":[{"name":"a"}]}',
       b'{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
       b'{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"x"}]}', b'{"type":"fixed","name":"F","size":4}')  # fmt: skip


def produce(c, topic, producer_id, *args, **more):
    """A producer with that schema, closed again when it was let in."""
    frame = c.producer(topic, producer_id, schema=schema(*args), **more)
    if frame and frame.type == "PRODUCER_SUCCESS":
        c.ask("CLOSE_PRODUCER", quietly=True, producer_id=producer_id)


def consume(c, topic, consumer_id, *args, **more):
    frame = c.subscribe(topic, "sub", consumer_id, subType="Shared", schema=schema(*args), **more)
    if frame and frame.type == "SUCCESS":
        c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=consumer_id)


def key_value(key, value):
    return struct.pack(">i", len(key)) + key + struct.pack(">i", len(value)) + value


@scenario
def producers_of_every_type_on_a_new_topic(s):
    for kind in (k for k in TYPES if k != "KeyValue"):  # an invalid KeyValue schema is never answered
        for data in (b"", b"x"):
            c = s.connect()
            c.send(
                "PRODUCER",
                topic=s.topic(f"{kind}{len(data)}"),
                producer_id=1,
                request_id=1,
                producer_name="a",
                schema=schema(kind, data),
            )
            c.recv(3)
            c.close()


@scenario
def consumers_of_every_type_on_a_new_topic(s):
    for kind in TYPES:
        for data in (b"", b"x"):
            c = s.connect()
            topic = s.topic(f"{kind}{len(data)}")
            c.send(
                "SUBSCRIBE",
                topic=topic,
                subscription="a",
                subType="Shared",
                consumer_id=1,
                request_id=1,
                schema=schema(kind, data),
            )
            c.recv(3)
            c.ask("GET_SCHEMA", topic=topic)
            c.close()


@scenario
def consumers_of_every_type_on_a_topic_in_use(s):
    c = s.connect()
    for kind in TYPES:
        topic = s.topic(kind)
        c.producer(topic, TYPES.index(kind), quietly=True, producer_name="p")
        c.send(
            "SUBSCRIBE",
            topic=topic,
            subscription="a",
            subType="Shared",
            consumer_id=TYPES.index(kind),
            request_id=1,
            schema=schema(kind),
        )
        c.recv(3)


@scenario
def questions_of_every_type(s):
    for kind in TYPES:
        c = s.connect()
        topic = s.topic(kind)
        c.producer(topic, 1, quietly=True, producer_name="p")
        c.send("GET_OR_CREATE_SCHEMA", topic=topic, request_id=1, schema=schema(kind))
        c.recv(3)
        c.ask("GET_SCHEMA", topic=topic)
        c.close()


@scenario
def avro_texts_that_are_none_of_producers(s):
    for i, data in enumerate(BAD):
        c = s.connect()
        c.send(
            "PRODUCER",
            topic=s.topic(f"t{i}"),
            producer_id=1,
            request_id=1,
            producer_name="a",
            schema=schema("Avro", data),
        )
        c.recv(3)
        c.close()


@scenario
def json_texts_that_are_none_of_producers(s):
    for i, data in enumerate(BAD):
        c = s.connect()
        c.send(
            "PRODUCER",
            topic=s.topic(f"t{i}"),
            producer_id=1,
            request_id=1,
            producer_name="a",
            schema=schema("Json", data),
        )
        c.recv(3)
        c.close()


@scenario
def avro_texts_that_are_none_of_consumers(s):
    for i, data in enumerate(BAD):
        c = s.connect()
        topic = s.topic(f"t{i}")
        c.send(
            "SUBSCRIBE",
            topic=topic,
            subscription="a",
            subType="Shared",
            consumer_id=1,
            request_id=1,
            schema=schema("Avro", data),
        )
        c.recv(3)
        c.ask("GET_SCHEMA", topic=topic)
        c.close()


@scenario
def avro_texts_that_are_none_on_a_topic_with_one(s):
    for i, data in enumerate(x for x in BAD if b"default" not in x):
        c = s.connect()
        topic = s.topic(f"t{i}")
        c.producer(topic, 1, quietly=True, producer_name="p", schema=schema("Avro", RECORD))
        c.send("PRODUCER", topic=topic, producer_id=2, request_id=1, producer_name="a", schema=schema("Avro", data))
        c.recv(3)
        c.send(
            "SUBSCRIBE",
            topic=topic,
            subscription="a",
            subType="Shared",
            consumer_id=1,
            request_id=2,
            schema=schema("Avro", data),
        )
        c.recv(3)
        c.close()


@scenario
def type_after_type(s):
    """Each of some types after each other on one topic."""
    some = (
        ("String", b""),
        ("Int32", b""),
        ("Json", RECORD),
        ("Avro", RECORD),
        ("None", b""),
    )
    for i, first in enumerate(some):
        for j, second in enumerate(some):
            topic = s.topic(f"t{i}{j}")
            c = s.connect()
            produce(c, topic, 1, *first)
            produce(c, topic, 2, *second)
            consume(c, topic, 3, *second)
            c.close()


CHANGES = (
    [("a", "int"), ("b", "int")], [("a", "int"), ("b", "int", 0)], [("a", "int"), ("b", ["null", "int"], None)], [],
    [("a", "long")], [("a", "string")], [("a", ["null", "int"])], [("a", ["int", "null"], 1)], [("b", "int")], [("a", "int", 5)],
    [("a", "double")], [("a", {"type": "int", "logicalType": "date"})], [("a", {"type": "enum", "name": "E", "symbols": ["X"]})],
)  # fmt: skip


@scenario
def changes_of_a_record_for_producers_by_strategy(s):
    for strategy in ("BACKWARD", "FORWARD", "FULL", "ALWAYS_COMPATIBLE", "ALWAYS_INCOMPATIBLE"):
        ns = namespace(s, strategy)
        s.http("PUT", f"/admin/v2/namespaces/{ns}/schemaCompatibilityStrategy", strategy, quietly=True)
        c = s.connect()
        for i, fields in enumerate(CHANGES):
            topic = s.topic(f"t{i}", ns)
            c.producer(topic, 1, quietly=True, producer_name="p", schema=schema("Avro", RECORD))
            c.ask("CLOSE_PRODUCER", quietly=True, producer_id=1)
            frame = c.ask(
                "PRODUCER",
                quietly=True,
                topic=topic,
                producer_id=2,
                producer_name="q",
                schema=schema("Avro", avro(*fields)),
            )
            s.note(f"{strategy} {i}", frame.type)
            c.ask("CLOSE_PRODUCER", quietly=True, producer_id=2)


@scenario
def changes_of_a_record_for_consumers_by_strategy(s):
    for strategy in ("BACKWARD", "FORWARD", "FULL", "ALWAYS_COMPATIBLE", "ALWAYS_INCOMPATIBLE"):
        ns = namespace(s, strategy)
        s.http("PUT", f"/admin/v2/namespaces/{ns}/schemaCompatibilityStrategy", strategy, quietly=True)
        c = s.connect()
        topic = s.topic("t", ns)
        c.producer(topic, 1, quietly=True, producer_name="p", schema=schema("Json", RECORD))
        for i, fields in enumerate(CHANGES):
            frame = c.ask(
                "SUBSCRIBE",
                quietly=True,
                topic=topic,
                subscription=f"s{i}",
                subType="Shared",
                consumer_id=i,
                schema=schema("Json", avro(*fields)),
            )
            s.note(f"{strategy} {i}", frame.type)


@scenario
def changes_one_after_the_other_by_strategy(s):
    steps = (
        [("a", "int")],
        [("a", "int"), ("b", "int", 0)],
        [("b", "int", 0)],
        [("a", "int"), ("b", "int")],
        [("a", "int", 1), ("c", "string", "")],
        [],
    )
    for strategy in ("BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"):
        ns = namespace(s, strategy)
        s.http("PUT", f"/admin/v2/namespaces/{ns}/schemaCompatibilityStrategy", strategy, quietly=True)
        c = s.connect()
        topic = s.topic("t", ns)
        for i, fields in enumerate(steps):
            frame = c.ask(
                "PRODUCER",
                quietly=True,
                topic=topic,
                producer_id=i,
                producer_name=f"q{i}",
                schema=schema("Avro", avro(*fields)),
            )
            s.note(f"{strategy} {i}", [frame.type, getattr(frame.command, "schema_version", b"").hex()])


@scenario
def nested_records_and_unions(s):
    def inner(*fields):
        return json.loads(avro(*fields, name="I"))

    first = avro(
        ("i", inner(("x", "int"))),
        ("u", ["null", "string", "int"], None),
        ("m", {"type": "map", "values": "int"}),
        ("l", {"type": "array", "items": "int"}),
    )
    others = (
        avro(("i", inner(("x", "long"))), ("u", ["null", "string", "int"], None), ("m", {"type": "map", "values": "int"}), ("l", {"type": "array", "items": "int"})),
        avro(("i", inner(("x", "int"), ("y", "int", 0))), ("u", ["null", "string", "int"], None), ("m", {"type": "map", "values": "int"}), ("l", {"type": "array", "items": "int"})),
        avro(("i", inner(("x", "int"))), ("u", ["null", "string"], None), ("m", {"type": "map", "values": "int"}), ("l", {"type": "array", "items": "int"})),
        avro(("i", inner(("x", "int"))), ("u", ["null", "string", "int", "boolean"], None), ("m", {"type": "map", "values": "long"}), ("l", {"type": "array", "items": "long"})),
        avro(("i", inner(("x", "int"))), ("u", ["null", "string", "int"], None)),
        avro(("i", inner(("x", "int"))), ("u", ["null", "string", "int"], None), ("m", {"type": "map", "values": "string"}), ("l", {"type": "array", "items": "int"})),
    )  # fmt: skip
    for strategy in ("BACKWARD", "FORWARD", "FULL"):
        ns = namespace(s, strategy)
        s.http("PUT", f"/admin/v2/namespaces/{ns}/schemaCompatibilityStrategy", strategy, quietly=True)
        for i, other in enumerate(others):
            c = s.connect()
            topic = s.topic(f"t{i}", ns)
            c.producer(topic, 1, quietly=True, producer_name="p", schema=schema("Avro", first))
            frame = c.ask(
                "PRODUCER", quietly=True, topic=topic, producer_id=2, producer_name="q", schema=schema("Avro", other)
            )
            s.note(f"{strategy} {i}", frame.type)
            c.close()


@scenario
def enums_fixed_and_names(s):
    def enum(*symbols, **more):
        return {"type": "enum", "name": "E", "symbols": list(symbols)} | more

    def fixed(size, name="F"):
        return {"type": "fixed", "name": name, "size": size}

    pairs = (
        (avro(("a", enum("X", "Y"))), avro(("a", enum("X", "Y", "Z")))), (avro(("a", enum("X", "Y"))), avro(("a", enum("X")))),
        (avro(("a", enum("X", "Y"))), avro(("a", enum("X", default="X")))), (avro(("a", enum("X"))), avro(("a", enum("X", "Y", default="X")))),
        (avro(("a", fixed(4))), avro(("a", fixed(8)))), (avro(("a", fixed(4))), avro(("a", fixed(4, "G")))),
        (avro(("a", "int")), avro(("a", "int"), name="Other")), (avro(("a", "bytes")), avro(("a", "string"))), (avro(("a", "string")), avro(("a", "bytes"))),
        (avro(("a", "int")), b'{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":"int"}]}'),
        (avro(("a", "int")), b'{"type":"record","name":"R","fields":[{"name":"b","type":"int","aliases":["a"]}]}'),
        (avro(("a", "float")), avro(("a", "int"))), (avro(("a", "int")), avro(("a", "float"))), (avro(("a", "int")), b'"int"'),
    )  # fmt: skip
    for strategy in ("BACKWARD", "FORWARD", "FULL"):
        ns = namespace(s, strategy)
        s.http("PUT", f"/admin/v2/namespaces/{ns}/schemaCompatibilityStrategy", strategy, quietly=True)
        for i, (first, second) in enumerate(pairs):
            c = s.connect()
            topic = s.topic(f"t{i}", ns)
            c.producer(topic, 1, quietly=True, producer_name="p", schema=schema("Avro", first))
            frame = c.ask(
                "PRODUCER", quietly=True, topic=topic, producer_id=2, producer_name="q", schema=schema("Avro", second)
            )
            s.note(f"{strategy} {i}", frame.type)
            c.close()


@scenario
def texts_that_mean_the_same(s):
    c = s.connect()
    for kind in ("Avro", "Json"):
        topic = s.topic(kind)
        for i, text in enumerate(
            (
                '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}',
                '{ "type" : "record", "name":"R","fields":[{"name":"a","type":"int"}] }',
                '{"name":"R","type":"record","fields":[{"type":"int","name":"a"}]}',
                '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"int"}}]}',
                '{"type":"record","name":"R","doc":"d","fields":[{"name":"a","type":"int","doc":"x"}]}',
                '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}],"p":1}',
                '{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":"int"}]}',
                '{"type":"record","name":"n.R","fields":[{"name":"a","type":"int"}]}',
            )
        ):
            produce(c, topic, i, kind, text.encode())


@scenario
def names_and_properties_of_a_schema_do_not_count(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, schema=schema("String", b"", "one", a="1"))
    c.producer(topic, 2, schema=schema("String", b"x", "two", b="2"))
    c.producer(topic, 3, schema=schema("String", b"", "", a="3"))
    c.ask("GET_SCHEMA", topic=topic)
    other = s.topic("avro")
    c.producer(other, 4, schema=schema("Avro", RECORD, "one", a="1"))
    c.producer(other, 5, schema=schema("Avro", RECORD, "two", b="2"))
    c.ask("GET_SCHEMA", topic=other)


@scenario
def key_value_schemas(s):
    c = s.connect()
    topic = s.topic()
    kinds = {"kv.encoding.type": "SEPARATED", "key.schema.name": "k", "value.schema.name": "v",
             "key.schema.type": "STRING", "value.schema.type": "AVRO"}  # fmt: skip
    wider, defaulted = avro(("a", "int"), ("b", "int")), avro(("a", "int"), ("b", "int", 0))
    for i, data in enumerate(
        (key_value(b"", RECORD), key_value(b"", wider), key_value(b"", defaulted), key_value(b"", RECORD))
    ):
        c.producer(topic, i, schema=schema("KeyValue", data, **kinds))
        c.subscribe(topic, f"s{i}", i, schema=schema("KeyValue", data, **kinds))
    c.ask("GET_SCHEMA", topic=topic)


@scenario
def versions_asked_for(s):
    topic = s.topic()
    c = s.connect()
    for i, fields in enumerate(([("a", "int")], [("a", "int"), ("b", "int", 0)])):
        c.producer(topic, i, schema=schema("Avro", avro(*fields)))
    for version in (0, 1, 2, -1, 2**31, 2**62, -(2**63)):
        c.ask("GET_SCHEMA", topic=topic, schema_version=version.to_bytes(8, "big", signed=True))
    c.ask("GET_SCHEMA", topic=topic)
    c.ask("GET_SCHEMA", topic=topic + "-partition-0")
    c.ask("GET_SCHEMA", topic=topic.replace("persistent", "non-persistent"))
    c.ask("GET_SCHEMA", topic=topic.split("/")[-1])


@scenario
def schema_outlives_its_producers(s):
    topic = s.topic()
    c = s.connect()
    produce(c, topic, 1, "Avro", RECORD)
    produce(c, topic, 1, "String")
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    produce(c, topic, 1, "String")
    produce(c, topic, 1, "Avro", RECORD)
    consume(c, topic, 1, "Avro", avro(("a", "long")))
    s.http("DELETE", rest(topic), quietly=True)
    s.lookup(topic)
    produce(c, topic, 1, "String")
    c.ask("GET_SCHEMA", topic=topic)


@scenario
def consumers_and_what_makes_a_topic_used(s):
    """A consumer's schema is the topic's first schema while the topic is unused."""
    c = s.connect()
    plain, auto, typed, full = (s.topic(n) for n in ("plain", "auto", "typed", "full"))
    c.subscribe(plain, "a", 1, quietly=True)
    c.subscribe(auto, "a", 2, quietly=True, schema=schema("AutoConsume"))
    c.subscribe(typed, "a", 3, quietly=True, schema=schema("String"))
    published(s, full, 1)
    for i, topic in enumerate((plain, auto, typed, full)):
        c.subscribe(topic, "b", 10 + i, schema=schema("Avro", RECORD))
        c.ask("GET_SCHEMA", topic=topic)
        c.producer(topic, i, producer_name="q", schema=schema("String"))


@scenario
def consumer_without_schema_and_enforced_ones(s):
    ns = namespace(s, schemaValidationEnforced=True)
    topic = s.topic("t", ns)
    c = s.connect()
    c.producer(topic, 1, producer_name="a")
    c.subscribe(topic, "a", 1)
    c.producer(topic, 2, producer_name="b", schema=schema("String"))
    c.producer(topic, 3, producer_name="c")
    c.producer(topic, 4, producer_name="d", schema=schema("None"))
    c.subscribe(topic, "b", 2)
    c.subscribe(topic, "c", 3, schema=schema("AutoConsume"))
    c.subscribe(topic, "d", 4, schema=schema("Int32"))
    c.producer(topic, 1, producer_name="a")
    c.publish(1, 0)
    c.recv()


@scenario
def schemas_of_non_persistent_topics(s):
    topic = s.topic(domain="non-persistent")
    c = s.connect()
    c.subscribe(topic, "a", 1, schema=schema("Avro", RECORD))
    c.producer(topic, 1, producer_name="a", schema=schema("String"))
    c.producer(topic, 2, producer_name="b", schema=schema("Avro", avro(("a", "int"), ("b", "int"))))
    c.producer(topic, 3, producer_name="c", schema=schema("Avro", RECORD))
    c.ask("GET_SCHEMA", topic=topic)
    c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=schema("Avro", avro(("a", "int"), ("b", "int", 0))))


@scenario
def schemas_of_partitions(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    c = s.connect()
    c.producer(topic + "-partition-0", 1, producer_name="a", schema=schema("Avro", RECORD))
    c.producer(topic + "-partition-1", 2, producer_name="a", schema=schema("String"))
    c.subscribe(topic + "-partition-1", "a", 1, schema=schema("Avro", avro(("a", "long"))))
    c.ask("GET_SCHEMA", topic=topic + "-partition-1")
    c.ask("GET_SCHEMA", topic=topic)
    c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=schema("Avro", RECORD))
    c.ask("GET_OR_CREATE_SCHEMA", topic=topic + "-partition-1", schema=schema("Avro", RECORD))


@scenario
def json_texts_in_the_form_of_json_schema(s):
    """Only texts of Avro describe a JSON schema, for producers, questions and REST."""
    texts = (
        {"type": "object", "properties": {"a": {"type": "integer"}}}, {"type": "array"}, {"type": "any"}, {"type": "number"},
        {"type": "array", "items": {"type": "object"}}, {"type": "array", "items": {"type": "string"}}, {"type": "string"},
    )  # fmt: skip
    for i, text in enumerate(texts):
        topic, c = s.topic(f"t{i}"), s.connect(f"c{i}")
        new = schema("Json", json.dumps(text).encode())
        frames = [
            c.producer(topic, 1, quietly=True, producer_name="a", schema=new),
            c.ask("GET_OR_CREATE_SCHEMA", quietly=True, topic=topic, schema=new),
            c.ask("GET_SCHEMA", quietly=True, topic=topic),
        ]
        for frame in frames:
            s.note(frame.type, [getattr(frame.command, name, None) for name in ("error", "error_code")])
        body = {"type": "JSON", "schema": json.dumps(text), "properties": {}}
        s.call("POST", "/admin/v2/schemas/" + (topic + "-rest").removeprefix("persistent://") + "/schema", body)
