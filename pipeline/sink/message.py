"""One message on its way from its row to an entry, or to several where the broker takes no entry of its size."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from magnetar.protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Message(NamedTuple):
    """One message of the sink. A value of None is a tombstone. Times are milliseconds since 1970 UTC; 0: no time."""

    value: bytes | None
    key: bytes | None = None
    ordering_key: bytes | None = None
    properties: tuple[tuple[str, str], ...] = ()
    event_time_ms: int = 0
    deliver_at_ms: int = 0
    schema_version: bytes | None = None
    """The schema version of the destination topic; None: the version of the producer."""


class Row(NamedTuple):
    """A message and its destination: the topic's name without a partition, and the partition; -1: the row has none."""

    topic: str
    partition: int
    message: Message


class Entry(NamedTuple):
    """A unit of sending. `data`: headers and payload, as SEND carries them.

    Sequence ids `first` to `last`, `messages` of them: the last chunk of a message counts as one message, its other
    chunks as none. chunks: the chunked message of the entry.
    """

    first: int
    last: int
    messages: int
    data: bytes
    chunks: Chunks | None = None


@dataclass(frozen=True, eq=False)
class Chunks:
    """One message. encode: makes an entry of metadata and payload."""

    metadata: pb.MessageMetadata
    """The metadata of each chunk, without the fields about chunks."""
    payload: bytes
    room: int
    """Payload bytes of a chunk."""
    encode: Callable[[pb.MessageMetadata, bytes], bytes]

    def entries(self) -> Iterator[Entry]:
        """The chunks in order, under a new uuid for each call.

        Consumers give a message up when they get a chunk twice, and a producer that lost its connection cannot know
        which chunks are stored. So the producer sends all chunks again, as another message with the same sequence id.
        When both messages are complete, deduplication drops the second.
        """
        payload, sequence_id = self.payload, self.metadata.sequence_id
        starts = range(0, len(payload), self.room)
        metadata = pb.MessageMetadata()
        metadata.CopyFrom(self.metadata)
        metadata.uuid = f"{metadata.producer_name}-{sequence_id}-{os.urandom(6).hex()}"
        metadata.num_chunks_from_msg, metadata.total_chunk_msg_size = len(starts), len(payload)
        for number, start in enumerate(starts):
            metadata.chunk_id = number
            data = self.encode(metadata, payload[start : start + self.room])
            yield Entry(sequence_id, sequence_id, int(number == len(starts) - 1), data, self)
