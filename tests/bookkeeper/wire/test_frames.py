from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookkeeper.errors import WireError
from magnetar.bookkeeper.wire.digests import master_key
from magnetar.bookkeeper.wire.frames import (
    AUTH,
    DO_FENCING,
    HIGH_PRIORITY,
    LAST_ENTRY,
    Added,
    AddFailed,
    AnswerDecoder,
    AuthAnswer,
    BatchAnswer,
    ReadAnswer,
    batch_read_request,
    read_request,
)


def frame(body):
    return struct.pack(">I", len(body)) + body


def add_answer(ledger_id, entry_id, code=0):
    return frame(struct.pack(">IIqq", 0x02010000, code, ledger_id, entry_id))


def read_answer(ledger_id, entry_id, code, data):
    return frame(struct.pack(">IIqq", 0x02020000, code, ledger_id, entry_id) + data)


def batch_answer(ledger_id, entry_id, code, request_id, entries):
    body = struct.pack(">IIqqq", 0x02070000, code, ledger_id, entry_id, request_id)
    return frame(body + b"".join(frame(entry) for entry in entries))


def test_requests_as_real_bookies_take_them():
    assert read_request(7, 3).hex() == "00000014" "02020000" "0000000000000007" "0000000000000003"  # fmt: skip
    fencing = read_request(7, LAST_ENTRY, DO_FENCING | HIGH_PRIORITY, master_key(b""))
    assert fencing.hex() == "0000002802020005" "0000000000000007" "ffffffffffffffff" + master_key(b"").hex()  # fmt: skip
    batch = batch_read_request(7, 3, 9, 100, 1 << 20)
    assert batch.hex() == "00000028" "02070000" "0000000000000007" "0000000000000003" "0000000000000009" "00000064" "0000000000100000"  # fmt: skip


def test_a_key_goes_with_fencing_and_with_nothing_else():
    for flags, key in ((DO_FENCING, b""), (0, master_key(b""))):
        with pytest.raises(AssertionError):
            read_request(7, 3, flags, key)


def test_a_batch_never_begins_with_the_last_entry():
    with pytest.raises(AssertionError):
        batch_read_request(7, -1, 9, 1, 1)


def test_the_answer_of_a_bookie_without_authentication():
    data = bytes.fromhex("0000001a020300000a12") + b"AuthDisabledPlugin" + bytes.fromhex("1200")
    assert AnswerDecoder().feed(data) == [AuthAnswer(data[8:])]


def test_consecutive_acknowledgements_are_one():
    data = b"".join(add_answer(ledger, entry) for ledger, entry in [(1, 4), (1, 5), (1, 6), (2, 7), (1, 7), (1, 9)])
    assert AnswerDecoder().feed(data) == [Added(1, 4, 6), Added(2, 7, 7), Added(1, 7, 7), Added(1, 9, 9)]


@pytest.mark.parametrize("ids", [(1, -1), (-1, 1), (1, -(2**63))])
def test_a_bookie_that_acknowledges_no_entry_breaks_the_rules(ids):
    with pytest.raises(WireError):
        AnswerDecoder().feed(add_answer(1, 0) + add_answer(*ids))


def test_other_answers_keep_their_place_between_acknowledgements():
    data = add_answer(1, 0) + read_answer(1, -1, 2, b"") + add_answer(1, 1) + add_answer(1, 2, 104) + add_answer(1, 3)
    assert AnswerDecoder().feed(data) == [
        Added(1, 0, 0),
        ReadAnswer(1, -1, 2, b""),
        Added(1, 1, 1),
        AddFailed(1, 2, 104),
        Added(1, 3, 3),
    ]


HEADER, CODE = range(32, 64), range(64, 96)
"""Bits of an answer behind its length."""


@pytest.mark.parametrize(
    ("answer", "bits"),
    [
        (add_answer(1, 2), [*range(32), *HEADER]),
        (read_answer(1, 2, 0, b"entry"), [*HEADER, *CODE]),
        (read_answer(1, 2, 2, b""), [*range(32), *HEADER]),
        (batch_answer(1, 2, 0, 3, [b"entry"]), [*HEADER, *CODE]),
        (batch_answer(1, 2, 2, 3, []), [*range(32), *HEADER]),
    ],
)
def test_a_flipped_bit_is_noticed_before_the_answer_is_complete(answer, bits):
    for bit in bits:
        damaged = bytearray(answer)
        damaged[bit // 8] ^= 1 << 7 - bit % 8
        if damaged[5] == AUTH:
            continue  # a form of its own; a connection takes none
        with pytest.raises(WireError):
            AnswerDecoder().feed(bytes(damaged[:12]))
        decoder = AnswerDecoder()
        with pytest.raises(WireError):
            all(decoder.feed(damaged[at : at + 1]) == [] for at in range(12))


ids = st.integers(0, 50)
answers = st.one_of(
    st.builds(add_answer, ids, ids, st.sampled_from([0, 0, 0, 104, 105])),
    st.builds(read_answer, ids, st.integers(-1, 50), st.sampled_from([1, 2]), st.just(b"")),
    st.builds(read_answer, ids, st.integers(-1, 50), st.just(0), st.binary(max_size=60)),
    st.builds(batch_answer, ids, ids, st.just(0), ids, st.lists(st.binary(max_size=20), max_size=4)),
)


def spread(found):
    """Runs as single acknowledgements: how many come together depends on how the bytes come."""
    for answer in found:
        if isinstance(answer, Added):
            yield from (Added(answer.ledger_id, entry, entry) for entry in range(answer.first, answer.last + 1))
        else:
            yield answer


@given(st.lists(answers, max_size=12), st.lists(st.integers(1, 40), max_size=30))
def test_the_same_answers_however_the_bytes_are_cut(frames, cuts):
    data = b"".join(frames)
    whole = list(spread(AnswerDecoder().feed(data)))
    assert len(whole) == len(frames)
    decoder, found, at = AnswerDecoder(), [], 0
    for size in [*cuts, len(data)]:
        found += decoder.feed(data[at : at + size])
        at += size
    assert list(spread(found)) == whole
    assert decoder.buffered_bytes == 0


@given(st.binary(max_size=200), st.integers(1, 50))
def test_any_bytes_are_answers_or_need_more_or_an_error(data, size):
    decoder = AnswerDecoder(max_frame_bytes=100)
    try:
        for at in range(0, len(data), size):
            decoder.feed(data[at : at + size])
    except WireError:
        return
    assert decoder.buffered_bytes <= 100 + size


def test_a_frame_over_the_limit_is_refused_before_it_arrives():
    with pytest.raises(WireError):
        AnswerDecoder(max_frame_bytes=1000).feed(struct.pack(">I", 997))


@pytest.mark.parametrize("code", [3, 99, 108, 1 << 22])
@pytest.mark.parametrize("answer", [add_answer(1, 2, 0), read_answer(1, 2, 0, b""), batch_answer(1, 2, 0, 3, [])])
def test_a_code_that_no_bookie_sends_ends_the_connection(answer, code):
    with pytest.raises(WireError):
        AnswerDecoder().feed(answer[:8] + struct.pack(">I", code) + answer[12:])


def test_entries_of_a_batch():
    (answer,) = AnswerDecoder().feed(batch_answer(1, 2, 0, 3, [b"ab", b"", b"c"]))
    assert answer == BatchAnswer(1, 2, 0, 3, b"\0\0\0\2ab\0\0\0\0\0\0\0\1c")
    assert answer.entries == [b"ab", b"", b"c"]
    for cut in (1, 3, 5):
        broken = batch_answer(1, 2, 0, 3, [b"ab", b"cd"])[4:-cut]
        (answer,) = AnswerDecoder().feed(frame(broken))
        with pytest.raises(WireError):
            answer.entries  # noqa: B018 - reading it raises
