import pyarrow as pa
import pytest

from magnetar.pipeline.columns import TIMESTAMP
from magnetar.pipeline.errors import SchemaError
from magnetar.pipeline.values.types import TIMESTAMP_NTZ, list_of, record_columns, spark_type, struct_of

CASES = [
    (pa.int8(), "TINYINT"),
    (pa.int16(), "SMALLINT"),
    (pa.float32(), "FLOAT"),
    (pa.date32(), "DATE"),
    (TIMESTAMP, "TIMESTAMP"),
    (TIMESTAMP_NTZ, "TIMESTAMP_NTZ"),
    (pa.decimal128(9, 2), "DECIMAL(9, 2)"),
    (list_of(pa.string()), "ARRAY<STRING>"),
    (pa.map_(pa.string(), list_of(pa.int64())), "MAP<STRING, ARRAY<BIGINT>>"),
    (struct_of([("a b", pa.bool_()), ("c`d", pa.binary())]), "STRUCT<`a b`: BOOLEAN, `c``d`: BINARY>"),
]


@pytest.mark.parametrize(("arrow", "ddl"), CASES)
def test_spark_types(arrow, ddl):
    assert spark_type(arrow) == ddl


def test_a_type_that_spark_does_not_have_is_named():
    with pytest.raises(SchemaError, match="duration"):
        spark_type(pa.duration("s"))


def test_columns_of_a_record():
    assert [(c.name, c.ddl) for c in record_columns(struct_of([("b", pa.int32()), ("a", pa.string())]))] == [
        ("b", "INT"),
        ("a", "STRING"),
    ]
