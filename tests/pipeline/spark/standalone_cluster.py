"""A Spark standalone cluster from the pyspark package: a master and two workers, in processes of their own."""

import contextlib
import os
import pathlib
import re
import subprocess
import sys

import pyspark

from tests.waiting import wait_for

HOME = pathlib.Path(pyspark.__file__).parent
EXECUTOR = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
}
"""Settings with which a session has an executor of one core on each worker."""
SUBMIT = " ".join([*(f"--conf {key}={value}" for key, value in EXECUTOR.items()), "pyspark-shell"])
"""The same as the environment variable PYSPARK_SUBMIT_ARGS, for programs with settings of their own."""


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


class Cluster:
    """url: of the master.   workers: Daemons, one core each; their children are the executors."""

    def __init__(self, url, workers):
        self.url, self.workers = url, workers


@contextlib.contextmanager
def standalone_cluster(folder):
    """The cluster, until the end of the block."""
    package = "org.apache.spark.deploy"
    started = []

    def start(name, *arguments):
        started.append(Daemon(folder, name, *arguments))
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
        yield Cluster(url, workers)
    finally:
        for daemon in reversed(started):
            daemon.stop()
