"""The helper that waits: returns at once, goes on waiting, gives up with a name."""

import itertools

import pytest

from tests.waiting import until, wait_for


async def test_it_returns_when_the_condition_holds():
    for condition in (lambda: True, iter([False, False, True]).__next__):
        wait_for(condition)
    await until(iter([False, True]).__next__)


async def test_it_gives_up_and_says_what_was_waited_for():
    with pytest.raises(AssertionError, match=r"the third message did not come about in 0\.05 s"):
        wait_for(lambda: False, 0.05, "the third message")
    calls = itertools.count()
    with pytest.raises(AssertionError, match="a reply"):
        await until(lambda: next(calls) < 0, 0.05, "a reply")
    assert next(calls) > 1
