"""The scripts of the image, without a container."""

import contextlib
import http.server
import importlib.machinery
import importlib.util
import pathlib
import socket
import ssl
import subprocess
import threading

import pytest

from tests.image.test_image import certificate

BIN = pathlib.Path(__file__).resolve().parents[2] / "docker/bin"


def loaded(name):
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_").removesuffix(".py"), str(BIN / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


pulsar = loaded("pulsar")
apply_config = loaded("apply-config-from-env.py")
healthcheck = loaded("healthcheck")


def settings(command):
    return [command[i + 1] for i, word in enumerate(command) if word == "--set"]


def test_standalone_as_testcontainers_and_compose_files_write_it():
    for flags in ([], ["--no-functions-worker", "-nss"], ["-nfw", "--no-stream-storage", "--num-bookies", "1"]):
        command, wipe = pulsar.standalone(flags, {})
        assert command[:2] == ["/opt/magnetar/bin/magnetar", "standalone"]
        assert command[command.index("--data-dir") + 1] == "/pulsar/data"
        assert (settings(command), wipe) == (["bindAddress=0.0.0.0", "advertisedAddress=localhost"], False)


@pytest.mark.parametrize("key", ["advertisedAddress", "advertisedListeners"])
def test_an_address_of_the_mounted_file_or_the_environment_is_kept(key, tmp_path):
    conf = tmp_path / "mounted.conf"
    conf.write_text(f"#{key}=commented\n{key}=\n")
    assert "advertisedAddress=localhost" in settings(pulsar.standalone(["-c", str(conf)], {})[0])
    assert settings(pulsar.standalone(["-c", str(conf)], {f"PULSAR_PREFIX_{key}": "mq"})[0]) == ["bindAddress=0.0.0.0"]
    conf.write_text(f"{key} = inside:pulsar://mq:6650\n")
    assert settings(pulsar.standalone(["-c", str(conf)], {})[0]) == ["bindAddress=0.0.0.0"]


def test_the_variable_of_apache_pulsar_names_the_file():
    command, _ = pulsar.standalone([], {"PULSAR_STANDALONE_CONF": "/mounted/standalone.conf"})
    assert command[command.index("--pulsar-config") + 1] == "/mounted/standalone.conf"
    assert healthcheck.conf_path({"PULSAR_STANDALONE_CONF": "/mounted/standalone.conf"}) == "/mounted/standalone.conf"


def test_variables_that_the_file_already_has_do_not_reach_the_broker(tmp_path):
    """The broker refuses a variable `authenticationEnabled`, because without its prefix it would have no effect."""
    conf = tmp_path / "standalone.conf"
    conf.write_text("authenticationEnabled=true\nmaxMessageSize=5242880\n")
    environment = {"authenticationEnabled": "true", "maxMessageSize": "1", "PULSAR_PREFIX_x": "1", "PATH": "/bin"}
    assert pulsar.for_the_broker(environment, str(conf)) == {k: environment[k] for k in list(environment)[1:]}
    assert pulsar.for_the_broker(environment, str(tmp_path / "absent")) == environment


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


def test_a_file_that_needs_no_change_is_not_written(tmp_path):
    path = tmp_path / "standalone.conf"
    path.write_text("a=1\n")
    path.chmod(0o444)
    before = path.stat().st_mtime_ns
    assert apply_config.main(["--prefix", "TESTPREFIX_", str(path)]) == 0
    assert path.stat().st_mtime_ns == before


def mounted_read_only(*_, **__):
    raise OSError(30, "Read-only file system")


def test_a_mounted_file_stays_where_the_broker_reads_the_same_variables(tmp_path, monkeypatch, capsys):
    path = tmp_path / "standalone.conf"
    path.write_text("a=1\n")
    monkeypatch.setattr(pathlib.Path, "write_text", mounted_read_only)
    monkeypatch.setenv("PULSAR_PREFIX_a", "2")
    assert apply_config.main([str(path)]) == 0
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err == (
        f"apply-config-from-env.py: {path} stays: Read-only file system; the broker reads PULSAR_PREFIX_ itself\n"
    )


@pytest.mark.parametrize("name", ["a", "TESTPREFIX_a"])
def test_a_mounted_file_that_lacks_other_variables_is_an_error_of_one_line(name, tmp_path, monkeypatch, capsys):
    path = tmp_path / "standalone.conf"
    path.write_text("a=1\n")
    monkeypatch.setattr(pathlib.Path, "write_text", mounted_read_only)
    monkeypatch.setenv(name, "2")
    prefix = name.removesuffix("a") or "PULSAR_PREFIX_"
    assert apply_config.main(["--prefix", prefix, str(path)]) == 1
    assert capsys.readouterr().err == f"apply-config-from-env.py: cannot write {path}: Read-only file system\n"


def test_an_absent_file_is_an_error_of_one_line(tmp_path, capsys):
    path = tmp_path / "absent.conf"
    assert apply_config.main([str(path)]) == 1
    assert capsys.readouterr().err == f"apply-config-from-env.py: cannot read {path}: No such file or directory\n"


class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/admin/v2/brokers/ready" else 404)
        self.end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def web_server(context=None):
    """The port of a broker that is ready; by TLS with a context."""
    with http.server.HTTPServer(("127.0.0.1", 0), Ready) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            serving.join()


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_the_health_check_finds_the_port_in_the_environment_or_the_file():
    with web_server() as port:
        assert healthcheck.problem({"PULSAR_PREFIX_webServicePort": str(port)}, "webServicePort=1\n") is None
        assert healthcheck.problem({}, f"#webServicePort=1\nwebServicePort = {port} \n") is None
        assert healthcheck.problem({}, f"webServicePort={closed_port()}\n") is not None


def test_the_health_check_of_a_broker_with_tls_alone(tmp_path):
    certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with web_server(context) as port:
        environment = {"PULSAR_PREFIX_webServicePort": "", "PULSAR_PREFIX_webServicePortTls": str(port)}
        assert healthcheck.problem(environment, "webServicePort=8080\n") is None
        # A server that wants a certificate of its peer still shows that it serves.
        context.verify_mode = ssl.CERT_REQUIRED
        assert healthcheck.problem(environment, "webServicePort=8080\n") is None
    assert healthcheck.problem(environment, "webServicePort=8080\n") is not None


@pytest.mark.parametrize("key", ["brokerServicePort", "brokerServicePortTls"])
def test_the_health_check_of_a_broker_without_a_web_port(key):
    with socket.create_server(("127.0.0.1", 0)) as server:
        conf = f"webServicePort=\nbrokerServicePort=\n{key}={server.getsockname()[1]}\n"
        assert healthcheck.problem({}, conf) is None
    assert healthcheck.problem({}, conf) is not None
