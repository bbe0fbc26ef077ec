"""SASL to a real ZooKeeper, which keeps no session of a client without a user and a password."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest

from magnetar.bookkeeper.errors import MetadataError
from magnetar.bookkeeper.zookeeper.session import ZooKeeperSession
from magnetar.bookkeeper.zookeeper.values import SessionState
from magnetar.broker.clustering.zookeeper_client_file import read_security, zookeeper_options
from tests.cluster.broker_processes import free_port
from tests.cluster.real_cluster import zookeeper_server
from tests.waiting import until

pytestmark = pytest.mark.timeout(120)
SERVER = """
Server {{
  org.apache.zookeeper.server.auth.DigestLoginModule required
  user_magnetar="{password}";
}};
"""


def login_file(directory, password="secret"):
    file = directory / f"{password}.jaas"
    file.write_text(
        "Client {\n  org.apache.zookeeper.server.auth.DigestLoginModule required\n"
        f'  username="magnetar" password="{password}";\n}};\n'
    )
    return str(file)


@contextlib.contextmanager
def guarded_server(directory, port, password="secret"):
    """A ZooKeeper that wants a login with this password; it keeps its data when it is started again."""
    (directory / "server.jaas").write_text(SERVER.format(password=password))
    configuration = {
        "clientPort": port,
        "clientPortAddress": "127.0.0.1",
        "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "sessionRequireClientSASLAuth": "true",
    }
    flag = f"-Djava.security.auth.login.config={directory}/server.jaas"
    with zookeeper_server(directory, configuration, flag):
        yield


@pytest.fixture(scope="module")
def guarded(_services, tmp_path_factory):
    """A ZooKeeper that wants a login: (its address, a directory)."""
    directory = tmp_path_factory.mktemp("sasl")
    port = free_port()
    with guarded_server(directory, port):
        yield f"127.0.0.1:{port}", directory


async def connected(servers, login_path, session_ms=6000):
    options = zookeeper_options(servers, read_security("", login_path), session_ms)
    return await ZooKeeperSession.connect(options)


async def create_node(servers, login_path, path):
    session = await connected(servers, login_path)
    try:
        await session.create(path)
    finally:
        await session.close()


async def test_a_session_with_a_login_makes_nodes_that_are_open_to_all_as_apache_pulsar_does(guarded):
    servers, directory = guarded
    session = await connected(servers, login_file(directory))
    await session.create("/made", b"x")
    assert (await session.get("/made")).value == b"x"
    acls, _ = session._client.get_acls("/made")
    assert [(each.id.scheme, each.id.id, each.acl_list) for each in acls] == [("world", "anyone", ["ALL"])]
    await session.close()


async def test_no_login_and_a_wrong_password_get_no_session(guarded):
    servers, directory = guarded
    for login_path in ("", login_file(directory, "wrong")):
        with pytest.raises(MetadataError):
            await create_node(servers, login_path, "/by-a-stranger")


def test_the_command_that_initializes_a_cluster_logs_in(guarded):
    servers, directory = guarded
    command = [sys.executable, "-m", "magnetar", "initialize-cluster-metadata", "--cluster", "c1"]
    command += ["--metadata-store", f"zk:{servers}", "--jaas-login-config", login_file(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("_services")
async def test_a_session_whose_login_is_refused_for_a_while_comes_back(tmp_path):
    port = free_port()
    with guarded_server(tmp_path, port):
        session = await connected(f"127.0.0.1:{port}", login_file(tmp_path), session_ms=2000)
    states = []
    session.on_state(states.append)
    with guarded_server(tmp_path, port, "changed"):
        await until(lambda: SessionState.LOST in states)
    with guarded_server(tmp_path, port):
        await until(lambda: session.state is SessionState.CONNECTED)
        await session.create("/again")
        await session.close()
