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
