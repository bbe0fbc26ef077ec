"""Where a reset to a message of a batch goes on; the entry of a broker index beside trims; large metadata."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from magnetar.broker.admin.api import MessagePosition
from magnetar.broker.admin_backend import scan
from magnetar.broker.admin_backend.log_ranges import LogRanges
from magnetar.broker.admin_backend.scan import analyze_backlog, entry_of_index, left_by_expiry, place_of_reset
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol._pure_records import entry_prefix
from magnetar.protocol.batches import encode_entry
from magnetar.storage.errors import NoSuchEntryError
from magnetar.storage.managed.ledger_map import LedgerMap, LedgerSlot
from tests.broker.topic_for_tests import TopicBench
from tests.storage.managed_for_tests import append

if TYPE_CHECKING:
    from magnetar.storage.position import Position


def topic_with(messages: int) -> SimpleNamespace:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=0, num_messages_in_batch=messages)
    body = encode_entry(metadata, b"payload")

    async def read_entry(_position: object) -> SimpleNamespace:
        return SimpleNamespace(body=lambda _index: body)

    return SimpleNamespace(ledger=SimpleNamespace(read_entry=read_entry))


@pytest.mark.parametrize(
    ("messages", "excluded", "place"),
    [
        (4, False, ((3, 7), [0b1100])),
        (4, True, ((3, 7), [0b1000])),
        (2, False, ((3, 7), None)),
        (2**31 - 1, False, ((3, 7), None)),
    ],
    ids=["within", "behind it", "not in it", "a batch that only claims to be so large"],
)
async def test_place_of_reset(messages, excluded, place):
    assert await place_of_reset(topic_with(messages), MessagePosition(3, 7, -1, 2), excluded=excluded) == place


@pytest.mark.parametrize(
    ("messages", "closed_at_ms", "batch_index", "left"),
    [
        (4, 1, 2, [0b1100]),
        (4, 1, 0, None),
        (4, 1, -1, None),
        (2, 1, 2, []),
        (2**31 - 1, 1, 2, []),
        (4, 0, 2, None),
    ],
    ids=["within", "the first", "no index", "not in it", "a batch that only claims to be so large", "the open ledger"],
)
async def test_messages_that_an_expiry_leaves_of_a_batch(messages, closed_at_ms, batch_index, left):
    topic = topic_with(messages)
    topic.ledger.ledgers = [LedgerSlot(3, 10, closed_at_ms=closed_at_ms)]
    assert await left_by_expiry(topic, MessagePosition(3, 7, -1, batch_index)) == left


class TrimmedLog:
    """Ledgers 1 to 4 of ten entries with a message each; a read drops the first ledgers, up to `last`, while the caller
    waits.
    """

    def __init__(self, last: int) -> None:
        self._map = LedgerMap([LedgerSlot(ledger_id, 10) for ledger_id in (1, 2, 3, 4)])
        self._last = last
        self.confirmed_index = 39

    @property
    def entries(self) -> int:
        return self._map.total_entries

    @property
    def first_position(self) -> Position | None:
        return self._map.first_position

    def position_at(self, ordinal: int) -> Position:
        return self._map.at(ordinal)

    async def read_entry(self, position: Position) -> SimpleNamespace:
        self._map.remove(range(1, self._last + 1))
        if not self._map.is_valid(position):
            raise NoSuchEntryError(*position)
        index = (position.ledger_id - 1) * 10 + position.entry_id
        body = entry_prefix(1, index) + b"entry"
        return SimpleNamespace(body=lambda _index: body)


@pytest.mark.parametrize("last", [0, 1, 2, 3])
@pytest.mark.parametrize("index", [30, 35, 39])
async def test_the_entry_of_an_index_beside_a_trim(last, index):
    assert await entry_of_index(TrimmedLog(last), index) == (4, index - 30)


@pytest.mark.parametrize(("index", "found"), [(5, (-1, -1)), (39, None)])
async def test_the_entry_of_an_index_of_a_log_without_its_entry(index, found):
    assert await entry_of_index(TrimmedLog(3 if found else 4), index) == found


def entry_with(texts: int, **fields: int) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, **fields)
    metadata.replicate_to.extend([""] * texts)
    return encode_entry(metadata, b"payload of the entry")


async def test_megabytes_of_metadata_are_counted_without_a_parse_and_in_slices(monkeypatch):
    """The metadata of an entry of 5 MB took a tenth of a second in one turn, those of a read as much."""
    sizes, turns = [], 0
    parse = scan.parse_metadata

    def parsed(body):
        sizes.append(len(body))
        return parse(body)

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(scan, "parse_metadata", parsed)
    bench = TopicBench()
    topic = await bench.open()
    found = await bench.subscribe()
    large = [entry_with(100_000), entry_with(100_000, num_messages_in_batch=3), entry_with(100_000, marker_type=1)]
    small = [entry_with(1, num_messages_in_batch=2), entry_with(1, marker_type=1), entry_with(1)]
    for body in (*large, *small, *large, *large):
        await append(topic.ledger, [body])
    task = asyncio.ensure_future(others())
    answer = await analyze_backlog(topic, found)
    task.cancel()
    assert (answer["entries"], answer["messages"], answer["markerMessages"]) == (12, 3 * 5 + 4, 4)
    assert len(sizes) == 3 and max(sizes) < 200
    assert turns >= 4
    await bench.close()


@pytest.mark.parametrize("texts", [1, 100_000])
async def test_the_first_index_of_a_log(texts, monkeypatch):
    bench = TopicBench(
        broker_entry_metadata_interceptors=(
            "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",
            "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor",
        )
    )
    topic = await bench.open()
    await bench.subscribe("keeps")
    if texts > 1:
        monkeypatch.setattr(scan, "parse_metadata", None)
    await append(topic.ledger, [entry_with(texts)])
    found = await LogRanges().of(topic, ledgers=False)
    assert found["firstIndex"] == 0
    await bench.close()
