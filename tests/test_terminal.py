"""Colours of a terminal, as its user has chosen."""

import io

import pytest

from magnetar.terminal import shows_colours


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("environment", "colours"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_the_user_of_a_terminal_may_turn_colours_off(monkeypatch, environment, colours):
    for name, value in ({"TERM": "xterm", "NO_COLOR": ""} | environment).items():
        monkeypatch.setenv(name, value)
    assert shows_colours(Terminal()) is colours


def test_a_file_gets_no_colours(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    assert not shows_colours(io.StringIO())
