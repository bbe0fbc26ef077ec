"""The plan of a job's tasks."""

import pytest

from magnetar.pipeline.jobs import reading
from magnetar.pipeline.lake.data_file import IndexSpan
from magnetar.pipeline.log_range import LogRange
from magnetar.pipeline.offsets import Position
from magnetar.pipeline.options import SourceOptions
from magnetar.pipeline.planning import Covered

TOPIC = "persistent://public/default/t"


class Files:
    """A data directory whose ledger 3 holds every message."""

    def __init__(self, _directory):
        pass

    def covered(self, _log, _start, _end):
        return [Covered(3, 0, 10)]


@pytest.mark.parametrize(("compacted", "ledger_id"), [("false", 3), ("true", None)])
def test_messages_that_compaction_left_come_from_the_broker(monkeypatch, tmp_path, compacted, ledger_id):
    monkeypatch.setattr(reading, "open_directory", lambda path: path)
    monkeypatch.setattr(reading, "SegmentMap", Files)
    given = {"topic": TOPIC, "storage.url": f"file://{tmp_path}", "readCompacted": compacted}
    log = LogRange(TOPIC, 0, 10, 10, 1000, Position(3, 9))
    [[piece]] = reading.plan_tasks([IndexSpan(TOPIC, 0, 10)], {TOPIC: log}, SourceOptions.parse(given), 1)
    assert (piece.start, piece.end, piece.ledger_id) == (0, 10, ledger_id)
