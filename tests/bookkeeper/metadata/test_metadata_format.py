from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookkeeper.errors import LedgerMetadataError
from magnetar.bookkeeper.metadata.ledger_metadata import LedgerMetadata, LedgerState, Segment
from magnetar.bookkeeper.metadata.metadata_format import decode_metadata, encode_metadata
from magnetar.bookkeeper.wire.digests import DigestType

OPEN = LedgerMetadata(
    ensemble_size=3,
    write_quorum=3,
    ack_quorum=2,
    segments=(Segment(0, ("127.0.0.1:3181", "127.0.0.1:3182", "127.0.0.1:3183")),),
    digest_type=DigestType.CRC32C,
    password=b"",
    custom={"application": b"pulsar"},
    token=5,
)
OPEN_3 = b"BookieMetadataFormatVersion\t3\n" + bytes.fromhex(
    "66" "0803" "1003" "1800" "20ffffffffffffffffff01" "2801"
    "3232" "0a0e3132372e302e302e313a33313831" "0a0e3132372e302e302e313a33313832" "0a0e3132372e302e302e313a33313833"
    "1000" "3803" "4200" "4802" "5a15" "0a0b6170706c69636174696f6e" "120670756c736172" "6005"
)  # fmt: skip


def test_version_3_byte_by_byte():
    assert encode_metadata(OPEN) == OPEN_3
    assert decode_metadata(1, OPEN_3) == OPEN


VERSION_2 = b"""BookieMetadataFormatVersion\t2
quorumSize: 2
ensembleSize: 3
length: 100
lastEntryId: 1000
state: CLOSED
segment {
  ensembleMember: "192.0.2.1:1234"
  ensembleMember: "192.0.2.2:1234"
  ensembleMember: "192.0.2.3:1234"
  firstEntryId: 0
}
segment {
  ensembleMember: "192.0.2.4:1234"
  ensembleMember: "192.0.2.2:1234"
  ensembleMember: "192.0.2.3:1234"
  firstEntryId: 60
}
digestType: CRC32
password: "passwd"
ackQuorumSize: 2
"""


def test_version_2_is_read_and_written_as_text():
    found = decode_metadata(1, VERSION_2)
    assert (found.state, found.last_entry_id, found.length) == (LedgerState.CLOSED, 1000, 100)
    assert (found.digest_type, found.password, found.write_quorum) == (DigestType.CRC32, b"passwd", 2)
    assert found.segment_of(59).first == 0
    assert found.segment_of(60).first == 60
    assert encode_metadata(found) == VERSION_2


@pytest.mark.parametrize(
    ("tail", "state", "last"),
    [
        (b"", LedgerState.OPEN, -1),
        (b"\n-102\tCLOSED", LedgerState.IN_RECOVERY, -1),
        (b"\n1000\tCLOSED", LedgerState.CLOSED, 1000),
    ],
)
def test_version_1(tail, state, last):
    length = b"100" if state is LedgerState.CLOSED else b"0"
    stored = b"BookieMetadataFormatVersion\t1\n2\n3\n" + length + b"\n0\ta:1\tb:1\tc:1\n60\td:1\tb:1\tc:1" + tail
    found = decode_metadata(1, stored)
    assert (found.state, found.last_entry_id, found.digest_type) == (state, last, None)
    assert found.segments == (Segment(0, ("a:1", "b:1", "c:1")), Segment(60, ("d:1", "b:1", "c:1")))
    assert encode_metadata(found) == stored


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"nothing",
        b"BookieMetadataFormatVersion\t4\n",
        b"BookieMetadataFormatVersion\t3\n",
        OPEN_3[:60],
        OPEN_3 + b"x",
        b"BookieMetadataFormatVersion\t2\nquorumSize: 1",
        VERSION_2.replace(b"firstEntryId: 60", b"firstEntryId: 0"),
        VERSION_2.replace(b"firstEntryId: 0", b"firstEntryId: 1"),
        VERSION_2.replace(b"ackQuorumSize: 2", b"ackQuorumSize: 3"),
        VERSION_2.replace(b'  ensembleMember: "192.0.2.4:1234"\n', b""),
        VERSION_2.replace(b"lastEntryId: 1000", b"lastEntryId: -7"),
        b"BookieMetadataFormatVersion\t1\n2\n3\n0",
        b"BookieMetadataFormatVersion\t1\n2\n3\n0\nx\ta\tb\tc",
    ],
)
def test_invalid_metadata_are_an_error(stored):
    with pytest.raises(LedgerMetadataError):
        decode_metadata(1, stored)


@given(st.binary(max_size=120), st.sampled_from([b"1", b"2", b"3"]))
def test_any_bytes_are_metadata_or_an_error(body, version):
    for stored in (body, b"BookieMetadataFormatVersion\t" + version + b"\n" + body):
        try:
            decode_metadata(1, stored)
        except LedgerMetadataError:
            continue


@pytest.mark.parametrize("text", [b"127.0.0.1:3181", b"application"])
def test_a_text_that_is_no_text_is_an_error(text):
    """A recovery could not have written these metadata back."""
    assert text in OPEN_3
    with pytest.raises(LedgerMetadataError, match="no text in UTF-8"):
        decode_metadata(1, OPEN_3.replace(text, b"\xff" + text[1:]))


@given(st.integers(0, len(OPEN_3) - 1), st.integers(0, 255))
def test_one_changed_byte_is_metadata_or_an_error(at, byte):
    stored = bytearray(OPEN_3)
    stored[at % len(stored)] = byte
    try:
        decode_metadata(1, bytes(stored))
    except LedgerMetadataError:
        return
