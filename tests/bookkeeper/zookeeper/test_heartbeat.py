"""How long kazoo waits for the answer to a ping."""

from __future__ import annotations

from kazoo.client import KazooClient

from magnetar.bookkeeper.zookeeper.heartbeat import Heartbeat, be_patient


def test_a_ping_counts_as_lost_after_the_limit():
    now_s = 10.0
    heartbeat = Heartbeat(lambda: now_s)
    heartbeat.limit_s = 2.5
    assert not heartbeat.is_set()
    heartbeat.set()
    now_s = 12.0
    assert not heartbeat.is_set()
    heartbeat.set()  # a later ping, while the first has no answer
    now_s = 12.5
    assert heartbeat.is_set()
    heartbeat.clear()
    assert not heartbeat.is_set()
    heartbeat.set()
    assert not heartbeat.is_set()


def test_kazoo_pings_twice_as_often_and_waits_longer_for_the_answer(monkeypatch):
    client = KazooClient()
    assert hasattr(client._connection, "ping_outstanding")
    monkeypatch.setattr(client._connection, "_connect", lambda *_: (4000, 6000))
    be_patient(client)
    assert client._connection._connect("host", "address", 1) == (2000, 6000)
    assert isinstance(client._connection.ping_outstanding, Heartbeat)
    assert client._connection.ping_outstanding.limit_s == 2.1
