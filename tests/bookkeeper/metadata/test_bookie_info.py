from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookkeeper.metadata.bookie_info import BookieAddress, bookie_address

REGISTERED = bytes.fromhex("32220a06626f6f6b696510ed181a093132372e302e302e31220a626f6f6b69652d727063")


def test_the_registration_of_a_bookie():
    assert bookie_address("bookie-7", REGISTERED) == BookieAddress("127.0.0.1", 3181)


def test_an_id_is_its_own_address_when_nothing_is_registered():
    assert bookie_address("host.example:3181") == BookieAddress("host.example", 3181)
    for name in ("bookie-7", "host:", ":1", "host:99999", "host:x"):
        assert bookie_address(name) is None


@given(st.text(max_size=20), st.binary(max_size=60))
def test_any_bytes_are_an_address_or_none(name, data):
    bookie_address(name, data)
