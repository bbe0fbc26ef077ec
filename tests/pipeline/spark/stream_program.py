"""A driver of its own, to be killed: a stream from one topic into another.

python -m tests.pipeline.spark.stream_program SERVICE_URL ADMIN_URL FROM TO CHECKPOINT MASTER
"""

import sys

from pyspark.sql import SparkSession

import magnetar.pipeline
from tests.pipeline.spark.conftest import SETTINGS


def main(service_url, admin_url, source, target, checkpoint, master):
    builder = SparkSession.builder.master(master).appName("to be killed")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    magnetar.pipeline.register(spark)
    stream = spark.readStream.format("pulsar").option("service.url", service_url).option("admin.url", admin_url)
    stream = stream.option("topic", source).option("startingOffsets", "earliest").option("maxEntriesPerTrigger", "40")
    rows = stream.option("minPartitions", "2").load().select("value", "__key")
    writer = rows.writeStream.format("pulsar").option("service.url", service_url).option("admin.url", admin_url)
    writer = writer.option("topic", target).option("guarantee", "exactly-once")
    writer = writer.option("checkpointLocation", checkpoint).trigger(processingTime="100 milliseconds")
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
