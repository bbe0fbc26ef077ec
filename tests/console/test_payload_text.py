"""Payloads as text for people."""

import io
import json
import struct

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.console.payload_text import MOST_DECODED, MOST_SHOWN, payload_text

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
