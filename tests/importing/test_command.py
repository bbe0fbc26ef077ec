"""The command in this process: its output and exit codes where no broker is needed."""

import argparse
import json
import pathlib
import subprocess
import sys

import pytest

from magnetar.broker import cli
from magnetar.client.environment import VARIABLES
from magnetar.importing import command
from magnetar.importing.arguments import add_arguments
from tests.blackbox.kafka_files import SEGMENT, data_records, segment

DATA = segment(6_000)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "orders-0" / SEGMENT
    path.parent.mkdir()
    path.write_bytes(DATA)
    return path


def main(*arguments):
    return cli.main(["kafka", "import", "--topic", "t", *map(str, arguments)])


def test_a_dry_run_in_words(path, capsys):
    assert main(path, "--dry-run") == 0
    assert capsys.readouterr().out.startswith(f"{path}: {len(data_records(DATA))} messages in ")


def test_damage_is_in_the_report_and_the_exit_code(path, capsys):
    path.write_bytes(DATA[:-1])
    assert main(path, "--dry-run", "--json") == 1
    out, err = capsys.readouterr()
    [report] = json.loads(out)["files"]
    assert not report["complete"]
    assert f"position {report['torn_at']} " in err
    assert main(path, "--dry-run", "--on-damage", "skip", "--quiet") == 0
    out, err = capsys.readouterr()
    assert f"would be stored, torn tail at position {report['torn_at']}" in out
    assert "warning" in err


def test_an_empty_segment_of_kafka_is_no_error(path, capsys):
    """Kafka keeps a segment of no bytes for a partition without records; other empty files are mistakes."""
    empty = path.with_name("00000000000000009999.log")
    empty.write_bytes(b"")
    assert main(path.parent, "--dry-run") == 0
    out, _ = capsys.readouterr()
    assert f"{empty}: 0 messages in 0 entries would be stored: the segment is empty\n" in out
    assert main(empty, "--dry-run") == 0
    nameless = path.with_name("produced.bin")
    nameless.write_bytes(b"")
    assert main(nameless, "--dry-run") == 66


def test_a_dry_run_does_not_claim_that_messages_are_stored(path, capsys):
    path.write_bytes(DATA[:-1])
    assert main(path, "--dry-run") == 1
    out, err = capsys.readouterr()
    assert "would be stored before the import ends" in out
    assert "Everything before it would be stored" in err


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--protect", "all", "choose from subscription, retention, none"),
        ("--isolation-level", "none", "choose from read_committed, read_uncommitted"),
        ("--retry-seconds", "-1", "give 0 or more seconds"),
        ("--retry-seconds", "soon", "give 0 or more seconds"),
        ("--retry-seconds", "nan", "give 0 or more seconds"),
    ],
)
def test_values_that_cannot_be(path, capsys, option, value, words):
    with pytest.raises(SystemExit):
        main(path, "--dry-run", option, value)
    assert words in capsys.readouterr().err.replace("'", "")  # Python 3.11 quotes the choices


def test_an_empty_path_is_refused(path, capsys, monkeypatch):
    """The text of an unset variable of a shell made the segments of the working directory the input."""
    monkeypatch.chdir(path.parent)
    with pytest.raises(SystemExit) as ended:
        main("", "--dry-run")
    assert ended.value.code == 2
    assert "the path is empty" in capsys.readouterr().err


def test_a_label_is_for_one_file(path, capsys):
    path.with_name("00000000000000009999.log").write_bytes(DATA)
    assert main(path.parent, "--dry-run", "--label", "x") == 66
    assert "--label" in capsys.readouterr().err


@pytest.mark.parametrize("topic", ["non-persistent://public/default/t", "a/b", "persistent://x"])
def test_topics_that_cannot_be(path, capsys, topic):
    assert cli.main(["kafka", "import", str(path), "--topic", topic, "--dry-run"]) == 66
    assert f"--topic {topic}" in capsys.readouterr().err


def test_an_interruption_says_how_to_go_on(path, capsys, monkeypatch):
    def interrupted(coroutine):
        coroutine.close()
        raise KeyboardInterrupt

    monkeypatch.setattr(command.asyncio, "run", interrupted)
    assert main(path, "--dry-run") == 130
    assert "run the same command again" in capsys.readouterr().err


@pytest.fixture
def options_of(monkeypatch):
    """The options that the command gets from arguments and an environment."""

    def found(environ, *arguments):
        for name in VARIABLES.values():
            monkeypatch.delenv(name, raising=False)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        return parser.parse_args(["f", "--topic", "t", *arguments])

    return found


def test_the_broker_comes_from_flags_then_from_the_environment(options_of):
    environ = {name: f"{option} of the environment" for option, name in VARIABLES.items()}
    assert options_of({}).service_url == "pulsar://127.0.0.1:6650"
    assert options_of({"MAGNETAR_URL": ""}).service_url == "pulsar://127.0.0.1:6650"
    options = vars(options_of(environ))
    assert {option: options[option] for option in VARIABLES} == {
        option: f"{option} of the environment" for option in VARIABLES
    }
    assert options_of(environ, "--url", "pulsar://h:1", "--token", "x").service_url == "pulsar://h:1"


@pytest.mark.parametrize("arguments", [["kafka"], ["kafka", "export"], ["kafka", "import", "f"]])
def test_a_wrong_command_line(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "usage: magnetar kafka" in capsys.readouterr().err


def test_every_option_is_explained(capsys):
    with pytest.raises(SystemExit):
        cli.main(["kafka", "import", "--help"])
    text = capsys.readouterr().out
    for option in ("--on-damage", "--enable-deduplication", "--token", "--tls-trust-certs", "--sequence-ids"):
        assert option in text


def test_other_commands_do_not_wait_for_it():
    program = "import sys; from magnetar.broker import cli; cli.main(['version']); print('magnetar.importing.command' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_a_wrong_option_shows_the_usage_of_this_command(capsys):
    with pytest.raises(SystemExit) as ended:
        main("f", "--bogus")
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert "usage: magnetar kafka import" in err
    assert "--bogus" in err


TRANSACTIONS = pathlib.Path(__file__).parents[1] / "vectors" / "kafka_transactions"


@pytest.mark.parametrize(
    ("options", "code", "messages", "aborted"),
    [
        ([], 75, 86, 44),
        (["--open-transactions", "skip"], 0, 93, 49),
        (["--isolation-level", "read_uncommitted"], 0, 142, 0),
    ],
)
def test_isolation_of_a_real_log(options, code, messages, aborted, capsys):
    """A Kafka consumer reads 86 messages with read_committed and 142 with read_uncommitted."""
    assert main(TRANSACTIONS, "--dry-run", "--json", *options) == code
    out, err = capsys.readouterr()
    files = json.loads(out)["files"]
    assert sum(each["messages"] for each in files) == messages
    assert sum(each["aborted_messages"] for each in files) == aborted
    assert ("--open-transactions skip" in err) == (code == 75)


def test_left_out_transactions_are_in_the_text(capsys):
    assert main(TRANSACTIONS / "00000000000000000000.log", "--dry-run") == 0
    assert "messages of aborted transactions left out" in capsys.readouterr().out


def test_damage_inside_transactions_is_warned_about(tmp_path, capsys):
    segment_file = tmp_path / "00000000000000000119.log"
    data = bytearray((TRANSACTIONS / segment_file.name).read_bytes())
    data[-1] ^= 1
    before = (TRANSACTIONS / "00000000000000000104.log").read_bytes()
    (tmp_path / "00000000000000000104.log").write_bytes(before)
    segment_file.write_bytes(data)
    main(tmp_path, "--dry-run", "--on-damage", "skip", "--json", "--open-transactions", "skip")
    out, err = capsys.readouterr()
    doubtful = [each["doubtful_transactions"] for each in json.loads(out)["files"]]
    assert doubtful == [0, 0], "the damage is behind the last marker"
    data = bytearray((TRANSACTIONS / segment_file.name).read_bytes())
    data[70] ^= 1
    segment_file.write_bytes(data)
    main(tmp_path, "--dry-run", "--on-damage", "skip", "--json", "--open-transactions", "skip")
    out, err = capsys.readouterr()
    assert [each["doubtful_transactions"] for each in json.loads(out)["files"]] == [1, 1]
    assert "damage lies inside 1 transactions" in err
