"""The earlier part of a compacted subscription; tests of subscriptions and of compaction show it with consumers."""

from __future__ import annotations

from types import SimpleNamespace

from magnetar.broker.compaction import earlier_part
from magnetar.broker.compaction.earlier_part import EarlierPart
from magnetar.storage.position import Position


def test_acknowledgements_of_entries_that_were_not_delivered_are_bounded(monkeypatch):
    monkeypatch.setattr(earlier_part, "MOST_UNDELIVERED", 3)
    cursor = SimpleNamespace(position_properties={}, note_properties=lambda _properties: None)
    part = EarlierPart(cursor)
    part.begin(Position(1, 0), 9)
    part.delivered([Position(1, 0), Position(1, 1)])
    for entry_id in range(100, 200):
        assert part.ack(Position(2, entry_id))
    known = [entry_id for entry_id in range(100, 200) if part.is_acknowledged(Position(2, entry_id))]
    assert known == [100, 101, 102]
    assert part.ack(Position(1, 1))
    assert part.ack(Position(1, 0))
    assert part.done == Position(1, 1)
