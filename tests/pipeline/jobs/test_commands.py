"""Every job through its command line, over a real broker and without Spark."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys

import pytest
from deltalake import DeltaTable

from magnetar.pipeline import cli
from magnetar.pipeline.jobs.commands import COMMANDS
from tests.blackbox.kafka_files import SEGMENT, segment
from tests.waiting import wait_for


@pytest.fixture
def run(jobs_broker, capsys):
    """run(job, *arguments) -> (exit code, report)."""

    def call(job, *arguments, connection=True):
        where = ["--service-url", jobs_broker.url, "--admin-url", jobs_broker.http_url] if connection else []
        code = cli.main([job, *map(str, arguments), *where, "--master", "none", "--progress", "none", "--json"])
        return code, json.loads(capsys.readouterr().out or "{}")

    return call


VALUES = [{"content": b"%d" % n, "partition_key": f"k{n % 5}"} for n in range(50)]


def test_a_table_from_its_export_to_its_upkeep(run, topic, publish, tmp_path):
    table = tmp_path / "orders"
    for _ in range(2):
        publish(topic, VALUES)
        code, report = run("export", "--topic", topic, "--table", table)
        assert (code, report["rows"]) == (0, 50)
    code, report = run("join-files", "--table", table, connection=False)
    assert (code, report["files_before"], report["files_after"]) == (0, 2, 1)
    code, report = run("vacuum", "--table", table, "--dry-run", connection=False)
    assert (code, report["removed"]) == (0, [])
    assert run("vacuum", "--table", table, "--older-than-hours", "0", connection=False)[0] == 78
    code, report = run("compact", "--topic", topic, "--table", tmp_path / "compacted", "--format", "parquet")
    assert (code, report["rows"]) == (0, 5)
    code, report = run("replay", "--table", table, "--into", f"{topic}-again")
    assert (code, report["stored"]) == (0, 100)


def test_reports_about_a_topic(run, topic, publish, tmp_path):
    publish(topic, VALUES)
    code, report = run("audit", "--topic", topic, "--html", tmp_path / "audit.html")
    assert (code, report["errors"], report["entries"]) == (0, 0, 50)
    assert "Integrity audit" in (tmp_path / "audit.html").read_text()
    code, report = run("delays", "--topic", topic, "--html", tmp_path / "delays.html")
    assert (code, report["topics"][0]["pending"]) == (0, 0)
    code, report = run("keys", "--topic", topic, "--top", 3, "--consumers", 2, "--html", tmp_path / "keys.html")
    assert (code, report["keys"], len(report["top"])) == (0, 5, 3)
    code, report = run("backlog", "--topic", topic, "--history", tmp_path / "h", "--plot", tmp_path / "b.html")
    assert (code, report["newest"][0]["backlog"]) == (0, 50)


def test_replay_under_an_id_goes_on(run, topic, publish, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    publish(topic, VALUES)
    arguments = [
        "--topic",
        topic,
        "--into",
        f"{topic}-again",
        "--id",
        "one",
        "--sink-option",
        "enableDeduplication=true",
    ]
    assert run("replay", *arguments)[1]["stored"] == 50
    assert run("replay", *arguments)[1] == {"partitions": 1, "stored": 0, "known": 50}
    assert (tmp_path / "replay-one.json").exists()
    assert run("replay", "--into", "x")[0] == 78, "a source is needed"


def test_kafka_segments(run, topic, tmp_path):
    directory = tmp_path / "orders-0"
    directory.mkdir()
    (directory / SEGMENT).write_bytes(segment(10_000))
    code, report = run("kafka-backfill", directory, "--topic", topic, "--enable-deduplication")
    assert (code, report["findings"]) == (0, [])
    assert report["stored"] > 0
    again = run("kafka-backfill", directory, "--topic", topic)[1]
    assert again["stored"] == 0


def test_impossible_commands(run, topic, tmp_path):
    assert run("export", "--topic", f"{topic}-absent", "--table", tmp_path / "t")[0] == 66
    assert run("export", "--topic", topic, "--table", tmp_path / "t", "-o", "nonsense=1")[0] == 78
    assert run("export", "--topic", topic, "--table", tmp_path / "t", "-o", "nonsense")[0] == 78
    assert run("vacuum", "--table", tmp_path / "absent", connection=False)[0] == 66
    away = ["--service-url", "pulsar://127.0.0.1:1", "--admin-url", "http://127.0.0.1:1"]
    assert run("audit", "--topic", topic, *away, connection=False)[0] == 69


@contextlib.contextmanager
def room_for_files_of(size_bytes):
    """Writes beyond the limit fail, as on a full disk. Modules that are imported meanwhile leave no compiled file: the
    interpreter would keep a cut one, which no later process can load.
    """
    before, compiles = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        sys.dont_write_bytecode = compiles


@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
def test_a_disk_that_is_full_and_then_is_not(run, topic, publish, tmp_path, table_format):
    publish(topic, [os.urandom(3000) for _ in range(100)])
    table = tmp_path / "t"
    arguments = ["export", "--topic", topic, "--table", table, "--format", table_format]
    with room_for_files_of(150_000):
        code, _ = run(*arguments)
    assert code == 74
    assert not [path for path in table.rglob("*.parquet") if path.stat().st_size], "nothing of the round is left"
    code, report = run(*arguments)
    assert (code, report["rows"]) == (0, 100)
    assert run(*arguments)[1]["rows"] == 0


def test_text_of_every_report(jobs_broker, topic, publish, tmp_path, capsys):
    publish(topic, VALUES)
    table, where = str(tmp_path / "t"), ["--service-url", jobs_broker.url, "--admin-url", jobs_broker.http_url]
    lines = {
        "export": ["--topic", topic, "--table", table, *where],
        "audit": ["--topic", topic, *where],
        "compact": ["--topic", topic, "--table", f"{table}-c", *where],
        "delays": ["--topic", topic, *where],
        "keys": ["--topic", topic, *where],
        "backlog": ["--topic", topic, *where],
        "replay": ["--topic", topic, "--into", f"{topic}-again", *where],
        "join-files": ["--table", table],
        "vacuum": ["--table", table],
        "kafka-backfill": None,  # has a test of its own
    }
    assert lines.keys() == COMMANDS.keys()
    for job, arguments in lines.items():
        if arguments is not None:
            assert cli.main([job, *arguments, "--master", "none", "--progress", "none"]) == 0, job
            assert capsys.readouterr().out.strip(), job


def wait_rows(table, rows):
    wait_for(lambda: DeltaTable.is_deltatable(table) and DeltaTable(table).count() >= rows, 50, "the stream", every=0.1)


@pytest.mark.timeout(180)
def test_a_stream_that_is_killed_and_ended(jobs_broker, topic, publish, tmp_path):
    """kill -9 of the stream, another stream at once, SIGTERM: the table contains each message once."""
    table = str(tmp_path / "orders")
    command = [sys.executable, "-m", "magnetar", "pipeline", "export", "--topic", topic, "--table", table, "--follow"]
    command += ["--trigger", "0.2", "--master", "none", "--service-url", jobs_broker.url]
    command += ["--admin-url", jobs_broker.http_url, "--json"]
    publish(topic, VALUES)
    stream = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_rows(table, 50)
    publish(topic, VALUES)
    os.kill(stream.pid, signal.SIGKILL)
    stream.communicate()
    stream = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_rows(table, 100)
    publish(topic, VALUES)
    wait_rows(table, 150)
    stream.terminate()
    out, err = stream.communicate(timeout=60)
    assert stream.returncode == 0, err
    assert 50 <= json.loads(out)["rows"] <= 150
    assert sorted(DeltaTable(table).to_pyarrow_table()["__index"].to_pylist()) == list(range(150))
