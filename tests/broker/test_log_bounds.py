import pytest

from magnetar.broker.log_bounds import MOST_CHARS, MOST_TRACEBACK_CHARS, bounded, bounded_traceback, shortened


def field(value):
    return bounded(None, "info", {"event": "e", "value": value})["value"]


@pytest.mark.parametrize("value", [None, True, 7, 1.5, "short", ""])
def test_short_values_stay(value):
    assert field(value) == value


@pytest.mark.parametrize(
    "value",
    [
        "x" * 4_000_000,
        b"\xff" * 4_000_000,
        ["y"] * 1_000_000,
        dict.fromkeys(range(10000), "z" * 100),
        ValueError("q" * 99_999),
    ],
    ids=["text", "bytes", "list", "dict", "error"],
)
def test_long_values_are_cut(value):
    assert len(field(value)) <= MOST_CHARS + 40


def test_the_number_of_omitted_lines_is_reported():
    assert field("x" * (MOST_CHARS + 5)) == "x" * MOST_CHARS + "...(5 more)"
    assert shortened(b"a" * 10_000).endswith("more)")


@pytest.mark.parametrize("text", ["a\nlevel=error", "\x1b[2Jhidden", "\u202eright to left", "\x9b31m", "\ud800"])
def test_no_value_can_look_like_another_line(text):
    assert field(text).isprintable()


def test_letters_of_every_language_stay():
    assert field("ümlaut 日本") == "ümlaut 日本"


def test_a_traceback_keeps_its_lines_and_its_end():
    text = "Traceback\n" + "line\n" * 100_000 + "ValueError: end"
    found = bounded_traceback(None, "error", {"event": "e", "exception": text})["exception"]
    assert len(found) <= MOST_TRACEBACK_CHARS + 40
    assert found.startswith("Traceback\nline\n") and found.endswith("ValueError: end")
