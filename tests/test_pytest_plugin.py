"""The pytest fixtures that the package provides for the tests of other projects."""

import json
import subprocess
import sys
import urllib.request
from http.client import RemoteDisconnected
from unittest import mock

import pulsar
import pytest

from magnetar import pytest_plugin
from tests.blackbox.clients import quiet_client

# Without the plugins of this project's own tests, whose imports take most of the start of pytest.
PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:randomly"]


def test_a_killed_broker_comes_back_where_it_was(magnetar_broker_factory):
    broker = magnetar_broker_factory()
    url = broker.url
    client = quiet_client(url)
    consumer = client.subscribe("back", "sub")
    client.create_producer("back").send(b"kept")
    broker.kill()
    broker.kill()
    broker.start()
    assert broker.url == url
    assert consumer.receive(10_000).data() == b"kept"
    client.close()
    assert broker.stop() == 0
    assert broker.stop() == 0
    assert (broker.data_dir / "VERSION").exists()


def test_settings_of_every_kind(magnetar_broker_factory):
    broker = magnetar_broker_factory(
        allowAutoTopicCreation=False, subscriptionTypesEnabled=["Shared", "Failover"], brokerServicePortTls=None
    )
    with urllib.request.urlopen(f"{broker.http_url}/admin/v2/brokers/configuration/runtime", timeout=10) as answer:
        runtime = json.load(answer)
    assert runtime["allowAutoTopicCreation"] == "false"
    assert runtime["subscriptionTypesEnabled"] == "[Shared, Failover]"  # as Java writes a list
    client = quiet_client(broker.url)
    with pytest.raises(pulsar.TopicNotFound):
        client.create_producer("none")
    client.close()
    broker.stop()


def test_a_broker_that_does_not_start_says_why(magnetar_broker_factory):
    with pytest.raises(RuntimeError, match=r"(?s)exit code 78.*maxMessageSize cannot be '12'"):
        magnetar_broker_factory(maxMessageSize=12)


def test_a_misspelt_setting_does_not_start_a_broker_and_is_corrected(magnetar_broker_factory):
    with pytest.raises(
        RuntimeError,
        match=r"unknown setting authenticationEnable; did you mean authenticationEnabled\?",
    ):
        magnetar_broker_factory(authenticationEnable=True)


PROGRAM = """
import pytest


@pytest.mark.parametrize("end", ["fail_sync", "kill", "stop", "none"])
def test_a_broker_ends(magnetar_fault_broker, magnetar_faults, magnetar_namespace, end):
    if end == "fail_sync":
        magnetar_faults.fail_sync()
        assert magnetar_fault_broker.wait_exit() == 74
    elif end != "none":
        getattr(magnetar_fault_broker, end)()
"""


def test_the_broker_of_the_faults_starts_again_behind_a_test_that_ended_it(tmp_path):
    (tmp_path / "test_ends.py").write_text(PROGRAM)
    done = subprocess.run(
        [*PYTEST, "-q", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "4 passed" in done.stdout, done.stdout[-3000:]


@pytest.mark.parametrize("error", [ConnectionRefusedError, RemoteDisconnected])
def test_a_broker_that_is_about_to_end_starts_again(error):
    """A test that sees a failed publish ends a moment before the broker whose sync has failed."""
    broker = mock.Mock(is_running=True)
    broker.faults.reset.side_effect = error
    pytest_plugin._end_faults(broker)
    assert broker.method_calls == [mock.call.faults.reset(), mock.call.wait_exit(), mock.call.start()]


LOGGING = """
def log(broker, line):
    with broker.log_path.open("a") as file:
        file.write(line)

def test_passes(magnetar_broker):
    log(magnetar_broker, "first\\n")

def test_fails_later(magnetar_broker_factory, magnetar_broker):
    log(magnetar_broker_factory(), "second\\n" + "." * 20_000 + "\\nend\\n")
    assert str(magnetar_broker) == ""

def test_fails(magnetar_broker):
    log(magnetar_broker, "third\\n")
    raise AssertionError

def test_without_a_broker():
    raise AssertionError
"""


def test_the_report_of_a_failure_shows_the_end_of_the_logs_of_the_test(tmp_path):
    (tmp_path / "test_logging.py").write_text(LOGGING)
    command = [*PYTEST, "-q", "--tb=line", "--basetemp", str(tmp_path / "base"), str(tmp_path / "test_logging.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert "3 failed, 1 passed" in done.stdout, done.stdout
    assert "log of the broker at pulsar://127.0.0.1:" in done.stdout
    assert "BrokerProcess pulsar://127.0.0.1:" in done.stdout
    found = {line: done.stdout.splitlines().count(line) for line in ("first", "second", "end", "third")}
    assert found == {"first": 0, "second": 0, "end": 1, "third": 1}


def test_the_plugin_is_registered_by_its_entry_point(tmp_path):
    listed = subprocess.run(
        [*PYTEST, "--fixtures", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "magnetar_broker_factory" in listed.stdout
