"""The command line: what it accepts, what it says, and its exit codes."""

import sys
import types

import pytest

from magnetar import __version__
from magnetar.broker import cli


@pytest.fixture
def broker(monkeypatch):
    """Stands in for the broker: remembers the settings it was run with."""
    seen = []

    async def run(settings):
        seen.append(settings)
        return 7

    module = types.ModuleType("magnetar.broker.broker")
    module.run = run
    monkeypatch.setitem(sys.modules, "magnetar.broker.broker", module)
    return seen


def test_version(capsys):
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out == f"magnetar {__version__}\n"


def test_standalone_runs_the_broker_with_its_settings_and_returns_its_exit_code(broker, tmp_path):
    config = tmp_path / "broker.conf"
    config.write_text("clusterName=filed\nmaxMessageSize=4096\n")
    code = cli.main(["standalone", "--config", str(config), "--data-dir", "/srv/x", "--set", "maxMessageSize=5000"])
    assert code == 7
    assert (broker[0].cluster_name, broker[0].data_dir, broker[0].max_message_size) == ("filed", "/srv/x", 5000)


def test_environment_is_read(broker, monkeypatch):
    monkeypatch.setenv("PULSAR_PREFIX_clusterName", "c2")
    cli.main(["standalone"])
    assert broker[0].cluster_name == "c2"


def test_wrong_setting_is_told_and_the_broker_not_started(broker, capsys):
    assert cli.main(["standalone", "--set", "maxMessageSize=big"]) == cli.EXIT_CONFIGURATION
    assert "magnetar: error: command line: maxMessageSize cannot be 'big'" in capsys.readouterr().err
    assert broker == []


def test_unknown_setting_is_a_warning(broker, capsys):
    assert cli.main(["standalone", "--set", "maxMesageSize=5"]) == 7
    assert "magnetar: warning:" in capsys.readouterr().err


def test_missing_configuration_file(broker, capsys, tmp_path):
    assert cli.main(["standalone", "--config", str(tmp_path / "none.conf")]) == cli.EXIT_CONFIGURATION
    assert "none.conf" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["fly"], ["standalone", "--colour"], ["verify"]])
def test_wrong_command_line_is_usage(arguments, capsys):
    with pytest.raises(SystemExit) as e:
        cli.main(arguments)
    assert e.value.code == 2
    assert "usage: magnetar" in capsys.readouterr().err
