"""The command line: its arguments, its output, and its exit codes."""

import json
import os
import subprocess
import sys
import types

import pytest

from magnetar import __version__
from magnetar.broker import cli
from magnetar.broker.shutdown import EXIT_NO_MEMORY
from magnetar.storage.embedded.store_version import encode_version
from magnetar.storage.embedded.verify.report import DAMAGE, NOTE, Finding, VerifyReport
from magnetar.storage.errors import StorageFullError, StoreLockedError

INCOMPLETE = ": the data directory is incomplete; put back the whole directory, by hand or by `magnetar restore`"


@pytest.fixture(autouse=True)
def _rich_as_it_was(monkeypatch):
    """Restore the module rich, which `standalone` hides from its process: later tests run in this process."""
    monkeypatch.setitem(sys.modules, "rich", sys.modules.get("rich"))
    if sys.modules["rich"] is None:
        monkeypatch.delitem(sys.modules, "rich")


@pytest.fixture
def broker(monkeypatch):
    """Stands in for the broker: records the settings of each run."""
    seen = []

    async def run(settings, **_):
        seen.append(settings)
        return 7

    module = types.ModuleType("magnetar.broker.running")
    module.run = run
    monkeypatch.setitem(sys.modules, "magnetar.broker.running", module)
    return seen


def test_version(capsys):
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out == f"magnetar {__version__}\n"
    with pytest.raises(SystemExit) as e:
        cli.main(["--version"])
    assert e.value.code == 0
    assert capsys.readouterr().out == f"magnetar {__version__}\n"


def test_standalone_runs_the_broker_with_its_settings_and_returns_its_exit_code(broker, tmp_path):
    config = tmp_path / "broker.conf"
    config.write_text("clusterName=filed\nmaxMessageSize=4096\n")
    code = cli.main(["standalone", "--config", str(config), "--data-dir", "/srv/x", "--set", "maxMessageSize=5000"])
    assert code == 7
    assert (broker[0].cluster_name, broker[0].data_dir, broker[0].max_message_size) == ("filed", "/srv/x", 5000)


@pytest.mark.parametrize(
    "command",
    [["standalone", "--data-dir", ""], ["standalone", "--config", ""], ["broker", "--config", ""], ["verify", ""]],
)
def test_an_empty_path_is_refused(broker, capsys, command):
    """The text of an unset variable of a shell made the working directory, or ./data, the data directory."""
    with pytest.raises(SystemExit) as e:
        cli.main(command)
    assert e.value.code == 2
    assert "the path is empty" in capsys.readouterr().err
    assert not broker


def test_a_start_does_not_load_the_library_that_draws_tracebacks(tmp_path):
    """Loading rich is a third of the time from the command to the first client, and 6 MB."""
    script = (
        "import sys; from magnetar.broker import cli\n"
        f"cli.main(['standalone', '--check', '--data-dir', {str(tmp_path)!r}])\n"
        "import magnetar.broker.running\n"
        "print('structlog' in sys.modules, 'rich.console' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split()[-2:] == ["True", "False"]


def test_a_check_reports_unusable_files_of_the_settings(broker, capsys):
    command = ["standalone", "--check", "--set", "authenticationEnabled=true", "--set", "authorizationEnabled=true"]
    command += ["--set", "authenticationProviders=token"]
    assert cli.main([*command, "--set", "tokenSecretKey=file:///nowhere.key"]) == cli.EXIT_CONFIGURATION
    text = "magnetar: error: tokenSecretKey: /nowhere.key: No such file or directory\n"
    assert text in capsys.readouterr().err
    assert broker == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ([], "pulsar://127.0.0.1:6650 http://127.0.0.1:8080"),
        (["webServicePort=", "advertisedAddress=mq.example.org"], "pulsar://mq.example.org:6650 -"),
        (["advertisedListeners=pulsar://nameless:1"], "pulsar://127.0.0.1:6650 http://127.0.0.1:8080"),
        (["bindAddress=::1", "brokerServicePort=0"], "pulsar://[::1]:0 http://[::1]:8080"),
    ],
)
def test_a_check_prints_the_addresses(broker, capsys, tmp_path, settings, words):
    overrides = [word for each in settings for word in ("--set", each)]
    assert cli.main(["standalone", "--check", "--data-dir", str(tmp_path), *overrides]) == 0
    assert capsys.readouterr().out == f"magnetar addresses {words}\n"
    assert broker == []


def test_environment_is_read(broker, monkeypatch):
    monkeypatch.setenv("PULSAR_PREFIX_clusterName", "c2")
    cli.main(["standalone"])
    assert broker[0].cluster_name == "c2"


def test_a_wrong_setting_is_reported_and_the_broker_does_not_start(broker, capsys):
    assert cli.main(["standalone", "--set", "maxMessageSize=big"]) == cli.EXIT_CONFIGURATION
    assert "magnetar: error: command line: maxMessageSize cannot be 'big'" in capsys.readouterr().err
    assert broker == []


def test_unknown_setting_stops_the_start(broker, capsys):
    assert cli.main(["standalone", "--set", "authenticationEnable=true"]) == cli.EXIT_CONFIGURATION
    assert "did you mean authenticationEnabled?" in capsys.readouterr().err
    assert broker == []


def test_a_file_of_another_version_of_apache_pulsar_is_taken_as_such(broker, capsys, tmp_path):
    config = tmp_path / "broker.conf"
    config.write_text("clusterName=filed\nkeyOfTomorrow=1\n")
    assert cli.main(["standalone", "--config", str(config)]) == cli.EXIT_CONFIGURATION
    assert cli.main(["standalone", "--pulsar-config", str(config)]) == 7
    assert broker[0].cluster_name == "filed"
    assert "unknown and ignored (unknownSettings=list): keyOfTomorrow" in capsys.readouterr().err


def test_missing_configuration_file(broker, capsys, tmp_path):
    assert cli.main(["standalone", "--config", str(tmp_path / "none.conf")]) == cli.EXIT_CONFIGURATION
    assert "none.conf" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["fly"], ["standalone", "--colour"], ["verify"], ["tokens"]])
def test_wrong_command_line_is_usage(arguments, capsys):
    with pytest.raises(SystemExit) as e:
        cli.main(arguments)
    assert e.value.code == 2
    assert "usage: magnetar" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StoreLockedError("/data", 42), cli.EXIT_IN_USE),
        (StorageFullError("no space"), cli.EXIT_STORAGE),
        (OSError("address in use"), cli.EXIT_SYSTEM),
        (OSError(98, "brokerServicePort: address in use"), cli.EXIT_SYSTEM),
        (PermissionError(13, "Permission denied", "key.pem"), cli.EXIT_SYSTEM),
        (PermissionError(13, "Permission denied", "data/LOCK"), cli.EXIT_STORAGE),
        (OSError(24, "Too many open files", "data/VERSION"), cli.EXIT_SYSTEM),
        (OSError(12, "Cannot allocate memory", "data/journal/1"), EXIT_NO_MEMORY),
        (ValueError("tokenSecretKey: not base64"), cli.EXIT_CONFIGURATION),
    ],
)
def test_a_refused_start_gives_one_line_and_an_exit_code(broker, capsys, monkeypatch, error, code):
    async def run(_settings, **_options):
        raise error

    monkeypatch.setattr(sys.modules["magnetar.broker.running"], "run", run)
    assert cli.main(["standalone", "--data-dir", "data"]) == code
    said = capsys.readouterr().err
    told = f"{error.filename}: {error.strerror}" if getattr(error, "filename", None) else str(error)
    assert told.removeprefix("[Errno 98] ") in said
    assert "Errno" not in said
    assert said.startswith("magnetar: error: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            PermissionError(13, "Permission denied", "data/LOCK"),
            f"data/LOCK: Permission denied; user {os.geteuid()} must have the right to write there",
        ),
        (
            OSError(30, "Read-only file system", "data/LOCK"),
            f"data/LOCK: Read-only file system; user {os.geteuid()} must have the right to write there",
        ),
        (FileExistsError(17, "File exists", "data"), "data: File exists, and is no directory"),
        (OSError(5, "Input/output error", "data/LOCK"), "data/LOCK: Input/output error"),
    ],
)
def test_a_data_directory_that_cannot_be_used_names_its_remedy(broker, capsys, monkeypatch, error, line):
    async def run(_settings, **_options):
        raise error

    monkeypatch.setattr(sys.modules["magnetar.broker.running"], "run", run)
    assert cli.main(["standalone", "--data-dir", "data"]) == cli.EXIT_STORAGE
    assert capsys.readouterr().err == f"magnetar: error: {line}\n"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(27, "File too large"), "File too large; raise the limit of the size of files (ulimit -f"),
        (OSError(24, "Too many open files", "x.py"), "x.py: Too many open files; raise the limit of open files"),
        (OSError(12, "no memory"), "no memory; raise the limits of memory and threads (ulimit -v"),
        (StoreLockedError("/data", 42), "by process 42: stop that process first, or set another dataDir"),
    ],
)
def test_a_limit_or_another_process_that_stops_the_start_comes_with_its_remedy(
    broker, capsys, monkeypatch, error, words
):
    async def run(_settings, **_options):
        raise error

    monkeypatch.setattr(sys.modules["magnetar.broker.running"], "run", run)
    cli.main(["standalone"])
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(("missing", "end"), [("journal", INCOMPLETE), ("none/journal", "")])
def test_a_part_of_the_data_directory_that_is_missing(broker, capsys, monkeypatch, tmp_path, missing, end):
    async def run(_settings, **_options):
        raise FileNotFoundError(2, "No such file or directory", str(tmp_path / missing))

    monkeypatch.setattr(sys.modules["magnetar.broker.running"], "run", run)
    assert cli.main(["standalone", "--data-dir", str(tmp_path)]) == cli.EXIT_STORAGE
    assert capsys.readouterr().err == f"magnetar: error: {tmp_path / missing}: No such file or directory{end}\n"


def test_a_place_that_takes_no_data_directory(broker, capsys, monkeypatch, tmp_path):
    """/proc is such a place: it exists, and refuses new directories with "No such file or directory"."""

    async def run(_settings, **_options):
        raise FileNotFoundError(2, "No such file or directory", str(tmp_path / "data"))

    monkeypatch.setattr(sys.modules["magnetar.broker.running"], "run", run)
    assert cli.main(["standalone", "--data-dir", str(tmp_path / "data")]) == cli.EXIT_STORAGE
    reason = f"{tmp_path / 'data'}: No such file or directory: no directory can be made there; set another dataDir"
    assert capsys.readouterr().err == f"magnetar: error: {reason}\n"


def test_a_data_directory_that_is_a_link_to_a_missing_directory(broker, capsys, monkeypatch, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "missing")

    async def run(_settings, **_options):
        raise FileExistsError(17, "File exists", str(link))

    monkeypatch.setattr(sys.modules["magnetar.broker.running"], "run", run)
    assert cli.main(["standalone", "--data-dir", str(link)]) == cli.EXIT_STORAGE
    assert "is a link to a missing directory; make that directory" in capsys.readouterr().err


@pytest.fixture
def report(monkeypatch):
    """Stands in for the verification: gives this report, records the calls."""
    found = VerifyReport(path="d", ledgers=2, entries=5)
    asked = []

    def verify_store(directory, *, repair, rebuild, progress):
        asked.append((directory, list(repair)))
        return found

    monkeypatch.setattr("magnetar.storage.embedded.verify.command.verify_store", verify_store)
    return found, asked


def test_verify_of_an_intact_directory(report, capsys):
    _, asked = report
    assert cli.main(["verify", "d", "--repair", "index"]) == 0
    assert capsys.readouterr().out == "intact: 2 ledgers, 5 entries, 0 bytes read\n"
    assert asked == [("d", ["index"])]


def test_verify_tells_damage_as_text_and_json(report, capsys):
    found, _ = report
    found.findings.append(Finding(severity=DAMAGE, kind="entry", file="ledgers/1", offset=32, detail="checksum"))
    assert cli.main(["verify", "d"]) == cli.EXIT_DAMAGED
    out = capsys.readouterr().out
    assert "damage: ledgers/1 at 32: entry: checksum\n" in out
    assert "DAMAGED" in out
    assert cli.main(["verify", "d", "--json"]) == cli.EXIT_DAMAGED
    assert json.loads(capsys.readouterr().out)["damaged"] is True


def test_verify_shows_some_of_many_notes_and_all_damage(report, capsys):
    """A broker that a power loss ends leaves a note for each of its open ledgers."""
    found, _ = report
    found.findings += [
        Finding(severity=NOTE, kind="index", file=f"ledgers/{n}", offset=1, detail="x") for n in range(50)
    ]
    found.findings += [Finding(severity=DAMAGE, kind="index", file=f"l/{n}", offset=1, detail="y") for n in range(30)]
    found.findings += [Finding(severity=NOTE, kind="torn-tail", file="j", offset=9, detail="z")]
    assert cli.main(["verify", "d"]) == cli.EXIT_DAMAGED
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("note: ledgers/") for line in lines) == 20
    assert sum(line.startswith("damage: l/") for line in lines) == 30
    assert lines[-3:-1] == ["note: j at 9: torn-tail: z", "note: index: 30 more of this kind (--json shows all)"]
    assert cli.main(["verify", "d", "--json"]) == cli.EXIT_DAMAGED
    assert len(json.loads(capsys.readouterr().out)["findings"]) == 81


def test_verify_of_a_newer_format_names_the_directory_once(tmp_path, capsys):
    for name in ("journal", "ledgers", "metadata"):
        (tmp_path / name).mkdir()
    (tmp_path / "VERSION").write_bytes(encode_version(bytes(16), 3))
    assert cli.main(["verify", str(tmp_path)]) == cli.EXIT_STORAGE
    said = capsys.readouterr().err
    assert said.count(str(tmp_path)) == 1
    assert "format version 3" in said


def test_verify_of_a_directory_without_a_store(tmp_path, capsys):
    assert cli.main(["verify", str(tmp_path / "none")]) == cli.EXIT_STORAGE
    assert capsys.readouterr().err.count("none") == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_full_disk_under_the_log_does_not_change_the_exit_code(tmp_path):
    (tmp_path / "file").touch()
    with open("/dev/full", "wb") as full:
        arguments = ["verify", str(tmp_path / "file" / "none")]
        ran = subprocess.run([sys.executable, "-m", "magnetar", *arguments], stderr=full, timeout=60, check=False)
    assert ran.returncode == cli.EXIT_STORAGE


@pytest.mark.parametrize("command", ["broker", "initialize-cluster-metadata"])
def test_without_the_client_of_zookeeper_a_cluster_is_refused_with_the_remedy(command, monkeypatch, capsys):
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "kazoo" else real(name))
    with pytest.raises(SystemExit) as ended:
        cli.main([command])
    assert ended.value.code == 78
    assert "magnetar[bookkeeper]" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    printed = capsys.readouterr()
    assert (ended.value.code, printed.err) == (0, ""), "each command has its help"
    assert printed.out.startswith(f"usage: magnetar {command} ")
