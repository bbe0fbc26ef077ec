"""Requests of foreign web pages are refused; those of clients are not."""

import pytest

from magnetar.broker.admin.app import all_routes
from magnetar.broker.admin.browser_rules import BrowserRules
from magnetar.broker.auth.table import PROBE
from magnetar.broker.settings import Settings
from tests.broker.admin.test_admin_security import filled
from tests.broker.admin_fakes import open_client

EVIL = {"Host": "evil.example.com:8080"}
FORGED = {"Host": "127.0.0.1:8080", "Origin": "http://evil.example.com"}


def refusal(method="POST", *, probe=False, settings=None, **headers):
    rules = BrowserRules.of(settings or Settings())
    return rules.refusal(method, {name.replace("_", "-"): value for name, value in headers.items()}, probe=probe)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8080",
        "[::1]:8080",
        "[fe80::1%25eth0]:8080",
        "192.168.1.20",
        "localhost:8080",
        "LOCALHOST",
        "broker:8080",
        "magnetar.local",
        "pulsar.default.svc.cluster.local:8080",
        "node.internal",
        "",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_clients_that_are_no_browsers_pass(host, method):
    assert refusal(method, host=host) is None


@pytest.mark.parametrize("host", ["evil.example.com", "evil.example.com:8080", "127.0.0.1.evil.com", "evil.com."])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_a_name_that_anybody_can_own_is_refused(host, method):
    assert "httpAllowedHosts" in refusal(method, host=host)
    assert refusal("GET", host=host, probe=True) is None, "scraped under any name"


def test_the_brokers_own_names_are_known():
    advertised = Settings(advertised_address="mq.example.org")
    assert refusal(host="mq.example.org:8080", settings=advertised) is None
    listeners = Settings(advertised_listeners=("out:pulsar://out.example.org:6650", "out:http://web.example.org:80"))
    assert refusal(host="out.example.org:8080", settings=listeners) is None
    assert refusal(host="WEB.example.org", settings=listeners) is None
    assert refusal(host="other.example.org", settings=listeners)
    named = Settings(http_allowed_hosts=("lb.example.org",))
    assert refusal(host="lb.example.org", settings=named) is None
    assert refusal(host="evil.example.com", settings=Settings(http_allowed_hosts=("*",))) is None


def test_where_every_client_proves_its_role_a_name_gives_nothing():
    closed = Settings(authentication_enabled=True)
    assert refusal(host="lb.example.org", settings=closed) is None
    assert refusal(host="lb.example.org", origin="http://evil.example.com", settings=closed)
    anonymous = Settings(authentication_enabled=True, anonymous_user_role="anyone")
    assert refusal(host="lb.example.org", settings=anonymous)


@pytest.mark.parametrize(
    "origin", ["http://evil.example.com", "null", "http://127.0.0.1:3000", "https://localhost", "x"]
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_changes_asked_for_by_foreign_pages_are_refused(origin, method):
    assert refusal(method, host="127.0.0.1:8080", origin=origin)


def test_a_page_of_the_broker_itself_and_of_allowed_hosts_may_change_things():
    assert refusal(host="localhost:8080", origin="http://localhost:8080") is None
    named = Settings(http_allowed_hosts=("admin.example.org",))
    assert refusal(host="localhost:8080", origin="https://admin.example.org", settings=named) is None


def test_the_header_sec_fetch_site():
    local = {"host": "localhost:8080"}
    assert refusal("POST", **local, sec_fetch_site="cross-site")
    assert refusal("POST", **local, sec_fetch_site="same-site")
    assert refusal("POST", **local, sec_fetch_site="same-origin") is None
    assert refusal("GET", **local, sec_fetch_site="cross-site", sec_fetch_mode="no-cors")
    assert refusal("GET", **local, sec_fetch_site="cross-site", sec_fetch_mode="navigate") is None
    assert refusal("GET", **local, sec_fetch_site="none") is None


async def test_over_every_route():
    call = await open_client()
    for row in all_routes():
        path = filled(row.path, tenant="public", namespace="default")
        answer = await call(row.method, path, headers=EVIL)
        assert (answer.status == 403) is (row.need is not PROBE), row.path
        if row.method != "GET":
            assert (await call(row.method, path, headers=FORGED)).status == 403, row.path


async def test_the_answer_names_the_remedy():
    call = await open_client()
    answer = await call("POST", "persistent/public/default/t/unload", headers=EVIL)
    assert "Host evil.example.com:8080 is no name of this broker" in answer.reason
    assert (await call("GET", "clusters", headers={"Host": "127.0.0.1:8080"})).status == 200


async def test_the_root_leads_a_browser_to_the_console():
    """The ready line shows the address of the web port, whose root answered a browser with 404."""
    call, page = await open_client(), {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    answer = await call("GET", "/", headers=page)
    assert (answer.status, answer.headers["location"]) == (303, "/ui/")
    assert (await call("GET", "/", headers={"accept": "*/*"})).status == 404, "as in Apache Pulsar"
    assert (await call("POST", "/", headers=page)).status == 404
    assert (await call("GET", "/nothing", headers=page)).status == 404
    off = await open_client(Settings(console_enabled=False))
    assert (await off("GET", "/", headers=page)).status == 404
