"""THE table of columns: name, Arrow type, Spark type and meaning of each, in both styles.

A table of a topic has the value's columns first (one per field of a record schema, else the single column `value`),
then the columns of PULSAR in this order. KAFKA has the names, order and types of Spark's own Kafka source, so a job
for that source changes only `format` and options. Every column is nullable: Spark compares the flags exactly.

A table has an `EXTRA` column only when the caller selects that column by name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from magnetar.pipeline.option_table import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
"""Arrow's form of Spark's TIMESTAMP; microseconds, though Pulsar counts milliseconds."""
FIRST_MS: Final = -62_135_596_800_000
LAST_MS: Final = 253_402_300_799_999
"""The years 1 to 9999, which all calendars (Spark's, Python's, pandas aside) can show; times outside of them become
null.
"""
PROPERTIES: Final = pa.map_(pa.string(), pa.string())
HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ENCRYPTION: Final = pa.struct(
    [
        ("keys", pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary()), ("metadata", PROPERTIES)]))),
        ("algorithm", pa.string()),
        ("param", pa.binary()),
        ("compression", pa.string()),
        ("uncompressedSize", pa.int32()),
        ("batchSize", pa.int32()),
    ]
)
_ENCRYPTION_DDL = (
    "STRUCT<keys: ARRAY<STRUCT<name: STRING, value: BINARY, metadata: MAP<STRING, STRING>>>, algorithm: STRING,"
    " param: BINARY, compression: STRING, uncompressedSize: INT, batchSize: INT>"
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, the type in record batches, the same type in Spark's DDL, its content."""

    name: str
    arrow: pa.DataType
    ddl: str
    doc: str


class UnknownColumnError(OptionError):
    """A name that the table of the topic does not have."""


VALUE: Final = Column("value", pa.binary(), "BINARY", "payload, decompressed; null for a tombstone")

PULSAR: Final = (
    Column("__key", pa.binary(), "BINARY", "key, decoded if it travels as base64; null without a key"),
    Column("__topic", pa.string(), "STRING", "full name, with `-partition-N`"),
    Column("__messageId", pa.binary(), "BINARY", "MessageIdData, as `MessageId.serialize` of the official clients"),
    Column("__publishTime", TIMESTAMP, "TIMESTAMP", "the producer's clock"),
    Column("__eventTime", TIMESTAMP, "TIMESTAMP", "set by the application; null when absent or 0"),
    Column("__messageProperties", PROPERTIES, "MAP<STRING, STRING>", "of two properties with one name the later"),
    Column("__index", pa.int64(), "BIGINT", "broker entry index of the message; null without broker entry metadata"),
    Column("__brokerPublishTime", TIMESTAMP, "TIMESTAMP", "the broker's clock; null without broker entry metadata"),
    Column("__partition", pa.int32(), "INT", "number of the partition; -1 when the topic is not partitioned"),
    Column("__ledgerId", pa.int64(), "BIGINT", "ledger of the entry"),
    Column("__entryId", pa.int64(), "BIGINT", "entry; of a chunked message that of its last chunk"),
    Column("__batchIndex", pa.int32(), "INT", "place in the batch from 0; null when the entry is no batch"),
    Column("__producerName", pa.string(), "STRING", "name of the producer"),
    Column("__sequenceId", pa.int64(), "BIGINT", "of the message, in its producer"),
    Column("__orderingKey", pa.binary(), "BINARY", "null without one"),
    Column("__schemaVersion", pa.binary(), "BINARY", "as the broker assigned it; null without a schema"),
    Column("__nullValue", pa.bool_(), "BOOLEAN", "true for a tombstone"),
    Column("__size", pa.int32(), "INT", "bytes of the decompressed payload"),
    Column("__replicatedFrom", pa.string(), "STRING", "cluster the message was first published in; null here"),
    Column("__txnId", pa.string(), "STRING", "`(most,least)` bits of the transaction; null outside of one"),
)

ENCRYPTION_CONTEXT: Final = Column(
    "__encryptionContext", ENCRYPTION, _ENCRYPTION_DDL, "how the payload is encrypted; null when the value is plain"
)
EXTRA: Final = (ENCRYPTION_CONTEXT,)

KAFKA: Final = (
    Column("key", pa.binary(), "BINARY", "ordering key, else key"),
    Column("value", pa.binary(), "BINARY", "payload, decompressed; null for a tombstone"),
    Column("topic", pa.string(), "STRING", "full name, without `-partition-N`"),
    Column("partition", pa.int32(), "INT", "number of the partition; 0 when the topic is not partitioned"),
    Column("offset", pa.int64(), "BIGINT", "broker entry index of the message"),
    Column("timestamp", TIMESTAMP, "TIMESTAMP", "event time, else publish time"),
    Column("timestampType", pa.int32(), "INT", "always 0 (CreateTime)"),
)
KAFKA_HEADERS: Final = Column(
    "headers", HEADERS, "ARRAY<STRUCT<key: STRING, value: BINARY>>", "properties in order; null when there are none"
)

STYLES: Final = ("pulsar", "kafka")
_TIMESTAMP_WORD: Final = re.compile(r"(`[^`]*`)|\bTIMESTAMP\b")
"""A quoted name, or the type whose meaning depends on a setting of Spark."""


def topic_columns(
    style: str = "pulsar", value: Sequence[Column] = (VALUE,), *, include_headers: bool = False
) -> tuple[Column, ...]:
    """All columns of a topic in their order. `value`: those of its schema (style pulsar only).

    Raises OptionError for an unknown style, and for a field of the schema with the name of another column.
    """
    if style == "kafka":
        return (*KAFKA, KAFKA_HEADERS) if include_headers else KAFKA
    if style != "pulsar":
        raise OptionError(f"columnStyle is {' or '.join(STYLES)}, not {style!r}")
    ours = {column.name.lower() for column in (*PULSAR, *EXTRA)}
    for column in value:
        if column.name.lower() in ours:
            raise OptionError(
                f"the schema has a field {column.name}, which is a column of every topic: read the payloads as they "
                "are, with option valueMode=bytes"
            )
    return (*value, *PULSAR)


def select_columns(columns: Sequence[Column], names: Sequence[str]) -> tuple[Column, ...]:
    """The columns called `names`, in the order of the table whatever the order of `names`; EXTRA columns stand last.

    Compares names without case, as Spark does. Raises UnknownColumnError.
    """
    wanted = {name.lower() for name in names}
    known = (*columns, *(c for c in EXTRA if c not in columns))
    missing = wanted - {column.name.lower() for column in known}
    if missing:
        available = ", ".join(column.name for column in known)
        raise UnknownColumnError(f"no column {', '.join(sorted(missing))}; there are {available}")
    return tuple(column for column in known if column.name.lower() in wanted)


def ddl(columns: Sequence[Column]) -> str:
    """Spark's DDL of these columns, for `DataSource.schema`; the same for each `spark.sql.timestampType`."""
    types = (_TIMESTAMP_WORD.sub(lambda found: found[1] or "TIMESTAMP_LTZ", column.ddl) for column in columns)
    return ", ".join(f"`{column.name.replace('`', '``')}` {kind}" for column, kind in zip(columns, types, strict=True))


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """The schema of every record batch with these columns, equal to the schema that Spark derives from `ddl`."""
    return pa.schema([pa.field(column.name, column.arrow, nullable=True) for column in columns])
