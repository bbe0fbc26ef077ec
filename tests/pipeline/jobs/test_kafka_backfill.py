"""Kafka segments of several partitions in one job: the log of a real Kafka, with aborted and open transactions."""

import json
import pathlib
import shutil

import pytest

from magnetar.client.errors import DeduplicationError, InputError
from magnetar.converters.kafka.record_set import RecordSet
from magnetar.converters.kafka.transactions import Isolation
from magnetar.pipeline.connect_options import ConnectOptions
from magnetar.pipeline.jobs import kafka_backfill as module
from magnetar.pipeline.jobs.kafka_backfill import (
    BackfillError,
    BackfillOptions,
    backfill,
    find_partitions,
    highest_sequence_ids,
)
from tests.blackbox.kafka_files import SEGMENT, data_records, segment, stored_entries

FOLDER = pathlib.Path(__file__).parents[2] / "vectors" / "kafka_transactions"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


@pytest.fixture
def kafka(tmp_path):
    """A Kafka data directory with two partitions: the recorded log, and a log of every magic and codec."""
    (tmp_path / "log" / "orders-0").mkdir(parents=True)
    (tmp_path / "log" / "orders-1").mkdir()
    for path in FOLDER.glob("*.log"):
        shutil.copy(path, tmp_path / "log" / "orders-0")
    (tmp_path / "log" / "orders-1" / SEGMENT).write_bytes(segment(30_000))
    return tmp_path / "log"


@pytest.fixture
def options(jobs_broker):
    connect = ConnectOptions.parse({"service.url": jobs_broker.url, "admin.url": jobs_broker.http_url})

    def make(**more):
        return BackfillOptions(connect, **({"enable_deduplication": True} | more))

    return make


class Door:
    """The part of a broker that `stored_entries` uses."""

    def __init__(self, broker):
        self.url = broker.url


@pytest.fixture
def stored(jobs_broker):
    def read(topic):
        return [r for e in stored_entries(Door(jobs_broker), topic) for r in RecordSet(bytes(e.payload))]

    return read


@pytest.fixture
def partitioned(jobs_broker, topic):
    import urllib.request

    path = topic.replace("persistent://", "/admin/v2/persistent/")
    request = urllib.request.Request(f"{jobs_broker.http_url}{path}/partitions", b"2", method="PUT")
    request.add_header("Content-Type", "application/json")
    urllib.request.urlopen(request).close()
    return topic


def test_both_partitions_without_aborted_records_and_only_once(partitioned, kafka, options, stored, runner, progress):
    report = backfill([kafka], partitioned, options(), runner, progress)
    assert report["findings"] == [f"{partitioned}-partition-0"]
    assert report["aborted"] > 0
    first = [record.offset for record in stored(f"{partitioned}-partition-0")]
    assert first == [row[0] for row in EXPECTED["read_committed"]]
    assert stored(f"{partitioned}-partition-1") == data_records(segment(30_000))
    again = backfill([kafka], partitioned, options(), runner, progress)
    assert again["stored"] == 0
    assert [record.offset for record in stored(f"{partitioned}-partition-0")] == first


def test_isolation(partitioned, kafka, options, stored, runner, progress):
    everything = options(isolation=Isolation.READ_UNCOMMITTED)
    assert backfill([kafka / "orders-0"], partitioned, everything, runner, progress)["findings"] == []
    offsets = [record.offset for record in stored(f"{partitioned}-partition-0")]
    assert offsets == [row[0] for row in EXPECTED["read_uncommitted"]]


def test_a_broker_that_forgot_the_producers(partitioned, kafka, options, stored, runner, progress, jobs_broker):
    target = f"{partitioned}-partition-1"
    backfill([kafka / "orders-1"], partitioned, options(), runner, progress)
    [high] = highest_sequence_ids(options().connect, target).values()
    assert high == data_records(segment(30_000))[-1].offset
    import urllib.request

    path = partitioned.replace("persistent://", "/admin/v2/persistent/")
    for value in (b"false", b"true"):
        request = urllib.request.Request(f"{jobs_broker.http_url}{path}/deduplicationEnabled", value, method="POST")
        request.add_header("Content-Type", "application/json")
        urllib.request.urlopen(request).close()
    backfill([kafka / "orders-1"], partitioned, options(), runner, progress)
    assert stored(target) == data_records(segment(30_000))


def test_without_deduplication_nothing_is_stored(partitioned, kafka, options, runner, progress):
    with pytest.raises(DeduplicationError, match="--enable-deduplication"):
        backfill([kafka], partitioned, options(enable_deduplication=False), runner, progress)


def test_damage_stops_or_is_left_out(partitioned, kafka, options, stored, runner, progress):
    path = kafka / "orders-1" / SEGMENT
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(BackfillError, match="--on-damage skip"):
        backfill([kafka / "orders-1"], partitioned, options(), runner, progress)
    report = backfill([kafka / "orders-1"], partitioned, options(skip_damage=True), runner, progress)
    assert report["partitions"][0]["damaged"] > 0
    whole = iter(data_records(segment(30_000)))
    assert all(record in whole for record in stored(f"{partitioned}-partition-1")), "in order, each once"


def test_paths_that_are_no_directories(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for name in ("absent", "file"):
        with pytest.raises(InputError, match="no directory"):
            find_partitions([tmp_path / name], "orders")


def test_directories(kafka, tmp_path, monkeypatch):
    names = [name for _, name in find_partitions([kafka], "t")]
    assert names == ["persistent://public/default/t-partition-0", "persistent://public/default/t-partition-1"]
    with pytest.raises(InputError, match="no segments"):
        find_partitions([tmp_path], "t")
    odd = tmp_path / "odd"
    odd.mkdir()
    (odd / SEGMENT).write_bytes(segment(5_000))
    with pytest.raises(InputError, match="TOPIC-NUMBER"):
        find_partitions([odd], "t")
    with pytest.raises(InputError, match="one topic a run"):
        find_partitions([kafka / "orders-0", twin(kafka)], "t")
    assert module.survey_transactions([str(kafka / "orders-1" / SEGMENT)]).open == {}


def twin(kafka):
    other = kafka.parent / "other-0"
    shutil.copytree(kafka / "orders-0", other)
    return other


def test_an_absent_topic_is_created_and_one_with_too_few_partitions_refused(topic, kafka, options, runner, progress):
    backfill([kafka / "orders-0"], topic, options(isolation=Isolation.READ_UNCOMMITTED), runner, progress)
    with pytest.raises(InputError, match="update-partitioned-topic"):
        backfill([kafka / "orders-1"], topic, options(), runner, progress)
