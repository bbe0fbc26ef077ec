"""A Spark session for all tests of the room that need Spark; they are skipped with one line where Spark cannot run.

All these tests run in one process (`make spark`): the session costs seconds, a test in it tenths of a second.
"""

import importlib.util
import os
import pathlib
import shutil
import sys
import uuid

import pytest

from magnetar.pytest_plugin import BrokerProcess

HERE = pathlib.Path(__file__).parent
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.log.level": "OFF",
    "spark.python.authenticate.socketTimeout": "180s",
}
"""The last setting: under load a Python process of Spark needs more than the 15 s to its first connection."""
# Short programs gain nothing from the second compiler of Java, which takes a third of their time.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def missing():
    """Why Spark cannot run here; empty when it can."""
    wanted = [name for name in ("pyspark", "pyarrow", "pandas", "numpy") if importlib.util.find_spec(name) is None]
    if wanted:
        return f"{', '.join(wanted)} not installed: pip install '/path/to/magnetar[spark]'"
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and pathlib.Path(home, "bin", "java").exists()):
        return "no Java: install a Java runtime, version 17 or newer (Debian: apt install openjdk-17-jre-headless)"
    return ""


def pytest_collection_modifyitems(items):
    why = missing()
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(180))
        # py4j leaves sockets to the collector; pyspark and pandas warn of their own future.
        item.add_marker(pytest.mark.filterwarnings("ignore"))
        if why and os.environ.get("CI") != "true":
            item.add_marker(pytest.mark.skip(reason=f"Spark cannot run here: {why}"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """The session: two cores, a task is tried twice, everything on loopback."""
    assert not missing(), f"Spark cannot run here: {missing()}"
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2,2]").appName("magnetar tests")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    session = builder.config("spark.local.dir", str(folder / "local")).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_broker(tmp_path_factory):
    """One broker process for these tests; every test takes topics of its own. Nothing is trimmed."""
    kept = {"defaultRetentionTimeInMinutes": -1, "defaultRetentionSizeInMB": -1}
    broker = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", kept)
    yield broker
    broker.stop()


@pytest.fixture
def topic():
    """An unused topic name."""
    return f"persistent://public/default/t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def pulsar_client(spark_broker):
    """The official client, connected to `spark_broker`."""
    import pulsar

    client = pulsar.Client(spark_broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


@pytest.fixture
def runner(spark):
    """The runner of the tasks of jobs."""
    from magnetar.pipeline.jobs.runner import SparkRunner

    return SparkRunner(spark)
