import gc

import pytest

from magnetar.pipeline.option_table import OptionError
from magnetar.pipeline.options import SourceOptions
from magnetar.pipeline.source import row_source
from magnetar.pipeline.source.row_source import RowSource
from magnetar.pipeline.source.values import ValueChoice
from magnetar.pipeline.values.topic_schema import TopicSchema


def source(*fields, **options):
    """A source of topics with Avro records of these fields (name, type); without fields, of bytes."""
    import json

    parsed = SourceOptions.parse({"topic": "t", **options})
    schema = None
    if fields:
        record = {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}
        schema = TopicSchema.from_admin({"type": "AVRO", "data": json.dumps(record), "properties": {}})
    return RowSource.of(parsed, ValueChoice(parsed.connect, schema))


def spark_schema(*columns):
    """The schema of a DataFrame with these columns (name, type)."""
    from pyspark.sql import types

    return types.StructType([types.StructField(name, kind) for name, kind in columns])


def expected_of(rows):
    """The schema of a DataFrame of these rows."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType, TimestampNTZType, TimestampType

    def kind(arrow):
        if pa.types.is_timestamp(arrow):
            return TimestampType() if arrow.tz else TimestampNTZType()
        return from_arrow_type(arrow)

    return StructType([StructField(field.name, kind(field.type)) for field in rows.schema()])


NESTED = {"type": "record", "name": "N", "fields": [{"name": "x", "type": {"type": "array", "items": "long"}}]}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}


@pytest.mark.parametrize("options", [{}, {"columnStyle": "kafka", "includeHeaders": "true"}, {"metadataOnly": "true"}])
def test_a_source_fits_its_own_columns(options):
    rows = source(**options)
    assert rows.fitted(expected_of(rows)) == rows
    typed = source(("a", "int"), ("n", NESTED), ("d", DECIMAL), ("m", {"type": "map", "values": "string"}))
    assert typed.fitted(expected_of(typed)) == typed


def test_fields_that_came_after_the_load_are_left_out():
    before, after = source(("a", "int")), source(("a", "int"), ("b", "string"))
    assert after.fitted(expected_of(before)).schema() == before.schema()


def test_a_schema_of_the_user_selects_columns():
    from pyspark.sql.types import BinaryType, LongType

    fitted = source().fitted(spark_schema(("value", BinaryType()), ("__index", LongType())))
    assert fitted.schema().names == ["value", "__index"]


def test_columns_that_do_not_fit_are_named():
    from pyspark.sql.types import BinaryType, LongType, StringType

    before = expected_of(source(("a", "int"), ("b", "string")))
    with pytest.raises(OptionError, match=r"no column b .*load the DataFrame again"):
        source(("a", "int")).fitted(before)
    with pytest.raises(OptionError, match=r"column a is BIGINT in the topics, not int .*load the DataFrame again"):
        source(("a", "long"), ("b", "string")).fitted(before)
    with pytest.raises(OptionError, match="another order"):
        source(("b", "string"), ("a", "int")).fitted(before)
    with pytest.raises(OptionError, match="column value is BINARY in the topics, not string"):
        source(columns="value").fitted(spark_schema(("value", StringType())))
    with pytest.raises(OptionError, match="another order"):
        source().fitted(spark_schema(("__index", LongType()), ("value", BinaryType())))


def test_a_schema_of_the_user_allows_nulls_everywhere():
    from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

    rows = source(("n", NESTED), ("m", {"type": "map", "values": "string"}))

    def fits(n, m, *, nullable=True):
        return rows.fitted(StructType([StructField("n", n, nullable), StructField("m", m)]))

    def nested(x, *, nullable=True):
        return StructType([StructField("x", x, nullable)])

    texts = MapType(StringType(), StringType())
    fits(nested(ArrayType(LongType())), texts)
    for n, m, nullable, name in (
        (nested(ArrayType(LongType())), texts, False, "n"),
        (nested(ArrayType(LongType()), nullable=False), texts, True, "n"),
        (nested(ArrayType(LongType(), containsNull=False)), texts, True, "n"),
        (nested(ArrayType(LongType())), MapType(StringType(), StringType(), valueContainsNull=False), True, "m"),
    ):
        with pytest.raises(OptionError, match=f"column {name} may be null .* NOT NULL"):
            fits(n, m, nullable=nullable)


def test_present_objects_are_exempt_from_collections_once_a_process(monkeypatch):
    calls = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append(1))
    row_source.spare_collections.cache_clear()
    row_source.spare_collections()
    row_source.spare_collections()
    assert calls == [1]
