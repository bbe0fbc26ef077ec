"""docs/pipeline/handling.md agrees with the tables in the code."""

import pathlib

from magnetar.pipeline.columns import EXTRA, KAFKA, KAFKA_HEADERS, PULSAR
from magnetar.pipeline.damage import Reason
from magnetar.pipeline.decode.block_rows import MAX_PLAIN_BYTES
from magnetar.pipeline.decode.chunked_messages import MAX_PENDING_BYTES, MAX_PENDING_MESSAGES
from magnetar.pipeline.decode.decoder import BATCH_BYTES, BATCH_ROWS
from magnetar.pipeline.decode.look_back import MAX_ENTRIES
from magnetar.pipeline.quarantine import MAX_KEPT
from magnetar.pipeline.values.decoders import AS_BYTES
from magnetar.pipeline.values.primitives import PRIMITIVES
from magnetar.protocol.compression import MAX_UNCOMPRESSED_BYTES

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs/pipeline/handling.md").read_text()


def row(column):
    return f"| `{column.name}` | {column.ddl.lower() if '<' not in column.ddl else column.ddl.split('<')[0].lower()} | {column.doc} |"


def table(columns):
    return "\n".join(["| column | type | content |", "|---|---|---|", *map(row, columns)])


def test_columns():
    for columns in ([*PULSAR], [*EXTRA], [*KAFKA, KAFKA_HEADERS]):
        assert table(columns) in PAGE, "paste this:\n" + table(columns)


def test_reasons():
    for reason in Reason:
        assert f"| `{reason}` |" in PAGE


def test_bounds():
    mib = 1 << 20
    for figure in (
        f"{MAX_PLAIN_BYTES // mib} MiB",
        f"{BATCH_ROWS:,} rows and about {BATCH_BYTES // mib} MiB",
        f"at most {MAX_PENDING_MESSAGES}, with {MAX_PENDING_BYTES // mib} MiB",
        f"{MAX_ENTRIES:,} entries",
        f"first {MAX_KEPT:,} positions",
        f"more than {MAX_UNCOMPRESSED_BYTES // mib} MiB",
    ):
        assert figure in " ".join(PAGE.split()), figure


def test_schema_types():
    for kind in PRIMITIVES:
        assert kind in PAGE or kind.startswith("INT"), kind
    assert {"BYTES", "PROTOBUF"} <= AS_BYTES
