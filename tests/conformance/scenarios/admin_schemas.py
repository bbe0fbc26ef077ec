"""Schemas over REST: posted, requested by version, compared, deleted; policies that decide about them."""

import json

from harness.steps import rest
from transcript import scenario


def record(*fields, name="R"):
    members = [{"name": f, "type": "int"} if isinstance(f, str) else f for f in fields]
    return {"type": "AVRO", "schema": json.dumps({"type": "record", "name": name, "fields": members}), "properties": {}}


OPTIONAL = {"name": "b", "type": ["null", "string"], "default": None}
TEXT = {"type": "STRING", "schema": "", "properties": {}}


def new(s, name="t"):
    topic = s.topic(name)
    s.http("PUT", rest(topic), quietly=True)
    return topic, "/admin/v2/schemas/" + topic.partition("://")[2]


def without_time(answer):
    if isinstance(answer, list):
        return [without_time(each) for each in answer]
    return {k: without_time(v) for k, v in answer.items() if k != "timestamp"} if isinstance(answer, dict) else answer


@scenario
def schemas_of_every_type(s):
    for kind in ("NONE", "STRING", "JSON", "PROTOBUF", "AVRO", "BOOLEAN", "INT8", "INT16", "INT32", "INT64", "FLOAT", "DOUBLE", "DATE", "TIME", "TIMESTAMP", "INSTANT",
                 "LOCAL_DATE", "LOCAL_TIME", "LOCAL_DATE_TIME", "PROTOBUF_NATIVE", "KEY_VALUE", "BYTES", "AUTO", "AUTO_CONSUME", "AUTO_PUBLISH", "EXTERNAL", "string", "NOTHING", ""):  # fmt: skip
        _, path = new(s, "t" + kind)
        s.call("POST", path + "/schema", {"type": kind, "schema": "", "properties": {}}, keep=True)
        s.call("GET", path + "/schema", keep=without_time)


@scenario
def schemas_with_odd_bodies(s):
    _, path = new(s)
    for body in (None, {}, {"type": "STRING"}, {"schema": ""}, {"type": "STRING", "schema": None}, {"type": "STRING", "schema": "", "properties": None}, {"type": "STRING", "schema": "", "properties": {"a": 1}},
                 {"type": "AVRO", "schema": "nonsense", "properties": {}}, {"type": "AVRO", "schema": "{}", "properties": {}}, {"type": "JSON", "schema": "nonsense", "properties": {}},
                 {"type": "AVRO", "schema": '"string"', "properties": {}}, {"type": 1, "schema": ""}, {"type": "STRING", "schema": {}}, [], "STRING", {"type": "STRING", "schema": "x", "more": 1}):  # fmt: skip
        s.call("POST", path + "/schema", body, keep=True)
        s.call("GET", path + "/schema", keep=without_time)
        s.http("DELETE", path + "/schema", quietly=True)


@scenario
def schemas_by_version(s):
    _, path = new(s)
    s.call("POST", path + "/schema", record("a"), keep=True)
    s.call("POST", path + "/schema", record("a", OPTIONAL), keep=True)
    s.call("POST", path + "/schema", record("a"), keep=True)
    for version in ("", "/0", "/1", "/2", "/-1", "/x", "/99999999999999999999", "/1.5"):
        s.call("GET", path + "/schema" + version, keep=without_time)
    s.call("GET", path + "/schemas", keep=lambda x: [without_time(each) for each in x["getSchemaResponses"]])
    s.call("POST", path + "/version", record("a"), keep=True)
    s.call("POST", path + "/version", record("a", OPTIONAL), keep=True)
    s.call("POST", path + "/version", record("c"), keep=True)
    s.call("POST", path + "/version", TEXT, keep=True)
    s.call("POST", path + "/version", keep=True)
    s.call("GET", path + "/metadata", keep=sorted)


@scenario
def schemas_compared(s):
    _, path = new(s)
    for body in (record("a"), TEXT, None):
        s.call("POST", path + "/compatibility", body, keep=True)
    s.call("POST", path + "/schema", record("a"))
    for body in (
        record("a"),
        record("a", OPTIONAL),
        record("a", "c"),
        record("c"),
        record("a", name="Q"),
        TEXT,
        {"type": "JSON", "schema": record("a")["schema"], "properties": {}},
        {"type": "AVRO", "schema": "x", "properties": {}},
        {},
    ):
        s.call("POST", path + "/compatibility", body, keep=True)


@scenario
def schemas_refused_by_what_is_there(s):
    _, path = new(s)
    s.call("POST", path + "/schema", record("a"))
    for body in (
        record("a", "c"),
        record("c"),
        TEXT,
        {"type": "JSON", "schema": record("a")["schema"], "properties": {}},
        {"type": "BYTES", "schema": "", "properties": {}},
    ):
        s.call("POST", path + "/schema", body, keep=True)
    s.call("GET", path + "/schema", keep=without_time)


@scenario
def schemas_deleted(s):
    _, path = new(s)
    s.call("DELETE", path + "/schema", keep=True)
    s.call("POST", path + "/schema", record("a"), keep=True)
    s.call("DELETE", path + "/schema", keep=True)
    s.call("GET", path + "/schema", keep=without_time)
    s.call("GET", path + "/schema/0", keep=without_time)
    s.call("GET", path + "/schema/1", keep=without_time)
    s.call("GET", path + "/schemas", keep=lambda x: len(x["getSchemaResponses"]))
    s.call("DELETE", path + "/schema", keep=True)
    s.call("POST", path + "/schema", TEXT, keep=True)
    s.call("GET", path + "/schema", keep=without_time)
    s.call("GET", path + "/schemas", keep=lambda x: [without_time(each) for each in x["getSchemaResponses"]])
    s.call("DELETE", path + "/schema?force=true", keep=True)
    s.call("GET", path + "/schemas", keep=True)
    s.call("POST", path + "/schema", record("c"), keep=True)


@scenario
def schemas_of_partitions_over_rest(s):
    topic = s.topic("p")
    path = "/admin/v2/schemas/" + topic.partition("://")[2]
    s.call("PUT", rest(topic) + "/partitions", 2)
    s.call("POST", path + "-partition-0/schema", record("a"), keep=True)
    s.call("GET", path + "/schema", keep=without_time)
    s.call("GET", path + "-partition-1/schema", keep=without_time)
    s.call("POST", path + "/schema", record("a", OPTIONAL), keep=True)
    s.call("GET", path + "-partition-0/schemas", keep=lambda x: len(x["getSchemaResponses"]))
    s.call("DELETE", rest(topic) + "/partitions?deleteSchema=true")
    s.call("GET", path + "/schema", keep=without_time)


@scenario
def schemas_and_the_end_of_their_topic(s):
    for query in ("", "?deleteSchema=true", "?deleteSchema=false"):
        topic, path = new(s, f"t{len(query)}")
        s.call("POST", path + "/schema", record("a"))
        s.call("DELETE", rest(topic) + query)
        s.call("GET", path + "/schema", keep=without_time)
        s.call("PUT", rest(topic))
        s.call("POST", path + "/schema", record("c"), keep=True)


@scenario
def schemas_of_topics_that_are_not_there(s):
    path = f"/admin/v2/schemas/public/default/{s.tag}-gone"
    for method, more, body in (
        ("POST", "/schema", record("a")),
        ("GET", "/schema", None),
        ("GET", "/schemas", None),
        ("DELETE", "/schema", None),
        ("POST", "/compatibility", record("a")),
        ("POST", "/version", record("a")),
        ("GET", "/metadata", None),
    ):
        s.call(method, path + more, body, keep=without_time)
    s.call("GET", f"/admin/v2/persistent/public/default/{s.tag}-gone/partitions")


@scenario
def schemas_of_key_and_value(s):
    _, path = new(s)
    body = {
        "type": "KEY_VALUE",
        "schema": json.dumps({"key": json.loads(record("a")["schema"]), "value": json.loads(record("b")["schema"])}),
        "properties": {
            "key.schema.type": "AVRO",
            "value.schema.type": "AVRO",
            "key.schema.name": "k",
            "value.schema.name": "v",
            "key.schema.properties": "{}",
            "value.schema.properties": "{}",
            "kv.encoding.type": "INLINE",
        },
    }
    s.call("POST", path + "/schema", body, keep=True)
    s.call("GET", path + "/schema", keep=without_time)
    s.call(
        "POST",
        path + "/schema",
        {
            "type": "KEY_VALUE",
            "schema": '{"key":"","value":""}',
            "properties": {"key.schema.type": "STRING", "value.schema.type": "INT32"},
        },
        keep=True,
    )


@scenario
def schema_policies_of_a_namespace(s):
    ns = s.namespace()
    n = "/admin/v2/namespaces/" + ns
    s.call("PUT", n)
    topic, path = f"persistent://{ns}/t", f"/admin/v2/schemas/{ns}/t"
    s.call("PUT", rest(topic))
    for strategy in ("ALWAYS_COMPATIBLE", "ALWAYS_INCOMPATIBLE", "BACKWARD", "FORWARD", "FULL", "NONSENSE", ""):
        s.call("PUT", n + "/schemaCompatibilityStrategy", strategy)
        s.call("GET", n + "/schemaCompatibilityStrategy", keep=True)
        s.call("POST", path + "/schema", record("a"), keep=True)
        s.call("POST", path + "/schema", record("a", "c"), keep=True)
        s.call("POST", path + "/schema", record("a", OPTIONAL), keep=True)
        s.call("POST", path + "/compatibility", record("q"), keep=True)
        s.call("DELETE", path + "/schema?force=true")


@scenario
def schema_auto_update_of_a_namespace(s):
    ns = s.namespace()
    n = "/admin/v2/namespaces/" + ns
    s.call("PUT", n)
    s.call("GET", n + "/isAllowAutoUpdateSchema", keep=True)
    s.call("POST", n + "/isAllowAutoUpdateSchema", False)
    s.call("GET", n + "/isAllowAutoUpdateSchema", keep=True)
    s.call("GET", n + "/schemaAutoUpdateCompatibilityStrategy", keep=True)
    for strategy in (
        "AutoUpdateDisabled",
        "Backward",
        "Forward",
        "Full",
        "AlwaysCompatible",
        "BackwardTransitive",
        "x",
    ):
        s.call("PUT", n + "/schemaAutoUpdateCompatibilityStrategy", strategy)
        s.call("GET", n + "/schemaAutoUpdateCompatibilityStrategy", keep=True)
        s.call("GET", n + "/schemaCompatibilityStrategy", keep=True)
    s.call("GET", n + "/schemaValidationEnforced", keep=True)
    s.call("GET", n + "/schemaValidationEnforced?applied=true", keep=True)
    s.call("POST", n + "/schemaValidationEnforced", True)
    s.call("GET", n + "/schemaValidationEnforced", keep=True)


@scenario
def schema_types_of_clients(s):
    topic, _ = s.topic(), s.topic("empty")
    for place in (topic, topic[:-1] + "empty"):
        path = place.replace("persistent://", "/admin/v2/schemas/")
        if place == topic:
            s.call("POST", path + "/schema", TEXT)
        for kind in "AUTO_CONSUME", "AUTO_PUBLISH", "AUTO", "auto_consume":
            for what in "version", "compatibility", "schema":
                s.call("POST", f"{path}/{what}", TEXT | {"type": kind}, keep=["version"])
