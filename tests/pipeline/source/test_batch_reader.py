"""The reader of batches: filters in sessions with and without pushdown."""

import pickle
from unittest import mock

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, EqualTo, GreaterThan

from magnetar.pipeline.options import SourceOptions
from magnetar.pipeline.source.batch_reader import PulsarReader


def reader(**options):
    rows = mock.Mock()
    rows.schema.return_value = pa.schema([("__index", pa.int64()), ("amount", pa.float64())])
    return PulsarReader(SourceOptions.parse({"topic": "t", "pushdown": "true", **options}), rows)


def counts_as_overridden(made):
    """Whether Spark would refuse every query of a session that does not push filters down."""
    return getattr(made.pushFilters, "__func__", None) is not DataSourceReader.pushFilters


def test_filters_are_taken_without_counting_as_overridden():
    made, understood, other = reader(), EqualTo(("__index",), 5), GreaterThan(("amount",), 1.0)
    assert not counts_as_overridden(made)
    assert list(made.pushFilters([understood, other])) == [other]
    assert not counts_as_overridden(reader(pushdown="false"))
    assert list(reader(pushdown="false").pushFilters([understood])) == [understood]


def test_filters_go_with_the_reader_to_the_tasks():
    made = reader()
    made.pushFilters([EqualTo(("__index",), 5)])
    made._rows = None
    (condition,) = pickle.loads(pickle.dumps(made))._filter.conditions
    assert (condition.column, condition.values) == ("__index", (5,))
