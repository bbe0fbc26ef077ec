"""The Spark source against Spark's own Parquet reader and plain pyarrow, on the same messages of 1 KiB.

    python bench/pipeline_source_bench.py [--messages 600000] [--rounds 4]

A broker process takes the messages from the official client; after that, in one session and interleaved rounds, of
which the first few only warm the JVM up:

* `ledgers`   the source over ledger files -> noop
* `broker`    the source through the broker -> noop (half of the messages)
* `parquet`   Spark's Parquet reader over the same columns -> noop
* `prebuilt`  a Python data source that reads and decodes nothing: it gives one record batch of the same columns and
              bytes again and again. No Python source can be faster: its time is Spark's own transfer
* `pyarrow`   pyarrow reads that Parquet in one process

Beside the rate stands the CPU time a message takes in all processes together, the broker's left out: other work of the
machine hardly changes that time.

Then planning of 10,000 partitions, the latency of a stream at a trigger of one second, and the memory of the driver while
a stream goes through a million offsets (`--only memory`).
"""

import argparse
import os
import pathlib
import statistics
import sys
import tempfile
import time

import process_tree
import pulsar
import pyarrow.parquet
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from magnetar.pipeline import register
from magnetar.pipeline.connect_options import ConnectOptions
from magnetar.pipeline.options import SourceOptions
from magnetar.pipeline.source_plan import SourcePlan
from magnetar.pytest_plugin import BrokerProcess

TOPIC = "persistent://public/default/bench"
PREBUILT_DDL = "value BINARY, __key BINARY, __publishTime TIMESTAMP, __index BIGINT"
SETTINGS = {
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
    "maxNumPartitionsPerPartitionedTopic": 0,
}


def session(settings):
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "2g").config("spark.sql.session.timeZone", "UTC")
    for setting in settings:
        builder = builder.config(*setting.split("=", 1))
    spark = builder.config("spark.log.level", "OFF").getOrCreate()
    register(spark)
    spark.dataSource.register(Prebuilt)
    return spark


def client_of(broker):
    return pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def publish(broker, count):
    client = client_of(broker)
    producer = client.create_producer(
        TOPIC, batching_enabled=False, block_if_queue_full=True, max_pending_messages=5000
    )
    pool = os.urandom(1 << 20)
    for k in range(count):
        at = (k * 7919) % ((1 << 20) - 1024)
        producer.send_async(pool[at : at + 1024], lambda *_: None, partition_key=f"k{k % 1000}")
    producer.flush()
    client.close()


def options_of(broker, **more):
    return {"service.url": broker.url, "admin.url": broker.http_url, "topic": TOPIC, **more}


class Prebuilt(DataSource):
    """Record batches of 1 MiB with the columns of the benchmark, made once in each task."""

    @classmethod
    def name(cls):
        return "prebuilt"

    def schema(self):
        return PREBUILT_DDL

    def reader(self, schema):  # noqa: ARG002 - Spark calls it so
        return PrebuiltReader(int(self.options["rows"]), int(self.options["tasks"]))


class PrebuiltReader(DataSourceReader):
    def __init__(self, rows, tasks):
        self.rows, self.tasks = rows, tasks

    def partitions(self):
        return [InputPartition(self.rows // self.tasks) for _ in range(self.tasks)]

    def read(self, partition):
        import pyarrow as pa  # noqa: PLC0415 - in the worker

        rows, n = partition.value, 950
        times = pa.array(range(1_700_000_000_000_000, 1_700_000_000_000_000 + n), pa.timestamp("us", tz="UTC"))
        columns = {
            "value": pa.array([os.urandom(1024) for _ in range(n)], pa.binary()),
            "__key": pa.array([b"k%d" % (k % 1000) for k in range(n)], pa.binary()),
            "__publishTime": times,
            "__index": pa.array(range(n), pa.int64()),
        }
        batch = pa.RecordBatch.from_pydict(columns)
        while rows:
            part = batch.slice(0, min(rows, n))
            rows -= part.num_rows
            yield part


def timed(work):
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def noop(frame):
    frame.write.format("noop").mode("overwrite").save()


def throughput(spark, broker, count, rounds, warm_up, wanted, more):
    folder = tempfile.mkdtemp()
    columns = "value,__key,__publishTime,__index"
    ledgers = spark.read.format("pulsar").options(
        **options_of(broker, columns=columns, **{"storage.url": str(broker.data_dir)}, **more)
    )
    few = count // 2
    pushed = spark.read.format("pulsar").options(
        **options_of(
            broker, columns=columns, readMode="broker", endingOffsets=f'{{"{TOPIC}": {few}}}', minPartitions="2"
        )
    )
    ledgers.load().write.option("compression", "snappy").parquet(folder + "/t")
    files = sorted(str(p) for p in pathlib.Path(folder, "t").glob("*.parquet"))
    source = ledgers.load()
    prebuilt = spark.read.format("prebuilt").option("rows", count).option("tasks", source.rdd.getNumPartitions())
    frames = source, spark.read.parquet(folder + "/t"), pushed.load(), prebuilt.load()
    cases = {
        "ledgers": (count, lambda: noop(frames[0])),
        "parquet": (count, lambda: noop(frames[1])),
        "prebuilt": (count, lambda: noop(frames[3])),
        "pyarrow": (count, lambda: [pyarrow.parquet.ParquetFile(f, memory_map=True).read() for f in files]),
        "broker": (few, lambda: noop(frames[2])),
    }
    assert frames[0].count() == count, "every message is in a ledger file or comes from the broker"
    cases = {name: case for name, case in cases.items() if name in wanted}
    rates, cpu = {name: [] for name in cases}, {name: [] for name in cases}
    for _ in range(warm_up):  # the JVM compiles frequent code: its first rounds are not representative
        for _, work in cases.values():
            timed(work)
    for k in range(rounds):
        for name in list(cases)[:: 1 if k % 2 else -1]:
            messages, work = cases[name]
            before = own_cpu_s(broker)
            rates[name].append(messages / timed(work))
            cpu[name].append((own_cpu_s(broker) - before) / messages * 1e6)
    print(f"\n{count} messages of 1 KiB, {rounds} rounds; million messages/s, median [least-most]; CPU time a message")
    for name, found in rates.items():
        span = f"[{min(found) / 1e6:.3f}-{max(found) / 1e6:.3f}]"
        print(f"  {name:10} {statistics.median(found) / 1e6:.3f} {span} {statistics.median(cpu[name]):6.2f} us")
    for other in {"parquet", "prebuilt"} & rates.keys() if "ledgers" in rates else ():
        against = [a / b for a, b in zip(rates["ledgers"], rates[other], strict=True)]
        print(f"  ledgers / {other}: {statistics.median(against):.2f} [{min(against):.2f}-{max(against):.2f}]")


def own_cpu_s(broker):
    broker_processes = set(process_tree.tree(broker._process.pid))  # noqa: SLF001
    return process_tree.cpu_s([pid for pid in process_tree.tree() if pid not in broker_processes])


def memory(spark, broker, count=1_000_000, per_trigger=20_000):
    """Memory of the driver's processes at each tenth of the offsets, the JVM's heap after a collection."""
    topic = "persistent://public/default/many"
    client = client_of(broker)
    producer = client.create_producer(topic, block_if_queue_full=True, max_pending_messages=20_000)
    for k in range(count):
        producer.send_async(b"%08d" % k, None)
    producer.flush()
    client.close()
    given = options_of(broker, startingOffsets="earliest", maxMessagesPerTrigger=str(per_trigger)) | {"topic": topic}
    frame = spark.readStream.format("pulsar").options(**given).load()
    jvm, seen = spark.sparkContext._jvm, 0  # noqa: SLF001 - py4j has no other door

    def note(batch, number):
        nonlocal seen
        seen += batch.count()
        if seen % (count // 10) == 0:
            jvm.System.gc()
            runtime = jvm.Runtime.getRuntime()
            heap = runtime.totalMemory() - runtime.freeMemory()
            planner = [
                p for p in process_tree.tree() if "python_streaming_source_runner" in process_tree.command_line(p)
            ]
            planners = ", ".join(f"{process_tree.rss_bytes(pid) / 1e6:.1f}" for pid in planner)
            own = process_tree.rss_bytes(os.getpid())
            print(
                f"  {seen:9} offsets, {number + 1:4} micro-batches: heap {heap / 1e6:6.1f} MB, planner {planners} MB, "
                f"driver's Python {own / 1e6:.1f} MB",
                flush=True,
            )

    print(f"\na stream over {count} offsets, {per_trigger} in a micro-batch")
    query = frame.select("__index").writeStream.foreachBatch(note).trigger(availableNow=True).start()
    query.awaitTermination()
    assert seen == count


def planning(broker, topics=10, partitions=1000):
    admin = ConnectOptions.parse(options_of(broker)).admin()
    for n in range(topics):
        admin.call("PUT", f"/admin/v2/persistent/public/default/wide-{n}/partitions", str(partitions).encode())
    options = {k: v for k, v in options_of(broker).items() if k != "topic"} | {"topicsPattern": "wide-.*"}
    for name in ("first", "second", "third"):
        plan = SourcePlan(SourceOptions.parse(options))
        started = time.perf_counter()
        logs = plan.logs()
        found = plan.tasks(plan.starting(logs), plan.ending(logs), logs)
        print(
            f"planning {len(logs)} partitions, {name} time: {time.perf_counter() - started:.2f} s ({len(found)} tasks)"
        )


def latency(spark, broker, seconds=30):
    topic = "persistent://public/default/latency"
    client = client_of(broker)
    producer = client.create_producer(topic, batching_enabled=False)
    frame = spark.readStream.format("pulsar").options(**options_of(broker) | {"topic": topic}).load()
    seen = []

    def note(batch, _):
        now = time.time()
        seen.extend(now - row[0] / 1000 for row in batch.selectExpr("unix_millis(__publishTime)").collect())

    query = frame.writeStream.foreachBatch(note).trigger(processingTime="1 second").start()
    try:
        until = time.time() + seconds
        while time.time() < until:
            producer.send(b"x")
            time.sleep(0.05)
        time.sleep(3)
    finally:
        query.stop()
        client.close()
    seen.sort()
    late = seen[len(seen) // 5 :]  # the first micro-batch waits for the JVM to warm up
    if seen:
        print(
            f"stream latency, trigger of 1 s: p50 {statistics.median(seen):.2f} s, p90 {seen[len(seen) * 9 // 10]:.2f} s of {len(seen)} messages"
        )
    assert late


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=600_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--warm-up", type=int, default=4, metavar="N", help="rounds before those that count")
    parser.add_argument("--only", default="planning,throughput,latency,memory")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark")
    parser.add_argument("--source", action="append", default=[], metavar="KEY=VALUE", help="an option of the source")
    parser.add_argument("--cases", default="ledgers,parquet,prebuilt,pyarrow,broker")
    given = parser.parse_args()
    broker = BrokerProcess(pathlib.Path(tempfile.mkdtemp()) / "data", SETTINGS)
    try:
        if "planning" in given.only:
            planning(broker)
        spark = session(given.conf)
        if "throughput" in given.only:
            print(f"publishing took {timed(lambda: publish(broker, given.messages)):.0f} s")
            more = dict(each.split("=", 1) for each in given.source)
            throughput(spark, broker, given.messages, given.rounds, given.warm_up, given.cases.split(","), more)
        if "latency" in given.only:
            latency(spark, broker)
        if "memory" in given.only:
            memory(spark, broker)
        spark.stop()
    finally:
        broker.stop()


if __name__ == "__main__":
    main()
