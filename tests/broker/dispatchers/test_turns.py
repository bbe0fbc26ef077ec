"""The turns of all read loops: how many a round of the event loop has, and in which order."""

import asyncio

import pytest

from magnetar.broker.dispatchers.turns import LEAST_COST_BYTES, ROUND_BYTES, DispatchTurns


class Rounds:
    """Callbacks for the next round of an event loop."""

    def __init__(self):
        self.due = []

    def call_later(self, delay_s, callback):
        assert delay_s == 0
        self.due.append(callback)

    def run(self):
        due, self.due = self.due, []
        for callback in due:
            callback()


class Loops:
    """Read loops that note their turns; `costs` by name."""

    def __init__(self, turns, costs):
        self.turns = turns
        self.costs = costs
        self.had = []

    def ask(self, name):
        def turn():
            self.had.append(name)
            return self.costs[name]

        self.turns.wait(turn)


def test_a_round_ends_when_its_turns_have_cost_enough():
    rounds = Rounds()
    loops = Loops(DispatchTurns(rounds.call_later), {"a": ROUND_BYTES // 2, "b": ROUND_BYTES // 2, "c": 1, "d": 1})
    for name in "abcd":
        loops.ask(name)
    rounds.run()
    assert loops.had == ["a", "b"]
    rounds.run()
    assert loops.had == ["a", "b", "c", "d"]
    assert not rounds.due


def test_a_loop_that_asks_again_in_its_turn_waits_behind_all_others_for_a_later_round():
    rounds = Rounds()
    turns = DispatchTurns(rounds.call_later)
    had = []

    def busy():
        had.append("busy")
        turns.wait(busy)
        return 0

    turns.wait(busy)
    turns.wait(lambda: had.append("other") or 0)
    rounds.run()
    assert had == ["busy", "other"]
    rounds.run()
    assert had == ["busy", "other", "busy"]


def test_turns_without_work_have_a_cost():
    rounds = Rounds()
    loops = Loops(DispatchTurns(rounds.call_later), {"idle": 0})
    for _ in range(2 * ROUND_BYTES // LEAST_COST_BYTES):
        loops.ask("idle")
    rounds.run()
    assert len(loops.had) == ROUND_BYTES // LEAST_COST_BYTES
    rounds.run()
    assert len(loops.had) == 2 * ROUND_BYTES // LEAST_COST_BYTES


def test_a_turn_that_fails_costs_no_other_loop_its_turn():
    rounds = Rounds()
    turns = DispatchTurns(rounds.call_later)
    had = []

    def fails():
        raise RuntimeError("a bug")

    turns.wait(fails)
    turns.wait(lambda: had.append("other") or 0)
    rounds.run()
    assert had == ["other"]
    turns.wait(lambda: had.append("later") or 0)
    rounds.run()
    assert had == ["other", "later"]


def test_a_cancelled_turn_does_not_stop_the_turns():
    rounds = Rounds()
    turns = DispatchTurns(rounds.call_later)
    had = []

    def cancelled():
        raise asyncio.CancelledError

    turns.wait(cancelled)
    turns.wait(lambda: had.append("other") or 0)
    with pytest.raises(asyncio.CancelledError):
        rounds.run()
    rounds.run()
    assert had == ["other"]
