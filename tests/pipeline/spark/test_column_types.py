"""The types that columns have in record batches are those that Spark derives from their DDL."""

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from magnetar.pipeline.columns import EXTRA, VALUE, arrow_schema, ddl, topic_columns
from magnetar.pipeline.values.primitives import PRIMITIVES
from magnetar.pipeline.values.types import column
from tests.pipeline.values.test_avro_values import FLAT, NESTED
from tests.pipeline.values.test_types import CASES

TABLES = {
    "pulsar": topic_columns("pulsar"),
    "kafka": topic_columns("kafka", include_headers=True),
    "extra": (VALUE, *EXTRA),
    "types": tuple(column(f"c{k}", arrow) for k, (arrow, _) in enumerate(CASES)),
    "primitives": tuple(column(kind, arrow) for kind, (_, arrow, _) in PRIMITIVES.items()),
}


@pytest.fixture(params=["TIMESTAMP_LTZ", "TIMESTAMP_NTZ"])
def meaning_of_timestamp(spark, request):
    """The meaning of the word TIMESTAMP in the session."""
    spark.conf.set("spark.sql.timestampType", request.param)
    yield
    spark.conf.unset("spark.sql.timestampType")


@pytest.mark.usefixtures("meaning_of_timestamp")
@pytest.mark.parametrize("table", [*TABLES, "flat", "nested"])
def test_both_sides_agree(spark, table):
    from magnetar.pipeline.values.decoders import value_decoder

    schemas = {"flat": FLAT, "nested": NESTED}
    columns = TABLES.get(table) or value_decoder(schemas[table]).columns
    derived = to_arrow_schema(spark.createDataFrame([], ddl(columns)).schema, timezone="UTC")
    assert derived.equals(arrow_schema(columns)), f"{derived}\n{arrow_schema(columns)}"
