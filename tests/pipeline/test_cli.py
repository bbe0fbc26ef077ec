"""The command line of the jobs: its arguments, its output, its exit codes."""

import json
import subprocess
import sys

import pytest

from magnetar.client.errors import RefusedError, RetryError
from magnetar.pipeline import cli
from magnetar.pipeline.columns import UnknownColumnError
from magnetar.pipeline.errors import CatalogUnavailableError, NoSuchTopicError, PipelineError
from magnetar.pipeline.jobs.commands import COMMANDS, Command
from magnetar.pipeline.jobs.session import SparkUnavailableError, open_runner
from magnetar.pipeline.lake.errors import CommitConflictError, SinkFullError
from magnetar.pipeline.needed_packages import MissingError
from magnetar.pipeline.option_table import OptionError


@pytest.fixture
def command(monkeypatch):
    """A job that calls a function of the test: command(function)."""

    def make(function):
        fake = Command("a job", lambda _: None, lambda *_: function(), lambda report: f"text {report}")
        monkeypatch.setitem(COMMANDS, "fake", fake)

    return make


def main(*arguments):
    return cli.main([*arguments, "--master", "none", "--progress", "none"])


def test_reports(command, capsys):
    command(lambda: {"rows": 3})
    assert main("fake") == 0
    assert capsys.readouterr().out == "text {'rows': 3}\n"
    assert main("fake", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"rows": 3}
    command(lambda: {"findings": [1]})
    assert main("fake") == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NoSuchTopicError("t"), 66),
        (CatalogUnavailableError("away"), 69),
        (RetryError("away"), 69),
        (PipelineError("x"), 70),
        (SinkFullError("/t", "full"), 74),
        (CommitConflictError("others"), 75),
        (RefusedError("no"), 77),
        (OptionError("no such option"), 78),
        (SparkUnavailableError("no Java"), 78),
        (MissingError("no pyiceberg"), 78),
        (UnknownColumnError("no column x"), 78),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(command, capsys, error, code):
    def fails():
        raise error

    command(fails)
    assert main("fake") == code
    assert f" {code} " in f" {cli.__doc__.replace(':', ' ')} "
    err = capsys.readouterr().err
    assert "error" in err
    assert "Traceback" not in err


def test_a_wrong_option_shows_the_usage_of_the_job(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["export", "--topic", "t", "--table", "x", "--bogus"])
    assert ended.value.code == 2
    assert "usage: magnetar pipeline export" in capsys.readouterr().err


@pytest.mark.parametrize("job", COMMANDS)
def test_every_job_explains_itself(job, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([job, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "--master" in text
    assert "--progress" in text


def test_jobs_that_need_spark_say_so():
    with pytest.raises(SparkUnavailableError, match="needs Spark"), open_runner("none", needs_spark=True):
        pass


def test_without_java_the_error_names_the_package(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(SparkUnavailableError, match="version 17"), open_runner("local[1]"):
        pass


def test_the_command_of_the_project_leads_here():
    done = subprocess.run(
        [sys.executable, "-m", "magnetar", "pipeline", "export", "--help"], capture_output=True, text=True, check=True
    )
    assert "usage: magnetar pipeline export" in done.stdout
    listed = subprocess.run([sys.executable, "-m", "magnetar", "--help"], capture_output=True, text=True, check=True)
    assert "pipeline" in listed.stdout


SOURCE = ("--topic", "t")


@pytest.mark.parametrize(
    "arguments",
    [
        ("kafka-backfill", "", "--topic", "t"),
        ("export", *SOURCE, "--table", ""),
        ("export", *SOURCE, "--table", "x", "--storage", ""),
        ("compact", *SOURCE, "--table", ""),
        ("join-files", "--table", ""),
        ("vacuum", "--table", ""),
        ("replay", "--table", "", "--into", "t"),
        ("replay", *SOURCE, "--into", "t", "--id", "a", "--state", ""),
        ("audit", *SOURCE, "--html", ""),
        ("delays", *SOURCE, "--html", ""),
        ("keys", *SOURCE, "--html", ""),
        ("backlog", *SOURCE, "--history", ""),
        ("backlog", *SOURCE, "--plot", ""),
    ],
    ids=" ".join,
)
def test_an_empty_path_is_not_this_directory(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(*arguments)
    assert ended.value.code == 2
    assert "the path is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("audit", *SOURCE, "--html", "no-such-directory/a.html"), "there is no directory no-such-directory"),
        (("audit", *SOURCE, "--html", "."), "is a directory"),
        (("backlog", *SOURCE, "--plot", "no-such-directory/a.png"), "there is no directory"),
        (("export", *SOURCE, "--table", "x", "--round-bytes", "0"), "'0' is not a whole number from 1 on"),
        (("export", *SOURCE, "--table", "x", "--file-bytes", "1e9"), "'1e9' is not a whole number"),
        (("export", *SOURCE, "--table", "x", "--trigger", "-1"), "'-1' is no number of seconds"),
        (("export", *SOURCE, "--table", "x", "--trigger", "nan"), "'nan' is no number of seconds"),
        (("join-files", "--table", "x", "--file-bytes", "-5"), "'-5' is not a whole number"),
        (("keys", *SOURCE, "--consumers", "0"), "'0' is not a whole number"),
        (("keys", *SOURCE, "--top", "0"), "'0' is not a whole number"),
        (("backlog", *SOURCE, "--samples", "0"), "'0' is not a whole number"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_arguments_that_cannot_be_used_end_the_job_before_its_work(arguments, text, capsys):
    with pytest.raises(SystemExit) as ended:
        main(*arguments)
    assert ended.value.code == 2
    assert text in capsys.readouterr().err
