"""Refused proofs are logged at warning, within a bound."""

from structlog.testing import capture_logs

from magnetar.broker.auth.authenticator import MOST_IN_WINDOW, WINDOW_S, FailureLog


def test_failures_are_warnings_within_a_bound_that_a_new_window_renews():
    now_s = [100.0]
    failures = FailureLog(lambda: now_s[0])
    with capture_logs() as lines:
        for attempt in range(3 * MOST_IN_WINDOW):
            failures.failed("binary", f"/10.0.0.{attempt}", "token", "the signature does not fit")
        assert len(lines) == MOST_IN_WINDOW
        assert {line["log_level"] for line in lines} == {"warning"}
        assert all("left_out" not in line for line in lines)
        now_s[0] += WINDOW_S
        failures.failed("http", "/10.0.0.1", "Basic", "wrong password")
        failures.failed("http", "/10.0.0.1", "Basic", "wrong password")
    assert lines[-2]["left_out"] == 2 * MOST_IN_WINDOW
    assert "left_out" not in lines[-1]
    assert lines[-1]["door"] == "http"
