import base64
import contextlib
import json

import pytest
from google.protobuf import descriptor_pb2

from magnetar.broker.errors import BrokenKeyValueError, IncompatibleSchemaError, InvalidSchemaError
from magnetar.broker.schemas.avro_printing import printed
from magnetar.broker.schemas.compatibility import (
    Definition,
    Strategy,
    check_compatible,
    check_with_existing,
    fingerprint,
)
from magnetar.protocol import pulsar_api_pb2 as pb

AVRO, JSON, STRING = pb.Schema.Avro, pb.Schema.Json, pb.Schema.String


def record(*fields, name="R", **more):
    return {"type": "record", "name": name, "fields": list(fields), **more}


A = {"name": "a", "type": "int"}
B = {"name": "b", "type": "string"}
B_DEFAULT = {"name": "b", "type": ["null", "string"], "default": None}


def fits(old, new, strategy):
    try:
        check_compatible(
            Definition(AVRO, json.dumps(new).encode()), [Definition(AVRO, json.dumps(old).encode())], strategy
        )
    except InvalidSchemaError:
        raise
    except IncompatibleSchemaError:
        return False
    return True


@pytest.mark.parametrize(
    ("old", "new", "backward", "forward"),
    [
        (record(A), record(A), True, True),
        (record(A), record(A, B_DEFAULT), True, True),
        (record(A), record(A, B), False, True),
        (record(A, B), record(A), True, False),
        (record(A), record({"name": "a", "type": "long"}), True, False),
        (record(A), record({"name": "a", "type": "string"}), False, False),
        (record(A), record({"name": "a", "type": ["null", "int"]}), True, False),
        (record(A), record(A, name="Other"), True, True),
        (record({"name": "z", "type": "int", "aliases": ["a"]}), record(A), False, True),
        (
            record({"name": "e", "type": {"type": "fixed", "name": "F", "size": 4}}),
            record({"name": "e", "type": {"type": "fixed", "name": "F", "size": 8}}),
            False,
            False,
        ),
        (
            record({"name": "l", "type": {"type": "array", "items": "int"}}),
            record({"name": "l", "type": {"type": "array", "items": "string"}}),
            False,
            False,
        ),
        (
            record({"name": "m", "type": {"type": "map", "values": "int"}}),
            record({"name": "m", "type": {"type": "map", "values": "double"}}),
            True,
            False,
        ),
        (
            record({"name": "next", "type": ["null", "R"]}, A),
            record({"name": "next", "type": ["null", "R"]}, A, B_DEFAULT),
            True,
            True,
        ),
        (
            record({"name": "x", "type": ["null", record(A, name="In")]}),
            record({"name": "x", "type": ["null", record(A, name="In2")]}),
            True,
            True,
        ),
    ],
)
def test_directions_of_compatibility(old, new, backward, forward):
    assert fits(old, new, Strategy.BACKWARD) == backward
    assert fits(old, new, Strategy.FORWARD) == forward
    assert fits(old, new, Strategy.FULL) == (backward and forward)
    assert fits(old, new, Strategy.ALWAYS_COMPATIBLE)
    assert not fits(old, new, Strategy.ALWAYS_INCOMPATIBLE)


def test_a_pair_that_failed_once_fails_again():
    inner = record({"name": "v", "type": "int"}, name="In")
    other = record({"name": "v", "type": "string"}, name="In")
    old = record({"name": "x", "type": ["null", inner]}, {"name": "y", "type": "In"})
    new = record({"name": "x", "type": ["null", other]}, {"name": "y", "type": "In"})
    assert not fits(old, new, Strategy.BACKWARD)


def test_transitive_asks_all_versions():
    history = [
        Definition(AVRO, json.dumps(record(A, {"name": "c", "type": "int"})).encode()),
        Definition(AVRO, json.dumps(record(A)).encode()),
    ]
    new = json.dumps(record(A, {"name": "c", "type": "string", "default": ""})).encode()
    check_compatible(Definition(AVRO, new), history, Strategy.BACKWARD)
    with pytest.raises(IncompatibleSchemaError):
        check_compatible(Definition(AVRO, new), history, Strategy.BACKWARD_TRANSITIVE)


def test_a_transitive_refusal_shows_the_latest_version_that_does_not_fit():
    history = [
        Definition(AVRO, json.dumps(record(A, *more)).encode()) for more in ((), ({"name": "b", "type": "int"},))
    ]
    new = json.dumps(record({"name": "a", "type": "string"})).encode()
    with pytest.raises(IncompatibleSchemaError) as refused:
        check_compatible(Definition(AVRO, new), history, Strategy.BACKWARD_TRANSITIVE)
    assert '"name" : "b"' in str(refused.value)


def test_types_do_not_mix_and_texts_have_to_parse():
    with pytest.raises(IncompatibleSchemaError):
        check_compatible(Definition(STRING, b""), [Definition(AVRO, json.dumps(record(A)).encode())], Strategy.FULL)
    for text in (b"{", b"{}", b'{"type":"nope"}', b"\xff", b'{"type":"record","name":"R"}'):
        with pytest.raises(InvalidSchemaError):
            check_compatible(Definition(JSON, text), [], Strategy.FULL)


def test_key_and_value_are_compared_part_by_part():
    def both(key, value, /, **types):
        parts = (json.dumps(key).encode(), json.dumps(value).encode())
        properties = {f"{name}.schema.type": kind for name, kind in types.items()}
        return Definition(pb.Schema.KeyValue, b"".join(len(p).to_bytes(4, "big") + p for p in parts), properties)

    avro = {"key": "AVRO", "value": "AVRO"}
    old = [both(record(A), record(A), **avro)]
    check_compatible(both(record(A), record(A, B_DEFAULT), **avro), old, Strategy.FULL)
    for other in (
        both(record(A), record(A, B), **avro),
        both(record(A), record(A, B_DEFAULT)),
        both(record(A), record(A, B_DEFAULT), key="AVRO"),
    ):
        with pytest.raises(IncompatibleSchemaError):
            check_compatible(other, old, Strategy.FULL)
    with pytest.raises(
        IncompatibleSchemaError, match="from key schema type is AVRO and to key schema is AVRO, from value"
    ):
        check_compatible(both(record(A), record(A, B_DEFAULT), key="AVRO"), old, Strategy.FULL)
    check_compatible(both(record(A), record(A, B)), [both(record(B), record(A))], Strategy.FULL)  # plain bytes
    for broken in (Definition(pb.Schema.KeyValue, b"\x00\x00\x00\x09x"), both(record(A), record(A), key="NOTHING")):
        with pytest.raises(BrokenKeyValueError):
            check_compatible(broken, old, Strategy.FULL)


def nested(depth, text=b"", kind="AVRO", properties="{}"):
    """A KeyValue whose value is a KeyValue, `depth` times; the innermost value has that type and text."""
    data, value_type = b"\x00\x00\x00\x00" + len(text).to_bytes(4, "big") + text, kind
    for _ in range(depth):
        properties = json.dumps({"value.schema.type": value_type, "value.schema.properties": properties})
        data, value_type = b"\x00\x00\x00\x00" + len(data).to_bytes(4, "big") + data, "KEY_VALUE"
    return Definition(
        pb.Schema.KeyValue, data, {"value.schema.type": value_type, "value.schema.properties": properties}
    )


def test_key_values_inside_key_values_are_compared_part_by_part():
    old, new = (nested(2, json.dumps(record(*fields)).encode()) for fields in ([A], [A, B]))
    check_compatible(nested(2, json.dumps(record(A, B_DEFAULT)).encode()), [old], Strategy.FULL)
    with pytest.raises(IncompatibleSchemaError):
        check_compatible(new, [old], Strategy.FULL)
    with pytest.raises(IncompatibleSchemaError):
        check_compatible(nested(1), [old], Strategy.FULL)
    with pytest.raises(InvalidSchemaError):
        check_compatible(nested(2, b"{"), [], Strategy.FULL)


@pytest.mark.parametrize(
    "broken",
    [
        nested(0, b"junk", kind="KEY_VALUE"),
        nested(1, kind="NOTHING"),
        nested(1)._replace(properties={"value.schema.type": "KEY_VALUE", "value.schema.properties": "[]"}),
        nested(1)._replace(properties={"value.schema.type": "KEY_VALUE", "value.schema.properties": "{"}),
        nested(17, b"{"),
    ],
)
def test_key_values_without_two_parts_inside_key_values_are_refused(broken):
    with pytest.raises(BrokenKeyValueError):
        check_compatible(broken, [], Strategy.FULL)


@pytest.mark.parametrize("name", ["value.schema.type", "value.schema.properties"])
def test_lone_surrogates_in_the_properties_of_a_part_have_a_refusal_that_can_be_sent(name):
    of_value = {"value.schema.type": "KEY_VALUE"}
    properties = json.dumps(of_value | {name: "\ud800"})
    with pytest.raises(BrokenKeyValueError) as refused:
        check_compatible(
            nested(2)._replace(properties=of_value | {"value.schema.properties": properties}), [], Strategy.FULL
        )
    assert str(refused.value).encode()


def test_definitions_are_the_same_by_meaning():
    def same(one, other):
        return fingerprint(AVRO, json.dumps(one).encode()) == fingerprint(AVRO, json.dumps(other, indent=1).encode())

    assert same(record(A), record(A))
    assert same(record(A), record({"type": {"type": "int"}, "name": "a", "doc": "d", "aliases": ["x"]}, doc="text"))
    assert same(record(A, namespace="n"), record(A, name="n.R"))
    for other in (
        record(A, name="S"),
        record(A, p=1),
        record(A | {"default": 0}),
        record(A | {"p": 1}),
        record(A, B),
        record(),
    ):
        assert not same(record(A), other)
    assert not same(record(A, B), record(B, A))
    assert fingerprint(AVRO, b"{") != fingerprint(AVRO, b"x")
    assert fingerprint(STRING, b"x") == fingerprint(STRING, b"x")
    assert fingerprint(STRING, b"") != fingerprint(STRING, b"anything")


@pytest.mark.parametrize(
    "text",
    [
        b"", b"1", b'"nothing"', b"[[]]", b'["int","int"]', b'{"type":"array"}', b'{"type":"map"}', b'{"type":"fixed","name":"F"}',
        b'{"type":"enum","name":"E"}', b'{"type":"enum","name":"E","symbols":["A","A"]}', b'{"type":"record","name":"1","fields":[]}',
        b'{"type":"record","name":"R","fields":[{"name":"a"}]}',
        b'{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
        b'{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"record","name":"R","fields":[]}}]}', b"[" * 100_000,
        b'{"type":"record","name":"R","fields":[{"name":"a","type":"int","aliases":5}]}',
        b'{"type":"record","name":"R","fields":[{"name":"a","type":"int","aliases":[{}]}]}',
        b'{"type":"enum","name":"E","symbols":["A"],"aliases":null}',
    ],
)  # fmt: skip
def test_texts_that_are_no_avro_schema(text):
    with pytest.raises(InvalidSchemaError):
        check_compatible(Definition(AVRO, text), [], Strategy.FULL)


def test_texts_of_the_same_schema():
    recursive = record({"name": "next", "type": ["null", "R"], "default": "not looked at"})
    for schema in (recursive, "int", {"type": "map", "values": "int"}, {"type": "fixed", "name": "F", "size": 4}):
        check_compatible(Definition(AVRO, json.dumps(schema).encode()), [], Strategy.FULL)
    with pytest.raises(InvalidSchemaError):
        check_compatible(Definition(AVRO, b'["null","int"]'), [], Strategy.FULL)
    check_compatible(Definition(JSON, b'["null","int"]'), [], Strategy.FULL)


@pytest.mark.parametrize("old_style", [b'{"type":"object","properties":{}}', b'{"type":"array"}', b'{"type":"any"}'])
def test_a_stored_definition_may_be_a_json_schema_and_a_new_definition_may_not(old_style):
    """Verified against Apache Pulsar 4.2.4."""
    new = Definition(JSON, json.dumps(record(A)).encode())
    check_compatible(new, [Definition(JSON, old_style)], Strategy.FULL)
    with pytest.raises(InvalidSchemaError):
        check_compatible(Definition(JSON, old_style), [new], Strategy.FULL)
    with pytest.raises(InvalidSchemaError):
        check_with_existing(Definition(JSON, old_style), [new], Strategy.FULL)


@pytest.mark.parametrize("strategy", sorted(set(Strategy) - {Strategy.ALWAYS_INCOMPATIBLE}))
def test_protobuf_schemas_are_not_compared(strategy):
    """Verified against Apache Pulsar 4.2.4: its broker has no check for this type."""
    old, new = (Definition(pb.Schema.Protobuf, json.dumps(record(f)).encode()) for f in (A, B))
    check_compatible(new, [old], strategy)
    parts = [
        Definition(
            pb.Schema.KeyValue,
            bytes(4) + len(d.data).to_bytes(4, "big") + d.data,
            {"key.schema.type": "STRING", "value.schema.type": "PROTOBUF"},
        )
        for d in (old, new)
    ]
    check_compatible(parts[1], parts[:1], strategy)


def test_protobuf_schemas_may_be_incompatible_always():
    old, new = (Definition(pb.Schema.Protobuf, json.dumps(record(f)).encode()) for f in (A, B))
    assert "ALWAYS_INCOMPATIBLE" in refusal(new, old, Strategy.ALWAYS_INCOMPATIBLE)


def test_primitive_schemas_carry_no_text():
    check_compatible(Definition(STRING, b""), [], Strategy.FULL)
    with pytest.raises(InvalidSchemaError):
        check_compatible(Definition(STRING, b"x"), [], Strategy.FULL)
    with pytest.raises(InvalidSchemaError):
        check_compatible(Definition(pb.Schema.AutoConsume, b""), [], Strategy.FULL)


def native(root):
    file = descriptor_pb2.FileDescriptorProto(name="f.proto")
    for name in ("A", "B"):
        file.message_type.add(name=name)
    encoded = base64.b64encode(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()).decode()
    found = {"fileDescriptorSet": encoded, "rootMessageTypeName": root, "rootFileDescriptorName": "f.proto"}
    return json.dumps(found).encode()


def test_protobuf_native_keeps_its_root_message():
    kind = pb.Schema.ProtobufNative
    check_compatible(Definition(kind, native("A")), [Definition(kind, native("A"))], Strategy.FULL)
    text = refusal(Definition(kind, native("B")), Definition(kind, native("A")), Strategy.FULL)
    assert "'FULL' strategy. Original message name: 'A', new message name: 'B'." in text
    with pytest.raises(InvalidSchemaError):
        check_compatible(Definition(kind, native("C")), [], Strategy.FULL)


def refusal(new, existing, strategy):
    with pytest.raises(IncompatibleSchemaError) as refused:
        check_compatible(new, [existing], strategy)
    return str(refused.value)


def avro_text(*fields):
    return Definition(AVRO, json.dumps(record(*fields, name="A", namespace="n.s")).encode())


@pytest.mark.parametrize("strategy", [Strategy.FULL, Strategy.ALWAYS_INCOMPATIBLE])
def test_a_refusal_for_the_type_names_types_as_java_does(strategy):
    text = "Incompatible schema: exists schema type AVRO, new schema type "
    assert refusal(Definition(JSON, avro_text(A).data), avro_text(A), strategy) == text + "JSON"
    assert refusal(Definition(pb.Schema.Bool, b""), avro_text(A), strategy) == text + "BOOLEAN"


def pair_of(*types):
    """A KeyValue of a key and a value of these types, whose texts are equal where they have a text."""
    text = avro_text(A).data
    parts = [{"AVRO": text, "JSON": text, "STRING": b"", "KEY_VALUE": bytes(8)}[kind] for kind in types]
    data = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    properties = {f"{name}.schema.type": kind for name, kind in zip(("key", "value"), types, strict=True)}
    return Definition(pb.Schema.KeyValue, data, properties)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (("STRING", "AVRO"), ("STRING", "AVRO"), "Schema compatibility strategy is ALWAYS_INCOMPATIBLE"),
        (("AVRO", "STRING"), ("AVRO", "STRING"), "Error during schema compatibility check with strategy ALWAYS_"),
        (("AVRO", "AVRO"), ("AVRO", "STRING"), "Key schemas or Value schemas are different schema type, from key"),
        (("KEY_VALUE", "AVRO"), ("KEY_VALUE", "AVRO"), "Schema compatibility strategy is ALWAYS_INCOMPATIBLE"),
    ],
)
def test_the_key_decides_the_words_where_no_key_value_is_compatible(old, new, said):
    assert refusal(pair_of(*new), pair_of(*old), Strategy.ALWAYS_INCOMPATIBLE).startswith(said)


@pytest.mark.parametrize("strategy", sorted(set(Strategy) - {Strategy.ALWAYS_COMPATIBLE}))
def test_a_key_value_with_the_bytes_of_the_latest_fits_but_for_strategies_over_all_versions(strategy):
    new, old = pair_of("JSON", "AVRO"), pair_of("AVRO", "AVRO")
    is_fit = strategy in {Strategy.BACKWARD, Strategy.FORWARD, Strategy.FULL, Strategy.UNDEFINED}
    with contextlib.nullcontext() if is_fit else pytest.raises(IncompatibleSchemaError):
        check_with_existing(new, [old], strategy)
    with pytest.raises(IncompatibleSchemaError):
        check_with_existing(new, [old, pair_of("AVRO", "STRING")], strategy)


@pytest.mark.parametrize(
    ("strategy", "writer", "reader"),
    [
        (Strategy.BACKWARD, "int", "string"), (Strategy.FORWARD_TRANSITIVE, "string", "int"),
        (Strategy.FULL, "string", "int"), (Strategy.ALWAYS_INCOMPATIBLE, "string", "string"),
    ],
)  # fmt: skip
def test_a_refusal_for_the_form_shows_both_schemas(strategy, writer, reader):
    old, new = ({"name": "x", "type": kind} for kind in ("int", "string"))
    texts = [
        '{\n  "type" : "record",\n  "name" : "A",\n  "namespace" : "n.s",\n  "fields" : [ {\n'
        f'    "name" : "x",\n    "type" : "{kind}"\n  }} ]\n}}'
        for kind in (writer, reader)
    ]
    said = refusal(avro_text(new), avro_text(old), strategy)
    words, _, advice = said.partition("\n/x/: the reader expects ")
    assert ("set-schema-compatibility-strategy" in advice) == (strategy is not Strategy.ALWAYS_INCOMPATIBLE)
    assert words == (
        f"Error during schema compatibility check with strategy {strategy.value}: "
        f"org.apache.avro.SchemaValidationException: Unable to read schema: \n{texts[0]}\nusing schema:\n{texts[1]}"
    )


def test_schemas_are_printed_in_the_order_of_java():
    inner = {"name": "E", "symbols": ["X", "Y"], "type": "enum", "namespace": "n", "aliases": ["F"], "x": {}}
    field = {"default": None, "order": "ascending", "type": [{"type": "null"}, inner], "name": "f", "doc": "d"}
    schema = {"fields": [field], "name": "n.R", "type": "record", "doc": 'a "text"'}
    assert printed({"type": "array", "items": schema}).split("\n") == [
        "{", '  "type" : "array",', '  "items" : {', '    "type" : "record",', '    "name" : "R",', '    "namespace" : "n",',
        '    "doc" : "a \\"text\\"",', '    "fields" : [ {', '      "name" : "f",', '      "type" : [ "null", {',
        '        "type" : "enum",', '        "name" : "E",', '        "symbols" : [ "X", "Y" ],', '        "x" : { },',
        '        "aliases" : [ "F" ]', "      } ],", '      "doc" : "d",', '      "default" : null', "    } ]", "  }", "}",
    ]  # fmt: skip
