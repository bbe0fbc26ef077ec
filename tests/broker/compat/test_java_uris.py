"""Schemes of addresses, with the verdicts of Apache Pulsar 4.2.4 on the addresses of clusters."""

import pytest

from magnetar.broker.compat.java_uris import scheme_of


@pytest.mark.parametrize(
    "text",
    [
        *("http://a", "http:a", "http:/a", "http://a:1,b:2", "http://a:1,http://b:2", "http://a_b:1", "http://a:x"),
        *("http://?q", "http:///a", "http://#f", "http://a%20b", "http://\u00e4", "http://[::1]:1", "http://u@[::1]"),
        *("http://a?[x]", "http://@", "http://a@b@c", "http://a/b;c?d#e", "http:?q"),
    ],
)
def test_an_address_has_its_scheme(text):
    assert scheme_of(text) == "http"


@pytest.mark.parametrize(
    "text",
    [
        *("", "xx", "http", "http:", "http://", "http:#f", "://a", "1:2", " http://a", "http:// a", "http://a\n"),
        *("http://a{b", "http://a%zz", "http://[::1", "http://a]b", "http://a|b", "http://a/b c", "http://a\tb"),
        *("http://a\u00a0b", 'http://a"b', "http://a/[x]", "http://a\u2003b", "http://a#b#c"),
    ],
)
def test_no_address(text):
    assert scheme_of(text) is None


def test_the_scheme_keeps_its_case():
    assert scheme_of("HTTP://a") == "HTTP"
    assert scheme_of("pulsar+ssl://a") == "pulsar+ssl"
