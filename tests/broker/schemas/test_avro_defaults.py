"""Default values of fields are judged as Apache Avro's Java library judges them."""

import json
import re

import pytest

from magnetar.broker.errors import SchemaDefaultError
from magnetar.broker.schemas import avro_defaults
from magnetar.broker.schemas.avro_defaults import default_problem, invalid_default
from magnetar.broker.schemas.avro_names import NamedTypes
from magnetar.broker.schemas.avro_resolution import can_read
from magnetar.broker.schemas.avro_schema import SchemaTextError, parse_schema
from magnetar.broker.schemas.compatibility import Strategy
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.schemas.work import SchemaWork, SchemaWorkError
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.topic_name import TopicName
from tests.twins.memory_metadata import MemoryMetadataStore

AVRO, STRING = pb.Schema.Avro, pb.Schema.String
ENUM = {"type": "enum", "name": "E", "symbols": ["C"]}
FIXED = {"type": "fixed", "name": "F", "size": 2}
NUMBERS = {"type": "array", "items": "int"}
COUNTS = {"type": "map", "values": "int"}


def record_of(kind, **more):
    return {"type": "record", "name": "N", "fields": [{"name": "b", "type": kind} | more]}


def record(*fields):
    return {"type": "record", "name": "R", "fields": list(fields)}


NEEDY, RECURSIVE = record_of("int"), record_of("N", default={})


@pytest.mark.parametrize(
    ("kind", "default", "is_valid", "is_written"),
    [
        *(("int", 1, True, True), ("int", 2**31, False, True), ("int", 1.0, False, True), ("int", True, False, False)),
        *(("long", 2**40, True, True), ("double", 1, True, True), ("double", "1.5", True, True)),
        *(("string", 1, False, False), ("bytes", "x", True, True), ("boolean", "true", False, False)),
        *(("null", None, True, True), ("null", 0, False, False), ("int", None, False, False)),
        *((["int", "string"], "x", True, True), (["int"], None, False, False), ([], None, False, False)),
        *((NUMBERS, [1], True, True), (NUMBERS, ["x"], False, False), (NUMBERS, {}, False, True)),
        *((COUNTS, {"a": 1}, True, True), (COUNTS, {"a": "1"}, False, False), (COUNTS, [], False, True)),
        *((ENUM, "C", True, True), (ENUM, "A", True, False), (FIXED, "xxx", True, True), (FIXED, 1, False, False)),
        *((record_of("int", default=1), {}, True, True), (NEEDY, {"b": 2}, True, True), (NEEDY, {}, False, False)),
        (record_of(["null", "N"], default=None), {}, True, True),
    ],
)
def test_defaults_that_are_valid_and_defaults_that_are_written(kind, default, is_valid, is_written):
    schema = parse_schema(json.dumps(record({"name": "v", "type": kind, "default": default})).encode())
    problem = invalid_default(schema, SchemaWork())
    assert (problem is None) == is_valid
    if problem:
        assert problem.startswith(f"Invalid default for field v: {json.dumps(default, separators=(',', ':'))} not a ")
    found = default_problem(NamedTypes(schema), schema["fields"][0]["type"], "", default, SchemaWork())
    assert (found is None) == is_written


def test_a_default_that_contains_itself_has_an_end():
    schema = record({"name": "v", "type": RECURSIVE, "default": {}})
    with pytest.raises(SchemaWorkError):
        invalid_default(schema, SchemaWork())
    with pytest.raises(SchemaWorkError):
        default_problem(NamedTypes(schema), RECURSIVE, "", {}, SchemaWork())


@pytest.mark.parametrize("default", ["x", "", "1_0", "0x1"])
def test_a_text_without_a_number_is_no_default_of_a_fraction(default):
    with pytest.raises(SchemaTextError):
        parse_schema(json.dumps(record({"name": "v", "type": {"type": "float"}, "default": default})).encode())


@pytest.mark.parametrize("default", [" 1 ", "1f", "-.5e3", "NaN", "-Infinity", "0x1p3"])
def test_a_text_with_a_number_is_a_default_of_a_fraction(default):
    parse_schema(json.dumps(record({"name": "v", "type": "double", "default": default})).encode())


def test_the_default_of_an_enum_is_a_symbol():
    with pytest.raises(SchemaTextError):
        parse_schema(json.dumps(ENUM | {"default": "A"}).encode())
    parse_schema(json.dumps(ENUM | {"default": 1}).encode())


def test_a_default_that_cannot_be_written_counts_before_a_difference():
    a, other = {"name": "a", "type": "int"}, {"name": "a", "type": "string"}
    added = {"name": "e", "type": ENUM, "default": "A"}
    with pytest.raises(SchemaDefaultError, match="enum value 'A' is not in the enum symbol set: "):
        can_read(reader=record(a, added), writer=record(other))
    assert can_read(reader=record(a), writer=record(other, added)) is not None
    chosen = [record(a, added) | {"name": "M"}, record(other)]
    assert can_read(reader=chosen, writer=record(other)) is None


async def test_an_invalid_default_is_stored_first_and_refused_later():
    registry, name = SchemaRegistry(MemoryMetadataStore(), lambda: 0), TopicName.parse("t")
    invalid = json.dumps(record({"name": "a", "type": "int", "default": "x"})).encode()
    valid = json.dumps(record({"name": "a", "type": "int", "default": 1})).encode()

    def put(data, kind=AVRO):
        return registry.put(name, kind, data, {}, Strategy.ALWAYS_COMPATIBLE)

    assert (await put(invalid)).version == 0
    for data in (invalid, valid):
        with pytest.raises(SchemaDefaultError, match='Invalid default for field a: "x" not a "int"'):
            await put(data)
    assert (await put(b"", STRING)).version == 1
    assert (await registry.find_text(name, AVRO, invalid)).version == 0
    assert await registry.find_text(name, AVRO, invalid + b" ") is None


SYMBOLS = {"type": "enum", "name": "E", "symbols": [f"s{n}" for n in range(5000)]}
LARGE = {"type": "record", "name": "N", "fields": [{"name": "x", "type": "int", "default": [1] * 5000}]}


def outcome(reader, writer, work):
    try:
        return can_read(reader=reader, writer=writer, work=work)
    except SchemaDefaultError as error:
        return error


@pytest.mark.parametrize(
    ("kind", "default", "refusal", "most_shown"),
    [
        (SYMBOLS, "s4999", None, 0),
        (SYMBOLS, "x", "enum value 'x' is not in the enum symbol set: ", 0),
        (LARGE, {}, r"\[1,1,1,.* is no default of int", 1),
    ],
)
def test_the_work_on_defaults_that_many_fields_share_is_counted(monkeypatch, kind, default, refusal, most_shown):
    """Fields that name a type with many symbols, or with a large invalid default, each cost a millisecond for three
    steps, so that the check of a schema of 400 KiB took 19 s of processor time.
    """
    shown, encode = [], avro_defaults._shown
    monkeypatch.setattr(avro_defaults, "_shown", lambda value: (shown.append(None), encode(value))[1])
    fields = [{"name": f"f{n}", "type": kind["name"] if n else kind, "default": default} for n in range(100)]
    reader, writer = parse_schema(json.dumps(record(*fields)).encode()), parse_schema(json.dumps(record()).encode())
    for writers in (writer, [writer]):
        shown.clear()
        work = SchemaWork(limit := 100_000)
        found = outcome(reader, writers, work)
        assert re.match(refusal or "None", str(found))
        assert len(str(found)) < 20_000
        assert len(shown) <= most_shown
        if kind is SYMBOLS:
            assert limit - work._left > 100 * len(SYMBOLS["symbols"]) // 64
