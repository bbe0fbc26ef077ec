"""Credentials in a cookie."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.console.credentials import MOST_BYTES, NAME, cookie, forget_cookie, header_of


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
