"""A Spark standalone cluster from the pyspark package: a master and two workers, in processes of their own."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pyspark
import pytest

from tests.pipeline.spark.source_for_tests import publish
from tests.waiting import wait_for

HOME = pathlib.Path(pyspark.__file__).parent
PROGRAM = pathlib.Path(__file__).with_name("cluster_program.py")


class Daemon:
    """A master or a worker. `wait_for` returns the match of a pattern in its log."""

    def __init__(self, folder, name, *arguments):
        self.log = folder / f"{name}.log"
        environment = os.environ | {
            "SPARK_HOME": str(HOME),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(folder / "work"),
            "PYSPARK_PYTHON": sys.executable,
        }
        with self.log.open("wb") as out:
            command = [str(HOME / "bin" / "spark-class"), *arguments]
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)

    def wait_for(self, pattern):
        """The match of the pattern in the log of the process."""

        def found():
            match = re.search(pattern, self.log.read_text(errors="replace"))
            assert match or self.process.poll() is None, self.log.read_text()[-3000:]
            return match

        return wait_for(found, 90, pattern, every=0.1)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def master_url(tmp_path):
    package = "org.apache.spark.deploy"
    started = []

    def start(name, *arguments):
        started.append(Daemon(tmp_path, name, *arguments))
        return started[-1]

    try:
        anywhere = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master = start("master", f"{package}.master.Master", *anywhere)
        url = master.wait_for(r"Starting Spark master at (spark://\S+)").group(1)
        workers = [
            start(f"worker{n}", f"{package}.worker.Worker", *anywhere, "--cores", "1", "--memory", "600m", url)
            for n in range(2)
        ]
        for worker in workers:
            worker.wait_for("Successfully registered with master")
        yield url
    finally:
        for daemon in reversed(started):
            daemon.stop()


@pytest.mark.skipif(
    os.environ.get("MAGNETAR_SPARK_CLUSTER") != "1",
    reason="six JVMs: `make spark-long` runs it, or MAGNETAR_SPARK_CLUSTER=1",
)
@pytest.mark.timeout(600)
def test_a_batch_a_stream_and_an_export_on_two_workers(master_url, spark_broker, pulsar_client, topic, tmp_path):
    publish(pulsar_client, topic, 4000, batching_enabled=True)
    where = [spark_broker.url, spark_broker.http_url, str(spark_broker.data_dir), topic, str(tmp_path)]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PYTHONPATH"] = str(pathlib.Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, str(PROGRAM), master_url, *where],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(re.search(r"FOUND (.*)", done.stdout).group(1))
    assert found == {"batch": 4000, "executors": 2, "stream": 4000, "export": [4000, 1, 4000, True]}
