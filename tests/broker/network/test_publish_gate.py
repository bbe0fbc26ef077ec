from magnetar.broker.network.publish_gate import PublishBudget, PublishGate
from tests.twins.fake_connection import FakeConnection


def test_entries_beyond_the_limit_pause_and_resume_at_half():
    connection = FakeConnection()
    gate = PublishGate(connection, PublishBudget(0), 10)
    gate.started(9, 0)
    assert not connection.held
    gate.started(1, 0)
    assert not connection.held, "a window of the limit needs no pause"
    gate.started(2, 0)
    assert connection.held == {"publish-entries"}
    gate.finished(6, 0)
    assert connection.held
    gate.finished(1, 0)
    assert not connection.held


def test_bytes_of_all_connections_count_together():
    budget = PublishBudget(1000)
    connections = [FakeConnection(), FakeConnection()]
    one, other = (PublishGate(c, budget, 0) for c in connections)
    one.started(1, 900)
    other.started(1, 100)
    assert [bool(c.held) for c in connections] == [False, True]
    one.started(1, 1)
    assert all(c.held for c in connections)
    one.finished(2, 901)
    assert not any(c.held for c in connections)
    assert budget.in_flight_bytes == 100


def test_a_connection_that_is_gone_is_not_released():
    budget = PublishBudget(10)
    connection = FakeConnection()
    gate = PublishGate(connection, budget, 0)
    gate.started(1, 10)
    gate.close()
    gate.finished(1, 10)
    assert connection.held == {"publish-bytes"}


def test_no_limits_hold_nothing():
    connection = FakeConnection()
    gate = PublishGate(connection, PublishBudget(0), 0)
    gate.started(10**6, 10**12)
    assert not connection.held
