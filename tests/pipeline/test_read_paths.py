"""Both read paths against a broker process, written to by the official client: the same entries, each once."""

import dataclasses
import pathlib

import pulsar
import pytest

from magnetar.pipeline.catalog import Catalog
from magnetar.pipeline.connect_options import ConnectOptions
from magnetar.pipeline.errors import CorruptEntryError, DataLossError
from magnetar.pipeline.offsets import Position
from magnetar.pipeline.planning import ReadRange, stitch
from magnetar.pipeline.reading import broker as reading_broker
from magnetar.pipeline.reading.ranges import RangeReader
from magnetar.pipeline.reading.segments import SegmentMap
from magnetar.pipeline.reading.settings import ReadSettings
from magnetar.protocol.metadata import parse_entry_metadata, parse_metadata
from magnetar.pytest_plugin import BrokerProcess
from magnetar.storage.reading.data_directory import DataDirectory
from tests.blackbox import foreign
from tests.pipeline import entries_for_tests
from tests.waiting import wait_for


def settings_for(broker, **more):
    options = {"service.url": broker.url, "admin.url": broker.http_url}
    return ReadSettings(ConnectOptions.parse(options), **more)


def catalog_of(broker):
    return Catalog(settings_for(broker).connect.admin())


def publish(broker, topic, count, first=0, batch=1):
    client = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(
        topic,
        batching_enabled=batch > 1,
        batching_max_messages=max(batch, 2),
        batching_max_publish_delay_ms=1000,
        block_if_queue_full=True,
    )
    for k in range(first, first + count):
        producer.send_async(b"%d" % k, lambda *_: None)
    producer.flush()
    client.close()


def messages_of(chunks, start, end):
    """Indexes in the chunks that lie in the range."""
    found = []
    for chunk in chunks:
        for k in range(len(chunk)):
            last = parse_entry_metadata(chunk.entry(k)).index
            n = max(parse_metadata(chunk.entry(k)).num_messages_in_batch, 1)
            found += [i for i in range(last - n + 1, last + 1) if start <= i < end]
    return found


def covered_of(broker, log, end, files=1):
    """The ranges in ledger files, once write-behind has written entries of so many files."""

    def found():
        covered = SegmentMap(DataDirectory(str(broker.data_dir))).covered(log, 0, end)
        return covered if len(covered) >= files else None

    return wait_for(found, subject=f"entries in {files} ledger files", every=0.05)


def read(broker, topic, start, end, **more):
    reader = RangeReader(settings_for(broker, **more))
    return messages_of(reader.chunks(ReadRange(topic, -1, start, end)), start, end), reader


@pytest.mark.parametrize(("start", "end"), [(0, 100), (7, 8), (33, 71), (99, 100)])
@pytest.mark.parametrize("batch", [1, 8])
def test_a_range_through_the_broker_is_exact(log_broker, fresh_topic, start, end, batch):
    publish(log_broker, fresh_topic, 100, batch=batch)
    found, _ = read(log_broker, fresh_topic, start, end)
    assert found == list(range(start, end))


@pytest.mark.parametrize("batch", [1, 8])
def test_segments_and_broker_join_without_gap_or_overlap(log_broker, fresh_topic, batch):
    publish(log_broker, fresh_topic, 500, batch=batch)
    log = catalog_of(log_broker).range(fresh_topic, ledgers=True)
    assert (log.first, log.end) == (0, 500)
    covered = covered_of(log_broker, log, 500)
    assert covered
    pieces = stitch(ReadRange(fresh_topic, -1, 3, 500, weight_bytes=1.0), covered)
    reader = RangeReader(settings_for(log_broker, storage_path=str(log_broker.data_dir)))
    found = [i for piece in pieces for i in messages_of(reader.chunks(piece), piece.start, piece.end)]
    assert found == list(range(3, 500))


def test_our_broker_gives_index_and_its_own_time_with_every_entry(log_broker, fresh_topic):
    publish(log_broker, fresh_topic, 50, batch=5)
    chunks = RangeReader(settings_for(log_broker)).chunks(ReadRange(fresh_topic, -1, 0, 50))
    stored = [parse_entry_metadata(chunk.entry(k)) for chunk in chunks for k in range(len(chunk))]
    assert all(each.broker_timestamp > 0 and each.HasField("index") for each in stored)


MARKER = 10


@pytest.mark.parametrize("interceptors", [None, ""], ids=["by index", "by position"])
def test_markers_that_the_broker_withholds_are_no_loss(tmp_path, fresh_topic, monkeypatch, interceptors):
    monkeypatch.setattr(reading_broker, "_IDLE_S", 0.2)
    settings = {} if interceptors is None else {"brokerEntryMetadataInterceptors": interceptors}
    broker = BrokerProcess(tmp_path / "data", settings)
    try:
        marker = entries_for_tests.plain(b"a marker", marker_type=MARKER)
        plain = [entries_for_tests.plain(b"%d" % k) for k in range(3)]
        foreign.publish(broker, fresh_topic, [marker, plain[0], marker, marker, plain[1], plain[2], marker, marker])
        log = catalog_of(broker).range(fresh_topic, ledgers=True)
        reader = RangeReader(settings_for(broker, poll_timeout_s=60))
        chunks = list(reader.chunks(ReadRange(fresh_topic, -1, log.first, log.end)))
        assert [int(e) for chunk in chunks for e in chunk.entry_ids] == [1, 4, 5]
    finally:
        broker.stop()


def test_a_task_goes_on_where_a_killed_broker_comes_back(tmp_path, fresh_topic):
    broker = BrokerProcess(tmp_path / "data", {})
    try:
        publish(broker, fresh_topic, 5000)
        reader = RangeReader(settings_for(broker, receiver_queue=50))
        chunks = reader.chunks(ReadRange(fresh_topic, -1, 0, 5000))
        found = messages_of([next(chunks)], 0, 5000)
        assert len(found) < 5000
        broker.kill()
        broker.start()
        found += messages_of(chunks, 0, 5000)
        assert found == list(range(5000))
    finally:
        broker.stop()


def test_a_deleted_ledger_file_is_read_through_the_broker_or_lost(log_broker, fresh_topic):
    publish(log_broker, fresh_topic, 100)
    catalog = catalog_of(log_broker)
    log = catalog.range(fresh_topic, ledgers=True)
    first = log.ledgers[0]
    piece = ReadRange(fresh_topic, -1, 0, first.entries, first.ledger_id)
    catalog._ask(f"/admin/v2/{fresh_topic.replace('://', '/')}/truncate", "DELETE")
    storage = {"storage_path": str(log_broker.data_dir)}
    with pytest.raises(DataLossError, match=f"{first.entries} messages of {fresh_topic} are lost, from 0"):
        list(RangeReader(settings_for(log_broker, **storage)).chunks(piece))
    reader = RangeReader(settings_for(log_broker, fail_on_data_loss=False, **storage))
    assert list(reader.chunks(piece)) == []
    assert [(lost[1], lost[2]) for lost in reader.lost] == [(0, first.entries)]


@pytest.fixture(scope="module", params=["AppendIndexMetadataInterceptor", ""], ids=["by index", "by position"])
def one_ledger_broker(request, tmp_path_factory):
    settings = {"defaultRetentionTimeInMinutes": -1, "defaultRetentionSizeInMB": -1}
    name = request.param and f"org.apache.pulsar.common.intercept.{request.param}"
    settings["brokerEntryMetadataInterceptors"] = name
    broker = BrokerProcess(tmp_path_factory.mktemp("one-ledger") / "data", settings)
    yield broker
    broker.stop()


@pytest.mark.parametrize("later", [0, 20])
@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_truncation_moves_the_reader_and_the_stored_rest_is_read(
    one_ledger_broker, fresh_topic, later, fail_on_data_loss
):
    """The entries of the open ledger stay; the task waited for its time-out, or took the rest for lost."""
    broker, catalog = one_ledger_broker, catalog_of(one_ledger_broker)
    publish(broker, fresh_topic, 1000)
    log = catalog.range(fresh_topic, ledgers=True)
    settings = settings_for(broker, receiver_queue=50, poll_timeout_s=60, fail_on_data_loss=fail_on_data_loss)
    reader = RangeReader(settings)
    chunks = reader.chunks(ReadRange(fresh_topic, -1, log.first, log.end, newest_ledger=log.last.ledger_id))
    found = [int(e) for e in next(chunks).entry_ids]
    assert len(found) < 1000
    catalog._ask(f"/admin/v2/{fresh_topic.replace('://', '/')}/truncate", "DELETE")
    publish(broker, fresh_topic, later, first=1000)
    found += [int(e) for chunk in chunks for e in chunk.entry_ids]
    assert found == list(range(1000))
    assert reader.lost == []


def test_a_topic_deleted_meanwhile_is_lost(log_broker, fresh_topic):
    publish(log_broker, fresh_topic, 10)
    catalog_of(log_broker)._ask(f"/admin/v2/{fresh_topic.replace('://', '/')}", "DELETE")
    with pytest.raises(DataLossError, match="10 messages"):
        read(log_broker, fresh_topic, 0, 10)
    found, reader = read(log_broker, fresh_topic, 0, 10, fail_on_data_loss=False)
    assert (found, [lost[:3] for lost in reader.lost]) == ([], [(fresh_topic, 0, 10)])


def test_looking_back_gives_earlier_entries_newest_first(log_broker, fresh_topic):
    publish(log_broker, fresh_topic, 50)
    log = catalog_of(log_broker).range(fresh_topic, ledgers=True)
    at = log.position_at(45)
    chunks = list(RangeReader(settings_for(log_broker)).look_back(fresh_topic, *at))
    before = [Position(c.ledger_id, int(e)) for c in reversed(chunks) for e in c.entry_ids]
    assert before == [log.position_at(k) for k in range(45)]


def test_logs_without_an_index_are_read_by_position(tmp_path, fresh_topic):
    broker = BrokerProcess(tmp_path / "data", {"brokerEntryMetadataInterceptors": ""})
    try:
        publish(broker, fresh_topic, 30)
        log = catalog_of(broker).range(fresh_topic)
        assert not log.indexed
        assert log.between(log.first, log.end) == 30
        first, end = log.position_at(4), log.position_at(25)
        chunks = RangeReader(settings_for(broker)).chunks(ReadRange(fresh_topic, -1, first, end))
        assert [int(e) for chunk in chunks for e in chunk.entry_ids] == list(range(4, 25))
        chunks = RangeReader(settings_for(broker)).chunks(ReadRange(fresh_topic, -1, log.first, log.end))
        assert sum(len(chunk) for chunk in chunks) == 30
    finally:
        broker.stop()


def test_apache_pulsars_way_to_the_ranges_gives_the_same(log_broker, fresh_topic):
    publish(log_broker, fresh_topic, 100, batch=8)
    told = catalog_of(log_broker).range(fresh_topic, ledgers=True)
    other = catalog_of(log_broker)
    other._tells_ranges = False
    asked = other.range(fresh_topic, ledgers=True)
    assert (asked.first, asked.end, asked.entries) == (told.first, told.end, told.entries) == (0, 100, told.entries)
    assert [(led.ledger_id, led.entries) for led in asked.ledgers] == [
        (led.ledger_id, led.entries) for led in told.ledgers
    ]
    assert dataclasses.replace(asked, size_bytes=0, ledgers=()) == dataclasses.replace(told, size_bytes=0, ledgers=())


def test_a_damaged_entry_of_a_ledger_file_stops_the_task_or_is_left_out(tmp_path, fresh_topic):
    broker = BrokerProcess(tmp_path / "data", {"defaultRetentionTimeInMinutes": -1, "defaultRetentionSizeInMB": -1})
    try:
        publish(broker, fresh_topic, 50)
        log = catalog_of(broker).range(fresh_topic, ledgers=True)
    finally:
        broker.stop()  # the ledger is closed, and sealed
    ledger_id = log.ledgers[0].ledger_id
    with DataDirectory(str(broker.data_dir)).open_ledger(ledger_id) as ledger:
        assert ledger.sealed
        path, body = pathlib.Path(ledger.path), bytes(ledger.read(7).body(0))
    stored = path.read_bytes()
    assert stored.count(body) == 1
    path.write_bytes(stored.replace(body, body[:-1] + b"\xff"))
    piece = ReadRange(fresh_topic, -1, 0, 50, ledger_id)
    storage = {"storage_path": str(broker.data_dir)}
    with pytest.raises(CorruptEntryError, match=f"{ledger_id}:7"):
        list(RangeReader(settings_for(broker, **storage)).chunks(piece))
    reader = RangeReader(settings_for(broker, on_corrupt="quarantine", **storage))
    found = messages_of(reader.chunks(piece), 0, 50)
    assert found == [k for k in range(50) if k != 7]
    assert [each[:3] for each in reader.damaged] == [(fresh_topic, ledger_id, 7)]
