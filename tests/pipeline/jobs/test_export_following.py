"""An export that follows topics which come while it runs."""

import json
import urllib.request

import pyarrow.parquet as pq
import pytest

from magnetar.pipeline.jobs.export import ExportJob
from magnetar.pipeline.lake.committer import open_table
from magnetar.pipeline.options import SourceOptions


def values(table):
    """The payloads of all rows, sorted."""
    files = [pq.read_table(table.place.absolute(file.path), partitioning=None) for file in table.files()]
    return sorted(value for read in files for value in read["value"].to_pylist())


def grow(broker, topic, count, method):
    """Give the topic `count` partitions; PUT makes the topic."""
    where = topic.replace("persistent://", "/admin/v2/persistent/")
    url = f"{broker.http_url}{where}/partitions"
    headers = {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(url, json.dumps(count).encode(), headers, method=method)).close()


@pytest.mark.parametrize("start", ["latest", "named"])
def test_a_new_partition_begins_at_its_first_message(jobs_broker, topic, publish, runner, progress, tmp_path, start):
    grow(jobs_broker, topic, 1, "PUT")
    publish(f"{topic}-partition-0", [b"before"])
    places = "latest" if start == "latest" else json.dumps({topic: "latest"})
    given = {"service.url": jobs_broker.url, "admin.url": jobs_broker.http_url, "topic": topic}
    table = open_table("parquet", str(tmp_path / "table"))
    job, rounds = ExportJob(SourceOptions.parse(given | {"startingOffsets": places}), table), []

    def on_round(report):
        rounds.append(report.rows)
        if len(rounds) == 1:
            grow(jobs_broker, topic, 2, "POST")
            publish(f"{topic}-partition-0", [b"old partition"])
            publish(f"{topic}-partition-1", [b"new partition"])

    job.follow(runner, progress, trigger_s=0.01, stop=lambda: len(rounds) > 2, on_round=on_round)
    assert values(table) == [b"new partition", b"old partition"]
