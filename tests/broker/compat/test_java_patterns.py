import time

import pytest

from magnetar.broker.compat.java_patterns import in_re2_terms, is_of_java


@pytest.mark.parametrize(
    ("pattern", "translated"),
    [
        (r"\p{Lower}", "[[:lower:]]"),
        (r"[\p{javaUpperCase}_]", "[[:upper:]_]"),
        (r"\P{IsAlphabetic}", "[[:^alpha:]]"),
        (r"[]\p{Punct}]", "[][:punct:]]"),
        (r"\p{L}", r"\p{L}"),
        (r"\Q\p{Lower}\E", r"\Q\p{Lower}\E"),
        (r"\\p{Lower}", r"\\p{Lower}"),
    ],
)
def test_named_classes_are_translated(pattern, translated):
    assert in_re2_terms(pattern) == translated


@pytest.mark.parametrize("pattern", ["(?!x).*", "(?<=a)b", r"(?<name>a)\1", "a++"])
def test_syntax_of_a_backtracking_engine_is_recognized(pattern):
    assert is_of_java(pattern)


@pytest.mark.parametrize("pattern", ["(", "[a", "*"])
def test_an_invalid_pattern_is_of_no_engine(pattern):
    assert not is_of_java(pattern)


@pytest.mark.parametrize("unit", ["[\x00-\U0010ffff]", "[^\x00-\uffff]", "[\\x00-\\uffff]", "[a-\\U0010ffff]"])
@pytest.mark.parametrize("flags", ["", "(?i)"])
def test_ranges_of_many_characters_take_no_time(unit, flags):
    pattern = flags + unit * (1000 // len(unit)) + "(?!x)"
    began = time.process_time()
    assert is_of_java(pattern)
    assert time.process_time() - began < 0.15


def test_characters_beyond_ascii_change_no_verdict():
    for pattern in ("[z-é]+(?=x)", "é(?!ü)", "[é-ü]++", "\\u00e9(?=x)", "\\\\u(?=x)", "(?<n>é)(?!x)"):
        assert is_of_java(pattern), pattern
    for pattern in ("é(", "[é", "(?=é", "é)", "\\u00e9("):
        assert not is_of_java(pattern), pattern
