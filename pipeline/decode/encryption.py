"""The context with which a reader decrypts a payload that stays as it is stored: `__encryptionContext`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar.protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping

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
