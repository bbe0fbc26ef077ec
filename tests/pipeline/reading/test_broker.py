"""Reading a range whose connection is lost at the worst moment."""

import pytest

from magnetar.client.errors import RefusedError, RetryError
from magnetar.pipeline.connect_options import ConnectOptions
from magnetar.pipeline.errors import CatalogUnavailableError, ReadTimeoutError
from magnetar.pipeline.log_range import LogRange
from magnetar.pipeline.offsets import Position
from magnetar.pipeline.planning import ReadRange
from magnetar.pipeline.reading import broker
from magnetar.pipeline.reading.index_tracker import with_index
from magnetar.pipeline.reading.settings import ReadSettings
from tests.pipeline.reading.test_index_tracker import chunk_of, sent


class LostConnection:
    """A session that has pushed some entries and loses its connection at the next request."""

    def ask_for(self, _messages):
        raise RetryError("the connection to the broker was lost")

    def close(self):
        pass


def test_entries_that_came_before_the_connection_was_lost_are_given():
    piece = ReadRange("persistent://public/default/t", -1, 0, 10)
    reader = broker._RangeReader(piece, ReadSettings(ConnectOptions.parse({})), lambda *_: None)
    reader._pushed = LostConnection()
    [chunk] = reader._taken([chunk_of(1, [with_index(sent(1), k) for k in range(4)])])
    assert list(chunk.entry_ids) == [0, 1, 2, 3]
    assert reader._next == 4


def test_entries_whose_index_is_known_are_given_when_the_next_one_cannot_be_asked_for(monkeypatch):
    reader = broker._RangeReader(
        ReadRange("persistent://public/default/t", -1, 0, 10), ReadSettings(ConnectOptions.parse({})), lambda *_: None
    )

    def index_of(_topic, position):
        if position.ledger_id == 2:
            raise CatalogUnavailableError("the admin API is away")
        return (0, 0)

    monkeypatch.setattr(reader._catalog, "index_of", index_of)
    reader._pushed = LostConnection()
    chunks = [chunk_of(1, [sent(1), sent(1)]), chunk_of(2, [sent(1)])]
    [chunk] = reader._taken(chunks)
    assert (list(chunk.entry_ids), reader._next, reader._pushed) == ([0, 1], 2, None)
    reader._pushed = LostConnection()
    with pytest.raises(CatalogUnavailableError):
        reader._taken(chunks[1:])


async def test_a_refusal_is_judged_once_the_admin_api_answers(monkeypatch):
    """A broker that stops refuses the reader, and its admin API is away then."""
    reader = broker._RangeReader(
        ReadRange("persistent://public/default/t", -1, 0, 10), ReadSettings(ConnectOptions.parse({})), lambda *_: None
    )
    calls = []

    async def refused_at_first():
        calls.append("open")
        if len(calls) == 1:
            raise RefusedError("TopicNotFound")
        reader._next = 10

    def away():
        calls.append("log")
        raise CatalogUnavailableError("the admin API is away")

    monkeypatch.setattr(reader, "_open", refused_at_first)
    monkeypatch.setattr(reader, "_log", lambda **_: away())
    assert await reader.more() is None
    assert calls == ["open", "log", "open"]


class DeliveredAll:
    """A session whose broker has sent all that a reader of the compacted topic may get."""

    async def last_message(self):
        return Position(1, 3)


@pytest.mark.parametrize(("open_from", "reached"), [(None, 10), (6, 6), (2, 4)])
async def test_a_compacted_read_waits_for_the_end_of_an_open_transaction(monkeypatch, open_from, reached):
    """Apache Pulsar names a message before the open transaction as the last message: the rest of the range was lost."""
    reader = broker._RangeReader(
        ReadRange("persistent://public/default/t", -1, 0, 10),
        ReadSettings(ConnectOptions.parse({}), read_compacted=True),
        lambda *_: None,
    )
    log = LogRange("persistent://public/default/t", 0, 10, 10, 1000, Position(1, 9), open_from=open_from)
    monkeypatch.setattr(reader, "_log", lambda **_: log)
    monkeypatch.setattr(reader._withheld, "behind", lambda _index, _end: None)
    reader._pushed, reader._last, reader._next = DeliveredAll(), Position(1, 3), 4
    await reader._check_idle()
    assert reader._next == reached
    if open_from is not None:
        reader._progress_s -= 1000
        with pytest.raises(ReadTimeoutError):
            await reader._check_idle()
