"""Counters of /metrics that scenarios compare."""

import re

from harness.steps import avro, namespace, schema
from transcript import scenario

DECISION = re.compile(
    r'pulsar_schema_(compatible|incompatible|put_ops_failed)_total\{.*namespace="([^"]+)".*\} ([0-9.]+)'
)


@scenario
def decisions_about_schemas_are_counted(s):
    """The first schema and known schemas are no decisions; those of consumers and of questions are."""
    ns, c = namespace(s), s.connect()
    topic, path = f"persistent://{ns}/t", f"/admin/v2/schemas/{ns}/t"
    s.lookup(topic)

    def counted(what):
        _, text = s.http("GET", "/metrics", quietly=True)
        s.note(what, {name: float(n) for name, at, n in DECISION.findall(text) if at == ns})

    first, second, other = (
        schema("Avro", avro(*fields))
        for fields in ((("a", "int"),), (("a", "int"), ("b", "int", 0)), (("a", "string"),))
    )
    for i, each in enumerate((first, first, second, first, other)):
        c.producer(topic, i, quietly=True, schema=each)
        counted(f"producer {i}")
    for i, each in enumerate((first, second, other)):
        c.subscribe(topic, f"s{i}", i, quietly=True, schema=each)
        counted(f"consumer {i}")
    for i, each in enumerate((first, other)):
        c.ask("GET_OR_CREATE_SCHEMA", quietly=True, topic=topic, schema=each)
        counted(f"get or create {i}")
    for route in ("/schema", "/compatibility", "/version"):
        for i, each in enumerate((first, other)):
            body = {"type": "AVRO", "schema": each["schema_data"].decode(), "properties": {}}
            s.call("POST", path + route, body)
            counted(f"{route} {i}")
