"""The session the other tests use: a task is tried twice, Arrow record batches cross."""

import pyarrow as pa


def test_a_task_that_fails_is_tried_again(spark):
    def once_bad(batches):
        from pyspark import TaskContext

        attempt = TaskContext.get().attemptNumber()
        if attempt == 0:
            raise RuntimeError("the first attempt fails")
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"attempt": pa.array([attempt] * batch.num_rows, pa.int32())})

    rows = spark.range(0, 3, 1, 1).mapInArrow(once_bad, "attempt int").collect()
    assert [row.attempt for row in rows] == [1, 1, 1]
