"""Exactly once while drivers, workers and brokers are killed at random: every message once at the end.

One kill here, twenty of each stream with MAGNETAR_SPARK_KILLS=20 (`make spark-long`).
"""

import os
import random
import threading
import time

import pulsar
import pytest

from magnetar.pytest_plugin import BrokerProcess
from tests.pipeline.spark.killing import Driver, python, wait_while_driven

KILLS = int(os.environ.get("MAGNETAR_SPARK_KILLS", "1"))
PER_KILL = 400 if KILLS > 1 else 160
VICTIMS = ("worker", "broker", "driver")

pytestmark = pytest.mark.timeout(660 + 90 * KILLS)


@pytest.fixture
def broker(tmp_path):
    settings = {"brokerDeduplicationEnabled": True}
    # Topics without subscriptions lose closed ledgers otherwise, and every restart of the broker closes a ledger.
    settings |= {"defaultRetentionTimeInMinutes": -1, "defaultRetentionSizeInMB": -1}
    process = BrokerProcess(tmp_path / "broker" / "data", settings)
    yield process
    process.stop()


def connect(broker):
    return pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


class Publisher(threading.Thread):
    """Sends numbers in order, as fast as `allowed` grows; the broker drops messages repeated after a reconnect."""

    def __init__(self, broker, topic):
        super().__init__(daemon=True)
        self._client = connect(broker)
        self._producer = self._client.create_producer(
            topic, producer_name="numbers", send_timeout_millis=0, block_if_queue_full=True, batching_enabled=False
        )
        self._allowed = threading.Semaphore(0)
        self.sent = 0
        self._end = False

    def allow(self, count):
        for _ in range(count):
            self._allowed.release()

    def run(self):
        while True:
            self._allowed.acquire()
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
        self._allowed.release()
        self.join()


def kill_again_and_again(broker, driver, publisher, done):
    """`done()` tells how many messages have arrived."""
    choose = random.Random(os.urandom(8))
    for _ in range(KILLS):
        before = done()
        publisher.allow(PER_KILL)
        some = before + choose.randrange(1, PER_KILL // 2)
        wait_while_driven(lambda some=some: done() >= some, 300, driver)
        print(
            f"{time.monotonic():.0f}: {done()} arrived, {publisher.sent} sent, the driver was started {driver.starts} times"
        )
        victim = choose.choice(VICTIMS)
        if victim == "driver":
            driver.kill()
        elif victim == "broker":
            broker.kill()
            broker.start()
        elif not driver.kill_worker(choose.choice):
            driver.kill()
        print(f"{time.monotonic():.0f}: killed a {victim}")
    publisher.finish()
    wait_while_driven(lambda: done() >= publisher.sent, 300, driver)
    driver.kill()
    assert publisher.sent == KILLS * PER_KILL


def everything(broker, topic):
    client = connect(broker)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(int(reader.read_next(60_000).data()))
    client.close()
    return found


def test_a_stream_into_a_topic(broker, topic, tmp_path):
    target = f"{topic}-out"
    publisher = Publisher(broker, topic)
    publisher.start()
    program = python(
        "-m",
        "tests.pipeline.spark.stream_program",
        broker.url,
        broker.http_url,
        topic,
        target,
        str(tmp_path / "checkpoint"),
    )
    driver = Driver(program, tmp_path / "driver.log")
    try:
        kill_again_and_again(broker, driver, publisher, lambda: len(everything(broker, target)))
    except BaseException:
        print((tmp_path / "driver.log").read_text()[-5000:])
        raise
    finally:
        driver.kill()
    assert sorted(everything(broker, topic)) == list(range(publisher.sent)), "the source itself"
    assert sorted(everything(broker, target)) == list(range(publisher.sent))


@pytest.mark.skipif(KILLS == 1, reason="minutes: `make spark-long` runs it; test_jobs kills an export once")
def test_a_stream_into_a_delta_table(broker, topic, tmp_path):
    from deltalake import DeltaTable

    table = tmp_path / "table"
    publisher = Publisher(broker, topic)
    publisher.start()
    options = ("--service-url", broker.url, "--admin-url", broker.http_url, "--storage", str(broker.data_dir))
    program = python(
        *("-m", "magnetar", "pipeline", "export", "--topic", topic, *options),
        *("--table", str(table), "--format", "delta", "--follow", "--trigger", "0.3"),
    )
    driver = Driver(program, tmp_path / "driver.log")

    def rows():
        return DeltaTable(table).to_pyarrow_table() if (table / "_delta_log").exists() else None

    try:
        kill_again_and_again(broker, driver, publisher, lambda: 0 if (found := rows()) is None else found.num_rows)
    except BaseException:
        print((tmp_path / "driver.log").read_text()[-5000:])
        raise
    finally:
        driver.kill()
    found = rows()
    assert sorted(found["__index"].to_pylist()) == list(range(publisher.sent))
    assert sorted(int(value) for value in found["value"].to_pylist()) == list(range(publisher.sent))
