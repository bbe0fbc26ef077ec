"""Batches of payloads for decoders of values."""

import io
import json

import fastavro
import numpy as np
import pyarrow as pa

from magnetar.pipeline.values.interface import ValueBatch
from magnetar.pipeline.values.topic_schema import TopicSchema


def batch(payloads, *, versions=None, keys=None, encrypted=()):
    n = len(payloads)
    mask = np.zeros(n, np.bool_)
    mask[list(encrypted)] = True
    return ValueBatch(
        pa.array(payloads, pa.binary()),
        pa.array(keys or [None] * n, pa.binary()),
        pa.array(
            [None if v is None else v.to_bytes(8, "big") for v in versions or [None] * n],
            pa.binary(),
        ),
        mask,
    )


def rows(decoder, given):
    """Rows as dicts, and the failures."""
    found = decoder.decode(given)
    for array, column in zip(found.arrays, decoder.columns, strict=True):
        array.validate(full=True)
        assert array.type == column.arrow, column.name
        assert len(array) == len(given.payload)
    names = [column.name for column in decoder.columns]
    cells = zip(*(array.to_pylist() for array in found.arrays), strict=True)
    return [dict(zip(names, row, strict=True)) for row in cells], found.failures


def avro_schema(*fields, name="Order"):
    definition = {"type": "record", "name": name, "namespace": "shop", "fields": list(fields)}
    return TopicSchema("AVRO", json.dumps(definition).encode())


def encode_avro(schema, *values):
    out = []
    for value in values:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema.definition), value)
        out.append(stream.getvalue())
    return out
