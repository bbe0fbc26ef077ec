"""The commands of pages of the documentation work as they stand, but for ports and paths."""

import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

import pulsar
import pytest

from magnetar.broker import cli
from magnetar.broker.shutdown import EXIT_HANGS, EXIT_NO_MEMORY
from tests.blackbox.clients import quiet_client

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENV = os.environ | {"PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.DOTALL | re.MULTILINE)


def security_blocks(language, folder):
    """The blocks of docs/operation.md about tokens, certificates and passwords, for files in this folder."""
    text = "".join(f"{block}\0" for block in blocks("operation.md", language))
    text = text.replace("/etc/magnetar", str(folder)).replace("/opt/magnetar/bin/python", sys.executable)
    return text.replace("chown magnetar: users\n", "").split("\0")[:-1]


def settings_of(*configurations):
    lines = [line for text in configurations for line in text.splitlines()]
    settings = dict(line.split("=", 1) for line in lines)
    return settings | {"brokerServicePortTls": 0, "webServicePortTls": 0, "advertisedAddress": "localhost"}


def running_in(folder):
    def run(*arguments, check=True, **more):
        return subprocess.run(
            arguments, cwd=folder, env=ENV, capture_output=True, text=True, timeout=60, check=check, **more
        )

    return run


def test_tokens_and_tls_of_the_operation_page(new_broker, tmp_path):
    make, grant, pair, *_ = security_blocks("sh", tmp_path)
    configuration, _ = security_blocks("ini", tmp_path)
    program, _ = security_blocks("python", tmp_path)
    run = running_in(tmp_path)

    run("bash", "-e", "-c", make)
    process = new_broker(**settings_of(configuration))
    run("bash", "-e", "-c", grant.replace("https://localhost:8443", process.http))
    run(sys.executable, "-c", program.replace("pulsar+ssl://localhost:6651", process.url))
    assert run("bash", "-e", "-c", pair).stdout == '{"sub":"app"}\n'
    metrics = run("curl", "-sS", "--cacert", "cert.pem", f"{process.http}/metrics").stdout
    ends = float(re.search(r"^magnetar_tls_certificate_end_seconds\{[^}]*\} (\S+)$", metrics, re.MULTILINE)[1])
    assert 364 * 86_400 < ends - time.time() < 366 * 86_400
    for name in ("secret.key", "key.pem", "admin.token", "app.token"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0, name


def test_client_certificates_of_the_operation_page(new_broker, tmp_path):
    make, _, _, authority, grant, _ = security_blocks("sh", tmp_path)
    program = security_blocks("python", tmp_path)[1]
    run = running_in(tmp_path)
    run("bash", "-e", "-c", make)
    run("bash", "-e", "-c", authority)
    process = new_broker(**settings_of(*security_blocks("ini", tmp_path)))
    program = program.replace("pulsar+ssl://localhost:6651", process.url)
    program = program.replace('"cert.pem",', '"cert.pem", operation_timeout_seconds=5,')
    refused = run(sys.executable, "-c", program, check=False)
    assert refused.returncode and "AuthorizationError" in refused.stderr, "no right before the grant"
    grant = grant.replace("pulsar+ssl://localhost:6651", process.url).replace("https://localhost:8443", process.http)
    run("bash", "-e", "-c", grant)
    run(sys.executable, "-c", program)
    own = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=app -keyout app.key.pem -out app.pem"
    run(*own.split())
    foreign = run(sys.executable, "-c", program, check=False)
    assert foreign.returncode, "the name of a role in a certificate of another authority"
    assert "event=tls.refused" in process.log_text()
    for name in ("ca.key.pem", "admin.key.pem", "app.key.pem"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0, name


def test_passwords_of_the_operation_page(new_broker, tmp_path):
    command = security_blocks("sh", tmp_path)[-1]
    run = running_in(tmp_path)
    run("bash", "-e", "-c", command, input="a secret\n", start_new_session=True)  # without a terminal: standard input
    assert (tmp_path / "users").stat().st_mode & 0o077 == 0
    text = (ROOT / "docs/operation.md").read_text()
    settings = re.findall(r"`((?:authenticationProviders=basic|basicAuthConf)[^`]*)`", text)
    settings = dict(each.replace("/etc/magnetar", str(tmp_path)).split("=", 1) for each in settings)
    process = new_broker(authenticationEnabled=True, **settings)
    for password, accepted in (("a secret", True), ("another", False)):
        proof = pulsar.AuthenticationBasic("app", password)
        client = quiet_client(process.url, authentication=proof, operation_timeout_seconds=20 if accepted else 2)
        if accepted:
            client.create_producer("orders").send(b"one")
        else:
            with pytest.raises(
                (pulsar.AuthenticationError, pulsar.Timeout)
            ):  # the client tries again until its timeout
                client.create_producer("orders")
        client.close()
        assert ("method=basic" in process.log_text()) is not accepted


@pytest.mark.timeout(240)  # two brokers and their clients, one after the other
def test_programs_of_the_testing_page(tmp_path):
    program, *scripts = blocks("testing.md", "python")
    assert len(scripts) == 2
    (tmp_path / "test_page.py").write_text(program)
    arguments = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "test_page.py"]
    done = subprocess.run(arguments, cwd=tmp_path, env=ENV, capture_output=True, text=True, timeout=220, check=False)
    assert "3 passed" in done.stdout, done.stdout
    for script in scripts:
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=tmp_path, env=ENV, capture_output=True, timeout=60, check=True
        )
        assert b"b'one'" in done.stdout.splitlines()  # between log lines of the official client


def test_the_line_that_the_testing_page_promises(tmp_path):
    (command,) = blocks("testing.md", "sh")
    promised = re.search(r"^    (magnetar ready .*)$", (ROOT / "docs/testing.md").read_text(), re.MULTILINE).group(1)
    command = command.replace("$(mktemp -d)", str(tmp_path))
    process = subprocess.Popen(shlex.split(command), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENV)
    line = process.stdout.readline().decode().strip()
    process.terminate()
    assert process.wait(60) == 0
    process.stdout.close()
    assert re.sub(r":\d+", ":N", line) == re.sub(r":\d+", ":N", promised)


def test_the_systemd_unit_names_a_command_line_and_exit_codes_that_exist():
    unit = dict(
        line.split("=", 1)
        for line in (ROOT / "conf/magnetar.service").read_text().splitlines()
        if "=" in line and line[0] != "#"
    )
    options = cli.build_parser([], {}).parse_args(shlex.split(unit["ExecStart"])[1:])
    assert options.command == "standalone"
    assert unit["StateDirectory"] == pathlib.Path(options.data_dir).name
    never_again = {int(code) for code in unit["RestartPreventExitStatus"].split()}
    assert never_again == {cli.EXIT_METADATA, cli.EXIT_SYSTEM, cli.EXIT_IN_USE, cli.EXIT_CONFIGURATION}
    assert not never_again & {EXIT_NO_MEMORY, EXIT_HANGS, cli.EXIT_STORAGE}


def test_every_exit_code_of_a_broker_is_on_the_operation_page():
    page = (ROOT / "docs/operation.md").read_text()
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    started = {cli.EXIT_METADATA, cli.EXIT_SYSTEM, cli.EXIT_STORAGE, cli.EXIT_IN_USE, cli.EXIT_CONFIGURATION}
    killed = 128 + signal.SIGKILL  # by the system
    assert told == started | {EXIT_HANGS, killed}


def test_requests_of_the_admin_page(new_broker):
    """A receipt of a produced message, and the retention and backlog of the topic, are the effects."""
    page = (ROOT / "docs/admin.md").read_text().replace("\\\n", " ")
    requests = re.findall(r"^    (curl .*)$", page, re.MULTILINE)
    assert len(requests) == 4
    broker = new_broker()
    answers = []
    for command in requests:
        request = command.replace("localhost:8080", broker.http).replace("curl ", "curl --fail-with-body -sS ")
        done = subprocess.run(["bash", "-c", request], capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, f"{request}: {done.stdout}{done.stderr}"
        answers.append(done.stdout)
    partitions, retention, stats, produced = answers
    assert (partitions, retention) == ("", "")
    assert json.loads(stats)["msgInCounter"] == 0
    (result,) = json.loads(produced)["messagePublishResults"]
    assert (result["errorCode"], result["schemaVersion"]) == (0, 0)
    kept = subprocess.run(
        ["curl", "-sS", f"{broker.http}/admin/v2/namespaces/public/default/retention"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert json.loads(kept.stdout) == {"retentionTimeInMinutes": 60, "retentionSizeInMB": 1024}


def test_using_compaction_as_its_page_says(new_broker):
    (script,), (program,) = blocks("features/compaction.md", "sh"), blocks("features/compaction.md", "python")
    broker = new_broker()
    client = quiet_client(broker.url)
    topic = "persistent://public/default/prices"
    producer = client.create_producer(topic)
    for value in (b"1", b"2"):
        producer.send(value, partition_key="a")
    script = script.replace("http://localhost:8080", broker.http).replace("curl ", "curl --fail --silent --show-error ")
    done = subprocess.run(["bash", "-e", "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert json.loads(done.stdout)["status"] in ("RUNNING", "SUCCESS")
    names = {"pulsar": pulsar, "client": client, "topic": topic}
    exec(compile(program, "compaction.md", "exec"), names)
    assert names["view"].get("a") == b"2"
    client.close()


def test_programs_of_the_tutorial(new_broker, tmp_path):
    process = new_broker()
    first, after_crash, later = blocks("tutorial.md", "python")

    def run(program):
        program = program.replace("pulsar://127.0.0.1:6650", process.url)
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, timeout=60, check=True
        )
        return done.stdout.decode()

    assert "received order 0" in run(first)
    time.sleep(2)  # an acknowledgement without a receipt is on the disk within a second
    process.kill()
    process.start()
    shown = run(after_crash)
    assert "still here order 1 Bern" in shown and "still here order 2 Bern" in shown
    assert "wake up after" in run(later)
