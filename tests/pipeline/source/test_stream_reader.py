"""The streaming reader on the driver, over a plan in memory."""

import pytest

from magnetar.pipeline.errors import CatalogUnavailableError
from magnetar.pipeline.options import SourceOptions
from magnetar.pipeline.source import stream_reader
from magnetar.pipeline.source.row_source import RowSource
from magnetar.pipeline.source.stream_reader import PulsarStreamReader
from magnetar.pipeline.source.values import ValueChoice
from tests.pipeline.test_source_plan import T, indexed, plan_over


class Restarting:
    """A catalog of a broker that is away for some requests."""

    def __init__(self, catalog, away):
        self._catalog, self.away = catalog, away

    def __getattr__(self, name):
        if self.away:
            self.away -= 1
            raise CatalogUnavailableError("the admin API does not answer")
        return getattr(self._catalog, name)


@pytest.fixture
def reader_over(monkeypatch):
    monkeypatch.setattr(stream_reader, "_FIRST_PAUSE_S", 0.001)

    def make(*logs, **options):
        options = SourceOptions.parse({"topic": "t", "startingOffsets": "earliest", **options}, streaming=True)
        reader = PulsarStreamReader(options, RowSource.of(options, ValueChoice(options.connect, None)))
        reader._plan = plan_over(*logs, startingOffsets="earliest")
        reader._plan.catalog = Restarting(reader._plan.catalog, 0)
        return reader

    return make


def test_a_broker_that_restarts_while_a_stream_is_planned_ends_no_query(reader_over):
    reader = reader_over(indexed(T, 0, 20))
    start = reader.initialOffset()
    catalog = reader._plan.catalog
    catalog.away = 3
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end[T] == 20
    catalog.away = 3
    [partition] = reader.partitions(start, end)
    assert [(piece.start, piece.end) for piece in partition.ranges] == [(0, 20)]
    catalog.away = 3
    reader.prepareForTriggerAvailableNow()
    assert catalog.away == 0


def test_a_broker_that_stays_away_ends_the_query(reader_over):
    reader = reader_over(indexed(T, 0, 20), pollTimeoutMs="50")
    start = reader.initialOffset()
    reader._plan.catalog.away = 10**9
    with pytest.raises(CatalogUnavailableError, match="does not answer"):
        reader.latestOffset(start, reader.getDefaultReadLimit())


def test_a_query_that_begins_without_a_broker_fails_at_once(reader_over):
    reader = reader_over(indexed(T, 0, 20))
    reader._plan.catalog.away = 1
    with pytest.raises(CatalogUnavailableError):
        reader.initialOffset()
