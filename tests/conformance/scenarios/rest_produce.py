"""Produce over REST: bodies, stored entries, schemas, partitions, refusals."""

import base64
import json

from harness.steps import RECORD, namespace, rest
from transcript import scenario

OPTIONAL = {"name": "b", "type": ["null", "string"], "default": None}
HEADERS = (
    "X-Pulsar-PROPERTY",
    "X-Pulsar-producer-name",
    "X-Pulsar-sequence-id",
    "X-Pulsar-event-time",
    "X-Pulsar-partition-key",
    "X-Pulsar-uncompressed-size",
    "X-Pulsar-num-batch-message",
)


def schema(kind, definition=None, **more):
    text = "" if definition is None else base64.b64encode(json.dumps(definition).encode()).decode()
    return json.dumps({"type": kind, "schema": text, "name": "n", "properties": {}} | more)


def new(s, name="t", partitions=None, domain="persistent"):
    topic = s.topic(name, domain=domain)
    s.http("PUT", rest(topic) if partitions is None else rest(topic, "/partitions"), partitions, quietly=True)
    return topic, "/topics/" + topic.replace("://", "/")


def kept(answer):
    """Results without ledgers and texts."""
    shown = []
    for each in answer["messagePublishResults"]:
        ledger, colon, rest_of_id = each["messageId"].partition(":")
        shown.append(
            ["L:" + rest_of_id if colon else ledger, each["errorCode"], each["schemaVersion"], "errorMsg" in each]
        )
    return shown, answer["schemaVersion"]


def produced(s, path, *messages, **more):
    return s.call(
        "POST", path, {"messages": [m if isinstance(m, dict) else {"payload": m} for m in messages]} | more, keep=kept
    )


def stored(s, topic, number=1):
    path = rest(topic, f"/examinemessage?initialPosition=earliest&messagePosition={number}")
    status, _ = s.http("GET", path, quietly=True)
    s.note("stored", [status, *(s.http_headers.get(name) for name in HEADERS)])


def delivered(s, topic, count):
    """The messages of a consumer: metadata and payload."""
    c = s.connect("c")
    c.subscribe(topic, quietly=True, initialPosition="Earliest")
    c.send("FLOW", quietly=True, consumer_id=1, messagePermits=count)
    for _ in range(count):
        frame = c.recv_quietly()
        m = frame.metadata
        s.note(
            "delivered",
            [
                frame.payload.hex(),
                m.producer_name,
                m.sequence_id,
                m.partition_key,
                m.HasField("partition_key"),
                m.partition_key_b64_encoded,
                m.schema_version.hex(),
                m.HasField("compression"),
                m.uncompressed_size,
                m.event_time,
                m.deliver_at_time,
                list(m.replicate_to),
                sorted((p.key, p.value) for p in m.properties),
                m.HasField("num_messages_in_batch"),
            ],
        )


@scenario
def rest_produced_messages_are_delivered(s):
    topic, path = new(s)
    produced(s, path, "one", "two", {"payload": "ä€", "key": "k"})
    delivered(s, topic, 3)


@scenario
def rest_produced_fields(s):
    topic, path = new(s)
    produced(
        s,
        path,
        {"payload": "x", "key": "", "properties": {"a": "b", "c": 1}, "eventTime": "1700000000000", "sequenceId": 7},
    )
    produced(s, path, {"payload": "x", "replicationClusters": ["x", "y"]}, producerName="me")
    produced(s, path, {"payload": "x", "replicationClusters": ["x"], "disableReplication": True}, producerName="")
    produced(
        s, path, {"payload": "", "sequenceId": -5, "eventTime": "", "context": "c", "unknown": 1}, producerName=None
    )
    for number in range(1, 5):
        stored(s, topic, number)
    delivered(s, topic, 4)


@scenario
def rest_produced_with_a_time(s):
    topic, path = new(s)
    for times in ({"deliverAt": 5}, {"deliverAt": 5, "eventTime": "3"}, {"deliverAfterMs": 5, "eventTime": "3"}, {"deliverAfterMs": 5}, {"deliverAt": 7, "deliverAfterMs": 5, "eventTime": "3"}):  # fmt: skip
        produced(s, path, {"payload": "x"} | times)
    delivered(s, topic, 5)


@scenario
def rest_produced_with_odd_bodies(s):
    _, path = new(s)
    for body in ({}, {"messages": []}, {"messages": None}, {"messages": [{}]}, {"messages": [{"payload": None}]}, {"messages": [None]}, {"messages": {}}, [], "x", 5, {"messages": [{"payload": 5}]},
                 {"messages": [{"payload": {"a": 1}}]}, {"messages": [{"payload": "x", "eventTime": "abc"}]}, {"messages": [{"payload": "x", "eventTime": 5}]}, {"messages": [{"payload": "x", "sequenceId": "abc"}]},
                 {"messages": [{"payload": "x", "properties": {"a": None}}]}, {"messages": [{"payload": "good"}, {"payload": "x", "eventTime": "abc"}]}, {"messages": [{"payload": "x", "key": 5}]}, {"unknown": 1}):  # fmt: skip
        s.call("POST", path, body, keep=kept)
    for raw in (b"", b"null", b"nonsense", b"{"):
        s.call("POST", path, raw=raw, keep=kept)


@scenario
def rest_produced_with_other_media_types(s):
    _, path = new(s)
    raw = b'{"messages":[{"payload":"x"}]}'
    for kind in (
        "text/plain",
        "application/x-json",
        "application/vnd.a+json",
        "application/json; charset=utf-8",
        "nonsense",
    ):
        s.call("POST", path, raw=raw, headers={"Content-Type": kind}, keep=kept)
    for kind in ("text/plain", "application/*", "*/*"):
        s.call("POST", path, raw=raw, headers={"Accept": kind}, keep=kept)


@scenario
def rest_produced_with_numbers(s):
    for kind, texts in (("INT8", ["5", "-1", "+5"]), ("INT16", ["5"]), ("INT32", ["5"]), ("INT64", ["-5"]), ("FLOAT", ["1.5"]), ("DOUBLE", ["1.5"]), ("BOOLEAN", ["true", "TRUE", "x"]), ("BYTES", ["abc"]), ("NONE", ["x"]), ("STRING", ["x"])):  # fmt: skip
        topic, path = new(s, "t" + kind)
        produced(s, path, *texts, valueSchema=schema(kind))
        delivered(s, topic, len(texts))
        s.call(
            "GET",
            "/admin/v2/schemas/" + topic.partition("://")[2] + "/schema",
            keep=["type", "version", "data", "properties"],
        )


@scenario
def rest_produced_with_moments(s):
    for kind, text in (("DATE", "Jan 5, 2020"), ("TIME", "5"), ("TIMESTAMP", "5"), ("INSTANT", "2020-01-01T00:00:00.123456789Z"), ("LOCAL_DATE", "2020-01-01"), ("LOCAL_TIME", "10:15:30.5"), ("LOCAL_TIME", "10:15"), ("LOCAL_DATE_TIME", "2020-01-01T10:15:30")):  # fmt: skip
        topic, path = new(s, f"t{kind}{len(text)}")
        produced(s, path, text, valueSchema=schema(kind))
        delivered(s, topic, 1)


@scenario
def rest_produced_with_json(s):
    topic, path = new(s)
    produced(s, path, '{"a": 5}', '{ "z" : [1.5, "x"] }', valueSchema=schema("JSON", RECORD))
    delivered(s, topic, 2)
    s.call("GET", "/admin/v2/schemas/" + topic.partition("://")[2] + "/schema", keep=["type", "version", "properties"])


@scenario
def rest_produced_with_avro(s):
    topic, path = new(s)
    fields = [OPTIONAL, {"name": "c", "type": {"type": "array", "items": "long"}}, {"name": "d", "type": {"type": "map", "values": "double"}}, {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["P", "Q"]}},
              {"name": "f", "type": "bytes"}, {"name": "g", "type": ["null", "E", {"type": "record", "name": "I", "fields": [{"name": "h", "type": "boolean"}]}]}]  # fmt: skip
    full = RECORD | {"fields": RECORD["fields"] + fields}
    value = {
        "a": -70,
        "b": {"string": "x"},
        "c": [1, 300],
        "d": {"k": 1.5},
        "e": "Q",
        "f": "\u00ff",
        "g": {"I": {"h": True}},
    }
    other = {"g": {"E": "P"}, "f": "", "e": "P", "d": {}, "c": [], "b": None, "a": 1}
    produced(s, path, json.dumps(value), json.dumps(other), valueSchema=schema("AVRO", full))
    delivered(s, topic, 2)


@scenario
def rest_produced_with_key_value(s):
    for number, (key_schema, value_schema, key, text) in enumerate((
        (schema("STRING"), schema("STRING"), "k", "v"),
        (schema("INT32"), None, "7", "v"),
        (schema("JSON", RECORD), schema("INT32"), '{ "a": 1}', "5"),
        (schema("AVRO", RECORD), schema("AVRO", RECORD), '{"a": 1}', '{"a": 2}'),
        (schema("STRING"), schema("STRING"), None, "v"),
        ("", schema("STRING"), "k", "v"),
    )):  # fmt: skip
        topic, path = new(s, f"t{number}")
        produced(s, path, {"payload": text, "key": key}, keySchema=key_schema, valueSchema=value_schema)
        delivered(s, topic, 1)
        s.call(
            "GET", "/admin/v2/schemas/" + topic.partition("://")[2] + "/schema", keep=["type", "version", "properties"]
        )


@scenario
def rest_produced_with_schema_versions(s):
    topic, path = new(s)
    produced(s, path, "x", schemaVersion=0)
    produced(s, path, '{"a": 1}', valueSchema=schema("AVRO", RECORD))
    produced(
        s, path, '{"a": 1, "b": null}', valueSchema=schema("AVRO", RECORD | {"fields": RECORD["fields"] + [OPTIONAL]})
    )
    produced(s, path, '{"a": 2}', valueSchema=schema("AVRO", RECORD))
    produced(s, path, '{"a": 3}', schemaVersion=0)
    produced(s, path, '{"a": 3}', schemaVersion="0", valueSchema=schema("INT32"))
    produced(s, path, '{"a": 3}', schemaVersion=2)
    produced(s, path, '{"a": 3}', schemaVersion=-2)
    delivered(s, topic, 5)


@scenario
def rest_produced_with_schemas_that_do_not_fit(s):
    _, path = new(s)
    produced(s, path, '{"a": 1}', valueSchema=schema("AVRO", RECORD))
    produced(s, path, "x")
    produced(s, path, "5", valueSchema=schema("INT32"))
    produced(s, path, '{"a": "x"}', valueSchema=schema("AVRO", RECORD | {"fields": [{"name": "a", "type": "string"}]}))
    produced(s, path, "x", valueSchema="nonsense")
    produced(s, path, "x", valueSchema="[]")
    produced(s, path, "x", valueSchema=schema("PROTOBUF"))
    produced(s, path, "x", valueSchema=schema("AUTO_CONSUME"))
    produced(s, path, {"payload": "x", "key": "k"}, keySchema="nonsense")


@scenario
def rest_produced_round_the_partitions(s):
    _, path = new(s, partitions=3)
    for partition in range(3):
        produced(s, f"{path}/partitions/{partition}", "x")
    produced(s, path, *({"payload": str(i), "key": "k"} for i in range(3)))
    produced(s, path, "x")
    produced(s, path, "x")


@scenario
def rest_produced_to_one_partition(s):
    _, path = new(s, partitions=1)
    produced(s, path, "x")
    produced(s, path, "x", "y")
    produced(s, path + "/partitions/0", "x")


@scenario
def rest_produced_to_partitions_that_are_none(s):
    _, path = new(s, partitions=2)
    for partition in ("1", "2", "-1", "x", "1.5", "99999999999"):
        produced(s, f"{path}/partitions/{partition}", "x")
    produced(s, path + "/partitions", "x")
    produced(s, path + "-partition-7", "x")
    produced(s, path + "-partition-0/partitions/0", "x")
    _, plain = new(s, "plain")
    for partition in ("0", "-1"):
        produced(s, f"{plain}/partitions/{partition}", "x")


@scenario
def rest_produced_to_what_is_not_there(s):
    path = f"/topics/persistent/public/default/{s.tag}-none"
    produced(s, path, "x")
    produced(s, path + "/partitions/0", "x")
    produced(s, f"/topics/non-persistent/public/default/{s.tag}-none", "x")
    produced(s, f"/topics/persistent/public/{s.tag}-none/t", "x")
    produced(s, f"/topics/persistent/{s.tag}-none/ns/t", "x")
    produced(s, "/topics/persistent/public/default/a%2Fb", "x")
    produced(s, "/topics/persistent/public/default/%20", "x")
    produced(s, "/topics/other/public/default/t", "x")
    produced(s, "/topics/persistent/public/default", "x")
    produced(s, "/admin/v2/topics/persistent/public/default/t", "x")


@scenario
def rest_produce_with_other_methods(s):
    _, path = new(s)
    for method in ("GET", "PUT", "DELETE", "HEAD", "PATCH"):
        s.call(method, path)
        s.call(method, path + "/partitions/0")


@scenario
def rest_produced_after_an_end(s):
    topic, path = new(s)
    produced(s, path, "x")
    s.call("PUT", rest(topic, "/unload"))
    produced(s, path, "x")
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    produced(s, path, "x", "y")
    s.call("DELETE", rest(topic))
    produced(s, path, "x")


@scenario
def rest_produced_to_non_persistent_topics(s):
    _, path = new(s, domain="non-persistent")
    produced(s, path, "x", "y")
    _, parted = new(s, "p", partitions=3, domain="non-persistent")
    produced(s, parted, "a", "b", "c", "d")
    produced(s, parted + "/partitions/1", "x")


@scenario
def rest_produced_where_schemas_are_fixed(s):
    ns = namespace(s)
    s.http("POST", f"/admin/v2/namespaces/{ns}/isAllowAutoUpdateSchema", False, quietly=True)
    s.http("PUT", f"/admin/v2/persistent/{ns}/t", quietly=True)
    produced(s, f"/topics/persistent/{ns}/t", "x")


@scenario
def rest_produced_with_schemas_without_a_definition(s):
    """A definition may be empty, but has to be there, also that of a key; name and properties may be missing."""
    for i, kind in enumerate(("STRING", "INT32", "BOOLEAN", "JSON", "AVRO")):
        _, path = new(s, f"t{i}")
        for fields in ({}, {"schema": None, "properties": {}}, {"schema": ""}, {"schema": "", "properties": None}):
            produced(s, path, "1", valueSchema=json.dumps({"type": kind} | fields))
    full, bare = schema("STRING"), json.dumps({"type": "STRING"})
    for i, (key, value) in enumerate(((bare, None), (bare, full), (full, bare), (full, full))):
        _, path = new(s, f"k{i}")
        body = {"keySchema": key, "messages": [{"payload": "1", "key": "k"}]}
        s.call("POST", path, body | ({"valueSchema": value} if value else {}), keep=kept)
