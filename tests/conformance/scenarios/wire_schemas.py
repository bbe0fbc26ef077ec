"""Schemas on the wire: registered by producers and consumers, versions, incompatibilities."""

import json

from harness.steps import avro, namespace, published, rest
from transcript import scenario

INT = avro(("a", "int"))
INT_AND_DEFAULT = avro(("a", "int"), ("b", ["null", "string"], None))
INT_AND_MORE = avro(("a", "int"), ("b", "string"))
STRING = avro(("a", "string"))


def schema(data=INT, kind="Avro", **more):
    return dict(name="s", type=kind, schema_data=data) | more


@scenario
def schema_versions_count_up(s):
    """Default strategy FULL: each new text must read and be read by the latest."""
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, producer_name="a", schema=schema(INT))
    c.producer(topic, 2, producer_name="b", schema=schema(INT_AND_DEFAULT))
    c.producer(topic, 3, producer_name="c", schema=schema(INT_AND_MORE))
    c.producer(topic, 4, producer_name="d", schema=schema(INT))
    c.ask("GET_SCHEMA", topic=topic)
    for version in (0, 1, 2):
        c.ask("GET_SCHEMA", topic=topic, schema_version=version.to_bytes(8, "big"))


@scenario
def get_schema_of_odd_versions(s):
    c, topic = s.connect(), s.topic()
    c.ask("GET_SCHEMA", topic=topic)
    c.producer(topic, 1, quietly=True)
    c.ask("GET_SCHEMA", topic=topic)
    c.producer(topic, 2, producer_name="b", schema=schema())
    c.ask("GET_SCHEMA", topic=topic, schema_version=b"")
    c.ask("GET_SCHEMA", topic=topic, schema_version=(99).to_bytes(8, "big"))
    c.ask("GET_SCHEMA", topic=topic, schema_version=b"\xff" * 8)


@scenario
def get_schema_of_a_short_version(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, 2, producer_name="b", schema=schema())
    c.send("GET_SCHEMA", topic=topic, request_id=1, schema_version=b"\x00")
    c.recv(3)


@scenario
def get_schema_of_no_topic(s):
    c = s.connect()
    c.send("GET_SCHEMA", topic="foo://bar", request_id=1)
    c.recv(3)
    d = s.connect()
    d.send("GET_SCHEMA", topic=f"persistent://public/{s.tag}/t", request_id=1)
    d.recv(3)


@scenario
def get_or_create_schema(s):
    c, topic = s.connect(), s.topic()
    c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=schema())
    c.producer(topic, 1, quietly=True)
    c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=schema())
    c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=schema())
    c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=schema(INT_AND_DEFAULT))
    c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=schema(STRING))
    c.ask("GET_SCHEMA", topic=topic)


@scenario
def get_or_create_schema_of_a_bad_topic(s):
    c = s.connect()
    c.send("GET_OR_CREATE_SCHEMA", topic="foo://bar", request_id=1, schema=schema())
    c.recv(3)


@scenario
def schema_of_a_partition_is_that_of_the_topic(s):
    c, topic = s.connect(), s.topic()
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    c.producer(topic + "-partition-0", 1, producer_name="a", schema=schema())
    c.ask("GET_SCHEMA", topic=topic)
    c.ask("GET_SCHEMA", topic=topic + "-partition-1")
    c.producer(topic + "-partition-1", 2, producer_name="a", schema=schema(STRING))


@scenario
def schema_with_properties(s):
    c, topic = s.connect(), s.topic()
    properties = [dict(key="k", value="v")]
    c.producer(topic, 1, producer_name="a", schema=schema(properties=properties))
    c.ask("GET_SCHEMA", topic=topic)
    c.producer(topic, 2, producer_name="b", schema=schema(properties=[dict(key="k", value="other")]))
    c.producer(topic, 3, producer_name="c", schema=schema(name="another name"))


@scenario
def schema_text_is_compared_as_bytes_or_as_meaning(s):
    """The same record with other white space."""
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, producer_name="a", schema=schema(INT))
    spaced = json.dumps(json.loads(INT), indent=2).encode()
    c.producer(topic, 2, producer_name="b", schema=schema(spaced))
    c.ask("GET_SCHEMA", topic=topic)


@scenario
def schema_text_that_is_none(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, producer_name="a", schema=schema(b"no json"))
    c.producer(topic, 2, producer_name="b", schema=schema(b""))
    c.producer(topic, 3, producer_name="c", schema=schema(b'{"type": "unheard-of"}'))
    c.producer(topic, 4, producer_name="d", schema=schema(b"no json", "Json"))
    c.producer(topic, 5, producer_name="e", schema=schema(b"no json", "Protobuf"))
    c.ask("GET_SCHEMA", topic=topic)


@scenario
def primitive_schemas(s):
    c = s.connect()
    for i, kind in enumerate(("String", "Bool", "Int8", "Int64", "Double", "Date", "Instant", "LocalDateTime")):
        topic = s.topic(kind)
        c.producer(topic, 2 * i, producer_name="a", schema=schema(b"", kind))
        c.producer(topic, 2 * i + 1, producer_name="b", schema=schema(b"", kind))
        c.ask("GET_SCHEMA", topic=topic)


@scenario
def schema_of_no_type(s):
    """NONE is no schema at all."""
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, producer_name="a", schema=schema(b"", "None"))
    c.ask("GET_SCHEMA", topic=topic)
    c.subscribe(topic, "sub", 1, schema=schema(b"", "None"))


@scenario
def schema_type_changes(s):
    """Another type is incompatible, with any strategy for texts."""
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, producer_name="a", schema=schema())
    c.producer(topic, 2, producer_name="b", schema=schema(INT, "Json"))
    c.producer(topic, 3, producer_name="c", schema=schema(b"", "String"))
    c.producer(topic, 4, producer_name="d", schema=schema(b"", "Int32"))


@scenario
def json_schemas_follow_avro_rules(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, producer_name="a", schema=schema(INT, "Json"))
    c.producer(topic, 2, producer_name="b", schema=schema(INT_AND_DEFAULT, "Json"))
    c.producer(topic, 3, producer_name="c", schema=schema(STRING, "Json"))


@scenario
def key_value_schema(s):
    c, topic = s.connect(), s.topic()

    def pair(key, value):
        return len(key).to_bytes(4, "big") + key + len(value).to_bytes(4, "big") + value

    def properties(kind):
        return [
            dict(key="key.schema.name", value="k"),
            dict(key="key.schema.type", value="AVRO"),
            dict(key="key.schema.properties", value="{}"),
            dict(key="value.schema.name", value="v"),
            dict(key="value.schema.type", value="AVRO"),
            dict(key="value.schema.properties", value="{}"),
            dict(key="kv.encoding.type", value=kind),
        ]

    first = schema(pair(INT, INT), "KeyValue", properties=properties("SEPARATED"))
    c.producer(topic, 1, producer_name="a", schema=first)
    c.producer(topic, 2, producer_name="b", schema=first)
    second = schema(pair(INT, STRING), "KeyValue", properties=properties("SEPARATED"))
    c.producer(topic, 3, producer_name="c", schema=second)
    third = schema(pair(INT, INT_AND_DEFAULT), "KeyValue", properties=properties("SEPARATED"))
    c.producer(topic, 4, producer_name="d", schema=third)


@scenario
def consumer_registers_the_first_schema(s):
    c, topic = s.connect(), s.topic()
    c.subscribe(topic, "sub", 1, schema=schema())
    c.ask("GET_SCHEMA", topic=topic)
    c.producer(topic, 1, producer_name="a", schema=schema(STRING))
    c.producer(topic, 2, producer_name="b", schema=schema(INT))


@scenario
def consumer_schema_on_a_topic_that_has_one(s):
    """A consumer's schema must read the stored schemas; an older or newer compatible schema passes, unstored."""
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, producer_name="a", schema=schema(INT))
    c.subscribe(topic, "same", 1, schema=schema(INT))
    c.subscribe(topic, "newer", 2, schema=schema(INT_AND_DEFAULT))
    c.subscribe(topic, "needs more", 3, schema=schema(INT_AND_MORE))
    c.subscribe(topic, "other", 4, schema=schema(STRING))
    c.subscribe(topic, "string", 5, schema=schema(b"", "String"))
    c.subscribe(topic, "none", 6)
    c.ask("GET_SCHEMA", topic=topic)
    c.ask("GET_SCHEMA", topic=topic, schema_version=(1).to_bytes(8, "big"))


@scenario
def consumer_schema_on_a_topic_in_use_without_one(s):
    """A topic with messages or clients that has no schema takes none from a consumer."""
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, producer_name="a")
    published(s, topic, 1)
    c.subscribe(topic, "sub", 1, schema=schema(INT))
    c.ask("GET_SCHEMA", topic=topic)


@scenario
def producer_schema_on_a_topic_in_use_without_one(s):
    c, topic = s.connect(), s.topic()
    published(s, topic, 1)
    c.producer(topic, 1, producer_name="a", schema=schema(INT))
    c.producer(topic, 2, producer_name="b")


@scenario
def consumer_with_auto_consume(s):
    c, topic = s.connect(), s.topic()
    c.subscribe(topic, "before", 1, schema=schema(b"", "AutoConsume"))
    c.producer(topic, 1, producer_name="a", schema=schema(INT))
    c.subscribe(topic, "after", 2, schema=schema(b"", "AutoConsume"))
    c.ask("GET_SCHEMA", topic=topic)


@scenario
def schema_version_in_messages_is_the_producers_own(s):
    c, topic = s.connect(), s.topic()
    c.subscribe(topic, quietly=True, permits=10)
    version = c.producer(topic, 1, producer_name="a", schema=schema(INT)).command.schema_version
    c.publish(1, 0, schema_version=version)
    c.recv_sorted(2)
    c.publish(1, 1, schema_version=(77).to_bytes(8, "big"))
    c.recv_sorted(2)


@scenario
def schema_strategies_of_a_namespace(s):
    """The decision of each strategy about an added field without default, an added field with default, and a removed
    field.
    """
    for strategy in "ALWAYS_COMPATIBLE", "ALWAYS_INCOMPATIBLE", "BACKWARD", "FORWARD", "FULL":
        ns = namespace(s, strategy)
        path = f"/admin/v2/namespaces/{ns}/schemaCompatibilityStrategy"
        s.http("PUT", path, strategy, quietly=True)
        c = s.connect()
        for name, first, second in (
            ("added", INT, INT_AND_MORE),
            ("added with default", INT, INT_AND_DEFAULT),
            ("removed", INT_AND_MORE, INT),
            ("changed", INT, STRING),
        ):
            topic = s.topic(name.replace(" ", "-"), ns)
            a = c.producer(topic, 1, quietly=True, schema=schema(first))
            b = c.producer(topic, 2, quietly=True, schema=schema(second))
            answer = b.command.error if b.type == "ERROR" else b.command.schema_version.hex()
            s.note(f"{strategy} {name}", [a.type, b.type, answer])
            for producer_id in (1, 2):
                c.ask("CLOSE_PRODUCER", quietly=True, producer_id=producer_id)


@scenario
def schemas_may_not_be_added_by_producers(s):
    """isAllowAutoUpdateSchema off before the topic is loaded: only known schemas pass."""
    ns = namespace(s)
    s.http("POST", f"/admin/v2/namespaces/{ns}/isAllowAutoUpdateSchema", False, quietly=True)
    c, topic = s.connect(), s.topic("t", ns)
    c.producer(topic, 1, producer_name="a", schema=schema(INT))
    path = rest(topic, "/schema").replace("/persistent/", "/schemas/")
    s.http("POST", path, {"type": "AVRO", "schema": INT.decode(), "properties": {}})
    c.producer(topic, 1, producer_name="a", schema=schema(INT))
    c.producer(topic, 2, producer_name="b", schema=schema(INT_AND_DEFAULT))
    c.subscribe(topic, "sub", 1, schema=schema(INT_AND_DEFAULT))


@scenario
def deleted_schema_counts_on(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, producer_name="a", schema=schema(INT))
    c.ask("CLOSE_PRODUCER", producer_id=1)
    s.http("DELETE", rest(topic, "/schema").replace("/persistent/", "/schemas/"), quietly=True)
    c.ask("GET_SCHEMA", topic=topic)
    c.producer(topic, 1, producer_name="a", schema=schema(STRING))
    c.ask("GET_SCHEMA", topic=topic)
