"""Configurations that must not leave a broker open, and attempts of web pages and unauthenticated clients on other
brokers.
"""

import http.client
import json
import subprocess
import sys
import urllib.parse

import pytest

from tests.attack.conftest import SECURED, connect, token
from tests.attack.conftest import http as request

OPEN = ("brokerServicePort=0", "webServicePort=0")


def refused(tmp_path, *settings, environment=None, file=""):
    """The output of a broker that must not start."""
    config = tmp_path / "broker.conf"
    config.write_text(file)
    arguments = [sys.executable, "-m", "magnetar", "standalone", "--data-dir", str(tmp_path / "data")]
    arguments += ["--config", str(config)]
    for each in (*OPEN, *settings):
        arguments += ["--set", each]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 78, done.stderr
    assert "ready" not in done.stdout
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("typo", ["authenticationEnable", "AuthorizationEnabled", "superUserRole", "tlsRequireTrusted"])
@pytest.mark.parametrize("source", ["command line", "environment", "file"])
def test_a_misspelt_key_does_not_start_an_open_broker(tmp_path, typo, source):
    given = {
        "command line": lambda: refused(tmp_path, f"{typo}=true"),
        "environment": lambda: refused(tmp_path, environment={f"PULSAR_PREFIX_{typo}": "true"}),
        "file": lambda: refused(tmp_path, file=f"{typo}=true\n"),
    }
    assert f"unknown setting {typo}; did you mean" in given[source]()


@pytest.mark.parametrize(
    "settings",
    [
        ["tlsRequireTrustedClientCertOnConnect=true"],
        ["tlsEnabledWithKeyStore=true"],
        ["authorizationEnabled=true"],
        ["authenticationEnabled=true"],
        ["authenticationEnabled=true", "authenticationProviders=sasl"],
        ["entryFilterNames=MyFilter"],
        ["maxConcurrentHttpRequests=10"],
    ],
    ids=lambda settings: settings[-1],
)
def test_a_protection_that_cannot_be_kept_does_not_start(tmp_path, settings):
    said = refused(tmp_path, *settings)
    assert settings[-1].partition("=")[0] in said or "authenticationProviders" in said


@pytest.mark.parametrize("authorization", ["true", "false"])
def test_unproven_clients_store_no_grants(new_broker, authorization):
    """With authorization switched off too: grants would count as soon as it is switched on."""
    broker = new_broker(**SECURED | {"authorizationEnabled": authorization})
    grants = json.dumps([{"topic": "persistent://public/default/t", "role": "evil", "actions": ["produce"]}]).encode()
    base = "/admin/v2/namespaces"
    assert request(broker, "PUT", "/admin/v2/persistent/public/default/t", role="admin")[0] == 204
    for method, path, body in (
        ("POST", f"{base}/grantPermissionsOnTopics", grants),
        ("POST", f"{base}/public/default/permissions/evil", b'["produce"]'),
        ("POST", "/admin/v2/persistent/public/default/t/permissions/evil", b'["produce"]'),
        ("PUT", "/admin/v2/tenants/evil", b'{"adminRoles": ["evil"], "allowedClusters": ["standalone"]}'),
        ("GET", "/admin/v2/clusters", b""),
    ):
        assert request(broker, method, path, body)[0] == 401, path
    status, body = request(broker, "GET", "/admin/v2/persistent/public/default/t/permissions", role="admin")
    assert (status, body) == (200, b"{}")
    assert broker.stop() == 0


def test_a_role_without_rights_cannot_tell_which_namespaces_exist(new_broker):
    broker = new_broker(**SECURED)
    for method, path in (
        ("GET", "/admin/v2/namespaces/public/{}/retention"),
        ("GET", "/admin/v2/persistent/public/{}/t/stats"),
        ("PUT", "/admin/v2/persistent/public/{}/t/unload"),
        ("GET", "/lookup/v2/topic/persistent/public/{}/t"),
    ):
        answers = set()
        for name in ("default", "none"):
            status, body = request(broker, method, path.format(name), role="nobody")
            answers.add((status, body.replace(f"public/{name}".encode(), b"")))  # the refusal repeats the name
        assert len(answers) == 1, path
        assert answers.pop()[0] in (401, 403), path
    assert broker.stop() == 0


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example.com"},
        {"Host": "127.0.0.1:{port}", "Origin": "http://evil.example.com"},
        {"Host": "127.0.0.1:{port}", "Origin": "null"},
        {"Host": "localhost:{port}", "Sec-Fetch-Site": "cross-site"},
    ],
    ids=["rebound name", "foreign page", "hidden page", "browser says so"],
)
def test_web_pages_change_nothing(new_broker, headers):
    broker = new_broker()
    address = urllib.parse.urlsplit(broker.http)
    sent = {name: value.format(port=address.port) for name, value in headers.items()}
    topic = "/admin/v2/persistent/public/default/victim"
    assert request(broker, "PUT", topic)[0] == 204
    assert request(broker, "PUT", f"{topic}/subscription/s")[0] == 204
    for method, path in (
        ("POST", f"{topic}/subscription/s/skip_all"),
        ("POST", f"{topic}/terminate"),
        ("POST", "/admin/v2/brokers/configuration/maxTenants/1"),
        ("DELETE", f"{topic}?force=true"),
        ("PUT", f"{topic}/subscription/mine"),
    ):
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=20)
        connection.request(method, path, headers=sent)
        assert connection.getresponse().status == 403, path
        connection.close()
    assert json.loads(request(broker, "GET", f"{topic}/subscriptions")[1]) == ["s"]
    assert request(broker, "GET", "/admin/v2/brokers/configuration/values")[1] == b"{}"
    assert broker.stop() == 0


def test_secrets_are_in_no_log_and_no_answer(new_broker):
    broker = new_broker(**SECURED)
    secret = SECURED["tokenSecretKey"].partition(",")[2]
    for page in ("runtime", "values"):
        status, body = request(broker, "GET", f"/admin/v2/brokers/configuration/{page}", role="admin")
        assert status == 200
        assert secret.encode() not in body
    log = broker.log_text()
    assert secret not in log
    assert token("admin") not in log
    assert "tokenSecretKey is visible to every user of this machine" in log
    assert broker.stop() == 0


def test_a_role_without_rights_cannot_tell_which_topics_exist(new_broker):
    broker = new_broker(**SECURED)
    assert request(broker, "PUT", "/admin/v2/persistent/public/default/there", role="admin")[0] == 204
    peer = connect(broker.url, "nobody")
    topics = [f"persistent://{name}" for name in ("public/default/there", "public/default/x", "public/x/x", "x/x/x")]
    for type_name, field, values in (
        ("LOOKUP", "lookupTopic", {"authoritative": False}),
        ("PARTITIONED_METADATA", "partitionMetadata", {}),
        ("PRODUCER", "producer", {"producer_id": 1}),
        ("SUBSCRIBE", "subscribe", {"subscription": "s", "subType": 1, "consumer_id": 1}),
        ("GET_SCHEMA", "getSchema", {}),
    ):
        answers = set()
        known = type_name == "PARTITIONED_METADATA"  # answers TopicNotFound for an unknown tenant, as clients expect
        for topic in topics[:3] if known else topics:
            found = peer.ask(type_name, field, topic=topic, **values)
            [(_, answer)] = [(f, v) for f, v in found.ListFields() if f.name != "type"]
            answer.request_id = 0
            answers.add((found.type, answer.SerializeToString()))
        assert len(answers) == 1, (type_name, answers)
    peer.socket.close()
    assert broker.stop() == 0
