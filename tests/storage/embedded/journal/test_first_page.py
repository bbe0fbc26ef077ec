"""The first page of a segment's use."""

from __future__ import annotations

from magnetar.storage.embedded.file_header import JOURNAL_MAGIC, FileHeader, parse_file_header
from magnetar.storage.embedded.journal.format import PAGE_BYTES, encode_first_page, end_of_use_before

HEADER = FileHeader(JOURNAL_MAGIC, b"s" * 16, 3, generation=8, salt=77)


def test_the_end_of_the_use_before():
    page = encode_first_page(HEADER, 12_288)
    assert len(page) == PAGE_BYTES
    assert parse_file_header("p", page, JOURNAL_MAGIC) == HEADER
    assert end_of_use_before(page, 8, 77) == 12_288


def test_it_is_not_known():
    assert end_of_use_before(encode_first_page(HEADER, 0), 8, 77) is None
    assert end_of_use_before(HEADER.pack() + bytes(PAGE_BYTES - 64), 8, 77) is None, "of a store of before"
    assert end_of_use_before(HEADER.pack(), 8, 77) is None


def test_a_note_of_another_use_or_with_any_flipped_bit_does_not_count():
    page = encode_first_page(HEADER, 12_288)
    assert end_of_use_before(page, 9, 77) is None
    assert end_of_use_before(page, 8, 78) is None
    for bit in (*range(64 * 8, 68 * 8), *range(72 * 8, 80 * 8)):
        flipped = bytearray(page)
        flipped[bit // 8] ^= 1 << bit % 8
        assert end_of_use_before(bytes(flipped), 8, 77) is None
