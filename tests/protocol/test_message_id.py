from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar.protocol.message_id import bits_to_words, words_to_bits


@given(st.integers(0, 1 << 300))
def test_round_trip(bits):
    words = bits_to_words(bits)
    assert words_to_bits(words) == bits
    assert all(-(1 << 63) <= word < 1 << 63 for word in words)
    assert not words or words[-1] != 0


def test_java_bit_set_words():
    assert bits_to_words(0b1011) == [11]
    assert bits_to_words((1 << 64) - 1) == [-1]
    assert bits_to_words(1 << 63 | 1 << 64) == [-(1 << 63), 1]
    assert bits_to_words(0) == []
    assert words_to_bits([-1, 0]) == (1 << 64) - 1


def test_many_words_take_time_in_proportion():
    words = [-1, 5] * 30_000
    assert bits_to_words(words_to_bits(words)) == words
