"""Decryption: the encrypted entries of a chunk, as they were before their producer encrypted them.

A producer encrypts last: the plaintext is a batch, a compressed payload or a chunk of a message. So entries are
decrypted before all other steps; their metadata stays, without the flag that they are encrypted.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from magnetar.client.encryption import CannotDecryptError
from magnetar.pipeline.decode.headers import Headers
from magnetar.pipeline.decode.look_back import is_chunk
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.entry_columns import ColumnFlag, EntryColumn, EntryStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magnetar.client.encryption import Decrypting
    from magnetar.pipeline.entry_chunk import EntryChunk


@dataclass(frozen=True, slots=True)
class Opened:
    """A chunk with its headers. still: entry that stays encrypted -> why it could not be decrypted."""

    chunk: EntryChunk
    headers: Headers
    still: dict[int, str] = field(default_factory=dict)


def opened(
    chunk: EntryChunk,
    decrypting: Decrypting | None,
    *,
    verify: bool,
    first_index: int | None = None,
    end_index: int | None = None,
) -> Opened:
    """The chunk, with the encrypted entries of this range, and all chunks of messages, decrypted where a key fits.

    Memory: a copy of the chunk, if it has such entries.
    """
    headers = Headers(chunk, verify=verify and not chunk.verified)
    if decrypting is None or not headers.any_flags() & int(ColumnFlag.ENCRYPTED):
        return Opened(chunk, headers)
    encrypted = headers.has(ColumnFlag.ENCRYPTED) & (headers[EntryColumn.STATUS] == EntryStatus.FINE)
    if not encrypted.any():
        return Opened(chunk, headers)
    encrypted &= headers.in_range(first_index, end_index) | is_chunk(headers)
    bodies: list[memoryview | bytes] = [chunk.entry(i) for i in range(len(chunk))]
    still: dict[int, str] = {}
    for i in np.flatnonzero(encrypted).tolist():
        try:
            bodies[i] = _plain(chunk, headers, i, decrypting)
        except CannotDecryptError as error:
            still[i] = str(error)
            encrypted[i] = False
    if not encrypted.any():
        return Opened(chunk, headers, still)
    ends = np.cumsum([len(body) for body in bodies], dtype=np.int64)
    offsets = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    plain = replace(chunk, data=b"".join(bodies), offsets=offsets, ends=ends)
    return Opened(plain, headers.decrypted(plain, encrypted), still)


def _plain(chunk: EntryChunk, headers: Headers, i: int, decrypting: Decrypting) -> bytes:
    """The body of entry i with its payload decrypted. Raises: CannotDecryptError."""
    data = memoryview(chunk.data)
    start, end = int(headers[EntryColumn.METADATA_START][i]), int(headers[EntryColumn.METADATA_END][i])
    metadata = pb.MessageMetadata.FromString(bytes(data[start:end]))
    payload = decrypting.decrypt(metadata, bytes(data[end : int(chunk.ends[i])]))
    return bytes(data[int(chunk.offsets[i]) : end]) + payload


CODECS: Mapping[int, str] = {value: name for name, value in pb.CompressionType.items()}


def encryption_context(metadata: bytes) -> dict[str, Any]:
    """The context of MessageMetadata with encryption keys, as `Message.getEncryptionCtx` of the Java client has it.

    compression, uncompressedSize and batchSize are for the steps after decryption; batchSize is null when the plain
    payload is a single message.
    """
    found = pb.MessageMetadata.FromString(metadata)
    return {
        "keys": [
            {
                "name": _text(key.key),
                "value": key.value,
                "metadata": [(_text(pair.key), _text(pair.value)) for pair in key.metadata],
            }
            for key in found.encryption_keys
        ],
        "algorithm": _text(found.encryption_algo),
        "param": found.encryption_param,
        "compression": CODECS.get(found.compression, str(found.compression)),
        "uncompressedSize": min(found.uncompressed_size, (1 << 31) - 1),
        "batchSize": found.num_messages_in_batch if found.HasField("num_messages_in_batch") else None,
    }


def _text(value: str | bytes) -> str:
    """The library gives text that is no UTF-8 as bytes."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
