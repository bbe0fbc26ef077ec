import io

from magnetar.importing.progress import FileReport, Progress


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


def report(**more):
    return FileReport("f.log", "name", 1_000, "offset", messages=7, bytes=4 << 20, **more)


def test_a_terminal_has_one_line_that_is_renewed():
    out, clock = Terminal(), Clock()
    progress = Progress(out, now=clock)
    progress.start()
    progress.advance(report(), 100)
    assert out.getvalue() == ""
    clock.now = 2.0
    progress.advance(report(), 500)
    progress.advance(report(), 501)
    assert out.getvalue() == "\r\x1b[Kf.log: 50 % (500 of 1000 bytes), 7 messages stored, 2.0 MiB/s"
    progress.say("done")
    assert out.getvalue().endswith("MiB/s\r\x1b[Kdone\n")


def test_elsewhere_a_line_every_five_seconds():
    out, clock = io.StringIO(), Clock()
    progress = Progress(out, now=clock)
    for second in range(12):
        clock.now = float(second)
        progress.advance(report(), 10 * second)
    assert [line.split(" %")[0] for line in out.getvalue().splitlines()] == ["f.log: 5", "f.log: 10"]
    clock.now = 20.0
    progress.reading(1234)
    assert out.getvalue().endswith("reading the topic for earlier imports: 1234 entries\n")


def test_quiet_prints_only_problems():
    out, clock = io.StringIO(), Clock()
    progress = Progress(out, quiet=True, now=clock)
    clock.now = 60.0
    progress.advance(report(), 10)
    progress.reading(1)
    progress.say("text")
    progress.complain("warning", "look")
    assert out.getvalue() == "magnetar: warning: look\n"
