import base64
import json
from decimal import Decimal

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from magnetar.pipeline.errors import SchemaError
from magnetar.pipeline.values.decoders import value_decoder
from magnetar.pipeline.values.topic_schema import TopicSchema
from tests.pipeline.values.values_for_tests import batch, rows

F = descriptor_pb2.FieldDescriptorProto


def files(*, recursive=False):
    """Two files, the importing one first: shop.Order with a shop.Line of the other."""
    line = descriptor_pb2.FileDescriptorProto(name="line.proto", package="shop", syntax="proto3")
    message = line.message_type.add(name="Line")
    message.field.add(name="sku", number=1, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    if recursive:
        message.field.add(name="next", number=2, type=F.TYPE_MESSAGE, type_name=".shop.Line", label=F.LABEL_OPTIONAL)
    order = descriptor_pb2.FileDescriptorProto(
        name="order.proto", package="shop", syntax="proto3", dependency=["line.proto"]
    )
    message = order.message_type.add(name="Order")
    for number, (name, kind) in enumerate(
        (("id", F.TYPE_INT64), ("big", F.TYPE_UINT64), ("small", F.TYPE_UINT32), ("blob", F.TYPE_BYTES)), 1
    ):
        message.field.add(name=name, number=number, type=kind, label=F.LABEL_OPTIONAL)
    message.field.add(name="lines", number=5, type=F.TYPE_MESSAGE, type_name=".shop.Line", label=F.LABEL_REPEATED)
    message.field.add(name="first", number=6, type=F.TYPE_MESSAGE, type_name=".shop.Line", label=F.LABEL_OPTIONAL)
    message.enum_type.add(name="Kind").value.add(name="A", number=0)
    message.field.add(name="kind", number=7, type=F.TYPE_ENUM, type_name=".shop.Order.Kind", label=F.LABEL_OPTIONAL)
    entry = message.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
    message.field.add(
        name="tags", number=8, type=F.TYPE_MESSAGE, type_name=".shop.Order.TagsEntry", label=F.LABEL_REPEATED
    )
    return descriptor_pb2.FileDescriptorSet(file=[order, line])


def schema(found, root="shop.Order"):
    data = {
        "fileDescriptorSet": base64.b64encode(found.SerializeToString()).decode(),
        "rootMessageTypeName": root,
        "rootFileDescriptorName": "order.proto",
    }
    return TopicSchema("PROTOBUF_NATIVE", json.dumps(data).encode())


@pytest.fixture
def order():
    pool = DescriptorPool()
    for file in reversed(files().file):
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_messages_become_columns(order):
    message = order(
        id=-5, big=2**64 - 1, small=2**32 - 1, blob=b"x", lines=[{"sku": "a"}], first={"sku": "b"}, tags={"t": 1}
    )
    decoder = value_decoder(schema(files()))
    found, failures = rows(decoder, batch([message.SerializeToString(), b"", None, b"\xff"]))
    assert found[0] == {
        "id": -5,
        "big": Decimal(2**64 - 1),
        "small": 2**32 - 1,
        "blob": b"x",
        "lines": [{"sku": "a"}],
        "first": {"sku": "b"},
        "kind": "A",
        "tags": [("t", 1)],
    }
    assert (found[1]["id"], found[1]["first"], found[1]["lines"]) == (0, None, [])
    assert set(found[2].values()) == {None}
    assert list(failures) == [3]


def test_an_enum_without_a_name_is_its_number(order):
    message = order()
    message.kind = 9
    assert rows(value_decoder(schema(files())), batch([message.SerializeToString()]))[0][0]["kind"] == "9"


def test_an_encrypted_payload_has_no_value():
    assert list(rows(value_decoder(schema(files())), batch([b""], encrypted=[0]))[1]) == [0]


def test_a_message_that_contains_itself_is_named():
    with pytest.raises(SchemaError, match=r"shop\.Line contains itself"):
        value_decoder(schema(files(recursive=True)))


@pytest.mark.parametrize(
    "wrong",
    [
        TopicSchema("PROTOBUF_NATIVE", b"{}"),
        TopicSchema("PROTOBUF_NATIVE", b'{"fileDescriptorSet": "!", "rootMessageTypeName": "a"}'),
        schema(files(), "shop.Missing"),
    ],
)
def test_a_schema_without_descriptor_is_named(wrong):
    with pytest.raises(SchemaError, match="no sound descriptor"):
        value_decoder(wrong)
