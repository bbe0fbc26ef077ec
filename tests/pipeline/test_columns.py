import pyarrow as pa
import pytest

from magnetar.pipeline import columns

TABLES = {
    "pulsar": columns.topic_columns("pulsar"),
    "kafka": columns.topic_columns("kafka"),
    "headers": columns.topic_columns("kafka", include_headers=True),
    "extra": columns.EXTRA,
}


def spark_type(arrow):
    """The DDL of an Arrow type, by Spark's rules of conversion."""
    if pa.types.is_map(arrow):
        return f"MAP<{spark_type(arrow.key_type)}, {spark_type(arrow.item_type)}>"
    if pa.types.is_list(arrow):
        return f"ARRAY<{spark_type(arrow.value_type)}>"
    if pa.types.is_struct(arrow):
        return "STRUCT<" + ", ".join(f"{field.name}: {spark_type(field.type)}" for field in arrow) + ">"
    return {
        pa.binary(): "BINARY",
        pa.string(): "STRING",
        pa.int32(): "INT",
        pa.int64(): "BIGINT",
        pa.bool_(): "BOOLEAN",
        columns.TIMESTAMP: "TIMESTAMP",
    }[arrow]


@pytest.mark.parametrize("table", TABLES)
def test_both_types_of_a_column_are_one_and_the_same(table):
    for column in TABLES[table]:
        assert column.ddl == spark_type(column.arrow)


def test_the_order_is_fixed():
    names = [column.name for column in TABLES["pulsar"]]
    assert names[:8] == [
        *("value", "__key", "__topic", "__messageId", "__publishTime", "__eventTime"),
        *("__messageProperties", "__index"),
    ]
    assert [c.name for c in TABLES["headers"]] == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"),
    ]


def test_all_columns_are_nullable():
    assert all(field.nullable for field in columns.arrow_schema(TABLES["pulsar"]))


def test_columns_of_a_record_take_the_place_of_value():
    fields = [columns.Column("a", pa.int32(), "INT", ""), columns.Column("b`c", pa.string(), "STRING", "")]
    table = columns.topic_columns("pulsar", fields)
    assert columns.ddl(table).startswith("`a` INT, `b``c` STRING, `__key` BINARY, ")


def test_a_field_may_not_be_called_like_a_column_of_ours():
    with pytest.raises(ValueError, match=r"__KEY.*valueMode=bytes"):
        columns.topic_columns("pulsar", [columns.Column("__KEY", pa.int32(), "INT", "")])


def test_columns_are_selected_in_the_order_of_the_table():
    table = columns.select_columns(TABLES["pulsar"], ["__encryptionContext", "__INDEX", "value"])
    assert [column.name for column in table] == ["value", "__index", "__encryptionContext"]


def test_an_unknown_column_is_named():
    with pytest.raises(columns.UnknownColumnError, match="no column __offset; there are value, __key"):
        columns.select_columns(TABLES["pulsar"], ["__offset"])


def test_an_unknown_style_is_named():
    with pytest.raises(ValueError, match="pulsar or kafka, not 'avro'"):
        columns.topic_columns("avro")
