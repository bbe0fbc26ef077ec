"""Where a reset to a message of a batch goes on."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from magnetar.broker.admin.api import MessagePosition
from magnetar.broker.admin_backend.scan import place_of_reset
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import encode_entry


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
