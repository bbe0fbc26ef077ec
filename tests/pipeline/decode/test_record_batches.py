from magnetar.pipeline.columns import EXTRA, KAFKA, KAFKA_HEADERS, PULSAR
from magnetar.pipeline.decode.record_batches import BUILDERS, KAFKA_BUILDERS, ROW_OVERHEAD_BYTES, cut_rows
from magnetar.pipeline.decode.rows import Rows


def test_every_column_has_its_builder():
    assert list(BUILDERS) == [column.name for column in (*PULSAR, *EXTRA)]
    assert list(KAFKA_BUILDERS) == [column.name for column in (*KAFKA, KAFKA_HEADERS)]


def lengths(sizes, max_bytes, max_rows=4096):
    rows = Rows.zeros(len(sizes))
    rows["payload_length"] = [size - ROW_OVERHEAD_BYTES for size in sizes]
    return [len(run) for run in cut_rows(rows, max_bytes, max_rows)]


def test_rows_of_one_size_are_cut_evenly():
    assert lengths([1000] * 210, 100_000) == [70, 70, 70]
    assert lengths([1000] * 100, 100_000) == [100]
    assert lengths([1000] * 10, 100_000, max_rows=4) == [4, 4, 2]
    assert lengths([], 100_000) == []


def test_no_run_is_larger_than_its_bound_unless_it_is_one_row():
    assert lengths([90_000, 1000, 1000, 250_000, 1000, 99_000, 50_000], 100_000) == [3, 1, 2, 1]
