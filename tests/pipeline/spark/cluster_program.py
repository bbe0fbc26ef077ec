"""The driver of test_cluster.py, in a process of its own: a batch read, a stream and an export on a standalone cluster.

python cluster_program.py MASTER SERVICE_URL ADMIN_URL DATA_DIR TOPIC FOLDER
"""

import io
import json
import sys

from pyspark.sql import SparkSession

import magnetar.pipeline
from magnetar.pipeline.jobs.export import ExportJob
from magnetar.pipeline.jobs.runner import SparkRunner
from magnetar.pipeline.lake.committer import open_table
from magnetar.pipeline.options import SourceOptions
from magnetar.pipeline.progress import Progress
from tests.pipeline.spark.standalone_cluster import EXECUTOR


def main(master, service, admin, data_dir, topic, folder):
    builder = SparkSession.builder.master(master).appName("magnetar cluster test")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        **EXECUTOR,
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "OFF",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    magnetar.pipeline.register(spark)
    given = {"service.url": service, "admin.url": admin, "topic": topic, "storage.url": data_dir, "minPartitions": "4"}
    batch = spark.read.format("pulsar").options(**given).load()
    found = {"batch": batch.count(), "executors": executors(spark)}
    stream = spark.readStream.format("pulsar").options(startingOffsets="earliest", **given).load()
    writer = stream.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
    writer.trigger(availableNow=True).start(f"{folder}/stream").awaitTermination(120)
    found["stream"] = spark.read.parquet(f"{folder}/stream").select("__index").distinct().count()
    table = open_table("delta", f"{folder}/export")
    progress = Progress("export", io.StringIO(), style="none")
    report = ExportJob(SourceOptions.parse(given), table).run(SparkRunner(spark), progress)
    files = [table.place.absolute(file.path) for file in table.files()]
    rows = spark.read.parquet(*files).select("__index").distinct().count()
    found["export"] = [report.rows, report.commits, rows, report.files >= 2]
    spark.stop()
    print("FOUND " + json.dumps(found))


def executors(spark):
    """How many executors have run tasks; the driver is listed beside them."""
    return spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1


if __name__ == "__main__":
    main(*sys.argv[1:])
