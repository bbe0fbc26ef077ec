"""Headers of a message over REST that only some messages have. Bytes are Base64, truth values words."""

import base64
from typing import Final

from magnetar.protocol import pulsar_api_pb2 as pb

_OF_FIELDS: Final = {
    "chunk_id": "X-Pulsar-chunk-id",
    "encryption_algo": "X-Pulsar-encryption-algo",
    "encryption_param": "X-Pulsar-Base64-encryption-param",
    "highest_sequence_id": "X-Pulsar-highest-sequence-id",
    "marker_type": "X-Pulsar-marker-type",
    "null_partition_key": "X-Pulsar-null-partition-key",
    "null_value": "X-Pulsar-null-value",
    "num_chunks_from_msg": "X-Pulsar-num-chunks-from-msg",
    "ordering_key": "X-Pulsar-Base64-ordering-key",
    "partition_key_b64_encoded": "X-Pulsar-partition-key-b64-encoded",
    "schema_version": "X-Pulsar-Base64-schema-version",
    "total_chunk_msg_size": "X-Pulsar-total-chunk-msg-size",
    "txnid_least_bits": "X-Pulsar-txnid-least-bits",
    "txnid_most_bits": "X-Pulsar-txnid-most-bits",
    "uuid": "X-Pulsar-uuid",
}


def option_headers(metadata: pb.MessageMetadata) -> dict[str, str]:
    """Encryption, chunks, keys, schema; absent fields have no header."""
    headers = {"X-Pulsar-Is-Encrypted": _text(bool(metadata.encryption_keys)), "X-Pulsar-txn-uncommitted": "false"}
    if metadata.HasField("chunk_id"):
        headers["X-Pulsar-PROPERTY-CHUNK-ID"] = str(metadata.chunk_id)
        headers["X-Pulsar-PROPERTY-TOTAL-CHUNKS"] = str(metadata.num_chunks_from_msg)
    found = {header: _text(getattr(metadata, name)) for name, header in _OF_FIELDS.items() if metadata.HasField(name)}
    return headers | found


def list_headers(metadata: pb.MessageMetadata) -> list[tuple[str, str]]:
    """One header for each of a list: the keys a message is encrypted with, the clusters it goes to."""
    keys = [("X-Pulsar-Base64-encryption-keys", _text(each.SerializeToString())) for each in metadata.encryption_keys]
    return [*keys, *(("X-Pulsar-replicated-to", each) for each in metadata.replicate_to)]


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value).lower() if isinstance(value, bool) else str(value)
