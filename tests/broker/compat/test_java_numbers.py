import pytest

from magnetar.broker.compat import java_numbers


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("+7", 7), ("-9223372036854775808", -(2**63)), ("007", 7), ("-\u0661\uff12", -12)]
)
def test_decimal_numbers_are_parsed(text, value):
    assert java_numbers.parsed(text) == value


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "1_000", "0x1", "1.0", "\U0001d7d8", "9" * 5000, "9223372036854775808"]
)
def test_other_texts_are_not_parsed(text):
    with pytest.raises(ValueError):
        java_numbers.parsed(text)


def test_the_range_depends_on_the_width():
    assert java_numbers.parsed("2147483647", 32) == 2**31 - 1
    with pytest.raises(ValueError):
        java_numbers.parsed("2147483648", 32)


@pytest.mark.parametrize(
    ("text", "value"), [("0x10", 16), ("-0X10", -16), ("#ff", 255), ("010", 8), ("0", 0), ("12", 12), ("-0x1", -1)]
)
def test_prefixes_are_decoded(text, value):
    assert java_numbers.decoded(text) == value


@pytest.mark.parametrize("text", ["", "0x", "08", "ff", "1.0", "0x8000000000000000", "--1", " 1"])
def test_other_texts_are_not_decoded(text):
    with pytest.raises(ValueError):
        java_numbers.decoded(text)


def test_a_number_out_of_range_is_a_number():
    assert java_numbers.is_decimal("99999999999999999999")
    assert not java_numbers.is_decimal("x")
