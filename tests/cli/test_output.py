"""Tables, JSON, and payloads that cannot take the terminal over."""

import io
import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.cli.output import Output, as_table, for_stream, safe_text, shown, size_text
from magnetar.cli.progress import Progress


def printed(*, as_json, work):
    stream = io.StringIO()
    work(Output(as_json=as_json, stream=stream))
    return stream.getvalue()


def test_a_table_aligns_numbers_to_the_right():
    assert as_table(("NAME", "N"), [("a", 1), ("long", 200)], colour=False) == "NAME    N\na       1\nlong  200\n"
    assert as_table(("N",), [(1,)], colour=True).startswith("\x1b[1mN\x1b[0m\n")


def test_json_has_the_rows_by_column():
    text = printed(as_json=True, work=lambda out: out.table(("TOPIC", "MSG/S IN"), [("t", 1.5)]))
    assert json.loads(text) == [{"topic": "t", "msg_per_s_in": 1.5}]


def test_an_absent_value_is_a_dash():
    assert [shown(each) for each in (None, True, 1.25, ["a", "b\x1b"], [], "x\x1b[2J")] == [
        "-",
        "yes",
        "1.2",
        "a, b\\x1b",
        "-",
        "x\\x1b[2J",
    ]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("colours", [True, False])
def test_the_user_of_a_terminal_may_turn_colours_off(monkeypatch, colours):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "" if colours else "1")
    terminal = Terminal()
    Output(as_json=False, stream=terminal).table(("N",), [(1,)])
    assert terminal.getvalue() == ("\x1b[1mN\x1b[0m\n1\n" if colours else "N\n1\n")


def test_names_that_peers_choose_do_not_move_the_cursor_of_a_terminal():
    """`magnetar admin topics list`, `magnetar client consume` and messages of errors passed escape sequences on."""
    text = "évil\x1b]0;title\x07\t\x9b2J\r\n"
    assert for_stream(text, Terminal()) == "évil\\x1b]0;title\\x07\t\\x9b2J\\x0d\n"
    assert for_stream(text, io.StringIO()) == text
    terminal = Terminal()
    output = Output(as_json=False, stream=terminal)
    output.text("name \x1b[2J")
    output.line({"name": "\x9b2J"})
    assert "\x1b" not in terminal.getvalue() and "\x9b" not in terminal.getvalue()


def test_spaces_and_joiners_of_all_scripts_are_shown():
    """A Japanese text had \\x3000 for each of its spaces, a Persian text \\x200c within words."""
    text = "日本語\u3000版 «\xa0oui\xa0» \u0645\u06cc\u200c\u062e 👩\u200d🔧"
    assert for_stream(text, Terminal()) == safe_text(text.encode()) == shown(text) == text
    assert shown("a\u202eb\u2028\x9b") == "a\\u202eb\\u2028\\x9b"


@given(st.binary())
def test_payloads_hold_no_control_characters_for_a_terminal(payload):
    kinds = {unicodedata.category(each) for each in safe_text(payload) if each not in "\n\t\u200c\u200d"}
    assert not kinds & {"Cc", "Cf", "Cs", "Zl", "Zp"}


def test_sizes():
    assert [size_text(each) for each in (0, 1023, 1536, 3 * 2**40)] == ["0 B", "1023 B", "1.5 KiB", "3.0 TiB"]


def test_progress_is_silent_without_a_terminal(capsys):
    with Progress("work", 2, "messages", clock=iter(range(100)).__next__) as progress:
        progress.add(1)
        progress.add(1)
    assert capsys.readouterr() == ("", "")
