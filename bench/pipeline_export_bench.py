"""Export of 1 KiB messages to Parquet files of a Delta table, beside Spark's own Parquet reader on the same rows.

    python bench/pipeline_export_bench.py [--messages 400000] [--rounds 3] [--compression none]

One broker process, one topic, unbatched uncompressed messages, read from the broker's ledger files. Cases, in an order
that alternates between rounds:

    export, local[2]     the job on Spark: read, decode, write Parquet, commit to Delta
    export, one process  the same without Spark (`--master none`)
    pyarrow alone        pyarrow reads the exported files and writes them again, one process
    Spark's reader       spark.read.parquet of the exported files into the noop sink

Printed: medians of millions of messages a second with [min-max], the ratio to Spark's reader, and the CPU time that a
message takes in all processes together without the broker, which other load of the machine hardly touches.
"""

from __future__ import annotations

import argparse
import io
import pathlib
import random
import shutil
import statistics
import tempfile
import time

import process_tree
import pulsar
import pyarrow.parquet as pq

from magnetar.pipeline.jobs.export import ExportJob
from magnetar.pipeline.jobs.runner import LocalRunner
from magnetar.pipeline.jobs.session import open_runner
from magnetar.pipeline.lake.committer import open_table
from magnetar.pipeline.lake.writer import WriteOptions
from magnetar.pipeline.options import SourceOptions
from magnetar.pipeline.progress import Progress
from magnetar.pytest_plugin import BrokerProcess

TOPIC = "persistent://public/default/bench"
SIZE = 1024


def fill(broker, messages):
    client = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    client.subscribe(TOPIC, "keep", initial_position=pulsar.InitialPosition.Earliest).close()
    producer = client.create_producer(
        TOPIC, batching_enabled=False, block_if_queue_full=True, max_pending_messages=20_000
    )
    pool = random.Random(1).randbytes(1 << 20)
    for n in range(messages):
        at = n * 7919 % (len(pool) - SIZE)
        producer.send_async(pool[at : at + SIZE], None)
    producer.flush()
    client.close()
    broker.stop()  # after the stop all messages are in ledger files
    broker.start()


class Cases:
    def __init__(self, broker, folder, messages, compression, spark_runner):
        self.broker, self.folder, self.messages, self.spark = broker, folder, messages, spark_runner
        self.write = WriteOptions(compression=compression, level=1 if compression == "zstd" else None)
        self.reference = folder / "reference"
        self.export(LocalRunner(), self.reference)
        self.files = [str(p) for p in self.reference.rglob("*.parquet") if "_delta_log" not in str(p)]

    def export(self, runner, target):
        shutil.rmtree(target, ignore_errors=True)
        given = {
            "service.url": self.broker.url,
            "admin.url": self.broker.http_url,
            "topic": TOPIC,
            "storage.url": str(self.broker.data_dir),
            "readMode": "segment",
        }
        job = ExportJob(SourceOptions.parse(given), open_table("delta", str(target)), write=self.write)
        report = job.run(runner, Progress("export", io.StringIO(), style="none"))
        assert report.rows == self.messages

    def on_spark(self):
        self.export(self.spark, self.folder / "a")

    def in_process(self):
        self.export(LocalRunner(), self.folder / "b")

    def pyarrow_alone(self):
        target = self.folder / "c.parquet"
        with pq.ParquetWriter(
            target,
            pq.read_schema(self.files[0]),
            compression=self.write.compression,
            use_dictionary=False,
            write_statistics=False,
        ) as writer:
            for path in self.files:
                for batch in pq.ParquetFile(path).iter_batches(32_768):
                    writer.write_batch(batch)

    def sparks_reader(self):
        self.spark.session.read.parquet(*self.files).write.format("noop").mode("overwrite").save()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=4, metavar="N", help="rounds before those that count")
    parser.add_argument("--compression", default="none")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="magnetar-bench-"))
    broker = BrokerProcess(folder / "data", {"managedLedgerMaxEntriesPerLedger": 50_000})
    try:
        fill(broker, options.messages)
        with open_runner("local[2]") as spark:
            cases = Cases(broker, folder, options.messages, options.compression, spark)
            named = {
                "export, local[2]": cases.on_spark,
                "export, one process": cases.in_process,
                "pyarrow alone": cases.pyarrow_alone,
                "Spark's reader": cases.sparks_reader,
            }
            for _ in range(options.warm_up):  # the JVM compiles frequent code: its first rounds are not representative
                cases.on_spark(), cases.sparks_reader()
            rates, cpu = {name: [] for name in named}, {name: [] for name in named}
            for number in range(options.rounds):
                for name in list(named) if number % 2 == 0 else list(named)[::-1]:
                    before, began = process_tree.cpu_s(), time.perf_counter()
                    named[name]()
                    rates[name].append(options.messages / (time.perf_counter() - began) / 1e6)
                    cpu[name].append((process_tree.cpu_s() - before) / options.messages * 1e6)
            reference = statistics.median(rates["Spark's reader"])
            print(f"{options.messages} messages of {SIZE} bytes, compression {options.compression}")
            for name, found in rates.items():
                middle = statistics.median(found)
                span = f"[{min(found):.3f}-{max(found):.3f}]  {middle / reference:5.2f}"
                print(f"{name:22} {middle:6.3f} M/s {span}  {statistics.median(cpu[name]):6.2f} us")
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
