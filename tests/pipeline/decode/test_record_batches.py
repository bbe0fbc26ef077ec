from magnetar.pipeline.columns import EXTRA, KAFKA, KAFKA_HEADERS, PULSAR
from magnetar.pipeline.decode.record_batches import BUILDERS, KAFKA_BUILDERS


def test_every_column_has_its_builder():
    assert list(BUILDERS) == [column.name for column in (*PULSAR, *EXTRA)]
    assert list(KAFKA_BUILDERS) == [column.name for column in (*KAFKA, KAFKA_HEADERS)]
