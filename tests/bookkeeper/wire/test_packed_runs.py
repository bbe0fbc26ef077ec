"""Runs of entries in one buffer: the compiled encoder and its twin give the same frames and refuse invalid runs."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookkeeper.wire.digests import Digester, DigestType, master_key
from magnetar.bookkeeper.wire.entries import encode_run
from magnetar.bookkeeper.wire.packed_runs import COMPILED, encode_packed, encode_packed_pure

KEY = master_key(b"")
IDS = st.integers(0, 2**62)


def packed(bodies, skip, before=b""):
    data, offsets = bytearray(before), array("q", [len(before)])
    for body in bodies:
        data += b"h" * skip + body
        offsets.append(len(data))
    return bytes(data), offsets.tobytes()


@given(
    bodies=st.lists(st.binary(max_size=3000), min_size=1, max_size=20),
    skip=st.integers(0, 40),
    before=st.binary(max_size=50),
    ledger_id=IDS,
    first=IDS,
    confirmed=st.integers(-1, 2**62),
    length=IDS,
    digest_type=st.sampled_from(DigestType),
)
def test_both_give_the_frames_of_single_entries(bodies, skip, before, ledger_id, first, confirmed, length, digest_type):
    data, offsets = packed(bodies, skip, before)
    digester = Digester(digest_type, b"secret")
    wanted = encode_run(ledger_id, first, confirmed, length, bodies, digester, KEY)
    for encode in (encode_packed, encode_packed_pure):
        found = encode(data + b"behind", offsets, skip, ledger_id, first, confirmed, length, digester, KEY)
        assert found == wanted
        assert [bytes(found.part(first, first)), found.length_at(first)] == [
            bytes(wanted.part(first, first)),
            length + len(bodies[0]),
        ]


@pytest.mark.skipif(not COMPILED, reason="the twin serves")
@pytest.mark.parametrize(
    ("offsets", "skip", "ledger_id", "first", "key"),
    [
        ([0], 0, 1, 0, KEY),
        ([], 0, 1, 0, KEY),
        ([0, 11], 0, 1, 0, KEY),
        ([-1, 5], 0, 1, 0, KEY),
        ([5, 4], 0, 1, 0, KEY),
        ([0, 5], 6, 1, 0, KEY),
        ([0, 5], -1, 1, 0, KEY),
        ([0, 5], 0, -1, 0, KEY),
        ([0, 5], 0, 1, -1, KEY),
        ([0, 5], 0, 1, 0, b"short"),
        ([0, 20, 5], 0, 1, 0, KEY),
    ],
)
def test_invalid_runs_are_refused(offsets, skip, ledger_id, first, key):
    digester = Digester(DigestType.CRC32C, b"")
    with pytest.raises(ValueError, match="no run"):
        encode_packed(bytes(10), array("q", offsets).tobytes(), skip, ledger_id, first, -1, 0, digester, key)
