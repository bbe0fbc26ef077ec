"""An entry as compaction sees it: the keys of its messages, its tombstones, the messages that belong together.

Rules (recorded from Apache Pulsar 4.2.4 where it has an answer):

- a message without a key is dropped; so is a message with an empty value, which deletes its key (a tombstone);
- entries that no consumer ever gets (markers, unreadable metadata) are dropped;
- an unreadable entry (an encrypted batch, a batch that does not parse) is kept whole: its keys are unknown, so
  dropping it could lose a value. Apache Pulsar drops such an entry or fails. A batch of more than 100,000 messages, or
  of more than 16 MiB without its compression, is kept whole too: a few KiB can expand to that size. So is an entry with
  more than a MiB of metadata, which no thread parses without holding the interpreter for as long;
- the chunks of one message have one key; compaction keeps all of them or drops all of them. Apache Pulsar keeps the
  last chunk only, which no client can read.

Pure. An examination takes a few microseconds for a single message, and time in proportion to its messages for a batch.
"""

from __future__ import annotations

import enum
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from magnetar.converters.entry import entry_format
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import walk_batch
from magnetar.protocol.errors import ProtocolError
from magnetar.protocol.metadata import metadata_bytes, split_entry

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DIGEST_BYTES", "DROPPED", "KEPT", "Examined", "Keyed", "Kind", "digest_of", "examine", "examine_small"]

DIGEST_BYTES = 16
MOST_PLAIN_BYTES: Final = 16 << 20
MOST_IN_BATCH: Final = 100_000
MOST_METADATA_BYTES: Final = 1 << 20


class Kind(enum.Enum):
    """The decision about an entry."""

    DROP = "drop"
    KEEP = "keep"
    MESSAGES = "messages"
    CHUNK = "chunk"


class Keyed(NamedTuple):
    """A message with a key: its place in the entry, the key's digest, whether it deletes the key."""

    batch_index: int
    digest: bytes
    is_tombstone: bool


class Examined(NamedTuple):
    """The decision about one entry. `messages`: how many places the entry has (1 unless it is a readable batch)."""

    kind: Kind
    messages: int = 1
    keyed: Sequence[Keyed] = ()
    chunk: tuple[bytes, int, bool] | None = None
    """Digest of the chunked message's identity, the number of the chunk, and whether the chunk is the last."""


DROPPED = Examined(Kind.DROP)
KEPT = Examined(Kind.KEEP)


def digest_of(key: str | bytes) -> bytes:
    """The digest of a key in the table: 16 bytes for keys of every length, so large that no collision is expected.

    The caller passes a key that is not UTF-8 as bytes.
    """
    return blake2b(key if isinstance(key, bytes) else key.encode(), digest_size=DIGEST_BYTES).digest()


def examine(body: bytes | memoryview) -> Examined:
    """Examine an entry as it is stored. Raises no error, whatever the bytes."""
    found = examine_small(body, MOST_PLAIN_BYTES)
    return KEPT if found is None else found


def examine_small(body: bytes | memoryview, most_plain_bytes: int) -> Examined | None:
    """Like `examine`, but return None for a batch that decompresses to more than `most_plain_bytes`."""
    if len(body) > MOST_METADATA_BYTES and metadata_bytes(body) > MOST_METADATA_BYTES:
        return KEPT
    metadata, payload = split_entry(body)
    if metadata is None or metadata.HasField("marker_type"):
        return DROPPED
    if metadata.properties and entry_format(metadata) is not None:
        return KEPT  # keys of a foreign entry have another format
    if metadata.HasField("num_messages_in_batch"):
        if metadata.compression != pb.NONE and metadata.uncompressed_size > most_plain_bytes:
            return None
        return _batch(metadata, payload)
    if not metadata.HasField("partition_key"):
        return DROPPED
    keyed = (Keyed(0, digest_of(metadata.partition_key), _is_tombstone(metadata, payload)),)
    if metadata.num_chunks_from_msg > 1:
        identity = f"{metadata.producer_name}\0{metadata.uuid}"
        is_last = metadata.chunk_id >= metadata.num_chunks_from_msg - 1
        return Examined(Kind.CHUNK, 1, keyed, (digest_of(identity), metadata.chunk_id, is_last))
    return Examined(Kind.MESSAGES, 1, keyed)


def _is_tombstone(metadata: pb.MessageMetadata, payload: memoryview) -> bool:
    if metadata.null_value:
        return True
    if metadata.HasField("uncompressed_size") and (metadata.compression != pb.NONE or metadata.encryption_keys):
        return metadata.uncompressed_size == 0
    return not payload


def _batch(metadata: pb.MessageMetadata, payload: memoryview) -> Examined:
    count = metadata.num_messages_in_batch
    if metadata.encryption_keys or not 0 < count <= MOST_IN_BATCH:
        return KEPT
    keyed = []
    try:
        for message in walk_batch(metadata, payload):
            single = message.metadata
            if single.HasField("partition_key") and not single.compacted_out:
                keyed.append(Keyed(message.batch_index, digest_of(single.partition_key), not single.payload_size))
    except ProtocolError:
        return KEPT
    return Examined(Kind.MESSAGES, count, keyed)
