"""Payloads as text for people."""

import io
import json
import struct
import tracemalloc

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.console.payload_text import MOST_DECODED, MOST_SHOWN, payload_text, split_batch

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "who", "type": "string"}],
}


def avro(value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), value)
    return out.getvalue()


@pytest.mark.parametrize(
    ("payload", "schema", "shown"),
    [
        (b"hello", "NONE", ("text", "hello")),
        (b"\x00\xff", "NONE", ("hex", "00ff")),
        (struct.pack(">i", -7), "INT32", ("INT32", "-7")),
        (b"abc", "INT32", ("text", "abc")),
        (b'{"a":1}', "JSON", ("JSON", '{\n  "a": 1\n}')),
        (b"{", "JSON", ("text", "{")),
        ("größe".encode(), "STRING", ("STRING", "größe")),
        (b"\x01", "BOOLEAN", ("BOOLEAN", "True")),
    ],
)
def test_payloads_by_schema(payload, schema, shown):
    assert payload_text(payload, schema) == shown


def test_avro_is_decoded_by_the_definition_and_shown_raw_where_it_does_not_fit():
    kind, text = payload_text(avro({"id": 5, "who": "x"}), "AVRO", json.dumps(ORDER))
    assert (kind, json.loads(text)) == ("AVRO", {"id": 5, "who": "x"})
    assert payload_text(b"\xff", "AVRO", json.dumps(ORDER))[0] == "hex"
    assert payload_text(avro({"id": 5, "who": "x"}) + b"more", "AVRO", json.dumps(ORDER))[0] == "hex"


def test_a_large_payload_is_cut_and_not_decoded():
    kind, text = payload_text(b"[" + b" " * MOST_DECODED + b"]", "JSON")
    assert kind == "text"
    assert len(text) < MOST_SHOWN + 10


@given(st.binary(max_size=200), st.sampled_from(["NONE", "JSON", "AVRO", "INT8", "STRING", "KEY_VALUE", "DOUBLE"]))
def test_any_payload_gives_some_text(payload, schema):
    kind, text = payload_text(payload, schema, "{}")
    assert kind in (schema, "text", "hex") and isinstance(text, str)


NULLS = {"type": "array", "items": "null"}
EMPTY = {"type": "array", "items": {"type": "record", "name": "Nothing", "fields": []}}
ENDLESS_COUNT = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00"


def record_of(*types):
    return {"type": "record", "name": "R", "fields": [{"name": f"f{i}", "type": t} for i, t in enumerate(types)]}


def doubling(levels):
    """Each record contains the next record twice: 2^levels values without a byte."""
    inner = record_of("null")
    for level in range(levels):
        name = inner["name"]
        inner = {"type": "record", "name": f"L{level}", "fields": [{"name": "a", "type": inner}]}
        inner["fields"].append({"name": "b", "type": name})
    return inner


@pytest.mark.parametrize("schema", [record_of(NULLS), record_of(EMPTY)])
def test_an_array_of_values_without_bytes_is_not_decoded(schema):
    assert payload_text(ENDLESS_COUNT, "AVRO", json.dumps(schema))[0] == "hex"


@pytest.mark.parametrize(("schema", "payload"), [(doubling(40), b""), (record_of(*["null"] * 2000), b"")])
def test_schemas_that_unfold_are_not_decoded(schema, payload):
    assert payload_text(payload, "AVRO", json.dumps(schema))[0] != "AVRO"


@pytest.mark.parametrize(("schema", "payload"), [(["null", "R"], b"\x02" * 100_000), ("R", b"\x02")])
def test_a_schema_that_refers_to_itself_is_not_decoded(schema, payload):
    """Nesting as deep as the payload is long overflows the stack of the process."""
    assert payload_text(payload, "AVRO", json.dumps(record_of(schema)))[0] != "AVRO"


def test_deep_json_costs_no_more_than_its_shown_part():
    payload = b"[" * 900 + b"1," * 100_000 + b"1" + b"]" * 900
    tracemalloc.start()
    try:
        _, text = payload_text(payload, "JSON")
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(text) < MOST_SHOWN + 10
    assert most < 20 << 20


def test_texts_of_a_batch_that_are_not_utf8_are_read_as_in_java():
    single = b"\x18\x01\x0a\x08\x0a\x02k\xff\x12\x02v\xfe\x12\x02k\xff"
    found = split_batch(len(single).to_bytes(4, "big") + single + b"x", 1)
    assert found == [([("key", "k�"), ("property k�", "v�")], b"x")]
