"""Rows of chunks in which every entry is a single message: the columns of the general way."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.pipeline.columns import EXTRA, PULSAR
from magnetar.pipeline.decode import block_rows
from magnetar.pipeline.decode.decoder import Decoder
from magnetar.pipeline.decode.headers import Headers
from magnetar.pipeline.decode.rows import COLUMNS, SingleRows, rows_of_entries
from tests.pipeline import entries_for_tests as e

ALL = ["value", *(column.name for column in (*PULSAR, *EXTRA))]


def chunk_of(seed):
    rng = random.Random(seed)
    bodies = [
        e.plain(e._payload(rng), index=100 + k if seed % 5 else None, **{**e._outer(rng), **e._own(rng)})
        for k in range(rng.randrange(1, 30))
    ]
    return e.chunk_of(bodies, first=rng.randrange(5))


@given(seed=st.integers(0, 2**60), cut=st.tuples(st.integers(0, 30), st.integers(0, 30)))
@settings(max_examples=60, deadline=None)
def test_columns_are_those_of_the_table(seed, cut):
    chunk = chunk_of(seed)
    headers = Headers(chunk, verify=True)
    single, table = SingleRows(headers), rows_of_entries(headers, np.arange(len(chunk)))
    for first, last in (sorted(cut), (0, len(chunk))):
        rows, expected = single.picked(slice(first, last)), table.picked(slice(first, last))
        assert len(rows) == len(expected)
        for column in COLUMNS:
            assert rows[column].tolist() == expected[column].tolist(), column
        assert rows.of_entry(chunk.entry_ids).tolist() == expected.of_entry(chunk.entry_ids).tolist()
        inner, same = rows.picked(slice(1, None)), expected.picked(slice(1, None))
        assert inner["entry"].tolist() == same["entry"].tolist()


@given(seed=st.integers(0, 2**60), bounds=st.tuples(st.integers(95, 135), st.integers(95, 135)))
@settings(max_examples=60, deadline=None)
def test_record_batches_are_those_of_the_general_way(seed, bounds):
    chunk = chunk_of(seed)
    first, end = sorted(bounds)
    for wanted in ((None, None), (first, end), (None, end), (first, None)):
        quick = [batch.to_pydict() for batch in Decoder(ALL, batch_bytes=2000).decode(chunk, *wanted)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(block_rows.SingleRows, "lie_in", lambda *_: False)
            assert [batch.to_pydict() for batch in Decoder(ALL, batch_bytes=2000).decode(chunk, *wanted)] == quick
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(block_rows.Scan, "is_simple", lambda _: False)
            rows = [row for batch in Decoder(ALL).decode(chunk, *wanted) for row in batch.to_pylist()]
        assert [
            dict(zip(batch, row, strict=True)) for batch in quick for row in zip(*batch.values(), strict=True)
        ] == rows
