"""ProtobufNative definitions: which are valid, and the name of their root."""

import base64
import json

import pytest
from google.protobuf import descriptor_pb2

from magnetar.broker.errors import InvalidSchemaError
from magnetar.broker.schemas.native_schema import protobuf_root

INT, MESSAGE = 5, 11


def file_of(name, *messages, package="", imports=()):
    """A file; each message is a tuple of its name and its fields (name, number, type or name of a message type)."""
    file = descriptor_pb2.FileDescriptorProto(name=name, package=package, dependency=imports)
    for message, *fields in messages:
        added = file.message_type.add(name=message)
        for field, number, kind in fields:
            one = added.field.add(name=field, number=number, label=1, type=kind if isinstance(kind, int) else MESSAGE)
            if not isinstance(kind, int):
                one.type_name = kind
    return file


def definition(*files, root="A", file="a.proto", **more):
    encoded = base64.b64encode(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()).decode()
    found = {"fileDescriptorSet": encoded, "rootMessageTypeName": root, "rootFileDescriptorName": file}
    return json.dumps(found | more).encode()


A = file_of("a.proto", ("A", ("x", 1, INT)))


@pytest.mark.parametrize(
    ("files", "root", "name"),
    [
        ([A], "A", "A"),
        ([A], ".A", "A"),
        ([A, A], "A", "A"),
        ([file_of("a.proto", ("A",), package="p.q")], "p.q.A", "p.q.A"),
        ([A, file_of("broken.proto", ("B", ("y", 1, ".Nothing")))], "A", "A"),
        ([file_of("a.proto", ("A", ("b", 1, ".B")), imports=["b.proto"]), file_of("b.proto", ("B",))], "A", "A"),
    ],
)
def test_valid_definitions(files, root, name):
    assert protobuf_root(definition(*files, root=root)) == name


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"x",
        b"{}",
        b"null",
        b"[]",
        definition(A, root="Z"),
        definition(A, root=None),
        definition(A, root=""),
        definition(A, file="z.proto"),
        definition(A, fileDescriptorSet="%%%"),
        definition(A, fileDescriptorSet="AAAA"),
        definition(file_of("a.proto", ("A", ("x", 1, INT), ("x", 2, INT)))),
        definition(file_of("a.proto", ("A", ("x", 1, INT), ("y", 1, INT)))),
        definition(file_of("a.proto", ("A", ("x", 1, ".Nothing")))),
        definition(file_of("a.proto", ("A",), imports=["b.proto"])),
        definition(file_of("a.proto", ("A",), imports=["b.proto"]), file_of("b.proto", imports=["a.proto"])),
        definition(file_of("a.proto", ("A",), imports=["a.proto"])),
        definition(file_of("a.proto", ("X",), imports=["b.proto"]), file_of("b.proto", ("A",))),
    ],
)
def test_definitions_that_are_refused(text):
    with pytest.raises(InvalidSchemaError):
        protobuf_root(text)


def test_files_that_import_each_other_in_a_long_chain():
    files = [file_of(f"{i}.proto", (f"M{i}",), imports=[f"{i + 1}.proto"] if i < 300 else []) for i in range(301)]
    assert protobuf_root(definition(*files, root="M0", file="0.proto")) == "M0"


def test_a_file_that_two_others_import():
    files = [
        file_of("a.proto", ("A",), imports=["b.proto", "c.proto", "d.proto"]),
        file_of("b.proto", ("B",), imports=["c.proto"]),
        file_of("c.proto", ("C",), imports=["d.proto"]),
        file_of("d.proto", ("D",)),
    ]
    assert protobuf_root(definition(*files)) == "A"
