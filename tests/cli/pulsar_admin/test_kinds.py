"""Texts of flags as values, and the texts that are refused."""

from typing import get_args

import pytest

from magnetar.broker.policies.values import AuthAction
from magnetar.cli.errors import CommandLineError
from magnetar.cli.pulsar_admin.kinds import ACTIONS, converted, duration


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("30", 30), ("10m", 600), ("100y", 100 * 365 * 86_400)])
def test_durations(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["-1", "-5s", "101y", "99999999999y"])
def test_durations_that_no_clock_counts_are_refused(text):
    with pytest.raises(CommandLineError, match="between 0 and 100y"):
        duration(text)


def test_actions_are_those_of_the_broker():
    assert get_args(AuthAction) == ACTIONS


def test_actions_of_several_flags():
    assert converted("actions", ["produce, consume", "sinks"]) == ["produce", "consume", "sinks"]


@pytest.mark.parametrize("text", ["bogus", "produce,", "Produce", ""])
def test_actions_that_do_not_exist_are_refused(text):
    with pytest.raises(CommandLineError, match="is no action: give produce, consume, "):
        converted("actions", [text])
