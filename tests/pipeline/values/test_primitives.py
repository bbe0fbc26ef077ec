import datetime as dt
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.pipeline.columns import VALUE
from magnetar.pipeline.errors import SchemaError
from magnetar.pipeline.values.decoders import AS_BYTES, value_decoder
from magnetar.pipeline.values.primitives import PRIMITIVES
from magnetar.pipeline.values.topic_schema import TopicSchema
from tests.pipeline.values.values_for_tests import batch, rows

AT = dt.datetime(2024, 5, 6, 7, 8, 9, 123000, dt.UTC)
MS = int(AT.timestamp() * 1000)
DAYS = MS // 86_400_000
CASES = {
    "BOOLEAN": (b"\x01", True),
    "INT8": (b"\xfe", -2),
    "INT16": (struct.pack(">h", -300), -300),
    "INT32": (struct.pack(">i", 70_000), 70_000),
    "INT64": (struct.pack(">q", -(2**40)), -(2**40)),
    "FLOAT": (struct.pack(">f", 1.5), 1.5),
    "DOUBLE": (struct.pack(">d", -2.25), -2.25),
    "DATE": (struct.pack(">q", MS), AT.date()),
    "TIME": (struct.pack(">q", 1000), dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)),
    "TIMESTAMP": (struct.pack(">q", MS), AT),
    "INSTANT": (struct.pack(">qi", MS // 1000, 123_000_000), AT),
    "LOCAL_DATE": (struct.pack(">q", DAYS), AT.date()),
    "LOCAL_TIME": (struct.pack(">q", 5), 5),
    "LOCAL_DATE_TIME": (
        struct.pack(">qq", DAYS, (7 * 3600 + 8 * 60 + 9) * 10**9 + 123_000_000),
        AT.replace(tzinfo=None),
    ),
}


def test_every_primitive_has_a_case():
    assert CASES.keys() == PRIMITIVES.keys()


@pytest.mark.parametrize("kind", CASES)
def test_primitives(kind):
    payload, value = CASES[kind]
    decoder = value_decoder(TopicSchema(kind))
    found, failures = rows(decoder, batch([payload, None, payload + b"x", b"", payload], encrypted=[4]))
    assert [row["value"] for row in found] == [value, None, None, None, None]
    assert set(failures) == {2, 3, 4}


@given(data=st.lists(st.none() | st.binary(max_size=17), max_size=6), kind=st.sampled_from(sorted(PRIMITIVES)))
def test_any_bytes_are_a_value_or_a_failure(data, kind):
    rows(value_decoder(TopicSchema(kind)), batch(data))


@pytest.mark.parametrize("kind", ["TIMESTAMP", "INSTANT", "LOCAL_DATE", "LOCAL_DATE_TIME"])
def test_times_beyond_the_calendar_are_failures(kind):
    width = PRIMITIVES[kind][0]
    _, failures = rows(value_decoder(TopicSchema(kind)), batch([b"\x7f" + b"\xff" * 7 + bytes(width - 8)]))
    assert list(failures) == [0]


def test_strings():
    found, failures = rows(value_decoder(TopicSchema("STRING")), batch([b"a", None, "ü".encode()]))
    assert ([row["value"] for row in found], failures) == (["a", None, "ü"], {})
    found, failures = rows(value_decoder(TopicSchema("STRING")), batch([b"a", b"\xff"]))
    assert found[0]["value"] == "a"
    assert list(failures) == [1]
    assert list(rows(value_decoder(TopicSchema("STRING")), batch([b"a"], encrypted=[0]))[1]) == [0]


@pytest.mark.parametrize("kind", sorted(AS_BYTES))
def test_bytes(kind):
    decoder = value_decoder(TopicSchema(kind))
    assert decoder.columns == (VALUE,)
    assert rows(decoder, batch([b"a", None], encrypted=[0])) == ([{"value": b"a"}, {"value": None}], {})
    assert value_decoder(None).columns == (VALUE,)


def test_an_unknown_type_is_named():
    with pytest.raises(SchemaError, match="XML is not known; read with valueMode=bytes"):
        value_decoder(TopicSchema("XML"))


def test_schemas_of_the_admin_api():
    schema = TopicSchema.from_admin({"version": 3, "type": "AVRO", "data": '{"type": "int"}', "properties": {"a": "b"}})
    assert (schema.type, schema.definition, schema.properties) == ("AVRO", {"type": "int"}, {"a": "b"})
    assert TopicSchema.from_admin({"type": "INT32", "data": ""}).data == b""


# --- key and value ------------------------------------------------------------------------------------------------------


def key_value(key, value, key_data=b"", value_data=b"", encoding="INLINE", as_json=False):
    sized = b"".join(len(part).to_bytes(4, "big") + part for part in (key_data, value_data))
    if as_json:
        sized = json.dumps({"key": key_data.decode(), "value": json.loads(value_data) if value_data else ""}).encode()
    properties = {"key.schema.type": key, "value.schema.type": value, "kv.encoding.type": encoding}
    return TopicSchema("KEY_VALUE", sized, properties)


RECORD = b'{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'


@pytest.mark.parametrize("as_json", [False, True])
def test_inline_key_values(as_json):
    decoder = value_decoder(key_value("STRING", "AVRO", b"", RECORD, as_json=as_json))
    assert [(c.name, c.ddl) for c in decoder.columns] == [("key", "STRING"), ("value", "STRUCT<`n`: INT>")]
    payload = b"\0\0\0\2ab\0\0\0\1\x06"
    no_value = b"\0\0\0\1a\xff\xff\xff\xff"
    found, failures = rows(decoder, batch([payload, no_value, None, payload[:-1], b"\0"]))
    assert found[:3] == [
        {"key": "ab", "value": {"n": 3}},
        {"key": "a", "value": None},
        {"key": None, "value": None},
    ]
    assert set(failures) == {3, 4}


def test_separated_key_values():
    decoder = value_decoder(key_value("INT32", "BYTES", encoding="SEPARATED"))
    found, failures = rows(decoder, batch([b"v", None, b"w"], keys=[b"\0\0\0\5", b"\0\0\0\6", b"x"]))
    assert found[:2] == [{"key": 5, "value": b"v"}, {"key": 6, "value": None}]
    assert list(failures) == [2]


def test_key_values_evolve_by_their_parts():
    new = RECORD.replace(b"]}", b', {"name": "m", "type": ["null", "int"], "default": null}]}')
    versions = {0: key_value("STRING", "AVRO", b"", RECORD), 1: key_value("STRING", "AVRO", b"", new)}
    decoder = value_decoder(versions[1], versions.get)
    payloads = [b"\0\0\0\1a\0\0\0\1\x06", b"\0\0\0\1a\0\0\0\3\x06\2\x08"]
    found, failures = rows(decoder, batch(payloads, versions=[0, 1]))
    assert (found, failures) == (
        [{"key": "a", "value": {"n": 3, "m": None}}, {"key": "a", "value": {"n": 3, "m": 4}}],
        {},
    )


def test_an_encrypted_key_value_has_no_value():
    decoder = value_decoder(key_value("STRING", "BYTES"))
    assert list(rows(decoder, batch([b"\0\0\0\2ab\0\0\0\1\x06"], encrypted=[0]))[1]) == [0]


def test_a_cut_key_value_schema_is_named():
    with pytest.raises(SchemaError, match="cut off"):
        value_decoder(TopicSchema("KEY_VALUE", b"\0\0\0\5a"))
