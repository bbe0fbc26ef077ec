"""Exactly once while drivers, executors, Python workers and brokers are killed amid micro-batches: every message once.

One kill here, without a cluster; twenty of each stream on a standalone cluster with MAGNETAR_SPARK_KILLS=20
(`make spark-long`). A kill counts if the driver, standing still at that moment, has a micro-batch that it has begun and
not committed. Executors of a killed driver outlive it for a moment, beside the executors of the next driver.
"""

import contextlib
import json
import os
import random
import threading
import time
from collections import Counter

import pulsar
import pytest

from magnetar.pipeline.catalog import Catalog
from magnetar.pipeline.connect_options import ConnectOptions
from magnetar.pipeline.errors import CatalogError
from magnetar.pytest_plugin import BrokerProcess
from tests.pipeline.spark.killing import Driver, python, send, wait_while_driven
from tests.pipeline.spark.standalone_cluster import standalone_cluster

KILLS = int(os.environ.get("MAGNETAR_SPARK_KILLS", "1"))
ON_A_CLUSTER = KILLS > 1
_A = {"driver": "the driver", "executor": "an executor", "worker": "a Python worker", "broker": "the broker"}
VICTIMS = ("driver", "executor", "worker", "broker") if ON_A_CLUSTER else ("driver", "worker", "broker")
BACKLOG = 400 if ON_A_CLUSTER else 160
"""Messages that wait for the stream at any time."""
PATIENCE_S = 300
"""A driver under load takes minutes to its first micro-batch."""
KILLING_S = PATIENCE_S + 60 * KILLS
"""After this time there are no more kills."""

pytestmark = pytest.mark.timeout(KILLING_S + 3 * PATIENCE_S)


@pytest.fixture
def broker(tmp_path):
    settings = {"brokerDeduplicationEnabled": True}
    # Topics without subscriptions lose closed ledgers otherwise, and every restart of the broker closes a ledger.
    settings |= {"defaultRetentionTimeInMinutes": -1, "defaultRetentionSizeInMB": -1}
    process = BrokerProcess(tmp_path / "broker" / "data", settings)
    yield process
    process.stop()


@pytest.fixture
def cluster(tmp_path):
    """None where the driver runs the tasks."""
    if not ON_A_CLUSTER:
        yield None
        return
    with standalone_cluster(tmp_path) as cluster:
        yield cluster


def connect(broker):
    return pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


class Publisher(threading.Thread):
    """Sends numbers in order, up to an allowed count; the broker drops messages repeated after a reconnect."""

    def __init__(self, broker, topic):
        super().__init__(daemon=True)
        self._client = connect(broker)
        self._producer = self._client.create_producer(
            topic, producer_name="numbers", send_timeout_millis=0, block_if_queue_full=True, batching_enabled=False
        )
        self._permits = threading.Semaphore(0)
        self._allowed = 0
        self.sent = 0
        self._end = False

    def allow_up_to(self, count):
        while self._allowed < count:
            self._allowed += 1
            self._permits.release()

    def run(self):
        while True:
            self._permits.acquire()
            if self._end:
                break
            self._producer.send_async(
                str(self.sent).encode(), lambda _result, _id: None, partition_key=f"k{self.sent % 5}"
            )
            self.sent += 1
        self._producer.flush()
        self._client.close()

    def finish(self):
        self._end = True
        self._permits.release()
        self.join()


class TopicStream:
    """The stream from topic to topic, seen from outside."""

    def __init__(self, broker, target, checkpoint):
        options = {"service.url": broker.url, "admin.url": broker.http_url}
        self._catalog = Catalog(ConnectOptions.parse(options).admin())
        self._target, self._checkpoint = target, checkpoint

    def arrived(self):
        """The number of stored messages in the target."""
        log = self._catalog.range(self._target)
        return 0 if log is None else log.end

    def running(self):
        """Whether a micro-batch has begun and is not committed."""
        return self._newest("offsets") > self._newest("commits")

    def _newest(self, folder):
        names = os.listdir(self._checkpoint / folder) if (self._checkpoint / folder).exists() else []
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def killed(self):
        """Note nothing: the checkpoint shows whether a micro-batch runs."""


class DeltaStream:
    """The export into a Delta table, seen from outside."""

    def __init__(self, table):
        self._table = table
        self._named, self._left, self._rows, self._read = set(), set(), 0, set()

    def arrived(self):
        """The number of rows in the table."""
        log = self._table / "_delta_log"
        commits = sorted(set(log.glob("*.json")) - self._read) if log.exists() else []
        for commit in commits:
            for line in commit.read_text().splitlines():
                if added := json.loads(line).get("add"):
                    self._named.add(added["path"].rpartition("/")[2])
                    self._rows += json.loads(added["stats"])["numRecords"]
            self._read.add(commit)
        return self._rows

    def running(self):
        """Whether a round has begun to write files and is not committed."""
        files = {path.name for path in self._table.rglob("*.parquet")} - self._left - self._named
        if files:
            self.arrived()
        return bool(files - self._named)

    def killed(self):
        """Ignore from now on the files of the killed round, which are no sign of another round."""
        self._left |= {path.name for path in self._table.rglob("*.parquet")}


def victims(choose):
    """Each kind of process in turn; the order changes in each round."""
    while True:
        yield from choose.sample(VICTIMS, len(VICTIMS))


def strike(victim, broker, driver, choose):
    """Kill a process of the wanted kind, or a driver without such a process; returns the kind of the killed process."""
    found = {"executor": driver.executors, "worker": driver.workers}.get(victim, list)()
    if victim == "broker":
        broker.kill()
    elif found:
        send(9, [choose.choice(found)])
    else:
        victim = "driver"
        driver.kill()
    return victim


def kill_amid(stream, victim, broker, driver, choose, let_more_arrive):
    """Kill at a random moment of a running micro-batch; returns the kind of the killed process, and whether a
    micro-batch ran.
    """

    def at_work():
        return stream.running() and driver.workers()

    def at_work_again():
        if at_work():
            return True
        with contextlib.suppress(OSError, CatalogError):
            let_more_arrive()  # a fast stream has committed all messages before it is seen at work
        return False

    for _ in range(50):
        wait_while_driven(at_work_again, PATIENCE_S, driver, "a micro-batch with tasks", every=0.005)
        time.sleep(choose.random() * 0.4)
        with driver.paused():
            if at_work():
                victim = strike(victim, broker, driver, choose)
                stream.killed()
                return victim, True
    return strike(victim, broker, driver, choose), False


def kill_again_and_again(broker, driver, publisher, stream):
    """New messages come all the time, so that the stream is at work."""
    seed = int.from_bytes(os.urandom(4), "big")
    choose = random.Random(seed)
    met, idle, until = Counter(), 0, time.monotonic() + KILLING_S

    def arrived(at_least=0):
        publisher.allow_up_to((found := stream.arrived()) + BACKLOG)
        return found >= at_least

    def wait_for_messages(count):
        wait_while_driven(
            lambda: arrived(count), PATIENCE_S, driver, f"the arrival of {count} messages", ignoring=(CatalogError,)
        )

    print(f"seed {seed}")
    for wanted in victims(choose):
        wait_for_messages(stream.arrived() + choose.randrange(1, 80))
        at = f"{stream.arrived()} of {publisher.sent} messages, {driver.starts} starts"
        victim, amid = kill_amid(stream, wanted, broker, driver, choose, arrived)
        if victim == "broker":
            broker.start()
        met[victim] += amid
        idle += not amid
        print(f"{time.strftime('%X')} {at}: killed {_A[victim]}{'' if amid else ', between micro-batches'}", flush=True)
        if met.total() + idle == KILLS or time.monotonic() > until:
            break
    print(f"{met.total()} of {met.total() + idle} kills met a running micro-batch: {dict(met)}")
    arrived()
    publisher.finish()
    wait_for_messages(publisher.sent)
    driver.kill()
    assert met.total() >= max(1, KILLS * 3 // 4)
    assert KILLS < 8 or set(met) == set(VICTIMS)


def everything(broker, topic):
    client = connect(broker)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(int(reader.read_next(60_000).data()))
    client.close()
    return found


@contextlib.contextmanager
def driven(program, tmp_path, cluster):
    """A driver; when the block fails, the end of its log is printed."""
    driver = Driver(program, tmp_path / "driver.log", cluster)
    try:
        yield driver
    except BaseException:
        print((tmp_path / "driver.log").read_text()[-5000:])
        raise
    finally:
        driver.kill()


def test_a_stream_into_a_topic(broker, cluster, topic, tmp_path):
    target, checkpoint = f"{topic}-out", tmp_path / "checkpoint"
    publisher = Publisher(broker, topic)
    publisher.start()
    master = cluster.url if cluster else "local[2,6]"
    where = (broker.url, broker.http_url, topic, target, str(checkpoint), master)
    program = python("-m", "tests.pipeline.spark.stream_program", *where)
    with driven(program, tmp_path, cluster) as driver:
        kill_again_and_again(broker, driver, publisher, TopicStream(broker, target, checkpoint))
    assert sorted(everything(broker, topic)) == list(range(publisher.sent)), "the source itself"
    assert sorted(everything(broker, target)) == list(range(publisher.sent))


@pytest.mark.skipif(KILLS == 1, reason="minutes: `make spark-long` runs it; test_jobs kills an export once")
def test_a_stream_into_a_delta_table(broker, cluster, topic, tmp_path):
    from deltalake import DeltaTable

    table = tmp_path / "table"
    publisher = Publisher(broker, topic)
    publisher.start()
    options = ("--service-url", broker.url, "--admin-url", broker.http_url, "--storage", str(broker.data_dir))
    program = python(
        *("-m", "magnetar", "pipeline", "export", "--topic", topic, *options, "-o", "minPartitions=2"),
        *("--table", str(table), "--format", "delta", "--follow", "--trigger", "0.1"),
        *("--master", cluster.url),
    )
    with driven(program, tmp_path, cluster) as driver:
        kill_again_and_again(broker, driver, publisher, DeltaStream(table))
    found = DeltaTable(table).to_pyarrow_table()
    assert sorted(found["__index"].to_pylist()) == list(range(publisher.sent))
    assert sorted(int(value) for value in found["value"].to_pylist()) == list(range(publisher.sent))
