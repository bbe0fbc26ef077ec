"""Bounds on the data that a peer attaches to its producers, subscriptions, topics and namespaces.

Apache Pulsar bounds only the metadata of consumers (`maxConsumerMetadataSize`); all other data gets into statistics,
records and /metrics at any size that a frame can carry. The bounds here are far above the needs of applications.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from magnetar.broker.errors import InvalidTopicNameError, MetadataError, NamingError, NotAllowedError
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.topic_name import MAX_NAME_CHARS

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_PRODUCER_METADATA_BYTES: Final = 64 << 10
MAX_SUBSCRIPTION_PROPERTIES_BYTES: Final = 64 << 10
MAX_TOPIC_PROPERTIES_BYTES: Final = 256 << 10
MAX_SCHEMA_PROPERTIES_BYTES: Final = 64 << 10
MAX_GRANTS_BYTES: Final = 1 << 20
"""Limit of the grants of a namespace as JSON: each change of its policies writes all of them."""
MAX_SUBSCRIPTION_RATES: Final = 4096
"""Limit of the rates of single subscriptions of a topic: each change of its policies writes all of them."""
MAX_PARTITIONS: Final = 10_000
"""Limit of the partitions of a topic, since a request for the topic goes to each partition;
maxNumPartitionsPerPartitionedTopic may lower the limit.
"""
MAX_ACK_SET_WORDS: Final = 4096
"""Limit of the words in one entry's ack set: a batch of 262,144 messages."""

MAX_KEY_RANGES: Final = 1000
"""Limit of the hash ranges of a Key_Shared consumer: the broker keeps and sorts them, and shows them in statistics."""


_KEPT_FACTOR: Final = 2
_KEPT_PAIR_BYTES: Final = 200
_KEPT_RANGE_BYTES: Final = 120


def kept_bytes(command: object) -> int:
    """Return the approximate memory of the texts and ranges of a command that stay with its producer or consumer."""
    if not isinstance(command, pb.CommandProducer | pb.CommandSubscribe):
        return 0
    texts = command.ByteSize() - (command.schema.ByteSize() if command.HasField("schema") else 0)
    pairs, ranges = len(command.metadata), 0
    if isinstance(command, pb.CommandSubscribe):
        pairs += len(command.subscription_properties)
        ranges = len(command.keySharedMeta.hashRanges)
    return _KEPT_FACTOR * texts + _KEPT_PAIR_BYTES * pairs + _KEPT_RANGE_BYTES * ranges


def most_partitions(setting: int) -> int:
    """Return the limit of a topic's partitions when maxNumPartitionsPerPartitionedTopic is `setting` (0: not set)."""
    return min(setting, MAX_PARTITIONS) if setting > 0 else MAX_PARTITIONS


def size_of(properties: Mapping[str, str]) -> int:
    """Return the bytes of the keys and values in UTF-8."""
    return sum(
        len(key.encode(errors="replace")) + len(value.encode(errors="replace")) for key, value in properties.items()
    )


def check_properties(what: str, properties: Mapping[str, str], most: int) -> None:
    """Raise MetadataError when the keys and values together are larger than `most` bytes."""
    size = size_of(properties)
    if size > most:
        raise MetadataError(f"{what} size is too large: {size} bytes, at most {most}")


def check_ack_set(words: int) -> None:
    """Raise NotAllowedError for an ack set of more messages than any batch has."""
    if words > MAX_ACK_SET_WORDS:
        raise NotAllowedError(f"an ack set of {words} words, at most {MAX_ACK_SET_WORDS}")


def check_key_ranges(ranges: int) -> None:
    """Raise NotAllowedError for a consumer that declares too many hash ranges."""
    if ranges > MAX_KEY_RANGES:
        raise NotAllowedError(f"{ranges} hash ranges, at most {MAX_KEY_RANGES}")


def check_client_name(what: str, name: str) -> None:
    """Raise NamingError for the name of a producer or consumer that is too long."""
    if len(name) > MAX_NAME_CHARS:
        raise NamingError(f"{what} of {len(name)} characters, at most {MAX_NAME_CHARS}")


def check_subscription_name(name: str) -> None:
    """Raise InvalidTopicNameError for the name of a subscription that is too long."""
    if len(name) > MAX_NAME_CHARS:
        raise InvalidTopicNameError(f"Subscription name of {len(name)} characters, at most {MAX_NAME_CHARS}")
