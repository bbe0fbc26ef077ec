"""Export of a real broker's topics, in this process: exactly once by index, with any repetitions and errors."""

import json
import shutil
import threading
import urllib.request
from urllib.parse import quote

import pulsar
import pyarrow.parquet as pq
import pytest

from magnetar.pipeline.errors import (
    CatalogError,
    CatalogUnavailableError,
    CorruptEntryError,
    DataLossError,
    NoSuchTopicError,
)
from magnetar.pipeline.jobs import export as export_module
from magnetar.pipeline.jobs.export import ExportJob, export_split
from magnetar.pipeline.jobs.maintenance import join_small_files
from magnetar.pipeline.lake.committer import open_table
from magnetar.pipeline.lake.errors import CommitConflictError, SinkFullError
from magnetar.pipeline.lake.table_files import TableFiles
from magnetar.pipeline.options import SourceOptions
from magnetar.storage.reading.data_directory import DataDirectory
from tests.waiting import wait_for

VALUES = [b"%d" % n for n in range(230)]


@pytest.fixture(params=["storage", "broker"])
def job(request, jobs_broker, tmp_path):
    """job(topic, format, **options) over each of the two read paths."""

    def make(topic, table_format="parquet", *, table=None, round_bytes=1 << 30, **options):
        given = {"service.url": jobs_broker.url, "admin.url": jobs_broker.http_url, "topic": topic} | options
        if request.param == "storage":
            given["storage.url"] = str(jobs_broker.data_dir)
        table = table if table is not None else open_table(table_format, str(tmp_path / table_format))
        return ExportJob(SourceOptions.parse(given), table, round_bytes=round_bytes)

    return make


@pytest.fixture
def admin(jobs_broker):
    """admin(method, path below the topic, body) -> the parsed answer."""

    def call(method, topic, path, body=None):
        where = topic.replace("persistent://", "/admin/v2/persistent/")
        request = urllib.request.Request(f"{jobs_broker.http_url}{where}{path}", body, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request) as answer:
            data = answer.read()
        return json.loads(data) if data else None

    return call


def rows(table):
    """(topic, index, value) of every row, sorted."""
    found = []
    for file in table.files():
        read = pq.read_table(table.place.absolute(file.path), partitioning=None)
        found += zip(*(read[name].to_pylist() for name in ("__topic", "__index", "value")), strict=True)
    return sorted(found)


def expected(topic, values, first=0):
    return [(topic, index, value) for index, value in enumerate(values, first)]


@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
def test_a_topic_and_later_messages(job, topic, publish, runner, progress, table_format):
    publish(topic, VALUES[:120])
    report = job(topic, table_format).run(runner, progress)
    assert (report.rows, report.commits, report.spans) == (120, 1, {topic: [0, 120]})
    publish(topic, VALUES[120:], batching_enabled=True)
    again = job(topic, table_format)
    report = again.run(runner, progress)
    assert (report.rows, report.spans) == (110, {topic: [120, 230]})
    assert rows(again.table) == expected(topic, VALUES)
    assert job(topic, table_format).run(runner, progress).commits == 0, "nothing is new"


def test_partitions_batches_and_compression(job, topic, publish, admin, runner, progress):
    admin("PUT", topic, "/partitions", b"3")
    sent = [{"content": value, "partition_key": f"k{n % 7}"} for n, value in enumerate(VALUES)]
    publish(topic, sent, batching_enabled=True, compression_type=pulsar.CompressionType.LZ4)
    made = job(topic)
    report = made.run(runner, progress)
    assert report.rows == len(VALUES)
    assert sorted(value for _, _, value in rows(made.table)) == sorted(VALUES)
    assert sum(end - start for start, end in report.spans.values()) == len(VALUES)


def test_large_work_is_committed_in_rounds(job, topic, publish, runner, progress):
    publish(topic, [bytes(1000)] * 200)
    made = job(topic, round_bytes=50_000)
    report = made.run(runner, progress)
    assert report.commits > 3
    assert [index for _, index, _ in rows(made.table)] == list(range(200))


def test_only_some_columns(job, topic, publish, runner, progress):
    publish(topic, VALUES[:5])
    made = job(topic, columns="__key")
    made.run(runner, progress)
    [file] = made.table.files()
    names = pq.read_schema(made.table.place.absolute(file.path)).names
    assert set(names) == {"__key", "__topic", "__index", "__publishTime", "__brokerPublishTime"}


def test_a_job_that_died_before_its_commit_is_repeated(job, topic, publish, runner, progress, monkeypatch):
    publish(topic, VALUES)
    made = job(topic)

    def dies(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(made.table), "commit", dies)
    with pytest.raises(KeyboardInterrupt):
        made.run(runner, progress)
    monkeypatch.undo()
    left = {each.path for each in made.table.place.list()}
    assert left, "the files of the dead job are there"
    again = job(topic)
    again.run(runner, progress)
    assert rows(again.table) == expected(topic, VALUES)
    assert set(again.table.vacuum(0)) == left


def test_jobs_that_overlap_give_each_message_once(job, topic, publish, runner, progress, tmp_path):
    publish(topic, [bytes(200)] * 300)
    reports = []

    def work():
        made = job(topic, table=open_table("parquet", str(tmp_path / "shared")), round_bytes=10_000)
        reports.append(made.run(runner, progress))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table = open_table("parquet", str(tmp_path / "shared"))
    assert [index for _, index, _ in rows(table)] == list(range(300))
    assert sum(report.rows for report in reports) == 300
    assert table.vacuum(0) == [], "a commit that lost has removed its files"


def test_files_of_a_commit_whose_answer_was_lost_stay(job, topic, publish, runner, progress, monkeypatch):
    publish(topic, VALUES)
    made = job(topic)
    commit = type(made.table).commit
    times = []

    def stored_but_not_told(self, append):
        commit(self, append)
        times.append(1)
        if len(times) == 1:
            raise CommitConflictError("the answer was lost")

    monkeypatch.setattr(type(made.table), "commit", stored_but_not_told)
    made.run(runner, progress)
    assert rows(made.table) == expected(topic, VALUES)


def test_a_full_disk_stops_the_job_and_it_goes_on_later(job, topic, publish, runner, progress, monkeypatch):
    publish(topic, VALUES)
    made = job(topic)

    def full(self, path):
        raise SinkFullError(path, "No space left on device")

    monkeypatch.setattr(TableFiles, "open_output", full)
    with pytest.raises(SinkFullError, match="run the same command again"):
        made.run(runner, progress)
    monkeypatch.undo()
    assert made.table.committed([topic]) == {}
    made.run(runner, progress)
    assert rows(made.table) == expected(topic, VALUES)


def test_a_stream_picks_up_new_messages(job, topic, publish, runner, progress):
    publish(topic, VALUES[:10])
    made = job(topic)
    seen = []

    def on_round(report):
        seen.append(report.rows)
        if report.rows == 10:
            publish(topic, VALUES[10:20])

    done = made.follow(runner, progress, trigger_s=0.01, stop=lambda: bool(seen) and seen[-1] >= 20, on_round=on_round)
    assert done.rows == 20
    assert rows(made.table) == expected(topic, VALUES[:20])


def test_trimmed_messages(job, topic, publish, admin, runner, progress):
    """Messages trimmed since the last run are an error, or are reported and passed over."""
    publish(topic, VALUES[:60])
    made = job(topic)
    made.run(runner, progress)
    publish(topic, VALUES[60:230])
    admin("POST", topic, "/subscription/keep/skip_all")
    publish(topic, VALUES[:1])

    def trimmed():
        admin("PUT", topic, "/unload")
        return len(admin("GET", topic, "/internalStats")["ledgers"]) <= 2

    wait_for(trimmed, 40, "trimming", every=0.1)
    with pytest.raises(DataLossError):
        job(topic, table=made.table).run(runner, progress)
    report = job(topic, table=made.table, failOnDataLoss="false").run(runner, progress)
    [[lost_topic, first, end]] = report.lost
    assert (lost_topic, first) == (topic, 60)
    assert [index for _, index, _ in rows(made.table)] == [*range(60), *range(end, 231)]


@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
@pytest.mark.parametrize("later", [10, 60, 90])
def test_a_topic_that_was_made_anew(
    jobs_broker, topic, publish, admin, runner, progress, tmp_path, table_format, later
):
    """The new topic has fewer messages than the old topic, as many, or more: the export reports an error or, with
    failOnDataLoss=false, adds the new rows after the old rows.
    """
    table = open_table(table_format, str(tmp_path / "t"))
    given = {"service.url": jobs_broker.url, "admin.url": jobs_broker.http_url, "topic": topic}
    publish(topic, VALUES[:60])
    ExportJob(SourceOptions.parse(given), table).run(runner, progress)
    admin("DELETE", topic, "?force=true")
    publish(topic, VALUES[100 : 100 + later])
    with pytest.raises(DataLossError, match="created again"):
        ExportJob(SourceOptions.parse(given), table).run(runner, progress)
    goes_on = ExportJob(SourceOptions.parse(given | {"failOnDataLoss": "false"}), table, round_bytes=2000)
    report = goes_on.run(runner, progress)
    assert (report.rows, report.anew) == (later, [topic])
    assert rows(table) == sorted(expected(topic, VALUES[:60]) + expected(topic, VALUES[100 : 100 + later]))
    assert goes_on.run(runner, progress).commits == 0
    publish(topic, VALUES[:5])
    assert ExportJob(SourceOptions.parse(given), table).run(runner, progress).rows == 5


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_is_made_anew_while_it_is_read(job, topic, publish, admin, runner, progress, monkeypatch, fails):
    publish(topic, VALUES[:60])
    plan, times = export_module.plan_tasks, []

    def planned(*arguments):
        times.append(1)
        if len(times) == 2:
            admin("DELETE", topic, "?force=true")
            publish(topic, VALUES[100:180])
        return plan(*arguments)

    monkeypatch.setattr(export_module, "plan_tasks", planned)
    made = job(topic, round_bytes=3000, failOnDataLoss=str(fails).lower())
    if fails:
        with pytest.raises(DataLossError, match=f"of {topic} are lost"):
            made.run(runner, progress)
    else:
        assert made.run(runner, progress).anew == [topic]
    first = len(rows(made.table)) - (0 if fails else 80)
    assert 0 < first < 60
    assert made.table.committed([topic]) == {topic: first if fails else 80}
    assert rows(made.table) == sorted(
        expected(topic, VALUES[:first]) + ([] if fails else expected(topic, VALUES[100:180]))
    )
    named = {each.path for each in made.table.files()}
    assert {each.path for each in made.table.place.list() if each.path.endswith(".parquet")} == named


def test_the_options_say_where_a_new_topic_begins_and_ends(job, topic, publish, runner, progress):
    publish(topic, VALUES[:60])
    places = {"startingOffsets": json.dumps({topic: 20}), "endingOffsets": json.dumps({topic: 50})}
    made = job(topic, **places)
    assert made.run(runner, progress).spans == {topic: [20, 50]}
    assert job(topic, table=made.table, startingOffsets=json.dumps({topic: 5})).run(runner, progress).spans == {
        topic: [50, 60]
    }, "what the table has decides"
    assert rows(made.table) == expected(topic, VALUES[20:60], first=20)


def test_a_stream_that_begins_at_the_end_gets_later_messages(job, topic, publish, runner, progress):
    publish(topic, VALUES[:60])
    made, rounds = job(topic, startingOffsets="latest"), []

    def on_round(report):
        if not rounds:
            publish(topic, VALUES[60:70])
        rounds.append(report.rows)

    made.follow(runner, progress, trigger_s=0.01, stop=lambda: bool(rounds) and rounds[-1] == 10, on_round=on_round)
    assert rows(made.table) == expected(topic, VALUES[60:70], first=60)


@pytest.mark.parametrize(
    ("table_format", "name"),
    [
        *[("parquet", each) for each in ("a b", "50%25", "ü#?&=+", "x:y")],
        *[("delta", each) for each in ("a b", "ü#?&=+")],
        *[("iceberg", each) for each in ("a b", "ü&=+")],
    ],
)
def test_names_with_special_characters(jobs_broker, client, publish, runner, progress, tmp_path, table_format, name):
    """Names with special characters, of a topic and of the directory of the table."""
    topic = f"persistent://public/default/{tmp_path.name} {name}"
    publish(topic, VALUES[:20])
    given = {"service.url": jobs_broker.url, "admin.url": jobs_broker.http_url, "topic": topic}
    for uri in (str(tmp_path / name), f"file://{tmp_path}/{quote('as url ' + name)}"):
        table = open_table(table_format, uri)
        ExportJob(SourceOptions.parse(given), table).run(runner, progress)
        again = open_table(table_format, uri)
        assert again.committed([topic]) == {topic: 20}
        assert rows(again) == expected(topic, VALUES[:20])
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([name, "as url " + name])


def test_topics_that_are_not_there(job, topic, runner, progress):
    with pytest.raises(NoSuchTopicError):
        job(f"{topic}-absent").run(runner, progress)


def test_a_corrupt_entry_is_quarantined_with_its_position(
    jobs_broker, topic, publish, admin, runner, progress, tmp_path
):
    """One flipped bit in a copy of the data directory: the job stops there, or leaves out that message alone."""
    payload = b"payload of " + topic.encode()
    publish(topic, [*VALUES[:7], payload, *VALUES[8:120]])
    ledger_id = admin("GET", topic, "/internalStats")["ledgers"][0]["ledgerId"]
    copy = sealed_copy(jobs_broker, tmp_path / "copy", ledger_id)
    flip(copy, payload)
    given = {
        "service.url": jobs_broker.url,
        "admin.url": jobs_broker.http_url,
        "topic": topic,
        "storage.url": str(copy),
        "onCorrupt": "fail",
    }
    table = open_table("parquet", str(tmp_path / "t"))
    with pytest.raises((CorruptEntryError, CatalogError)):
        ExportJob(SourceOptions.parse(given), table).run(runner, progress)
    assert table.committed([topic]) == {}
    report = ExportJob(SourceOptions.parse(given | {"onCorrupt": "quarantine"}), table).run(runner, progress)
    assert report.quarantined.messages == 1
    [(where, ledger, entry, why)] = report.quarantined.positions
    assert (where, ledger, entry) == (topic, ledger_id, 7)
    assert why
    assert [index for _, index, _ in rows(table)] == [*range(7), *range(8, 120)]


def sealed_copy(broker, copy, ledger_id):
    """A copy of the data directory in which the ledger is sealed: a broker that stops writes all entries to ledger
    files.
    """
    broker.stop()
    try:
        shutil.copytree(broker.data_dir, copy)
    finally:
        broker.start()
    with DataDirectory(str(copy)).open_ledger(ledger_id) as ledger:
        assert ledger.sealed
    return copy


def flip(directory, payload):
    """Flip a bit of the payload in the ledger files."""
    for path in sorted((directory / "ledgers").rglob("*")):
        data = bytearray(path.read_bytes()) if path.is_file() else bytearray()
        at = data.find(payload)
        if at >= 0:
            data[at] ^= 1
            path.write_bytes(data)
            return
    raise AssertionError("the payload is not in the ledger files")


class Capture:
    """A runner that keeps the pieces."""

    cores = 1

    def map(self, function, pieces, progress, weights):
        self.pieces = pieces
        return [function(piece) for piece in pieces]


def test_a_failed_attempt_of_a_split_leaves_no_file(job, topic, publish, progress, monkeypatch):
    publish(topic, VALUES)
    made, capture = job(topic), Capture()
    made.run(capture, progress)
    before = {each.path for each in made.table.place.list()}
    reader = export_module.RowReader

    class Breaks(reader):
        def batches(self, piece):
            yield from reader.batches(self, piece)
            raise ConnectionResetError

    monkeypatch.setattr(export_module, "RowReader", Breaks)
    with pytest.raises(ConnectionResetError):
        export_split(capture.pieces[0])
    assert {each.path for each in made.table.place.list()} == before


AMOUNT = {"name": "amount", "type": "int"}
ORDER = {"type": "record", "name": "Order", "fields": [AMOUNT]}
LATER_ORDER = ORDER | {"fields": [AMOUNT, {"name": "currency", "type": "string", "default": "EUR"}]}


@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
def test_typed_values_and_a_schema_that_evolves(job, topic, client, runner, progress, table_format):
    def send(definition, *orders):
        producer = client.create_producer(topic, schema=pulsar.schema.AvroSchema(None, schema_definition=definition))
        for order in orders:
            producer.send(order)
        producer.close()

    client.subscribe(topic, "keep", initial_position=pulsar.InitialPosition.Earliest).close()
    send(ORDER, *({"amount": n} for n in range(3)))
    made = job(topic, table_format)
    made.run(runner, progress)
    send(LATER_ORDER, *({"amount": n, "currency": "CHF"} for n in range(2)))
    made = job(topic, table_format)
    made.run(runner, progress)
    found = []
    for file in made.table.files():
        read = pq.read_table(made.table.place.absolute(file.path), partitioning=None)
        currency = read["currency"].to_pylist() if "currency" in read.schema.names else [None] * len(read)
        found += zip(read["__index"].to_pylist(), read["amount"].to_pylist(), currency, strict=True)
    assert sorted(found) == [(0, 0, None), (1, 1, None), (2, 2, None), (3, 0, "CHF"), (4, 1, "CHF")]


def test_small_files_of_an_export_are_joined(job, topic, publish, runner, progress):
    publish(topic, [bytes(1000)] * 100)
    made = job(topic, round_bytes=20_000)
    made.run(runner, progress)
    before = len(made.table.files())
    report = join_small_files(made.table, runner, progress)
    assert (report["files_before"], report["files_after"]) == (before, 1)
    assert [index for _, index, _ in rows(made.table)] == list(range(100))
    assert join_small_files(made.table, runner, progress)["groups"] == 0


def test_a_broker_that_restarts_in_the_middle(job, topic, publish, jobs_broker, runner, progress, monkeypatch):
    publish(topic, [bytes(2000)] * 500)
    made = job(topic, batchBytes=100_000)
    write, times = export_module.SplitWriter.write, []

    def restarts(self, batch):
        if not times:
            times.append(1)
            jobs_broker.kill()
            jobs_broker.start()
        write(self, batch)

    monkeypatch.setattr(export_module.SplitWriter, "write", restarts)
    report = made.run(runner, progress)
    assert times
    assert report.rows == 500
    assert [index for _, index, _ in rows(made.table)] == list(range(500))


def test_a_stream_outlives_a_broker_that_is_away(job, topic, publish, runner, progress, jobs_broker):
    publish(topic, VALUES[:10])
    made, rounds = job(topic), []

    def on_round(report):
        rounds.append(report.rows)
        if len(rounds) == 1:
            jobs_broker.kill()
            threading.Timer(1.0, jobs_broker.start).start()

    done = made.follow(runner, progress, trigger_s=0.1, stop=lambda: len(rounds) > 1, on_round=on_round)
    assert done.rows == 10
    assert rows(made.table) == expected(topic, VALUES[:10])


def test_a_stream_is_patient_only_for_so_long(job, topic, publish, runner, progress, monkeypatch):
    publish(topic, VALUES[:10])
    made = job(topic)

    def away(*_):
        raise CatalogUnavailableError("the admin API does not answer")

    monkeypatch.setattr(export_module, "stored_logs", away)
    with pytest.raises(CatalogUnavailableError):
        made.follow(runner, progress, trigger_s=0.01, patience_s=0.2)
