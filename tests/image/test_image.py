"""The image in real containers, as Testcontainers and compose files start it: `make image-test`.

Needs podman or docker ($CONTAINERS) and the image ($MAGNETAR_IMAGE); skipped elsewhere. Without DOCKER_HOST podman serves
Docker's API for the run.
"""

import base64
import contextlib
import datetime as dt
import json
import os
import pathlib
import shutil
import socket
import subprocess
import threading
import time
import urllib.request

import pulsar
import pytest

from tests.waiting import wait_for

IMAGE = os.environ.get("MAGNETAR_IMAGE", "")
CONTAINERS = os.environ.get("CONTAINERS") or shutil.which("podman") or shutil.which("docker") or ""
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CONF = "/pulsar/bin/apply-config-from-env.py /pulsar/conf/standalone.conf && bin/pulsar standalone"
LOOPBACK = {"TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1"}
"""Where the published ports are, also for a program that runs in a container itself."""
MOST_BYTES = 150 * 10**6
pytestmark = [
    pytest.mark.skipif(not (IMAGE and CONTAINERS), reason="make image-test"),
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore"),
]


def containers(*arguments, check=True):
    return subprocess.run([CONTAINERS, *arguments], capture_output=True, text=True, timeout=240, check=check).stdout


@pytest.fixture(scope="module", autouse=True)
def docker_api(tmp_path_factory):
    """Docker's API for Testcontainers; podman's own where none is named."""
    if "DOCKER_HOST" in os.environ or "podman" not in CONTAINERS:
        yield
        return
    path = tmp_path_factory.mktemp("api") / "docker.sock"
    with subprocess.Popen([CONTAINERS, "system", "service", "--time=0", f"unix://{path}"]) as service:
        wait_for(lambda: service.poll() is not None or path.exists(), subject="the socket of the container engine")
        assert service.poll() is None
        os.environ |= {
            "DOCKER_HOST": f"unix://{path}",
            "TESTCONTAINERS_RYUK_DISABLED": "true",
            "TESTCONTAINERS_CONNECTION_MODE": "docker_host",
        }
        yield
        service.terminate()


class Container:
    """A container with published ports that this machine has chosen."""

    def __init__(self, started):
        self._started = started

    def port(self, number):
        return self._started.get_exposed_port(number)

    def run(self, *command):
        done = self._started.exec(list(command))
        return done.exit_code, done.output.decode()

    @property
    def url(self):
        return f"pulsar://127.0.0.1:{self.port(6650)}"

    def get(self, path, token=None):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port(8080)}{path}")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.read().decode()


@pytest.fixture
def start():
    """Start a container by Testcontainers with a command and settings; all are removed at the end."""
    from testcontainers.core.container import DockerContainer

    running = []

    def start_one(command, ports=(6650, 8080), volumes=(), **environment):
        container = DockerContainer(IMAGE).with_exposed_ports(*ports)
        if command is not None:
            container.with_command(command)
        for key, value in environment.items():
            container.with_env("PULSAR_PREFIX_" + key, value)
        for source, target in volumes:
            container.with_volume_mapping(str(source), target, "ro")
        running.append(container.start())
        started = Container(container)
        end = time.monotonic() + 60
        while True:
            try:
                started.get("/admin/v2/brokers/ready")
                return started
            except OSError:
                assert time.monotonic() < end, container.get_logs()
                time.sleep(0.1)

    yield start_one
    for container in running:
        container.stop()


def exchange(url, **options):
    """Produce and consume one message through the addresses that a client sees."""
    client = pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull), **options)
    consumer = client.subscribe("persistent://public/default/orders", "billing")
    client.create_producer("persistent://public/default/orders").send(b"order 17")
    message = consumer.receive(20_000)
    consumer.acknowledge(message)
    client.close()
    return message.data()


def test_as_the_testcontainers_modules_start_it(start):
    """Java's and Go's command, on other ports than those inside, with the requests of their wait strategies."""
    container = start(["/bin/bash", "-c", CONF + " --no-functions-worker -nss"], brokerDeduplicationEnabled="true")
    assert container.get("/admin/v2/clusters") == '["standalone"]'
    assert container.port(6650) != 6650
    assert exchange(container.url) == b"order 17"
    code, text = container.run("bash", "-c", "grep brokerDeduplicationEnabled /pulsar/conf/standalone.conf; id -u")
    assert (code, text.split()) == (0, ["brokerDeduplicationEnabled=true", "10000"])


@pytest.mark.parametrize("command", [None, "bin/pulsar standalone", "bin/pulsar standalone -nfw"])
def test_as_compose_files_start_it(start, command):
    assert exchange(start(command).url) == b"order 17"


def test_the_tools_inside(start):
    container = start(None)
    assert container.run("bin/pulsar-admin", "topics", "create", "persistent://public/default/made")[0] == 0
    code, text = container.run("/pulsar/bin/pulsar-admin", "topics", "list", "public/default")
    assert code == 0
    assert "persistent://public/default/made" in text
    code, text = container.run("bin/pulsar-client", "produce", "made", "-m", "hello")
    assert code == 0, text
    assert container.run("/pulsar/bin/healthcheck") == (0, "")
    assert container.run("bin/pulsar", "version")[0] == 0
    assert container.run("bin/pulsar", "bookie")[0] != 0


def test_with_tokens(start):
    key = base64.b64encode(bytes(range(32))).decode()
    container = start(
        ["/bin/bash", "-c", CONF],
        authenticationEnabled="true",
        authorizationEnabled="true",
        authenticationProviders="org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        tokenSecretKey=f"data:;base64,{key}",
        superUserRoles="admin",
    )
    code, token = container.run(
        "bin/pulsar", "tokens", "create", "--secret-key", f"data:;base64,{key}", "--subject", "admin"
    )
    assert code == 0
    authentication = pulsar.AuthenticationToken(token.strip())
    assert exchange(container.url, authentication=authentication) == b"order 17"
    assert json.loads(container.get("/admin/v2/clusters", token.strip())) == ["standalone"]
    with pytest.raises((pulsar.AuthenticationError, pulsar.Timeout)):
        exchange(container.url, operation_timeout_seconds=3)


def test_with_tls(start, tmp_path):
    certificate(tmp_path)
    container = start(
        ["/bin/bash", "-c", CONF],
        ports=(6650, 8080, 6651, 8443),
        volumes=[(tmp_path, "/certificates")],
        brokerServicePortTls="6651",
        webServicePortTls="8443",
        tlsCertificateFilePath="/certificates/cert.pem",
        tlsKeyFilePath="/certificates/key.pem",
    )
    url = f"pulsar+ssl://localhost:{container.port(6651)}"
    assert exchange(url, tls_trust_certs_file_path=str(tmp_path / "cert.pem")) == b"order 17"


def certificate(folder):
    """A certificate for localhost, readable for the container's user."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now).not_valid_after(now + dt.timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(made.sign(key, hashes.SHA256()).public_bytes(pem))
    (folder / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    folder.chmod(0o755)
    (folder / "key.pem").chmod(0o644)


def test_data_outlive_the_container():
    name, volume = f"magnetar-{os.getpid()}", f"magnetar-{os.getpid()}"
    try:
        for action in ("produce", "consume"):
            containers("run", "-d", "--name", name, "-v", f"{volume}:/pulsar/data", "-p", "127.0.0.1::6650", IMAGE)
            port = containers("port", name, "6650").strip().rpartition(":")[2]
            client = pulsar.Client(
                f"pulsar://127.0.0.1:{port}", logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
            )
            if action == "produce":
                client.subscribe("kept", "sub")
                client.create_producer("kept").send(b"kept")
            else:
                assert client.subscribe("kept", "sub").receive(20_000).data() == b"kept"
            client.close()
            containers("kill", name)
            containers("rm", "-f", name)
    finally:
        containers("rm", "-f", name, check=False)
        containers("volume", "rm", "-f", volume, check=False)


def test_it_is_small_and_not_root():
    (found,) = json.loads(containers("image", "inspect", IMAGE))
    assert found["Size"] < MOST_BYTES
    assert found["Config"]["User"] == "10000"
    assert not found["Config"].get("Entrypoint")
    assert found["Config"].get("Healthcheck") or found.get("Healthcheck")


@pytest.mark.timeout(900)
def test_javas_testcontainers_take_it_as_a_substitute(tmp_path):
    if not shutil.which("mvn"):
        pytest.skip("no Maven here")
    shutil.copytree(HERE / "java", tmp_path / "java")
    done = subprocess.run(
        ["mvn", "-q", "-B", "test"], cwd=tmp_path / "java", capture_output=True, text=True, timeout=800, check=False,
        env=os.environ | {"MAGNETAR_IMAGE": IMAGE},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]


@pytest.mark.timeout(400)
def test_the_go_module_of_testcontainers_takes_it(tmp_path):
    if not shutil.which("go"):
        pytest.skip("no Go here")
    shutil.copytree(HERE / "go", tmp_path / "go")
    done = subprocess.run(
        ["go", "test", "-count=1", "."], cwd=tmp_path / "go", capture_output=True, text=True, timeout=380, check=False,
        env=os.environ | LOOPBACK | {"GOFLAGS": "-mod=mod", "GOSUMDB": os.environ.get("GOSUMDB", "off")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_testcontainers_for_node_start_it(tmp_path):
    if not shutil.which("npm"):
        pytest.skip("no Node here")
    shutil.copytree(HERE / "node", tmp_path / "node")
    for command in (
        ["npm", "install", "--no-audit", "--no-fund"],
        ["node", "--experimental-websocket", "--test", "image.test.js"],
    ):
        done = subprocess.run(
            command, cwd=tmp_path / "node", capture_output=True, text=True, timeout=200, check=False,
            env=os.environ | LOOPBACK,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_the_compose_file_gives_a_broker_that_prometheus_scrapes(tmp_path):
    """Needs docker-compose, and prom/prometheus on this machine or a registry that has it."""
    compose = shutil.which("docker-compose")
    if compose is None:
        pytest.skip("no docker-compose here")
    name = f"magnetar{os.getpid()}"
    ports = dict(zip(("MAGNETAR_PORT", "MAGNETAR_HTTP_PORT", "PROMETHEUS_PORT"), free_ports(3), strict=True))
    environ = os.environ | {key: str(value) for key, value in ports.items()}
    arguments = [compose, "-p", name, "-f", str(ROOT / "docker/compose.yml")]
    ended = threading.Event()
    checking = threading.Thread(target=check_health, args=(f"{name}_pulsar_1", ended))
    checking.start()
    try:
        subprocess.run(
            [*arguments, "up", "-d", "--no-build"], env=environ, capture_output=True, timeout=120, check=True
        )
        assert exchange(f"pulsar://127.0.0.1:{ports['MAGNETAR_PORT']}") == b"order 17"
        query = f"http://127.0.0.1:{ports['PROMETHEUS_PORT']}/api/v1/query?query=pulsar_in_messages_total"
        wait_for(lambda: b"orders" in fetched(query), 90, "the scraped topic", every=1, ignoring=OSError)
    finally:
        ended.set()
        checking.join()
        subprocess.run([*arguments, "down", "-v", "-t", "5"], env=environ, capture_output=True, timeout=60, check=False)


def check_health(container, ended):
    """podman leaves the timing of health checks to systemd, which is not everywhere."""
    while not ended.wait(0.5):
        containers("healthcheck", "run", container, check=False)


def fetched(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read()


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]
