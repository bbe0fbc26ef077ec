"""Errors name the missing package and the command that installs it."""

import builtins
import re
import sys
import types

import pyspark
import pytest

import pyspark_magnetar
from magnetar.pipeline import register
from magnetar.pipeline.errors import PipelineError
from magnetar.pipeline.needed_packages import MissingError, check_java, check_pyspark
from magnetar.pipeline.registration import hide_secrets, use_this_python


@pytest.fixture
def no_java(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("SPARK_REMOTE", raising=False)


def test_without_java_the_error_names_the_package(no_java):
    with pytest.raises(MissingError, match="openjdk-17"):
        check_java()
    with pytest.raises(MissingError, match="openjdk-17"):
        register()


def test_a_java_home_and_a_remote_server_serve_as_well(no_java, monkeypatch, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("SPARK_REMOTE", "sc://somewhere")
    check_java()


def test_a_java_home_without_java_is_named(no_java, monkeypatch, tmp_path):
    """Spark takes it before the path, and failed with a traceback."""
    (tmp_path / "java").touch(0o755)
    check_java()
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(MissingError, match="JAVA_HOME=/nowhere has no bin/java"):
        check_java()


def test_without_a_session_nothing_can_be_registered(monkeypatch, tmp_path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PipelineError, match="no Spark session"):
        register()


def test_a_source_that_an_old_pyspark_finds_names_the_needed_version(monkeypatch):
    """PySpark 4.1 finds the package `pyspark_magnetar`, but has no classes for the limits of a stream."""
    pyspark_magnetar.DefaultSource({})
    monkeypatch.setattr(pyspark, "__version__", "4.1.4")
    with pytest.raises(MissingError, match=r"PySpark 4\.2 or newer.*there is 4\.1\.4"):
        pyspark_magnetar.DefaultSource({})


def test_without_pyspark_the_error_names_the_extra(monkeypatch):
    real = builtins.__import__

    def without(name, *more):
        if name.startswith("pyspark"):
            raise ImportError("No module named 'pyspark'")
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingError, match=r"pip install '/path/to/magnetar\[spark\]'"):
        check_pyspark()


def session_on(master, **conf):
    """A session as `register` sees it, whose workers run the first `python3` of the path."""
    settings = types.SimpleNamespace(contains=lambda key: key in conf)
    context = types.SimpleNamespace(master=master, pythonExec="python3", getConf=lambda: settings)
    return types.SimpleNamespace(sparkContext=context)


def test_workers_of_a_local_session_run_this_python(monkeypatch):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    session = session_on("local[2]")
    use_this_python(session)
    assert session.sparkContext.pythonExec == sys.executable


@pytest.mark.parametrize(
    ("master", "environment", "conf"),
    [
        ("spark://elsewhere:7077", {}, {}),
        ("local[2]", {"PYSPARK_PYTHON": "python3"}, {}),
        ("local[2]", {}, {"spark.pyspark.python": "python3"}),
    ],
)
def test_workers_elsewhere_or_with_a_chosen_python_keep_theirs(monkeypatch, master, environment, conf):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    session = session_on(master, **conf)
    use_this_python(session)
    assert session.sparkContext.pythonExec == "python3"


class Session:
    """A session that knows its registered sources."""

    def __init__(self):
        self.sources = []
        self.dataSource = types.SimpleNamespace(register=self.sources.append)
        self.sparkContext = session_on("spark://elsewhere:7077").sparkContext
        settings = {"spark.sql.redaction.options.regex": ""}
        self.conf = types.SimpleNamespace(get=settings.get, set=settings.__setitem__)


def test_a_session_is_told_once():
    """Spark warned that the source replaced a registered source: itself, after the import of the package."""
    one, other = Session(), Session()
    for session in (one, one, other, one):
        register(session)
    assert len(one.sources) == len(other.sources) == 1


@pytest.mark.parametrize("before", ["(?i)url", "", "(?i)mine"])
def test_options_with_secrets_are_hidden_beside_those_of_the_session(before):
    settings = {"spark.sql.redaction.options.regex": before}
    conf = types.SimpleNamespace(get=settings.__getitem__, set=settings.__setitem__)
    for _ in range(2):
        hide_secrets(types.SimpleNamespace(conf=conf))
    (pattern,) = settings.values()
    assert pattern.count("basic") == 1
    pattern = pattern.replace("|(?i)", "|")  # Java takes the mark at any place
    found = [re.search(pattern, name, re.IGNORECASE) for name in ("basic", "pulsar.client.authParams", "topic")]
    assert [each is not None for each in found] == [True, True, False]
    assert before.removeprefix("(?i)") in pattern
