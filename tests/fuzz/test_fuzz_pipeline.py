"""Fuzzing of the pipeline's decoder: stored entries of all kinds, cut, flipped and mixed.

Any entries give rows or positions in quarantine, never another error; record batches are valid; entries that were not
touched and have nothing to do with chunks keep their rows.

MAGNETAR_FUZZ_SECONDS sets how long; MAGNETAR_FUZZ_SEED repeats a failed run.
"""

import os
import random
import time

import pytest

from magnetar.pipeline.columns import EXTRA, PULSAR
from magnetar.pipeline.decode.decoder import Decoder
from magnetar.pipeline.values.decoders import value_decoder
from magnetar.pipeline.values.topic_schema import TopicSchema
from tests.fuzz.test_fuzz_kafka import mutated
from tests.pipeline import entries_for_tests as e
from tests.pipeline.values.values_for_tests import avro_schema, batch

SECONDS = float(os.environ.get("MAGNETAR_FUZZ_SECONDS", "3"))
SEED = int(os.environ.get("MAGNETAR_FUZZ_SEED", "20240307"))
ALL = ["value", *(column.name for column in (*PULSAR, *EXTRA))]
SCHEMAS = (
    avro_schema(
        {"name": "a", "type": ["null", "string"]}, {"name": "b", "type": "long"}, {"name": "c", "type": "double"}
    ),
    avro_schema({"name": "a", "type": {"type": "array", "items": "string"}}),
    TopicSchema("JSON", avro_schema({"name": "a", "type": ["null", "string"]}).data),
    TopicSchema("INT64"),
    TopicSchema("KEY_VALUE", bytes(8), {"key.schema.type": "STRING", "value.schema.type": "INT32"}),
)


def rows(bodies, decoder):
    found = []
    for each in decoder.decode(e.chunk_of(bodies)):
        each.validate(full=True)
        found += each.to_pylist()
    return found


@pytest.mark.timeout(SECONDS + 120)
def test_entries():
    rng = random.Random(SEED)
    end, runs = time.monotonic() + SECONDS, 0
    while time.monotonic() < end or runs < 30:
        runs += 1
        bodies, _ = e.random_bodies(rng, rng.randrange(1, 12))
        sound = rows(bodies, Decoder(ALL))
        touched = {i for i in range(len(bodies)) if rng.random() < 0.3}
        damaged = [mutated(body, rng) if i in touched else body for i, body in enumerate(bodies)]
        found = rows(
            damaged, Decoder(ALL, on_corrupt="quarantine", verify=rng.random() < 0.5, max_message_bytes=1 << 22)
        )
        chunks = {i for i, body in enumerate(bodies) if b"u-" in body}
        kept = [row for row in sound if row["__entryId"] not in touched | chunks]
        assert kept == [row for row in found if row["__entryId"] not in touched | chunks]


@pytest.mark.timeout(SECONDS + 120)
def test_values():
    rng = random.Random(SEED)
    decoders = [value_decoder(schema) for schema in SCHEMAS]
    end, runs = time.monotonic() + SECONDS, 0
    while time.monotonic() < end or runs < 100:
        runs += 1
        decoder = rng.choice(decoders)
        payloads = [
            rng.choice((None, rng.randbytes(rng.randrange(30)), b'{"a": "x"}')) for _ in range(rng.randrange(6))
        ]
        found = decoder.decode(batch(payloads))
        assert set(found.failures) <= set(range(len(payloads)))
        for array, column in zip(found.arrays, decoder.columns, strict=True):
            array.validate(full=True)
            assert (array.type, len(array)) == (column.arrow, len(payloads))
