"""A topic that is deleted, or deleted and made anew, between planning and reading, in the middle of a range, between
two micro-batches, and while ledger files disappear: no message of the new topic is taken for one of the old topic.
"""

import dataclasses
import json
import shutil
import urllib.request

import pulsar
import pytest
from pulsar.schema import AvroSchema, Integer, Record, String

from magnetar.pipeline.errors import DataLossError
from magnetar.pipeline.jobs.reading import RowReader, RowSettings
from magnetar.pipeline.offsets import Position
from magnetar.pipeline.options import SourceOptions
from magnetar.pipeline.planning import ReadRange
from magnetar.pipeline.reading.ranges import RangeReader
from magnetar.pipeline.reading.settings import ReadSettings
from magnetar.pipeline.source.row_source import RowSource
from magnetar.pipeline.source.stream_reader import PulsarStreamReader
from magnetar.pipeline.source.values import ValueChoice, choose_values
from magnetar.pipeline.source_plan import SourcePlan
from magnetar.pytest_plugin import BrokerProcess
from tests.pipeline.test_read_paths import catalog_of, covered_of, publish
from tests.waiting import wait_for

OLD, NEW = 100, 1000
"""Messages of the old topic have the values 0 to OLD - 1, those of the new topic values from NEW on."""
COUNTS = [3, OLD, OLD + 60]
"""Messages of the new topic: fewer than those of the old topic, as many, more."""
SMALL_QUEUE = {"pulsar.reader.receiverQueueSize": "10"}


@pytest.fixture
def client(log_broker):
    client = pulsar.Client(log_broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


def delete(broker, topic):
    path = topic.replace("://", "/")
    request = urllib.request.Request(f"{broker.http_url}/admin/v2/{path}?force=true", method="DELETE")
    urllib.request.urlopen(request, timeout=60).close()


def make_anew(broker, topic, count):
    delete(broker, topic)
    publish(broker, topic, count, first=NEW)


def options_for(broker, topic, **more):
    given = {"service.url": broker.url, "admin.url": broker.http_url, "topic": topic, **more}
    return SourceOptions.parse(given, streaming=False)


def planned(options):
    """The ranges of a batch, as its plan gives them to tasks."""
    plan = SourcePlan(options)
    try:
        logs = plan.logs()
        return [piece for task in plan.tasks(plan.starting(logs), plan.ending(logs), logs) for piece in task]
    finally:
        plan.close()


class Task:
    """Reads ranges as a task does. values: the values of all messages so far."""

    def __init__(self, options):
        self._reader = RowReader(RowSettings(ReadSettings.of(options), ("value", "__index"), batch_bytes=500))
        self.values = []

    def read(self, pieces):
        """Read the ranges; the generator yields after each record batch."""
        for piece in pieces:
            for batch in self._reader.batches(piece):
                values = [int(value) for value in batch.column("value").to_pylist()]
                assert values == batch.column("__index").to_pylist(), "a message of the new topic"
                self.values += values
                yield

    @property
    def lost(self):
        return [(first, end) for _topic, first, end, _why in self._reader.report.lost]


def read_all(options, pieces):
    task = Task(options)
    for _ in task.read(pieces):
        pass
    return task


@pytest.mark.parametrize("count", COUNTS)
def test_between_planning_and_reading(log_broker, fresh_topic, count):
    publish(log_broker, fresh_topic, OLD)
    options = options_for(log_broker, fresh_topic)
    goes_on = options_for(log_broker, fresh_topic, failOnDataLoss="false")
    pieces = planned(options)
    make_anew(log_broker, fresh_topic, count)
    with pytest.raises(DataLossError, match=f"{OLD} messages of {fresh_topic} are lost, from 0 up to {OLD}: .*again"):
        read_all(options, pieces)
    task = read_all(goes_on, pieces)
    assert (task.values, task.lost) == ([], [(0, OLD)])


@pytest.mark.parametrize(("fails", "count"), [(True, OLD + 60), (False, 3), (False, OLD + 60)])
def test_in_the_middle_of_a_range(log_broker, fresh_topic, fails, count):
    publish(log_broker, fresh_topic, OLD)
    options = options_for(log_broker, fresh_topic, **SMALL_QUEUE, failOnDataLoss=str(fails).lower())
    task = Task(options)
    steps = task.read(planned(options))
    next(steps)
    seen = len(task.values)
    assert 0 < seen < OLD
    make_anew(log_broker, fresh_topic, count)
    if fails:
        with pytest.raises(DataLossError, match=rf"messages of {fresh_topic} are lost, from \d+ up to {OLD}: .*again"):
            list(steps)
    else:
        list(steps)
        assert task.lost == [(len(task.values), OLD)]
    assert task.values == list(range(len(task.values)))
    assert seen <= len(task.values) < OLD


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_deleted_in_the_middle_is_lost_and_stays_deleted(log_broker, fresh_topic, fails):
    publish(log_broker, fresh_topic, OLD)
    options = options_for(log_broker, fresh_topic, **SMALL_QUEUE, failOnDataLoss=str(fails).lower())
    task = Task(options)
    steps = task.read(planned(options))
    next(steps)
    delete(log_broker, fresh_topic)
    if fails:
        with pytest.raises(DataLossError, match=f"messages of {fresh_topic} are lost, from .* does not exist any more"):
            list(steps)
    else:
        list(steps)
        assert task.lost == [(len(task.values), OLD)]
    assert task.values == list(range(len(task.values)))
    assert catalog_of(log_broker).range(fresh_topic) is None, "a reader creates no topic"


@pytest.mark.parametrize(("fails", "count"), [(True, 700), (False, 3), (False, 700)])
def test_ledger_files_that_disappear_under_a_reader(log_broker, fresh_topic, fails, count):
    """The task has read a file when the topic is made anew; for missing files it goes to the broker."""
    publish(log_broker, fresh_topic, 500)
    more = {"storage.url": str(log_broker.data_dir), "failOnDataLoss": str(fails).lower()}
    options = options_for(log_broker, fresh_topic, **more)
    covered_of(log_broker, catalog_of(log_broker).range(fresh_topic, ledgers=True), 500, files=2)
    files, others = [], []
    plan = SourcePlan(options)
    for piece in stitched(plan):
        (others if piece.ledger_id is None else files).append(piece)
    assert len(files) > 1
    task = Task(options)
    list(task.read(files[:1]))
    assert task.values == list(range(files[0].start, files[0].end))
    make_anew(log_broker, fresh_topic, count)
    stored = log_broker.data_dir / "ledgers"
    wait_for(
        lambda: not any((stored / f"{piece.ledger_id:012d}.ledger").exists() for piece in files),
        subject="the end of the files of the old topic",
    )
    rest = [*files[1:], *others]
    before = len(task.values)
    if fails:
        start, end = rest[0].start, rest[0].end
        lost = f"{end - start} messages of {fresh_topic} are lost, from {start} up to {end}: .*again"
        with pytest.raises(DataLossError, match=lost):
            list(task.read(rest))
    else:
        list(task.read(rest))
        assert task.lost == [(piece.start, piece.end) for piece in rest]
    assert len(task.values) == before


def stitched(plan):
    """The ranges of all stored messages, cut at the borders of ledger files even when the ranges are small."""
    options, logs = plan.options, plan.logs()
    [(topic, log)] = logs.items()
    assert plan._segments is not None
    whole = ReadRange(topic, -1, log.first, log.end, weight_bytes=1e9, newest_ledger=log.last.ledger_id)
    assert options.selection.names == (topic,)
    pieces = plan._ways(whole, plan._files([whole], logs))
    plan.close()
    return pieces


def test_a_ledger_file_of_the_old_topic_that_is_still_there_is_read(log_broker, fresh_topic, tmp_path):
    """A task reads a copy of the old ledger files, as if it had opened them before the deletion: the rows are those of
    the old topic.
    """
    publish(log_broker, fresh_topic, 500)
    options = options_for(log_broker, fresh_topic, **{"storage.url": str(log_broker.data_dir)})
    covered_of(log_broker, catalog_of(log_broker).range(fresh_topic, ledgers=True), 500)
    files = [piece for piece in stitched(SourcePlan(options)) if piece.ledger_id is not None]
    copy = tmp_path / "copy"
    shutil.copytree(log_broker.data_dir, copy)
    make_anew(log_broker, fresh_topic, 600)
    task = Task(dataclasses.replace(options, storage_path=str(copy)))
    list(task.read(files))
    assert task.values == [value for piece in files for value in range(piece.start, piece.end)]


class Order(Record):
    item = String()


class LargerOrder(Record):
    item = String()
    amount = Integer(required_default=True)


class Payment(Record):
    payer = String()


def send(client, topic, *records):
    for record in records:
        producer = client.create_producer(topic, schema=AvroSchema(type(record)), batching_enabled=False)
        producer.send(record)
        producer.close()


@pytest.mark.parametrize("anew", [True, False])
def test_rows_of_an_older_schema_are_never_resolved_by_the_versions_of_the_new_topic(
    log_broker, client, fresh_topic, tmp_path, anew
):
    """The ledger files of the old topic are still readable when a task fetches the versions of their rows."""
    send(client, fresh_topic, Order(item="a"), LargerOrder(item="b", amount=2))
    options = options_for(log_broker, fresh_topic, **{"storage.url": str(log_broker.data_dir), "columns": "item"})
    rows = RowSource.of(options, choose_values(options))

    def stored():
        pieces = stitched(SourcePlan(options))
        return pieces if all(piece.ledger_id is not None for piece in pieces) else None

    files = wait_for(stored, subject="all entries in ledger files", every=0.05)
    copy = tmp_path / "copy"
    shutil.copytree(log_broker.data_dir, copy)
    if anew:
        delete(log_broker, fresh_topic)
        send(client, fresh_topic, Payment(payer="p"), Payment(payer="q"), Payment(payer="r"))
    reading = dataclasses.replace(rows.settings, storage_path=str(copy), on_corrupt="quarantine")

    def read(**more):
        source = dataclasses.replace(rows, settings=dataclasses.replace(reading, **more))
        return [row["item"] for batch in source.batches(files) for row in batch.to_pylist()]

    if not anew:
        assert read() == ["a", "b"]
        return
    with pytest.raises(DataLossError, match=f"{fresh_topic} are lost, from 0 up to 2: .*created again"):
        read()
    assert read(fail_on_data_loss=False) == []


def test_logs_without_an_index(tmp_path, fresh_topic):
    """Places in such a log are entries, whose ledgers are other ledgers in the new topic."""
    broker = BrokerProcess(tmp_path / "data", {"brokerEntryMetadataInterceptors": ""})
    try:
        publish(broker, fresh_topic, OLD)
        options = options_for(broker, fresh_topic)
        pieces = planned(options)
        reader = RangeReader(ReadSettings.of(options_for(broker, fresh_topic, **SMALL_QUEUE, failOnDataLoss="false")))
        [piece] = pieces
        chunks = reader.chunks(piece)
        seen = len(next(chunks))
        make_anew(broker, fresh_topic, OLD + 60)
        old = {piece.start.ledger_id}
        for chunk in chunks:
            assert chunk.ledger_id in old
            seen += len(chunk)
        assert seen < OLD
        [(_topic, first, end, why)] = reader.lost
        assert (first, end) == (Position(piece.start.ledger_id, seen), piece.end)
        assert "made anew" in why
        with pytest.raises(DataLossError, match=f"messages of {fresh_topic} are lost, from {piece.start} up to"):
            list(RangeReader(ReadSettings.of(options)).chunks(piece))
    finally:
        broker.stop()


# --- a stream -------------------------------------------------------------------------------------------------------


class Stream:
    """A streaming reader, called as Spark calls it."""

    def __init__(self, broker, topic, **more):
        given = {"service.url": broker.url, "admin.url": broker.http_url, "topic": topic, **more}
        self.options = SourceOptions.parse({"startingOffsets": "earliest", **given}, streaming=True)
        self.reader = PulsarStreamReader(
            self.options, RowSource.of(self.options, ValueChoice(self.options.connect, None))
        )
        self.at = self.reader.initialOffset()

    def plan(self):
        """The next micro-batch: its end and its partitions, as they come out of Spark's checkpoint."""
        end = json.loads(json.dumps(self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit())))
        return end, self.reader.partitions(self.at, end)

    def read(self, partitions):
        found = []
        for partition in partitions:
            for batch in self.reader.read(partition):
                found += [int(bytes(value)) for value in batch.column("value").to_pylist()]
        return found

    def batch(self):
        end, partitions = self.plan()
        found = self.read(partitions)
        self.at = end
        return found


@pytest.mark.parametrize("count", COUNTS)
def test_a_stream_whose_topic_is_made_anew_between_two_micro_batches(log_broker, fresh_topic, count):
    publish(log_broker, fresh_topic, OLD)
    strict, patient = Stream(log_broker, fresh_topic), Stream(log_broker, fresh_topic, failOnDataLoss="false")
    for stream in (strict, patient):
        assert stream.batch() == list(range(OLD))
    make_anew(log_broker, fresh_topic, count)
    with pytest.raises(DataLossError, match=f"messages of {fresh_topic} are lost, from {OLD} up to .*again"):
        strict.batch()
    assert patient.batch() == list(range(NEW, NEW + count))
    assert patient.batch() == []
    publish(log_broker, fresh_topic, 5, first=NEW + count)
    assert patient.batch() == list(range(NEW + count, NEW + count + 5))


@pytest.mark.parametrize("count", COUNTS)
def test_a_stream_whose_topic_is_made_anew_when_a_micro_batch_is_decided_or_planned(log_broker, fresh_topic, count):
    publish(log_broker, fresh_topic, OLD)
    strict, patient = Stream(log_broker, fresh_topic), Stream(log_broker, fresh_topic, failOnDataLoss="false")
    ends = {}
    for stream in (strict, patient):
        ends[stream] = stream.plan()
    make_anew(log_broker, fresh_topic, count)
    end, partitions = ends[strict]
    lost = f"{OLD} messages of {fresh_topic} are lost, from 0 up to {OLD}: .*again"
    with pytest.raises(DataLossError, match=lost):
        strict.read(partitions)
    with pytest.raises(DataLossError, match=lost):
        strict.reader.partitions(strict.at, end)
    end, partitions = ends[patient]
    assert patient.read(partitions) == []
    assert patient.read(patient.reader.partitions(patient.at, end)) == [], "the micro-batch planned again"
    patient.at = end
    assert patient.batch() == list(range(NEW, NEW + count))


def test_a_stream_until_now_whose_topic_is_made_anew_meanwhile(log_broker, fresh_topic):
    """Trigger availableNow: the new topic belongs to the next run."""
    publish(log_broker, fresh_topic, OLD)
    stream = Stream(log_broker, fresh_topic, failOnDataLoss="false", maxMessagesPerTrigger="60")
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.batch() == list(range(60))
    make_anew(log_broker, fresh_topic, OLD + 60)
    assert stream.batch() == []
    assert stream.plan()[0] == stream.at, "the run ends"
    stream.reader.prepareForTriggerAvailableNow()
    found = [value for _ in range(3) for value in stream.batch()]
    assert found == list(range(NEW, NEW + OLD + 60))
