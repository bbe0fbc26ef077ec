"""Authentication, authorization, grants, health and metrics over HTTP."""

import asyncio
import base64
import hashlib
import hmac
import json
import re
import threading

import pytest
from structlog.testing import capture_logs

from magnetar.broker.admin import brokers
from magnetar.broker.admin.app import all_routes
from magnetar.broker.compat import wire_refusals
from magnetar.broker.errors import PersistenceError
from magnetar.broker.policies.records import bundle_of, even_bundles
from magnetar.broker.policies.values import AuthPolicies
from magnetar.broker.settings import Settings
from magnetar.protocol import replies
from tests.broker.admin_fakes import open_client
from tests.waiting import until

KEY = bytes(range(1, 33))


def token(role):
    def part(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    body = part(b'{"alg":"HS256"}') + b"." + part(json.dumps({"sub": role}).encode())
    return (body + b"." + part(hmac.new(KEY, body, hashlib.sha256).digest())).decode()


def as_role(role):
    return {"headers": {"Authorization": f"Bearer {token(role)}"}} if role else {}


def secured(**more):
    return Settings(
        **{
            "authentication_enabled": True,
            "authorization_enabled": True,
            "authentication_providers": ("token",),
            "token_secret_key": "data:;base64," + base64.b64encode(KEY).decode(),
            "super_user_roles": ("admin",),
            "anonymous_user_role": "anonymous",
            **more,
        }
    )


def filled(path, **change):
    """The path of a route with the names of existing objects as parameters, except for `change`."""
    names = {"domain": "persistent", "tenant": "t", "namespace": "n", "topic": "a", "subscription": "s"} | change
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda m: names.get(m[1], "0"), path)


@pytest.fixture
async def call():
    client = await open_client(secured())
    info = {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}
    assert (await client("PUT", "tenants/t", info, **as_role("admin"))).status == 204
    assert (await client("PUT", "namespaces/t/n", **as_role("boss"))).status == 204
    assert (await client("PUT", "persistent/t/n/a", **as_role("boss"))).status == 204
    return client


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("persistent/t/n/a/stats", 401),
        ("persistent/t/n/a/permissions", 401),
        ("/lookup/v2/topic/persistent/t/n/a", 401),
        ("tenants", 401),
        ("tenants/t", 401),
        ("namespaces/t", 401),
        ("clusters/standalone", 401),
        ("brokers/health", 401),
        ("namespaces/t/n", 403),
        ("namespaces/t/n/permissions", 403),
        ("namespaces/t/n/retention", 403),
        ("persistent/t/n", 403),
        ("clusters", 200),
        ("brokers/version", 200),
        ("brokers/ready", 200),
        ("/metrics", 200),
    ],
)
async def test_without_rights_it_is_401_or_403_by_kind(call, path, status):
    for role in ("nobody", None):
        assert (await call("GET", path, **as_role(role))).status == status


async def test_denied_wins_over_not_found(call):
    assert (await call("GET", "persistent/t/n/none/stats", **as_role("nobody"))).status == 401
    assert (await call("GET", "namespaces/t/none/retention", **as_role("nobody"))).status == 403
    assert (await call("GET", "namespaces/none/none/retention", **as_role("nobody"))).status == 404
    assert (await call("GET", "tenants/none", **as_role("nobody"))).status == 401
    assert (await call("GET", "clusters/none", **as_role("nobody"))).status == 401


async def test_a_tenant_admin_updates_and_deletes_its_tenant_but_does_not_create_one(call):
    info = {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}
    assert (await call("GET", "tenants/t", **as_role("boss"))).status == 200
    assert (await call("POST", "tenants/t", info, **as_role("boss"))).status == 204
    assert (await call("DELETE", "tenants/t", **as_role("boss"))).status == 409
    assert (await call("DELETE", "tenants/t", **as_role("nobody"))).status == 401
    assert (await call("PUT", "tenants/t2", info, **as_role("boss"))).status == 401


async def test_grants_read_a_topic_and_consume_moves_subscriptions(call):
    await call("POST", "namespaces/t/n/permissions/writer", ["produce"], **as_role("boss"))
    await call("POST", "persistent/t/n/a/permissions/reader", ["consume"], **as_role("boss"))
    for role in ("writer", "reader"):
        assert (await call("GET", "persistent/t/n/a/stats", **as_role(role))).status == 200
        assert (await call("DELETE", "persistent/t/n/a", **as_role(role))).status == 403
    assert (await call("PUT", "persistent/t/n/a/subscription/s", **as_role("writer"))).status == 401
    assert (await call("PUT", "persistent/t/n/a/subscription/s", **as_role("reader"))).status == 204
    assert (await call("POST", "persistent/t/n/a/subscription/s/skip_all", **as_role("reader"))).status == 204


async def test_bad_tokens_count_as_anonymous(call):
    bad = {"headers": {"Authorization": "Bearer nonsense"}}
    assert (await call("GET", "clusters", **bad)).status == 200
    assert (await call("GET", "tenants", **bad)).status == 401
    assert (await call("GET", "tenants", **as_role("admin"))).status == 200


async def test_the_log_names_the_address_of_a_client_without_valid_credentials():
    """A bad token in the query was logged as a request without credentials, and no refusal had an address."""
    call = await open_client(secured(anonymous_user_role=""))
    with capture_logs() as lines:
        await call("GET", "tenants")
        await call("GET", "tenants?token=bad.to.ken")
        await call("PUT", "tenants/a", {}, headers={"origin": "http://other.example"})
    refused, failed, foreign = lines
    assert (refused["event"], refused["address"]) == ("request.refused", "127.0.0.1")
    assert (failed["event"], failed["log_level"], failed["address"]) == (
        "authentication.failed",
        "warning",
        "127.0.0.1",
    )
    assert failed["method"] == "token" and "bad.to" not in str(failed)
    assert (foreign["event"], foreign["address"]) == ("request.refused", "127.0.0.1")


async def test_without_an_anonymous_role_credentials_are_needed():
    call = await open_client(secured(anonymous_user_role=""))
    assert (await call("GET", "tenants")).status == 401
    assert (await call("GET", "brokers/ready")).status == 200
    assert (await call("GET", "/metrics")).status == 200
    for path in ("clusters", "brokers/version"):
        assert (await call("GET", path)).status == 401
        assert (await call("GET", path, **as_role("nobody"))).status == 200
    closed = await open_client(secured(anonymous_user_role="", authenticate_metrics_endpoint=True))
    assert (await closed("GET", "/metrics")).status == 401
    assert (await closed("GET", "/metrics", **as_role("nobody"))).status == 200


@pytest.mark.parametrize("authorization", [True, False])
async def test_nothing_but_probes_is_open_to_clients_without_credentials(authorization):
    """Above all no grant: it would count as soon as authorization is enabled."""
    call = await open_client(secured(anonymous_user_role="", authorization_enabled=authorization))
    probes = set()
    for row in all_routes():
        answer = await call(row.method, filled(row.path))
        if answer.status != 401:
            probes.add(row.path)
    assert probes == {"/admin/v2/brokers/ready", "/status", "/status.html", "/metrics", "/metrics/"}
    assert call.broker.namespaces.policies("public/default").auth_policies == AuthPolicies()


def nameless(answer):
    """The answer without the name of the resource, which the caller knows."""
    raw = re.sub(rb"(on (?:topic|namespace|tenant|cluster)) \[[^]]*\]", rb"\1", answer.raw)
    return re.sub(rb"persistent://[^]\"]*", b"", raw)


async def test_a_role_without_rights_cannot_probe_for_existing_objects(call):
    """Over every route: the same answer for an existing and a missing namespace, topic or subscription. Only the
    absence of a tenant shows, as in Apache Pulsar.
    """
    await call("PUT", "persistent/t/n/a/subscription/s", **as_role("boss"))
    compared = 0
    for row in all_routes():
        there = await call(row.method, filled(row.path), **as_role("nobody"))
        assert row.need.is_open or there.status in (401, 403), row.path
        for change in ({"tenant": "x"}, {"namespace": "x"}, {"topic": "x"}, {"subscription": "x"}, {"cluster": "x"}):
            if row.need.is_open and filled(row.path, **change) == filled(row.path):
                continue
            missing = await call(row.method, filled(row.path, **change), **as_role("nobody"))
            if "tenant" in change and missing.status == 404 and not row.need.is_open:
                assert missing.raw == b'{"reason":"Tenant does not exist"}', row.path
                continue
            assert (missing.status, nameless(missing)) == (there.status, nameless(there)), (row.path, change)
            compared += 1
    assert compared > 1000


async def test_an_administrator_cannot_probe_for_topics_of_other_tenants_by_shadow_topics(call):
    for tenant in ("t", "u"):
        info = {"adminRoles": ["boss"] if tenant == "t" else ["other"], "allowedClusters": ["standalone"]}
        await call("PUT", f"tenants/{tenant}", info, **as_role("admin"))
    await call("PUT", "namespaces/u/n", **as_role("other"))
    await call("PUT", "persistent/u/n/a", **as_role("other"))
    found = []
    for shadow in ("persistent://u/n/a", "persistent://u/n/x", "persistent://t/n/a"):
        answer = await call("PUT", "persistent/t/n/a/shadowTopics", [shadow], **as_role("boss"))
        found.append((answer.status, answer.json["reason"].replace(shadow, "")))
    assert found[0] == found[1] != found[2]


async def test_proxies_speak_for_others():
    call = await open_client(secured(proxy_roles=("proxy",), super_user_roles=("admin", "proxy")))
    through = {"headers": {"Authorization": f"Bearer {token('proxy')}", "X-Original-Principal": "admin"}}
    assert (await call("GET", "tenants", **through)).status == 200
    through["headers"]["X-Original-Principal"] = "nobody"
    assert (await call("GET", "tenants", **through)).status == 401
    assert (await call("GET", "tenants", **as_role("proxy"))).status == 401


async def test_grants_are_replaced_listed_and_revoked():
    call = await open_client()
    path = "namespaces/public/default/permissions"
    heard = []
    call.broker.namespaces.listen(heard.append)
    assert (await call("GET", path)).json == {}
    assert (await call("POST", path + "/user", ["produce", "nonsense"])).status == 204
    assert (await call("POST", path + "/other", ["consume"])).status == 204
    assert (await call("GET", path)).json == {"user": [None, "produce"], "other": ["consume"]}
    assert (await call("POST", path + "/user", ["consume"])).status == 204
    assert (await call("DELETE", path + "/other")).status == 204
    assert (await call("DELETE", path + "/other")).status == 204
    assert (await call("GET", path)).json == {"user": ["consume"]}
    assert (await call("POST", path + "/user")).status == 400
    assert (await call("POST", path + "/user", [])).status == 204
    assert (await call("GET", path)).json == {"user": []}
    assert len(heard) == 6


async def test_grants_of_subscriptions_and_topics():
    call = await open_client()
    path = "namespaces/public/default/permissions"
    assert (await call("POST", path + "/subscription/s", ["b", "a"])).status == 204
    assert (await call("GET", path + "/subscription")).json == {"s": ["a", "b"]}
    assert (await call("DELETE", path + "/s/a")).status == 204
    assert (await call("DELETE", path + "/s/b")).status == 204
    assert (await call("GET", path + "/subscription")).json == {}
    await call("PUT", "persistent/public/default/t")
    topic = "persistent/public/default/t/permissions"
    await call("POST", path + "/user", ["produce"])
    assert (await call("POST", topic + "/user", ["consume"])).status == 204
    assert (await call("GET", topic)).json == {"user": ["produce", "consume"]}
    assert (await call("DELETE", topic + "/user")).status == 204
    assert (await call("GET", topic)).json == {"user": ["produce"]}
    assert (await call("POST", "persistent/public/default/none/permissions/user", ["consume"])).status == 404


async def test_rights_on_a_missing_topic_need_their_setting():
    call = await open_client(settings=Settings(allow_acl_changes_on_non_existent_topics=True))
    topic = "persistent/public/default/none/permissions"
    assert (await call("POST", topic + "/user", ["consume"])).status == 204
    assert (await call("GET", topic)).json == {"user": ["consume"]}
    assert (await call("DELETE", topic + "/user")).status == 204
    assert (await call("GET", topic)).json == {}
    grants = [{"topic": "persistent://public/default/none", "role": "user", "actions": ["consume"]}]
    assert (await call("POST", "namespaces/grantPermissionsOnTopics", grants)).status == 404


# --- the broker itself ---------------------------------------------------------------------------------------------


async def test_health_and_readiness():
    call = await open_client()
    for path in ("brokers/health", "brokers/ready", "/status"):
        assert (await call("GET", path)).raw == b"ok"
    call.broker.health_error = PersistenceError("disk")
    assert (await call("GET", "brokers/health")).status == 500
    call.broker.ready = False
    for path in ("brokers/health", "brokers/ready", "/status", "/status.html"):
        assert (await call("GET", path)).status == 503


async def test_the_status_page_follows_the_status_file(tmp_path):
    """As in Apache Pulsar: a broker whose file is removed leaves the rotation of its load balancer."""
    without_file = await (await open_client())("GET", "/status.html")
    assert (without_file.raw, without_file.headers["content-type"]) == (b"OK", "text/plain")
    file = tmp_path / "in-rotation"
    call = await open_client(Settings(status_file_path=str(file)))
    assert (await call("GET", "/status.html")).status == 404
    assert (await call("GET", "/status")).status == 200
    file.touch()
    assert (await call("GET", "/status.html")).raw == b"OK"


async def test_a_file_system_that_hangs_holds_one_thread_for_all_probes(monkeypatch):
    """The event loop looked for the file itself."""
    answers, looks = threading.Event(), []

    def exists(path):
        looks.append(path)
        return answers.wait(60)

    monkeypatch.setattr(brokers.Path, "exists", exists)
    call = await open_client(Settings(status_file_path="/hangs"))
    probes = [asyncio.ensure_future(call("GET", "/status.html")) for _ in range(20)]
    try:
        await until(lambda: looks)
        with monkeypatch.context() as short:
            short.setattr(brokers, "LOOK_WITHIN_S", 0.0)
            assert (await call("GET", "/status.html")).status == 503
    finally:
        answers.set()
    assert {answer.raw for answer in await asyncio.gather(*probes)} == {b"OK"}
    assert len(looks) == 1


async def test_a_protection_that_is_not_kept_cannot_be_switched_on_at_run_time():
    call = await open_client()
    answer = await call("POST", "brokers/configuration/strictlyVerifySubscriptionName/true")
    assert answer.status == 412
    assert "strictlyVerifySubscriptionName has no effect here: leave it out" in answer.reason
    assert (await call("POST", "brokers/configuration/strictlyVerifySubscriptionName/false")).status == 200


async def test_secrets_changed_at_run_time_are_not_shown():
    call = await open_client()
    path = "brokers/configuration/brokerClientAuthenticationParameters/token:s3cret"
    assert (await call("POST", path)).status == 200
    for page in ("values", "runtime"):
        answer = await call("GET", f"brokers/configuration/{page}")
        assert answer.json["brokerClientAuthenticationParameters"] == "(hidden)"
        assert b"s3cret" not in answer.raw


async def test_a_changed_setting_without_an_effect_is_shown_as_changed():
    call = await open_client()
    runtime = "brokers/configuration/runtime"
    assert (await call("GET", runtime)).json["replicationStartAt"] == "latest"
    assert (await call("POST", "brokers/configuration/replicationStartAt/earliest")).status == 200
    assert (await call("GET", runtime)).json["replicationStartAt"] == "earliest"


async def test_facts_about_the_broker():
    call = await open_client(Settings(token_secret_key="very-secret"))
    assert (await call("GET", "brokers/standalone")).json == ["localhost:8080"]
    assert (await call("GET", "brokers/leaderBroker")).json["serviceUrl"] == "http://localhost:8080"
    runtime = (await call("GET", "brokers/configuration/runtime")).json
    assert runtime["maxMessageSize"] == "5242880"
    assert runtime["numHttpServerThreads"] != "0"
    assert runtime["exposePublisherStats"] == "true"
    assert "very-secret" not in json.dumps(runtime)
    assert runtime["tokenSecretKey"] == "(hidden)"
    assert runtime["brokerClientAuthenticationParameters"] == ""
    assert (await call("POST", "brokers/configuration/maxMessageSize/5")).status == 412
    assert (await call("DELETE", "brokers/configuration/maxMessageSize")).status == 412
    managers = "brokers/configuration/loadManagerClassName/org.apache.pulsar.broker.loadbalance."
    assert (await call("POST", managers + "NoSuchManager")).status == 412
    assert (await call("POST", managers + "impl.ModularLoadManagerImpl")).status == 200
    await call("PUT", "persistent/public/default/t")
    owned = (await call("GET", "brokers/standalone/localhost:8080/ownedNamespaces")).json
    assert list(owned) == [f"public/default/{bundle_of('persistent://public/default/t', even_bundles(4))}"]
    assert (await call("GET", "brokers/standalone/other:1/ownedNamespaces")).status == 404
    assert (await call("GET", "broker-stats/load-report")).json["numTopics"] == 1
    figures = (await call("GET", "broker-stats/metrics")).json
    here = {"broker": "localhost", "cluster": "standalone"}
    of_namespace = {"namespace": "public/default"}
    assert [each["dimensions"] for each in figures] == [here, here | {"metric": "broker_connection"}, of_namespace]
    assert figures[0]["metrics"]["pulsar_active_connections"] == 2
    assert figures[1]["metrics"]["brk_active_connections"] == 2
    assert figures[2]["metrics"]["brk_no_of_subscriptions"] == 0
    assert "public/default" in (await call("GET", "broker-stats/topics")).json


async def test_lookup():
    call = await open_client()
    path = "/lookup/v2/topic/persistent/public/default/t"
    assert (await call("GET", path)).json == {
        "brokerUrl": "pulsar://localhost:6650",
        "httpUrl": "http://localhost:8080",
        "nativeUrl": "pulsar://localhost:6650",
        "brokerUrlSsl": "",
    }
    assert (await call("GET", path + "?listenerName=known")).status == 200
    assert (await call("GET", path + "?listenerName=unknown")).status == 500
    assert (await call("GET", "/lookup/v2/topic/persistent/public/none/t")).status == 404
    await call("PUT", "namespaces/public/apz")
    bundle = (await call("GET", "/lookup/v2/topic/persistent/public/apz/t/bundle")).raw
    assert bundle == b"0x80000000_0xc0000000", "as Apache Pulsar 4.2.4 answered for this name"


async def test_a_lookup_beyond_the_limit():
    call = await open_client(Settings(max_concurrent_lookup_request=1))
    path = "/lookup/v2/topic/persistent/public/default/t"
    with call.broker.lookups.slot(1):
        for name in (path, "/lookup/v2/topic/persistent/public/none/t"):
            answer = await call("GET", name)
            assert (answer.status, answer.reason) == (503, "Service Unavailable")
        assert (await call("GET", path + "/bundle")).status == 200
    assert (await call("GET", path)).status == 200


@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
async def test_the_roots_of_the_api_redirect_without_a_slash(method):
    call = await open_client()
    for path in ("/admin/v2", "/admin/v3", "/lookup", "/topics"):
        for query in ("", "?a=b&c=%20d"):
            answer = await call(method, path + query)
            assert (answer.status, answer.headers["location"]) == (301, path + "/" + query)
        assert (await call(method, path + "/")).status == 404


async def test_bugs_are_500_without_details():
    call = await open_client()

    async def broken(*_args, **_more):
        raise ZeroDivisionError("secret detail")

    call.topics.stats = broken
    await call("PUT", "persistent/public/default/t")
    answer = await call("GET", "persistent/public/default/t/stats")
    assert answer.status == 500
    assert b"secret" not in answer.raw


async def test_a_role_with_half_of_a_surrogate_pair_is_a_role_like_others():
    """Apache Pulsar accepts such a token; requests whose refusal has the role got 500 here."""
    client = await open_client(secured())
    answer = await client("GET", "tenants", **as_role("a\ud800b"))
    assert answer.status == 401
    assert "a\ud800b" in answer.json["reason"]
    code, text = wire_refusals.TRANSACTION_OF_SUPER_USERS.answer(role="a\ud800\u00e4", most=1, least=2)
    assert text.startswith("TC client (a?\u00e4) is not a super user")
    assert replies.error(1, code, text)
