import io
import json

import pytest

from magnetar.pipeline.progress import Progress


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


def drive(style, out=None):
    out, clock = out if out is not None else io.StringIO(), Clock()
    progress = Progress("export", out, style=style, now=clock)
    progress.begin(100)
    clock.now = 10.0
    progress.advance(25, messages=5_000_000)
    progress.say("planning again")
    clock.now = 10.1
    progress.advance(75)
    progress.end()
    return out.getvalue()


def test_a_bar_on_a_terminal():
    shown = drive("auto", Terminal())
    assert "\r" in shown
    assert "25 %  5.0 M messages  500.0 k/s  eta 0:30" in shown
    assert "100 %" in shown
    assert shown.endswith("\n")


def test_lines_elsewhere():
    lines = drive("auto").splitlines()
    assert lines[0].startswith("export  [---")
    assert "planning again" in lines
    assert "\r" not in "".join(lines)


def test_json_lines():
    found = [json.loads(line) for line in drive("json").splitlines()]
    assert found[1] == {"job": "export", "done": 25, "of": 100, "messages": 5_000_000, "seconds": 10.0}
    assert found[2] == {"job": "export", "text": "planning again"}
    assert found[-1]["done"] == 100


def test_nothing():
    assert drive("none") == ""


def test_styles_that_are_not_known():
    with pytest.raises(ValueError, match="bar, plain, json"):
        Progress("x", io.StringIO(), style="loud")


def test_hours():
    out, clock = Terminal(), Clock()
    progress = Progress("x", out, now=clock)
    progress.begin(100)
    clock.now = 3600
    progress.advance(10)
    assert "eta 9:00:00" in out.getvalue()
