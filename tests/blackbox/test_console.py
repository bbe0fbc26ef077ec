"""The console of a running broker, by requests like those of a browser."""

import html
import http.cookiejar
import re
import urllib.error
import urllib.parse
import urllib.request

import pulsar
import pytest

from tests.blackbox.clients import quiet_client

TOPIC = "persistent://public/default/orders"
SECURED = {
    "authenticationEnabled": "true",
    "authenticationProviders": "basic",
    "authorizationEnabled": "true",
    "superUserRoles": "admin",
    "basicAuthConf": "data:;base64,YWRtaW46e1NIQX1xVXFQNWN5eG02WWNUQWh6MDVIcGg1Z3Z1OU09Cg==",
}
"""User admin, password test."""


class Browser:
    """Keeps cookies, follows redirects, sends the headers of a browser."""

    def __init__(self, broker):
        self.http = broker.http
        self.cookies = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies))

    def get(self, path, **headers):
        return self._open(urllib.request.Request(self.http + path, headers=headers))

    def post(self, path, origin=None, **form):
        request = urllib.request.Request(self.http + path, data=urllib.parse.urlencode(form).encode())
        request.add_header("Origin", origin or self.http)
        return self._open(request)

    def _open(self, request):
        """(status, page as text, headers)"""
        try:
            with self._opener.open(request, timeout=20) as answer:
                return answer.status, html.unescape(answer.read().decode()), answer.headers
        except urllib.error.HTTPError as e:
            with e:
                return e.code, html.unescape(e.read().decode()), e.headers


@pytest.fixture
def broker(new_broker):
    return new_broker()


def topic_page(name=TOPIC):
    return "/ui/topic?" + urllib.parse.urlencode({"name": name})


def test_a_day_at_the_console(broker):
    browser = Browser(broker)
    client = quiet_client(broker.url)
    consumer = client.subscribe(TOPIC, "billing", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(TOPIC, batching_enabled=True, batching_max_publish_delay_ms=50)
    for number in range(3):
        producer.send_async(f"order {number}".encode(), None, partition_key=f"k{number}")
    producer.flush()
    status, page, _ = browser.get("/ui/")
    assert status == 200 and TOPIC in page
    status, page, _ = browser.get(topic_page())
    assert "billing" in page and '<rect class="kept"' in page

    status, page, _ = browser.post("/ui/do/publish", topic=TOPIC, payload="from <the> console", key="x")
    assert status == 200 and "The message is published." in page
    received = {consumer.receive(20_000).data() for _ in range(4)}
    assert b"from <the> console" in received
    consumer.close()

    subscription = "/ui/subscription?" + urllib.parse.urlencode({"topic": TOPIC, "name": "billing", "peek": 10})
    status, page, _ = browser.get(subscription)
    assert all(f"<pre>order {number}</pre>" in page for number in range(3)), "a batch is shown message by message"
    assert "<pre>from <the> console</pre>" in page

    status, page, _ = browser.post("/ui/do/clear", topic=TOPIC, subscription="billing")
    assert "The backlog is cleared." in page
    assert "The backlog is empty." in browser.get(subscription)[1]
    browser.post("/ui/do/seek", topic=TOPIC, subscription="billing", where="earliest")
    assert "<pre>order 0</pre>" in browser.get(subscription)[1]

    status, page, _ = browser.post("/ui/do/unsubscribe", topic=TOPIC, subscription="billing")
    assert "The subscription is deleted." in page
    status, page, _ = browser.get(subscription)
    assert status == 404 and "no subscription" in page
    producer.close()
    client.close()


def test_settings_permissions_and_namespaces(broker):
    browser = Browser(broker)
    assert "maxMessageSize" in browser.get("/ui/settings")[1]
    assert "maxMessageSize" not in browser.get("/ui/settings?find=journal")[1]
    status, page, _ = browser.post("/ui/do/grant", namespace="public/default", role="app", produce="1")
    assert status == 200 and "<td>app</td><td>produce</td>" in page
    assert "public/default" in browser.get("/ui/namespaces")[1]
    status, page, _ = browser.post("/ui/do/create-namespace", namespace="public/new-one")
    assert status == 200 and "The namespace is created." in page


class Order(pulsar.schema.Record):
    city = pulsar.schema.String(required=True)


@pytest.mark.parametrize("partitions", [0, 2])
@pytest.mark.parametrize("kind", [pulsar.schema.AvroSchema, pulsar.schema.JsonSchema])
def test_a_message_has_the_schema_of_its_topic(broker, kind, partitions):
    """The console sent every message as STRING, which a topic with another schema refuses: the page had status 500."""
    browser = Browser(broker)
    assert browser.post("/ui/do/create-topic", topic=TOPIC, partitions=partitions or "")[0] == 200
    assert "gives the topic the schema STRING" in browser.get(topic_page())[1]
    client = quiet_client(broker.url)
    consumer = client.subscribe(TOPIC, "billing", schema=kind(Order))
    page = browser.get(topic_page())[1]
    (version,) = re.findall(r'name="schema_version" value="(\d+)"', page)
    assert kind.__name__.removesuffix("Schema").upper() in page
    payload = '{"city":"Bern"}'
    status, page, _ = browser.post("/ui/do/publish", topic=TOPIC, payload=payload, schema_version=version)
    assert status == 200 and "The message is published." in page
    assert consumer.receive(20_000).value().city == "Bern"
    client.close()


def test_wrong_input_is_reported_and_changes_nothing(broker):
    browser = Browser(broker)
    assert browser.get("/ui/no-such-page")[0] == 404
    assert browser.get(topic_page("no-topic"))[0] == 400
    assert browser.get(topic_page("persistent://public/default/missing"))[0] == 404
    assert browser.get("/ui/topic")[0] == 400
    assert browser.post("/ui/do/no-such-action")[0] == 404
    assert browser.post("/ui/do/skip", topic=TOPIC, subscription="s", number="many")[0] == 400
    assert browser.get("/ui/static/../application.py")[0] == 404
    assert browser.get("/ui/topic?name=" + urllib.parse.quote("<script>alert(1)</script>"))[0] == 400


def test_pages_of_other_sites_can_do_nothing(broker):
    browser = Browser(broker)
    status, _, _ = browser.post("/ui/do/create-namespace", origin="https://evil.example", namespace="public/evil")
    assert status == 403
    assert browser.get("/ui/", Host="evil.example")[0] == 403
    _, page, headers = browser.get("/ui/")
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe-inline" not in policy and "frame-ancestors 'none'" in policy
    assert headers["Cache-Control"] == "no-store"
    assert not re.search(r"<script(?! src=)|\son\w+=|\sstyle=", page), "nothing inline"


def test_visitors_sign_in_and_have_the_rights_of_their_role(new_broker):
    broker = new_broker(**SECURED)
    browser = Browser(broker)
    status, page, _ = browser.get("/ui/")
    assert status == 200 and "Sign in" in page and 'name="token"' in page
    assert browser.post("/ui/do/create-namespace", namespace="public/x")[1].count('name="token"') == 1, "the form again"
    status, page, _ = browser.post("/ui/login", user="admin", password="wrong")
    assert status == 401 and not list(browser.cookies)
    status, page, _ = browser.post("/ui/login", user="admin", password="test")
    assert status == 200 and "Sign out" in page
    (cookie,) = browser.cookies
    assert cookie.path == "/ui" and cookie.has_nonstandard_attr("HttpOnly")
    assert "public/default" in browser.get("/ui/namespaces")[1]
    browser.post("/ui/logout")
    assert 'name="token"' in browser.get("/ui/")[1]


def test_the_console_can_be_turned_off(new_broker):
    assert Browser(new_broker(consoleEnabled="false")).get("/ui/")[0] == 404
