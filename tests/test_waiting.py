"""The helper that waits: returns at once, goes on waiting, gives up with a name; no other loop of a test polls."""

import ast
import itertools
import pathlib

import pytest

from tests.waiting import until, wait_for

TESTS = pathlib.Path(__file__).parent
OWN_LOOPS = {
    "waiting.py": "the helper",
    "monitoring/draw_boards.py": "publishes at a pace",
    "attack/conftest.py": "a client that sends PING after PING",
    "cluster/load.py": "sends at a pace",
    "cluster/stepped_broker.py": "a clock that follows a file",
    "model/owners_on_bookies.py": "the same as two_owners",
    "model/two_owners.py": "an owner opens a log again and again, in virtual time",
    "blackbox/test_soak.py": "samples of memory and threads",
    "conformance/harness/session.py": "by the clock that stands still while the broker does not answer",
    "conformance/roams.py": "reads several connections until all are quiet",
    "conformance/walks.py": "the same",
}
"""Files of tests with a loop that sleeps, and the reason."""


async def test_it_returns_when_the_condition_holds():
    for condition in (lambda: True, iter([False, False, True]).__next__):
        wait_for(condition)
    await until(iter([False, True]).__next__)


async def test_it_returns_the_value_of_the_condition():
    assert wait_for(iter([None, "a"]).__next__) == "a"
    assert await until(iter([None, "a"]).__next__) == "a"


def test_exceptions_that_are_ignored_count_as_false():
    attempts = itertools.count()

    def third():
        if next(attempts) < 2:
            raise OSError
        return True

    wait_for(third, ignoring=OSError)
    with pytest.raises(ZeroDivisionError):
        wait_for(lambda: 1 / 0, ignoring=OSError)


async def test_it_gives_up_with_the_name_of_its_subject():
    with pytest.raises(AssertionError, match=r"the third message did not come about in 0\.05 s"):
        wait_for(lambda: False, 0.05, "the third message")
    calls = itertools.count()
    with pytest.raises(AssertionError, match="a reply"):
        await until(lambda: next(calls) < 0, 0.05, "a reply")
    assert next(calls) > 1


def polls(tree):
    """Lines of the `while` loops that sleep for a time in their own body."""
    for loop in ast.walk(tree):
        for statement in loop.body if isinstance(loop, ast.While) else ():
            value = statement.value if isinstance(statement, ast.Expr) else None
            call = value.value if isinstance(value, ast.Await) else value
            name = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
            if name in {"time.sleep", "asyncio.sleep"} and ast.unparse(call.args[0]) != "0":
                yield loop.lineno


def test_no_other_loop_polls():
    found = {
        str(path.relative_to(TESTS)): lines
        for path in TESTS.rglob("*.py")
        if "sleep(" in (text := path.read_text()) and (lines := list(polls(ast.parse(text))))
    }
    assert {name: lines for name, lines in found.items() if name not in OWN_LOOPS} == {}
    assert found.keys() == OWN_LOOPS.keys(), "a file has lost its loop"


@pytest.mark.parametrize(
    "text", ["while not done():\n    time.sleep(0.1)", "async def f():\n    while x:\n        await asyncio.sleep(1)"]
)
def test_a_loop_that_polls_is_found(text):
    assert list(polls(ast.parse(text)))
