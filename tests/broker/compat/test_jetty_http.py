"""The rules of HTTP that Jetty and Jersey keep: media types, Allow, paths."""

import pytest

from magnetar.broker.compat.jetty_http import (
    accepts_json,
    allowed,
    is_json,
    is_text,
    media_type,
    methods_of,
    page,
    phrase,
    plain_path,
)
from magnetar.broker.errors import RestError


@pytest.mark.parametrize(
    ("header", "kind"),
    [
        (None, ""),
        (' application/json ; ;a=b; c = "d e";', "application/json"),
        ("Application/JSON; charset=utf-8", "application/json"),
        ("*/*", "*/*"),
        ("text/plain", "text/plain"),
    ],
)
def test_media_types(header, kind):
    assert media_type(header) == kind


@pytest.mark.parametrize(
    "header", ["", " ", ";", ",", "*", "nonsense", "/json", "text/", "a/b, c/d", "a/b;c", "a/b;c="]
)
def test_invalid_media_types(header):
    with pytest.raises(RestError) as refused:
        media_type(header)
    assert refused.value.status == 400


def test_kinds_of_json():
    assert [is_json(kind) for kind in ("application/json", "text/json", "application/x+json", "*/*", "text/plain")] == [
        *(True, True, True, False, False)
    ]


def test_kinds_of_plain_text():
    assert [is_text(kind) for kind in ("text/plain", "text/*", "*/*", "text/json", "application/*")] == [
        *(True, True, True, False, False)
    ]


@pytest.mark.parametrize(
    ("header", "fits"),
    [
        ("", True),
        ("*/*", True),
        ("text/html, application/json;q=0.5", True),
        ("application/*", True),
        ("text/plain", False),
    ],
)
def test_accepted_types(header, fits):
    assert accepts_json(header) is fits


def test_paths_lose_matrix_parameters_and_slashes_at_the_end():
    assert plain_path("/a;x=1/b;y/") == "/a/b"
    assert plain_path("/") == "/"
    with pytest.raises(RestError):
        plain_path("/a%00b")


def test_allow_tells_of_head_when_asked_alone():
    assert allowed(["GET", "PUT"], asked=False) == "GET,OPTIONS,PUT"
    assert allowed(["GET", "PUT"], asked=True) == "HEAD,GET,OPTIONS,PUT"
    assert allowed(["PUT"], asked=True) == "OPTIONS,PUT"
    assert allowed(["DELETE", "GET", "POST", "PUT"], asked=True) == "HEAD,DELETE,POST,GET,OPTIONS,PUT"


@pytest.mark.parametrize(
    ("accepted", "kind", "text"),
    [
        ("", "text/plain", b"HEAD, GET, OPTIONS"),
        ("*/*", "text/plain", b"HEAD, GET, OPTIONS"),
        ("application/json", "application/json", b""),
        ("application/json, text/*", "text/plain", b"HEAD, GET, OPTIONS"),
        ("Text/Plain;q=0.5, text/html", "text/html", b""),
    ],
)
def test_options_are_answered_in_the_accepted_type(accepted, kind, text):
    answer = methods_of(["GET"], accepted)
    assert (answer.headers["content-type"], answer.headers["allow"], answer.body) == (kind, "HEAD,GET,OPTIONS", text)


def test_pages_need_the_right_to_read():
    assert b"404 Not Found" in page(404, "GET").body
    assert page(405, "PUT").body == b""


def test_phrases_are_those_of_jetty():
    assert phrase(500) == "Server Error"
    assert phrase(404) == "Not Found"
