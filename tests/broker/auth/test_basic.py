import asyncio
import threading

import pytest

from magnetar.broker.auth import basic
from magnetar.broker.auth.basic import (
    MOST_PASSWORD_BYTES,
    MOST_WAITING,
    REMEMBERED_S,
    PasswordChecker,
    kind_of,
    matches,
    parse_users,
)
from magnetar.broker.auth.provider import AuthenticationFailedError

APR1 = "$apr1$foobarmq$kuSZlLgOITksCkRgl57ie/"  # superpassword
BCRYPT = "$2b$04$Y7OBMmAER8qOYZZ3kFEPhuFYijXE5rVTjpKXFsI6h.vVkcJfkQZkK"  # secret


class Checked:
    """Stands for `matches`: counts the checks and holds them until `go`."""

    def __init__(self, monkeypatch, right="right"):
        self.calls = []
        self.go = threading.Event()
        self.go.set()
        self._right = right.encode()
        monkeypatch.setattr(basic, "matches", self)

    def __call__(self, password, stored):
        self.calls.append(stored)
        self.go.wait()
        return password == self._right


@pytest.mark.parametrize(
    ("stored", "kind"),
    [
        (APR1, "apr_md5_crypt"),
        (BCRYPT, "bcrypt"),
        ("$6$saltsalt$" + "a" * 86, "sha512_crypt"),
        ("{SHA}GpHWL3ymc5liWkNopqtdSjuqYHM=", "ldap_sha1"),
        ("mQQQIsyvvKRtU", "des_crypt"),
        ("plain", None),
        ("", None),
    ],
)
def test_kinds_of_hashes(stored, kind):
    assert kind_of(stored) == kind


def test_a_hash_of_an_unknown_kind_stops_the_start():
    with pytest.raises(ValueError, match="'me' is of an unknown kind"):
        parse_users("me:plain")


@pytest.mark.parametrize("password", [b"\0", b"\xff", b"x" * 100, b""])
@pytest.mark.parametrize("stored", [APR1, BCRYPT, "mQQQIsyvvKRtU", "$6$saltsalt$short"])
def test_passwords_that_no_hash_accepts_match_no_user(stored, password):
    assert not matches(password, stored)


def test_bcrypt():
    assert matches(b"secret", BCRYPT)
    assert not matches(b"Secret", BCRYPT)


async def test_a_long_password_is_refused_unseen(monkeypatch):
    checked = Checked(monkeypatch)
    with pytest.raises(AuthenticationFailedError, match="1025 bytes"):
        await PasswordChecker({"a": APR1}).check("a", b"x" * (MOST_PASSWORD_BYTES + 1))
    assert checked.calls == []


async def test_an_unknown_user_costs_a_check_and_always_the_same(monkeypatch):
    checked = Checked(monkeypatch)
    checker = PasswordChecker({"a": "1", "b": "2"})
    for _ in range(3):
        with pytest.raises(AuthenticationFailedError, match="unknown user or wrong password"):
            await checker.check("nobody", b"right")
    assert len(checked.calls) == 3 and len(set(checked.calls)) == 1
    with pytest.raises(AuthenticationFailedError, match="unknown user or wrong password"):
        await checker.check("a", b"wrong")


async def test_a_right_password_is_remembered_for_a_while(monkeypatch):
    checked, now = Checked(monkeypatch), [0.0]
    checker = PasswordChecker({"a": "1", "ab": "2"}, lambda: now[0])
    for _ in range(3):
        await checker.check("a", b"right")
    assert checked.calls == ["1"]
    with pytest.raises(AuthenticationFailedError):
        await checker.check("a", b"wrong")
    now[0] = REMEMBERED_S
    await checker.check("a", b"right")
    assert checked.calls == ["1", "1", "1"]


async def test_the_loop_goes_on_and_the_number_of_waiting_checks_is_bounded(monkeypatch):
    checked = Checked(monkeypatch)
    checked.go.clear()
    checker = PasswordChecker({"a": "1"})
    waiting = [asyncio.ensure_future(checker.check("a", b"wrong%d" % i)) for i in range(MOST_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(AuthenticationFailedError) as refused:
        await checker.check("a", b"right")
    assert refused.value.kind == "BUSY"
    checked.go.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(each, AuthenticationFailedError) for each in results)
    await checker.check("a", b"right")
