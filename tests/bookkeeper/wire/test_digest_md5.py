from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookkeeper.errors import WireError
from magnetar.bookkeeper.wire.digest_md5 import DigestCredentials, DigestMd5

CHALLENGE = (
    b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'  # RFC 2831, 4
)


def client():
    return DigestMd5(DigestCredentials("chris", "secret"), b"imap/elwood.innosoft.com", b"OA6MHXh6VqTrRk")


def test_the_example_of_the_rfc():
    made = client()
    assert made.respond(CHALLENGE) == (
        b'charset=utf-8,username="chris",realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",nc=00000001,'
        b'cnonce="OA6MHXh6VqTrRk",digest-uri="imap/elwood.innosoft.com",'
        b"response=d388dad90d4bbd760a152321f2143af7,qop=auth"
    )
    made.check(b"rspauth=ea40f60335c427b5527b84dbabcdfffd")
    for impostor in (b"rspauth=00000000000000000000000000000000", b"", b"other=1"):
        with pytest.raises(WireError, match="does not know the password"):
            made.check(impostor)


def test_an_answer_before_the_challenge_proves_nothing():
    with pytest.raises(WireError):
        client().check(b'rspauth=""')


@pytest.mark.parametrize(
    "challenge",
    [b"", b'realm="x"', b'nonce="n",qop="auth-conf"', b'nonce="n",algorithm=md5', b'nonce="n', b'"', b"nonce"],
)
def test_challenges_that_cannot_be_answered(challenge):
    with pytest.raises(WireError):
        client().respond(challenge)


def test_quotes_in_names_are_escaped_and_read():
    made = DigestMd5(DigestCredentials('a"b\\', "secret"), b"s/h", b"c")
    answer = made.respond(b'nonce="n\\"m",realm="r",qop="auth-int , auth"')
    assert b'username="a\\"b\\\\"' in answer
    assert b'nonce="n\\"m"' in answer


def test_the_password_is_not_printed():
    assert "secret" not in repr(DigestCredentials("chris", "secret"))


@given(st.binary(max_size=200))
def test_any_bytes_are_answered_or_refused(data):
    made = client()
    with contextlib.suppress(WireError):
        made.respond(data)
    with contextlib.suppress(WireError):
        made.check(data)
