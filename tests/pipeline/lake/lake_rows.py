"""Rows, files and commits for the tests of tables."""

import datetime as dt

import pyarrow as pa

from magnetar.pipeline.lake.data_file import Append, IndexSpan
from magnetar.pipeline.lake.writer import SplitWriter

TOPIC = "persistent://public/default/orders"
SCHEMA = pa.schema(
    [
        ("value", pa.binary()),
        ("__key", pa.binary()),
        ("__topic", pa.string()),
        ("__publishTime", pa.timestamp("us", tz="UTC")),
        ("__messageProperties", pa.map_(pa.string(), pa.string())),
        ("__index", pa.int64()),
        ("__brokerPublishTime", pa.timestamp("us", tz="UTC")),
    ]
)
DAY = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)


def rows(start, end, *, topic=TOPIC, day=0, schema=SCHEMA, times=True, **columns):
    """One batch with the indexes start .. end - 1."""
    n = end - start
    when = [DAY + dt.timedelta(days=day, milliseconds=i) for i in range(n)]
    values = {
        "value": [b"%d" % i for i in range(start, end)],
        "__key": [b"k%d" % (i % 3) for i in range(start, end)],
        "__topic": [topic] * n,
        "__publishTime": when,
        "__messageProperties": [[("a", str(i))] for i in range(start, end)],
        "__index": list(range(start, end)),
        "__brokerPublishTime": when if times else [None] * n,
    } | columns
    return pa.RecordBatch.from_pydict(values, schema=schema)


def write(table, schema, *batches, prefix="split", topic=TOPIC, **options):
    """The data files of some batches."""
    with SplitWriter(
        table.place, prefix, schema, topic=topic, partition_column=table.partition_column, **options
    ) as writer:
        for batch in batches:
            writer.write(batch)
        return writer.close()


def append(table, start, end, *, topic=TOPIC, schema=SCHEMA, day=0, prefix=None, lost=(), **columns):
    """Write the rows start .. end - 1 and commit them."""
    batch = rows(start, end, topic=topic, day=day, schema=schema, **columns)
    schema = table.prepare(schema)
    files = write(table, schema, batch, prefix=prefix or f"{topic.rpartition('/')[2]}-{start}-{end}", topic=topic)
    table.commit(Append((IndexSpan(topic, start, end),), tuple(files), schema, lost=tuple(lost)))
    return files
