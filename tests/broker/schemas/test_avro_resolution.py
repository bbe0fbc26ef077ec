"""Resolution of Avro schemas, beside that of fastavro: docs/adr/0011-avro-resolution.md lists where they differ."""

import io

import fastavro
import pytest
from fastavro.utils import generate_one

from magnetar.broker.schemas.avro_resolution import can_read


def record(*fields, name="R", **more):
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields], **more}


def enum(*symbols, **more):
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def fixed(size):
    return {"type": "fixed", "name": "F", "size": size}


def array(items):
    return {"type": "array", "items": items}


READS = None
CASES = [
    (record(("a", "int")), record(("a", "long")), READS, READS),
    ("string", "bytes", READS, READS),
    (record(("a", "int"), name="W"), record(("a", "int"), aliases=["W"]), READS, READS),
    (enum("A", "B"), enum("A", default="A"), READS, READS),
    (record(("a", "int"), name="W"), record(("a", "int")), READS, "Schema mismatch: {'type': 'record'"),
    (enum("B"), enum("A"), READS, "B not found in reader symbol list E"),
    (
        record(("a", "int")),
        record(("a", "int"), ("b", "int")),
        "/b/: the writer has no such field and the reader no default",
        "No default value for field b in R",
    ),
    (
        record(("a", "int")),
        record(("a", "string")),
        "/a/: the reader expects string, the writer wrote int",
        "Schema mismatch: int is not string",
    ),
    (
        record(("n", record(("x", "int"), name="N"))),
        record(("n", record(("x", "string"), name="N"))),
        "/n/x/: the reader expects string, the writer wrote int",
        "Schema mismatch: int is not string",
    ),
    (fixed(4), fixed(5), "/: fixed of different sizes", "Schema mismatch: {'type': 'fixed'"),
    (
        "string",
        ["null", "int"],
        "/: no branch of the reader's union takes string",
        "Schema mismatch: string is not ['null', 'int']",
    ),
    (
        array("int"),
        array("string"),
        "/items/: the reader expects string, the writer wrote int",
        "Schema mismatch: {'type': 'array'",
    ),
]


def by_fastavro(writer, reader):
    """The refusal of fastavro, which resolves schemas only while it reads a value; None when it reads."""
    written, read = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    data = io.BytesIO()
    fastavro.schemaless_writer(data, written, generate_one(written))
    data.seek(0)
    try:
        fastavro.schemaless_reader(data, written, read)
    except (fastavro.read.SchemaResolutionError, ValueError) as error:
        return str(error)
    return None


@pytest.mark.parametrize(("writer", "reader", "ours", "theirs"), CASES)
def test_decisions_and_messages_beside_those_of_fastavro(writer, reader, ours, theirs):
    assert can_read(reader=reader, writer=writer) == ours
    answer = by_fastavro(writer, reader)
    assert answer == theirs if theirs is None else answer.startswith(theirs)


def test_fastavro_may_find_no_fault_in_one_value_of_a_schema_that_does_not_fit():
    """A union is resolved by the branch of the value: a decision about schemas needs every branch."""
    assert can_read(reader="int", writer=["null", "int"]) == "/: the reader expects int, the writer wrote null"
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(["null", "int"]), 1)
    data.seek(0)
    assert fastavro.schemaless_reader(data, ["null", "int"], "int") == 1
