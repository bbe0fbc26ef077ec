"""A Spark standalone cluster from the pyspark package: a master and two workers, in processes of their own."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests.pipeline.spark.source_for_tests import publish
from tests.pipeline.spark.standalone_cluster import standalone_cluster

PROGRAM = pathlib.Path(__file__).with_name("cluster_program.py")


@pytest.mark.skipif(
    os.environ.get("MAGNETAR_SPARK_CLUSTER") != "1",
    reason="six JVMs: `make spark-long` runs it, or MAGNETAR_SPARK_CLUSTER=1",
)
@pytest.mark.timeout(600)
def test_a_batch_a_stream_and_an_export_on_two_workers(spark_broker, pulsar_client, topic, tmp_path):
    publish(pulsar_client, topic, 4000, batching_enabled=True)
    where = [spark_broker.url, spark_broker.http_url, str(spark_broker.data_dir), topic, str(tmp_path)]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PYTHONPATH"] = str(pathlib.Path(__file__).parents[3])
    with standalone_cluster(tmp_path) as cluster:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), cluster.url, *where],
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
            env=environment,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(re.search(r"FOUND (.*)", done.stdout).group(1))
    assert found == {"batch": 4000, "executors": 2, "stream": 4000, "export": [4000, 1, 4000, True]}
