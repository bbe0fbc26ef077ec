"""Schemas as the official client writes them."""

import pulsar
import pytest
from pulsar.schema import AvroSchema, BytesSchema, Integer, JsonSchema, Record, String, StringSchema

pytestmark = pytest.mark.blackbox


class Order(Record):
    item = String()
    count = Integer()


class Other(Record):
    item = Integer()


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (StringSchema(), "text"),
        (BytesSchema(), b"bytes"),
        (JsonSchema(Order), Order(item="a", count=1)),
        (AvroSchema(Order), Order(item="a", count=1)),
    ],
    ids=["string", "bytes", "json", "avro"],
)
def test_a_value_comes_back_through_its_schema(client, topic, schema, value):
    consumer = client.subscribe(topic, "sub", schema=schema, initial_position=pulsar.InitialPosition.Earliest)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=schema)
    client.create_producer(topic, schema=schema).send(value, partition_key="key")
    assert consumer.receive(20_000).value() == value
    assert reader.read_next(20_000).value() == value
    assert client.create_table_view(topic, schema=schema).get("key") == value


@pytest.mark.parametrize("kind", [JsonSchema, AvroSchema])
def test_an_incompatible_schema_is_refused(client, topic, kind):
    client.create_producer(topic, schema=kind(Order))
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=kind(Other))
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=StringSchema())
