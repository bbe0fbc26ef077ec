"""The messages of a peeked batch. Pure."""

from __future__ import annotations

from itertools import islice
from typing import Final

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import walk_batch
from magnetar.protocol.errors import ProtocolError

__all__ = ["MOST_MESSAGES", "split_batch"]

MOST_MESSAGES: Final = 100
"""Of a batch, that a page shows."""


def split_batch(payload: bytes, count: int) -> list[tuple[list[tuple[str, str]], bytes]] | None:
    """(properties and key, payload) of each message; None for a payload that is no batch of `count` messages."""
    if count <= 0:
        return None
    metadata = pb.MessageMetadata(producer_name="", sequence_id=0, publish_time=0, num_messages_in_batch=count)
    try:
        return [
            (_own(each.metadata), bytes(each.payload)) for each in islice(walk_batch(metadata, payload), MOST_MESSAGES)
        ]
    except ProtocolError:
        return None


def _own(metadata: pb.SingleMessageMetadata) -> list[tuple[str, str]]:
    out = [("key", metadata.partition_key)] if metadata.HasField("partition_key") else []
    return out + [(f"property {pair.key}", pair.value) for pair in metadata.properties]
