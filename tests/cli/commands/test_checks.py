"""The doctor's conclusions from its findings, and the text of lag."""

import email.utils
import io
import json
import shutil
import sys
from types import SimpleNamespace

import pytest

from magnetar.cli.commands import doctor, figures, resources
from magnetar.cli.commands.disk_checks import MEASURED_BYTES, DiskFigures, file_system_of, measure, verdict
from magnetar.cli.commands.doctor import clock_finding
from magnetar.cli.commands.figures import caught_up
from magnetar.cli.errors import BrokerFailedError, DeniedError, NotFoundError, UnreachableError
from magnetar.cli.main import main
from magnetar.cli.target import Target
from magnetar.client.address import Credentials

MOUNTS = "/dev/sda1 / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/sdb /mnt/my\\040disk xfs rw 0 0\nbroken\n"


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/var/lib", ("/", "ext4")),
        ("/tmp/x", ("/tmp", "tmpfs")),
        ("/tmpfile", ("/", "ext4")),
        ("/mnt/my disk/data", ("/mnt/my disk", "xfs")),
    ],
)
def test_the_file_system_of_a_path(path, wanted):
    assert file_system_of(path, MOUNTS) == wanted


@pytest.mark.parametrize(
    ("kind", "median_us", "level", "word"),
    [
        ("ext4", 120.0, "ok", "120 us"),
        ("ext4", 2.0, "warning", "no disk is that fast"),
        ("ext4", 50_000.0, "warning", "receipts take as long"),
        ("tmpfs", 120.0, "error", "is memory"),
        ("nfs4", 500.0, "warning", "network file system"),
    ],
)
def test_verdicts_on_sync_times(kind, median_us, level, word):
    found, text = verdict(kind, DiskFigures(median_us, median_us * 2, 1e8))
    assert found == level
    assert word in text


def test_a_measurement_leaves_nothing(tmp_path):
    figures = measure(tmp_path)
    assert figures.sync_p99_us >= figures.sync_median_us > 0
    assert figures.bytes_per_s > 0
    assert not list(tmp_path.iterdir())


def test_clocks_that_differ():
    def date(seconds):
        return email.utils.formatdate(seconds, usegmt=True)

    assert clock_finding(date(1000), 1001)[1] == "ok"
    assert "60 s behind" in clock_finding(date(1000), 1060)[2]
    assert "60 s ahead" in clock_finding(date(1060), 1000)[2]
    assert clock_finding(None, 0)[1] == "warning"


@pytest.mark.parametrize(
    ("backlog", "incoming", "outgoing", "wanted"),
    [(0, 9, 0, "now"), (10, 5, 5, "never"), (100, 0, 10, "10 s"), (7200, 0, 1, "2.0 h"), (86_400 * 3, 1, 2, "3.0 d")],
)
def test_when_a_subscription_has_caught_up(backlog, incoming, outgoing, wanted):
    assert caught_up(backlog, incoming, outgoing) == wanted


@pytest.mark.parametrize(
    ("free", "level", "words"),
    [(2 * 1024**3, "ok", "free of"), (10**8, "warning", "free of"), (16 * 1024**2 - 1, "error", "Make room")],
)
def test_verdicts_on_free_space(free, level, words):
    found, text = doctor.space_verdict(free, "of 4 GiB on / (ext4)")
    assert found == level
    assert words in text


@pytest.mark.parametrize(("spare", "is_measured"), [(0, True), (-1, False)])
def test_a_disk_with_little_space_is_not_filled_by_its_measurement(tmp_path, monkeypatch, spare, is_measured):
    """The measurement took the last 64 MiB, so that a running broker refused publishes."""
    free = 16 * 1024**2 + MEASURED_BYTES + spare
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=free, total=1 << 30))
    measured = []
    monkeypatch.setattr(doctor, "measure", lambda path: measured.append(path) or DiskFigures(100, 200, 1e9))
    found = {name: text for name, _, text in doctor.disk_findings(tmp_path)}
    assert measured == ([tmp_path.resolve()] if is_measured else [])
    assert ("not measured" in found.get("disk", "")) is not is_measured


@pytest.mark.parametrize(
    ("error", "level", "words"),
    [
        (BrokerFailedError("unhealthy: no space"), "error", "no message can be stored: unhealthy: no space"),
        (UnreachableError("not ready"), "error", "no message can be stored"),
        (DeniedError("no right"), "warning", "not known: no right"),
    ],
)
def test_an_unhealthy_broker_is_an_error_and_an_unknown_health_a_warning(error, level, words):
    class Web:
        def get(self, _):
            return "1"

        def fetch(self, *_):
            raise error

    class Session:
        target = Target("t", "pulsar://h:1", "http://h:2", Credentials())
        web = Web()

        def run(self, work):
            work.close()

    found = {subject: (verdict, text) for subject, verdict, text in doctor.broker_findings(Session())}
    assert found["health"][0] == level
    assert words in found["health"][1]


def test_settings_are_checked_beside_a_folder_named_like_the_package(tmp_path, monkeypatch):
    (tmp_path / "magnetar").mkdir()
    (tmp_path / "broker.conf").write_text("maxTenants=5\n")
    monkeypatch.chdir(tmp_path)
    found = doctor.examined_settings("--config", "broker.conf", None)
    assert [each[:2] for each in found.findings] == [("settings", "ok")]


@pytest.mark.parametrize(
    ("option", "level", "words"),
    [("--config", "error", "did you mean brokerServicePort?"), ("--pulsar-config", "warning", "unknown and ignored")],
)
def test_a_misspelt_setting_has_the_level_of_a_start_with_the_same_option(option, level, words, tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text("brokerSevicePort=6650\n")
    (found,) = doctor.examined_settings(option, str(file), str(tmp_path / "data")).findings
    assert found[:2] == ("settings", level)
    assert words in found[2]


@pytest.fixture
def asked(monkeypatch):
    """The addresses that the checks of a broker ask."""
    found = []

    def record(session):
        found.append((session.target.service_url, session.target.admin_url))
        return iter([("service port", doctor.OK, "answers")])

    monkeypatch.setattr(doctor, "broker_findings", record)
    for name in ("MAGNETAR_URL", "MAGNETAR_ADMIN_URL", "MAGNETAR_CONTEXT", "PULSAR_CLIENT_CONF"):
        monkeypatch.delenv(name, raising=False)
    return found


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ([], ("pulsar://127.0.0.1:7001", "http://127.0.0.1:7002")),
        (["--admin-url", "http://h:9"], ("pulsar://h:6650", "http://h:9")),
        (["--url", "pulsar://h:8", "--admin-url", "http://h:9"], ("pulsar://h:8", "http://h:9")),
    ],
)
def test_the_doctor_asks_the_broker_of_the_settings(asked, tmp_path, monkeypatch, given, wanted):
    """With the file of a broker on other ports, the checks failed at the default ports."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "broker.conf"
    file.write_text("brokerServicePort=7001\nwebServicePort=7002\n")
    assert main(["doctor", "--config", str(file), *given]) == 0
    assert asked == [wanted]


@pytest.mark.parametrize(
    ("line", "exit_code", "reason"),
    [
        ("brokerServicePort=many", 1, "the settings have errors"),
        ("webServicePort=", 0, "the settings name no fixed port for each of both protocols"),
        ("brokerServicePort=0", 0, "the settings name no fixed port for each of both protocols"),
    ],
)
def test_the_doctor_asks_no_other_broker_than_that_of_the_settings(
    asked, tmp_path, monkeypatch, capsys, line, exit_code, reason
):
    """Of settings with errors the command reported that they had no port."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "broker.conf"
    file.write_text(f"{line}\n")
    assert main(["doctor", "--config", str(file)]) == exit_code
    assert asked == []
    assert f"not examined: {reason}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("magnetar addresses pulsar+ssl://h:6651 https://h:8443\n", ("pulsar+ssl://h:6651", "https://h:8443")),
        ("a class prints\nmagnetar addresses pulsar://h:6650 http://h:8080\n\n", ("pulsar://h:6650", "http://h:8080")),
        ("magnetar addresses pulsar://h:0 http://h:8080\n", None),
        ("magnetar addresses pulsar://h:6650 -\n", None),
        ("", None),
    ],
)
def test_the_addresses_of_checked_settings(line, wanted):
    assert doctor.addresses_in(line) == wanted


class Topics:
    """The admin interface of a broker with these topics; `missing` was deleted since the list."""

    def __init__(self, monkeypatch, *names, missing=()):
        def of(_, topic):
            if topic in missing or topic not in names:
                raise NotFoundError(topic)
            return 0, {"subscriptions": {"s": {"msgBacklog": 5}}}

        for module in (figures, resources):
            monkeypatch.setattr(module, "stats_of", of)
        monkeypatch.setattr(figures, "topic_names", lambda *_: list(names))


@pytest.mark.parametrize("name", ["t", "public/default/t", "persistent://public/default/t"])
def test_the_lag_of_a_topic_that_does_not_exist(monkeypatch, name):
    """A check with --above passed for a misspelled topic."""
    Topics(monkeypatch)
    with pytest.raises(NotFoundError):
        list(figures.lag_rows(None, name))


def test_a_namespace_one_of_whose_topics_is_deleted_meanwhile(monkeypatch):
    a, b = "persistent://public/default/a", "persistent://public/default/b"
    Topics(monkeypatch, a, b, missing=(a,))
    assert [row[0] for row in figures.lag_rows(None, "public/default")] == [b]
    assert [row[0] for row in resources.topic_rows(None, [a, b])] == [b]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_doctor_colours_its_verdicts_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", Terminal())
    findings = [("name \x1b[2J", doctor.OK, "text \x1b[2J")]
    monkeypatch.setattr(doctor, "machine_findings", lambda: findings)
    assert main(["doctor", "--no-broker"]) == 0
    assert sys.stdout.getvalue() == "name \\x1b[2J  \x1b[32mok\x1b[0m       text \\x1b[2J\n"


@pytest.mark.parametrize(("kind", "clear"), [("xterm", "\x1b[H\x1b[2J"), ("dumb", "")])
def test_a_watched_lag_clears_the_screen_of_a_terminal(monkeypatch, kind, clear):
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setattr(figures, "lag_rows", lambda *_: [("t", "s\x1b[2J", 1, 0.0, 0.0, "never", 1, 0)])

    def interrupted(_pause_s):
        raise KeyboardInterrupt

    monkeypatch.setattr(figures.time, "sleep", interrupted)
    assert main(["lag", "--watch"]) == 130
    shown = sys.stdout.getvalue()
    assert shown.startswith(clear)
    assert shown.count("\x1b") == clear.count("\x1b")


def test_a_watched_lag_has_the_fields_of_lag_in_json(monkeypatch, capsys):
    """The objects of --watch had the heads of the table as fields: "MSG/S IN"."""
    monkeypatch.setattr(figures, "lag_rows", lambda *_: [("t", "s", 1, 0.0, 0.0, "never", 1, 0)])

    def interrupted(_pause_s):
        raise KeyboardInterrupt

    monkeypatch.setattr(figures.time, "sleep", interrupted)
    assert main(["lag", "--watch", "--json"]) == 130
    [watched] = json.loads(capsys.readouterr().out)
    assert main(["lag", "--json"]) == 0
    [plain] = json.loads(capsys.readouterr().out)
    assert list(watched) == list(plain)
    assert watched["msg_per_s_in"] == 0.0
