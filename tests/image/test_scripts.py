"""The scripts of the image, without a container."""

import importlib.machinery
import importlib.util
import pathlib
import subprocess

import pytest

BIN = pathlib.Path(__file__).resolve().parents[2] / "docker/bin"


def loaded(name):
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_").removesuffix(".py"), str(BIN / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


pulsar = loaded("pulsar")
apply_config = loaded("apply-config-from-env.py")


def settings(command):
    return [command[i + 1] for i, word in enumerate(command) if word == "--set"]


def test_standalone_as_testcontainers_and_compose_files_write_it():
    for flags in ([], ["--no-functions-worker", "-nss"], ["-nfw", "--no-stream-storage", "--num-bookies", "1"]):
        command, wipe = pulsar.standalone(flags, {})
        assert command[:2] == ["/opt/magnetar/bin/magnetar", "standalone"]
        assert command[command.index("--data-dir") + 1] == "/pulsar/data"
        assert (settings(command), wipe) == (["bindAddress=0.0.0.0"], False)


def test_flags_with_values_in_either_form():
    for flags in (["-a", "mq", "-c", "/c.conf"], ["--advertised-address=mq", "--config=/c.conf"]):
        command, _ = pulsar.standalone(flags, {"PULSAR_PREFIX_bindAddress": "127.0.0.1"})
        assert command[command.index("--pulsar-config") + 1] == "/c.conf"
        assert settings(command) == ["advertisedAddress=mq"]
    assert pulsar.standalone(["--wipe-data"], {})[1]


@pytest.mark.parametrize("arguments", [["standalone", "--nope"], ["standalone", "-c"], ["bookie"], ["nonsense"], []])
def test_absent_commands_are_refused_with_their_reason(arguments):
    with pytest.raises(pulsar.UsageError):
        pulsar.main(arguments)


def test_settings_from_the_environment():
    text = "# a comment\nclusterName=standalone\n#tokenSecretKey=\nwebServicePort=8080\n"
    environment = {
        "PULSAR_PREFIX_tokenSecretKey": "data:;base64,a=b",
        "PULSAR_PREFIX_new": "1",
        "webServicePort": "9090",
        "PATH": "/bin",
        "PULSAR_PREFIX_": "x",
    }
    assert apply_config.applied(text, environment, "PULSAR_PREFIX_") == (
        "# a comment\nclusterName=standalone\ntokenSecretKey=data:;base64,a=b\nwebServicePort=9090\nnew=1\n"
    )
    assert apply_config.applied(text, {}, "PULSAR_PREFIX_") == text


def test_a_key_that_stands_commented_and_not_is_set_once():
    text = "#a=1\na=2\n"
    assert apply_config.applied(text, {"X_a": "3"}, "X_") == "#a=1\na=3\n"


def test_it_writes_files(tmp_path, monkeypatch):
    path = tmp_path / "broker.conf"
    path.write_text("a=1\n")
    monkeypatch.setenv("TESTPREFIX_a", "2")
    assert apply_config.main(["--prefix", "TESTPREFIX_", str(path)]) == 0
    assert path.read_text() == "a=2\n"


def test_the_compose_file_names_existing_files():
    yaml = pytest.importorskip("yaml")
    folder = BIN.parent
    services = yaml.safe_load((folder / "compose.yml").read_text())["services"]
    assert set(services) == {"pulsar", "prometheus"}
    assert (folder / services["pulsar"]["build"]["context"] / services["pulsar"]["build"]["dockerfile"]).exists()
    for volume in services["prometheus"]["volumes"]:
        assert (folder / volume.partition(":")[0]).exists()
    (job,) = yaml.safe_load((folder / "prometheus.yml").read_text())["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["pulsar:8080"]}]


def test_shell_scripts_parse():
    for script in (BIN / "pulsar-admin", BIN / "pulsar-client", BIN.parent / "install.sh", BIN.parent / "build.sh"):
        subprocess.run(["sh", "-n", script], check=True)
