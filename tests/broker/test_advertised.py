"""The addresses that clients get."""

import dataclasses
import re

import pytest
from structlog.testing import capture_logs

from magnetar.broker.advertised import AdvertisedAddresses, AdvertisedUrls, parse_listeners
from magnetar.broker.settings import Settings


def addresses(*ports, **settings):
    made = AdvertisedAddresses(dataclasses.replace(Settings(), **settings))
    made.bound(*(ports or (6650, None, 8080, None)))
    return made


def test_without_listeners_clients_get_the_ports_of_the_bind_address():
    assert addresses().own == AdvertisedUrls("pulsar://127.0.0.1:6650", None, "http://127.0.0.1:8080", None)
    assert addresses(advertised_address="a.example").own.service_url == "pulsar://a.example:6650"
    assert addresses(bind_address="::1").own.service_url == "pulsar://[::1]:6650"


@pytest.mark.parametrize(("web", "web_tls", "port"), [(8080, None, 8080), (8080, 8443, 8080), (None, 8443, 8443)])
def test_the_id_of_a_broker_is_its_web_port_the_one_with_tls_where_there_is_no_other(web, web_tls, port):
    assert addresses(6650, None, web, web_tls).broker_id == f"127.0.0.1:{port}"


def test_a_broker_with_tls_alone_tells_no_plain_address():
    own = addresses(None, 6651, None, 8443).own
    assert own == AdvertisedUrls(None, "pulsar+ssl://127.0.0.1:6651", None, "https://127.0.0.1:8443")


@pytest.mark.parametrize(("internal", "port"), [("", 1), ("in", 1), ("out", 2)])
def test_a_client_without_a_listener_name_gets_the_internal_listener_by_default_the_first(internal, port):
    listeners = ("in:pulsar://h:1", "out:pulsar://h:2", "out:pulsar+ssl://h:3")
    made = addresses(advertised_listeners=listeners, internal_listener_name=internal)
    assert made.of().service_url == made.own.service_url == f"pulsar://h:{port}"
    assert made.own.service_url_tls == "pulsar+ssl://h:3", "another listener's, where the internal one has none"
    assert made.own.http_url == "http://127.0.0.1:8080", "the broker's own, where no listener has one"
    assert made.of("out") == AdvertisedUrls("pulsar://h:2", "pulsar+ssl://h:3", "http://127.0.0.1:8080")
    assert made.of("in") == AdvertisedUrls("pulsar://h:1", None, "http://127.0.0.1:8080")
    assert made.of("none") is None


def test_all_schemes_of_a_listener():
    listeners = parse_listeners(("a:pulsar://h:1", " a : http://h:2", "a:pulsar+ssl://h:3", "a:https://h:4"))
    assert listeners == {"a": AdvertisedUrls("pulsar://h:1", "pulsar+ssl://h:3", "http://h:2", "https://h:4")}


@pytest.mark.parametrize(
    ("listeners", "words"),
    [
        ("foo", "'foo' must be <name>:<url>"),
        ("ftp://h:1", "'ftp://h:1' must be"),
        (":pulsar://h:1", "must be"),
        ("a:ftp://h:1", "must be"),
        ("a:pulsar://h", "must be"),
        ("a:pulsar://h:many", "must be"),
        ("a:pulsar://h:65536", "'a:pulsar://h:65536' must be"),
        ("a:pulsar://h:65536", "the port an integer from 1 to 65535"),
        ("a:pulsar://h:0", "the port an integer from 1 to 65535"),
        ("a:pulsar://h:1,a:pulsar://h:2", "a has two addresses of pulsar://"),
        ("a:pulsar://h:1,b:pulsar://h:1", "b and a have the same address h:1"),
        ("a:http://h:1", "a has no address of pulsar:// or pulsar+ssl://"),
    ],
)
def test_listeners_that_cannot_be_used_are_named(listeners, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        parse_listeners(tuple(listeners.split(",")))


def test_an_address_without_a_name_has_no_effect_as_in_apache_pulsar():
    """The workflow of the Rust client starts its broker so."""
    with capture_logs() as logs:
        made = addresses(advertised_listeners=("pulsar://h:1",), advertised_address="a.example")
    assert made.own.service_url == "pulsar://a.example:6650"
    assert made.of("pulsar") is None
    assert [each["event"] for each in logs] == ["advertised_listener.ignored"]
    assert parse_listeners(("pulsar+ssl://h:2", "a:pulsar://h:1")) == {"a": AdvertisedUrls("pulsar://h:1")}


def test_an_internal_listener_must_be_among_the_listeners():
    with pytest.raises(ValueError, match="internalListenerName: there is no 'b'"):
        addresses(advertised_listeners=("a:pulsar://h:1",), internal_listener_name="b")
    assert addresses(internal_listener_name="b").own.service_url == "pulsar://127.0.0.1:6650"


@pytest.mark.parametrize(
    "text", ["my host", "pulsar://a.example", "a.example:6650", "a.example/x", "[::1]", "u@a.example", "a,b"]
)
def test_an_advertised_address_that_is_no_host_is_refused(text):
    with pytest.raises(ValueError, match="must be a host name or an IP address"):
        addresses(advertised_address=text)


def test_an_advertised_address_may_be_any_host():
    for text, url in (("::1", "pulsar://[::1]:6650"), ("a_b-1.example", "pulsar://a_b-1.example:6650")):
        assert addresses(advertised_address=text).own.service_url == url
