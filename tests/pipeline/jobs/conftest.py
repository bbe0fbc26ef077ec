"""A broker process for the tests of jobs that need a broker, without Spark: the jobs run in this process."""

import io
import uuid

import pulsar
import pytest

from magnetar.pipeline.jobs.runner import LocalRunner
from magnetar.pipeline.progress import Progress
from magnetar.pytest_plugin import BrokerProcess


@pytest.fixture(scope="session")
def jobs_broker(tmp_path_factory):
    settings = {"managedLedgerMaxEntriesPerLedger": 50, "managedLedgerMinLedgerRolloverTimeMinutes": 0}
    broker = BrokerProcess(tmp_path_factory.mktemp("jobs") / "data", settings)
    yield broker
    broker.stop()


@pytest.fixture
def client(jobs_broker):
    client = pulsar.Client(jobs_broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


@pytest.fixture
def topic():
    return f"persistent://public/default/t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def publish(client):
    """publish(topic, values, **options of the producer): one message per value, all stored on return."""

    def send(topic, values, *, keep=True, **options):
        if keep:
            client.subscribe(topic, "keep", initial_position=pulsar.InitialPosition.Earliest).close()
        options = {"batching_enabled": False} | options
        producer = client.create_producer(topic, block_if_queue_full=True, **options)
        for value in values:
            message = value if isinstance(value, dict) else {"content": value}
            producer.send_async(callback=lambda *_: None, **message)
        producer.flush()
        producer.close()

    return send


@pytest.fixture
def runner():
    return LocalRunner()


@pytest.fixture
def progress():
    return Progress("test", io.StringIO(), style="none")
