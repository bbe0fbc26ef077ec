"""Where a reset to a message of a batch goes on; the entry of a broker index beside trims."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from magnetar.broker.admin.api import MessagePosition
from magnetar.broker.admin_backend.scan import entry_of_index, place_of_reset
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol._pure_records import entry_prefix
from magnetar.protocol.batches import encode_entry
from magnetar.storage.errors import NoSuchEntryError
from magnetar.storage.managed.ledger_map import LedgerMap, LedgerSlot

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
