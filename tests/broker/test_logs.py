"""A log that cannot be written only loses lines, and a repeated line does not fill the log."""

import errno
import io
import logging

import pytest
import structlog

from magnetar.broker import logs
from magnetar.broker.logs import MOST_IN_WINDOW, MOST_OF_PEERS, WINDOW_S, Repeats


class FullDisk:
    """Standard error on a disk without room."""

    def isatty(self):
        return False

    def write(self, _text):
        raise OSError(errno.ENOSPC, "No space left on device")

    def flush(self):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_under_the_log_is_no_error(monkeypatch):
    monkeypatch.setattr(logs.sys, "stderr", FullDisk())
    try:
        logs.configure_logs()
        structlog.get_logger("test").warning("append.failed", error="full")
    finally:
        structlog.reset_defaults()


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("colours", [True, False])
def test_a_terminal_gets_colours_unless_its_user_turns_them_off(monkeypatch, colours):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "" if colours else "1")
    terminal = Terminal()
    monkeypatch.setattr(logs.sys, "stderr", terminal)
    try:
        logs.configure_logs()
        structlog.get_logger("test").warning("append.failed", error="full")
    finally:
        structlog.reset_defaults()
    assert "append.failed" in terminal.getvalue()
    assert ("\x1b" in terminal.getvalue()) is colours


class Log:
    """The filter of repeated lines, with a clock that the test moves."""

    def __init__(self):
        self.now_s = 0.0
        self.repeats = Repeats(lambda: self.now_s)

    def passed(self, **event):
        try:
            return self.repeats(None, "warning", event)
        except structlog.DropEvent:
            return None


def test_a_line_that_repeats_is_left_out_and_then_counted():
    log = Log()
    line = {"event": "topic.fenced", "level": "warning", "topic": "t", "reason": "full"}
    shown = [log.passed(**line) for _ in range(100)]
    assert shown[:MOST_IN_WINDOW] == [line] * MOST_IN_WINDOW
    assert set(map(bool, shown[MOST_IN_WINDOW:])) == {False}
    log.now_s = WINDOW_S
    assert log.passed(**line) == line | {"left_out": 100 - MOST_IN_WINDOW}
    assert log.passed(**line) == line, "told once"


def test_another_value_or_level_is_another_line():
    log = Log()
    for topic in range(10 * MOST_IN_WINDOW):
        assert log.passed(event="topic.fenced", topic=topic)
    for _ in range(MOST_IN_WINDOW):
        assert log.passed(event="a", level="info")
    assert log.passed(event="a", level="error")
    assert log.passed(event="a", level="info") is None


def test_a_line_now_and_then_always_passes():
    log = Log()
    for _ in range(100):
        log.now_s += WINDOW_S / MOST_IN_WINDOW
        assert log.passed(event="topic.loaded", topic="t")


@pytest.mark.parametrize("seconds", [0, 1])
def test_memory_does_not_grow_with_lines(seconds):
    log = Log()
    for number in range(5000):
        log.now_s += seconds
        assert log.passed(event="connection.closed", conn=number)
    assert len(log.repeats._lines) <= 1000


def test_it_is_in_the_log_of_the_process(capsys):
    try:
        logs.configure_logs()
        for _ in range(2 * MOST_IN_WINDOW):
            structlog.get_logger("test").warning("append.failed", error="full")
    finally:
        structlog.reset_defaults()
    assert capsys.readouterr().err.count("append.failed") == MOST_IN_WINDOW


def test_lines_that_a_peer_causes_at_will_have_a_bound_over_all_values():
    log = Log()
    shown = [log.passed(event="connection.refused", conn=number, reason=f"r{number}") for number in range(1000)]
    assert sum(map(bool, shown)) == MOST_OF_PEERS
    assert log.passed(event="subscription.created", topic="t")
    log.now_s = WINDOW_S
    assert log.passed(event="connection.refused", conn=1)["left_out"] == 1000 - MOST_OF_PEERS


def test_lines_of_a_library_are_bounded_and_without_a_second_copy(capsys):
    theirs = logging.getLogger("foreign")
    try:
        logs.configure_logs()
        for _ in range(2):
            logs.adopt_library("foreign", "foreign.event")
        for _ in range(2 * MOST_OF_PEERS):
            theirs.warning("invalid request")
        try:
            raise ValueError("of the library")
        except ValueError:
            theirs.exception("failed")
    finally:
        structlog.reset_defaults()
        theirs.handlers.clear()
    written = capsys.readouterr().err
    assert written.count("event=foreign.event") == written.count("text=") == MOST_IN_WINDOW + 1
    assert "ValueError: of the library" in written
