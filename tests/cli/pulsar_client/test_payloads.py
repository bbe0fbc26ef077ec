"""Schemas and payloads of the command line; tests/blackbox/test_cli.py sends them."""

import pytest

from magnetar.cli.errors import CommandLineError
from magnetar.cli.pulsar_client.payloads import ValueSchema
from magnetar.protocol import pulsar_api_pb2 as pb

RECORD = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}'


def test_a_value_of_an_avro_schema():
    schema = ValueSchema(f"avro:{RECORD}")
    assert schema.schema == pb.Schema(name="R", schema_data=RECORD.encode(), type=pb.Schema.Avro)
    assert schema.encode(b'{"a": 3}') == b"\x06"


@pytest.mark.parametrize(
    "definition",
    ["3", "null", "[1]", '"nothing"', '{"type": "rec"}', '{"type": "record"}'],
)
def test_definitions_that_are_no_avro_schema_are_refused(definition):
    with pytest.raises(CommandLineError, match="is no schema of Avro"):
        ValueSchema(f"avro:{definition}")


@pytest.mark.parametrize("payload", [b"3", b"[3]", b"null", b'{"a": "x"}', b'{"a": 9223372036854775808}', b"{}", b"x"])
def test_payloads_that_are_no_value_of_the_schema_are_refused(payload):
    with pytest.raises(CommandLineError, match="is no value of the schema"):
        ValueSchema(f"avro:{RECORD}").encode(payload)


def test_a_definition_whose_name_is_no_text_has_no_name():
    assert ValueSchema('json:{"name": 3}').schema.name == ""
