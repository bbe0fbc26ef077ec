import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from magnetar.converters.breaker import Breaker, BreakerSettings, BreakerState

SETTINGS = BreakerSettings(window=10, minimum_calls=4, failure_percent=50, open_ms=1_000)


def feed(breaker, results, now_ms=0):
    for ok in results:
        breaker.record(ok=ok, now_ms=now_ms)


def test_it_opens_above_the_share_and_not_before_enough_calls():
    breaker = Breaker(SETTINGS)
    feed(breaker, [False] * 3)
    assert breaker.state(0) is BreakerState.CLOSED
    breaker = Breaker(SETTINGS)
    feed(breaker, [True] * 3 + [False] * 3)
    assert breaker.allows(0), "half of the calls are not more than half"
    feed(breaker, [False])
    assert breaker.state(0) is BreakerState.OPEN
    assert not breaker.allows(999)


def test_old_results_leave_the_window():
    breaker = Breaker(SETTINGS)
    feed(breaker, [True] * 10 + [False] * 5)
    assert breaker.allows(0)
    feed(breaker, [False])
    assert not breaker.allows(0)


def test_one_probe_decides():
    breaker = Breaker(SETTINGS)
    feed(breaker, [False] * 4)
    assert breaker.state(1_000) is BreakerState.HALF_OPEN
    assert breaker.allows(1_000)
    assert not breaker.allows(1_000), "the probe is taken"
    breaker.record(ok=False, now_ms=1_100)
    assert not breaker.allows(2_099)
    assert breaker.allows(2_100)
    breaker.record(ok=True, now_ms=2_200)
    assert breaker.state(2_200) is BreakerState.CLOSED
    feed(breaker, [False] * 3)
    assert breaker.allows(2_200), "it starts anew"


def test_late_reports_do_not_prolong_the_pause():
    breaker = Breaker(SETTINGS)
    feed(breaker, [False] * 4)
    breaker.record(ok=False, now_ms=900)
    breaker.record(ok=True, now_ms=950)
    assert breaker.state(999) is BreakerState.OPEN
    assert breaker.allows(1_000)


@pytest.mark.parametrize(
    "wrong", [{"window": 5, "minimum_calls": 6}, {"minimum_calls": 0}, {"failure_percent": 100}, {"open_ms": -1}]
)
def test_impossible_settings(wrong):
    with pytest.raises(ValueError, match="impossible"):
        BreakerSettings(**wrong)


class BreakerModel(RuleBasedStateMachine):
    """The breaker never refuses while calls succeed, and never lets two probes through."""

    def __init__(self):
        super().__init__()
        self.breaker, self.now, self.running, self.failed = Breaker(SETTINGS), 0, 0, False

    @rule(step=st.integers(0, 1500))
    def wait(self, step):
        self.now += step

    @rule()
    def ask(self):
        state = self.breaker.state(self.now)
        if self.breaker.allows(self.now):
            assert state is not BreakerState.OPEN
            assert state is BreakerState.CLOSED or self.running == 0
            self.running = self.running + 1 if state is BreakerState.HALF_OPEN else 0
            if state is BreakerState.CLOSED:
                self.breaker.record(ok=not self.failed, now_ms=self.now)
        self.failed = False

    @precondition(lambda self: self.running)
    @rule(ok=st.booleans())
    def probe_ends(self, ok):
        self.breaker.record(ok=ok, now_ms=self.now)
        self.running = 0
        assert self.breaker.state(self.now) is (BreakerState.CLOSED if ok else BreakerState.OPEN)

    @rule()
    def next_call_fails(self):
        self.failed = True

    @invariant()
    def states_are_known(self):
        assert self.breaker.state(self.now) in set(BreakerState)


TestBreakerModel = BreakerModel.TestCase
TestBreakerModel.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
