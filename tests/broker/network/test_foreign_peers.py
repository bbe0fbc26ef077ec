"""Peers of other protocols are named in the log."""

import pytest

from magnetar.broker.network.foreign_peers import first_bytes, hint
from magnetar.protocol._pure_cut import cut


@pytest.mark.parametrize(
    ("start", "word"),
    [
        ((51).to_bytes(4, "big") + bytes((0, 18, 0, 4)) + b"\x00\x00\x00\x01\x00\x0ckafka-python" + bytes(60), "Kafka"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(60), "HTTP"),
        (b"POST /admin HTTP/1.1\r\n" + bytes(60), "HTTP"),
        (bytes.fromhex("16030100f8010000f4") + bytes(300), "TLS"),
        (bytes((0, 0, 0, 8, 0x7F, 0xFF, 0xFF, 0xFF)) + bytes(60), None),
        (bytes((0, 0, 0, 2)) + bytes(60), None),
    ],
)
def test_first_bytes_tell_the_protocol(start, word):
    _, items, problem = cut(bytearray(start), 0, len(start), 5 * 1024 * 1024)
    assert not items
    found = hint(problem)
    assert found is None if word is None else word in found
    assert start.startswith(first_bytes(problem))


def test_other_texts_give_no_hint():
    assert hint("SEND does not parse") is None
