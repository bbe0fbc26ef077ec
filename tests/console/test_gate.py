"""Where the console opens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.console.gate import MOST_BYTES, NAME, cookie, forget_cookie, header_of, is_open
from tests.calls import calls_of


@pytest.mark.parametrize(
    ("server", "opens"),
    [
        (("127.0.0.1", 8080), True),
        (("::1", 8080), True),
        (("::ffff:127.0.0.1", 8080), True),
        (("10.0.0.5", 8080), False),
        (("0.0.0.0", 8080), False),
        (("fe80::1%eth0", 8080), False),
        (("localhost", 8080), False),
        (("", None), False),
        (None, False),
    ],
)
def test_without_authentication_loopback_addresses_alone(server, opens):
    assert is_open({"server": server}, authentication_enabled=False) is opens
    assert is_open({"server": server}, authentication_enabled=True)


def test_the_cookie_gives_the_header_back_and_is_kept_from_scripts_and_other_sites():
    set_cookie = cookie("Bearer a.b.c", secure=True)
    assert {"HttpOnly", "SameSite=Strict", "Secure", "Path=/ui"} <= set(set_cookie.split("; "))
    assert header_of(set_cookie.partition(";")[0]) == "Bearer a.b.c"
    assert "Secure" not in cookie("Bearer x", secure=False)
    assert header_of(forget_cookie(secure=False).partition(";")[0]) is None


def test_credentials_that_are_too_long_are_refused():
    with pytest.raises(ValueError, match="a cookie holds"):
        cookie("x" * (MOST_BYTES + 1), secure=False)


@given(st.text(max_size=200))
def test_a_foreign_cookie_is_no_credentials(text):
    found = header_of(f"{NAME}={text}")
    assert found is None or found.isprintable()


@pytest.mark.parametrize("value", ['"\\377"', "A", "_-_-", '"\\000"'])
def test_a_cookie_of_another_program_is_no_credentials(value):
    assert header_of(f"{NAME}={value}") is None


@pytest.mark.parametrize("quoted", ["\\" * 8000, '\\"' * 4000, "\\134" * 2000])
def test_a_cookie_of_backslashes_is_read_in_few_calls(quoted):
    """`http.cookies` takes a step, and in some versions a copy, for each backslash: a cookie of 8 KiB, from a visitor
    without credentials, took 0.2 s for each of three looks.
    """
    assert calls_of(lambda: header_of(f'{NAME}="{quoted}"')) < 30


@pytest.mark.parametrize("around", ["{}", "a=b; {}", "{}; a=b", "x{}; {}", "a;;b= ;{};"])
def test_credentials_are_found_among_other_cookies(around):
    pair = cookie("Bearer a.b.c", secure=True).partition(";")[0]
    assert header_of(around.format(pair, pair)) == "Bearer a.b.c"
