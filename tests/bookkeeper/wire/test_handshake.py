from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookkeeper.errors import WireError
from magnetar.bookkeeper.wire.handshake import START_TLS_REQUEST, auth_answer, auth_request, start_tls_status

HEADER = "0a0608031009" + "1801"


def test_requests_are_those_that_bookies_take():
    assert START_TLS_REQUEST.hex() == "0000000b0a06080310091801d20600"
    assert auth_request(b"").hex() == "000000130a06080310051801b206080a047361736c1200"
    assert len(auth_request(bytes(300))) == 4 + 8 + 2 + 2 + 6 + 3 + 300


def test_the_status_of_start_tls():
    assert start_tls_status(bytes.fromhex(HEADER + "1000" + "d20600")) == 0
    assert start_tls_status(bytes.fromhex(HEADER + "10f503")) == 501
    with pytest.raises(WireError, match="without a status"):
        start_tls_status(bytes.fromhex(HEADER))


def answer(plugin, payload, status="1000"):
    content = bytes([0x0A, len(plugin)]) + plugin + bytes([0x12, len(payload)]) + payload
    return bytes.fromhex(HEADER + status + "b206") + bytes([len(content)]) + content


def test_answers_to_auth():
    assert auth_answer(answer(b"sasl", b"challenge")) == b"challenge"
    assert auth_answer(answer(b"AuthDisabledPlugin", b"")) is None
    with pytest.raises(WireError, match="authenticates by b'other'"):
        auth_answer(answer(b"other", b""))
    with pytest.raises(WireError, match="refuses the credentials"):
        auth_answer(answer(b"sasl", b"", "10f603"))
    with pytest.raises(WireError, match="status 501"):
        auth_answer(answer(b"sasl", b"", "10f503"))
    with pytest.raises(WireError, match="another frame"):
        auth_answer(bytes.fromhex(HEADER + "1000"))


@given(st.binary(max_size=60))
def test_any_bytes_are_an_answer_or_an_error(data):
    for read in (start_tls_status, auth_answer):
        with contextlib.suppress(WireError):
            read(data)
