"""ProtobufNative and Protobuf schemas: evolution by every strategy, damaged definitions, roots, dependencies."""

import base64
import json
import struct

from google.protobuf import descriptor_pb2

from harness.steps import namespace
from transcript import scenario

STRATEGIES = (
    "FULL", "BACKWARD", "FORWARD", "FULL_TRANSITIVE", "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "ALWAYS_COMPATIBLE",
    "ALWAYS_INCOMPATIBLE", "UNDEFINED",
)  # fmt: skip
INT32, STRING, MESSAGE = 5, 9, 11


def file_of(name, package="", syntax="proto3", dependency=(), **messages):
    f = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax=syntax, dependency=dependency)
    for message, fields in messages.items():
        m = f.message_type.add(name=message)
        for number, (field, kind, *more) in enumerate(fields, 1):
            added = m.field.add(
                name=field, number=more[0] if more else number, type=kind if isinstance(kind, int) else MESSAGE, label=1
            )
            if not isinstance(kind, int):
                added.type_name = kind
            if len(more) > 1:
                added.label = more[1]
    return f


def native(*files, root="A", file=None, **more):
    data = descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()
    body = {
        "fileDescriptorSet": base64.b64encode(data).decode(),
        "rootMessageTypeName": root,
        "rootFileDescriptorName": file or files[0].name,
    } | more
    return json.dumps(body).encode()


def schema(data, kind="ProtobufNative", **properties):
    return {
        "name": "s",
        "type": kind,
        "schema_data": data,
        "properties": [{"key": k, "value": v} for k, v in properties.items()],
    }


BASE = native(file_of("a.proto", A=[("x", INT32)]))
NEXT = {
    "added": native(file_of("a.proto", A=[("x", INT32), ("y", STRING)])),
    "removed": native(file_of("a.proto", A=[])),
    "other type": native(file_of("a.proto", A=[("x", STRING)])),
    "renamed": native(file_of("a.proto", A=[("z", INT32)])),
    "other number": native(file_of("a.proto", A=[("x", INT32, 7)])),
    "repeated": native(file_of("a.proto", A=[("x", INT32, 1, 3)])),
    "other root": native(file_of("a.proto", A=[("x", INT32)], B=[("x", INT32)]), root="B"),
    "other file": native(file_of("b.proto", A=[("x", INT32)])),
    "other package": native(file_of("a.proto", "pkg", A=[("x", INT32)]), root="pkg.A"),
    "proto2": native(file_of("a.proto", "", "proto2", A=[("x", INT32)])),
    "required": native(file_of("a.proto", "", "proto2", A=[("x", INT32), ("r", INT32, 2, 2)])),
}
BAD = {
    "empty": b"", "text": b"x", "object": b"{}", "null": b"null",
    "no root": native(file_of("a.proto", A=[]), root="Z"),
    "null root": native(file_of("a.proto", A=[]), root=None),
    "no file": native(file_of("a.proto", A=[]), file="z.proto"),
    "bad base64": json.dumps({"fileDescriptorSet": "%%%", "rootMessageTypeName": "A", "rootFileDescriptorName": "a.proto"}).encode(),
    "bad bytes": json.dumps({"fileDescriptorSet": "AAAA", "rootMessageTypeName": "A", "rootFileDescriptorName": "a.proto"}).encode(),
    "unknown key": native(file_of("a.proto", A=[]), extra=1),
    "missing dependency": native(file_of("a.proto", dependency=["b.proto"], A=[])),
    "unknown type": native(file_of("a.proto", A=[("x", ".Nope")])),
    "no set": json.dumps({"rootMessageTypeName": "A", "rootFileDescriptorName": "a.proto"}).encode(),
    "duplicate field": native(file_of("a.proto", A=[("x", INT32), ("x", INT32, 2)])),
    "duplicate number": native(file_of("a.proto", A=[("x", INT32), ("y", INT32, 1)])),
}  # fmt: skip


def outcome(f):
    if not f:
        return ["nothing"]
    return [f.type, f.command.error if f.type == "ERROR" else None]


def _strategy(name):
    def run(s):
        ns = namespace(s)
        s.http("PUT", f"/admin/v2/namespaces/{ns}/schemaCompatibilityStrategy", name)
        c = s.connect()
        for i, (what, data) in enumerate(NEXT.items()):
            topic = s.topic(f"t{i}", ns)
            c.producer(topic, 1, quietly=True, producer_name="a", schema=schema(BASE))
            f = c.producer(topic, 2, quietly=True, producer_name="b", schema=schema(data))
            g = s.connect(f"g{i}").subscribe(topic, "s", 1, quietly=True, schema=schema(data))
            s.note(what, outcome(f) + outcome(g))
            c.ask("CLOSE_PRODUCER", quietly=True, producer_id=1)
            c.ask("CLOSE_PRODUCER", quietly=True, producer_id=2)

    run.__name__ = f"native_schemas_change_under_{name.lower()}"
    scenario(run)


for _s in STRATEGIES:
    _strategy(_s)


@scenario
def native_schemas_that_are_damaged(s):
    for i, (what, data) in enumerate(BAD.items()):
        c, topic = s.connect(f"c{i}"), s.topic(f"t{i}")
        c.send(
            "PRODUCER", quietly=True, topic=topic, producer_id=1, request_id=5, producer_name="a", schema=schema(data)
        )
        s.note(what, outcome(c.recv_quietly(2)))


@scenario
def native_schemas_that_are_damaged_second(s):
    for i, (what, data) in enumerate(BAD.items()):
        c, topic = s.connect(f"c{i}"), s.topic(f"t{i}")
        c.producer(topic, 7, quietly=True, producer_name="z", schema=schema(BASE))
        c.send(
            "PRODUCER", quietly=True, topic=topic, producer_id=1, request_id=5, producer_name="a", schema=schema(data)
        )
        s.note(what, outcome(c.recv_quietly(1.5)))


@scenario
def native_schemas_of_consumers_and_questions(s):
    for i, (what, data) in enumerate(BAD.items()):
        c, topic = s.connect(f"c{i}"), s.topic(f"t{i}")
        c.send(
            "SUBSCRIBE",
            quietly=True,
            topic=topic,
            subscription="s",
            consumer_id=1,
            request_id=5,
            subType="Shared",
            schema=schema(data),
        )
        s.note(what, outcome(c.recv_quietly(1)))
        c.send("GET_OR_CREATE_SCHEMA", quietly=True, topic=topic, request_id=6, schema=schema(data))
        f = c.recv_quietly(1)
        s.note(what, [f and f.type, f and f.command.error_code])


@scenario
def native_schemas_over_rest(s):
    topic = s.topic()
    path = "/admin/v2/schemas/" + topic.partition("://")[2]
    for what, data in (NEXT | BAD).items():
        body = {"type": "PROTOBUF_NATIVE", "schema": data.decode(), "properties": {}}
        s.note("of", what)
        st, _ = s.http("POST", path + "/schema", body, quietly=True)
        s.note("status", st)
    s.call(
        "GET",
        path + "/schemas",
        keep=lambda b: [[x["version"], x["type"], x["data"][:80]] for x in b["getSchemaResponses"]],
    )


@scenario
def native_schemas_and_other_types(s):
    c = s.connect()
    avro = b'{"type":"record","name":"R","fields":[]}'
    for i, (a, b) in enumerate(
        (
            ("ProtobufNative", "Protobuf"),
            ("Protobuf", "ProtobufNative"),
            ("ProtobufNative", "Avro"),
            ("Avro", "ProtobufNative"),
            ("Protobuf", "Avro"),
            ("Avro", "Protobuf"),
            ("ProtobufNative", "String"),
        )
    ):
        topic = s.topic(f"t{i}")
        one = {"ProtobufNative": BASE, "String": b""}.get(a, avro)
        two = {"ProtobufNative": BASE, "String": b""}.get(b, avro)
        c.producer(topic, 2 * i, producer_name="a", schema=schema(one, a))
        c.producer(topic, 2 * i + 1, producer_name="b", schema=schema(two, b))


@scenario
def native_schemas_in_key_values(s):
    def kv(k, v):
        return struct.pack(">i", len(k)) + k + struct.pack(">i", len(v)) + v

    props = {
        "key.schema.type": "STRING",
        "value.schema.type": "PROTOBUF_NATIVE",
        "kv.encoding.type": "INLINE",
        "key.schema.name": "k",
        "value.schema.name": "v",
        "key.schema.properties": "{}",
        "value.schema.properties": "{}",
    }
    c = s.connect()
    topic = s.topic()
    c.producer(topic, 1, producer_name="a", schema=schema(kv(b"", BASE), "KeyValue", **props))
    for i, what in enumerate(NEXT):
        f = c.producer(
            topic, 10 + i, quietly=True, producer_name=f"b{i}", schema=schema(kv(b"", NEXT[what]), "KeyValue", **props)
        )
        s.note(what, outcome(f))
