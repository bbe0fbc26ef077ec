"""Entries that hold Kafka record batches (`entry.format=kafka`), translated by the broker's converter."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from magnetar.converters import outer_compression
from magnetar.converters.entry import Entry, entry_format
from magnetar.converters.errors import ConverterError
from magnetar.converters.interface import DEFAULT_LIMITS
from magnetar.converters.kafka.errors import KafkaFormatError
from magnetar.converters.kafka_entry.converter import KafkaConverter
from magnetar.converters.kafka_entry.options import KafkaOptions, KeyText

if TYPE_CHECKING:
    from magnetar.protocol.pulsar_api_pb2 import MessageMetadata


class ConvertedEntry(NamedTuple):
    """A converted entry: its serialized metadata, and its uncompressed payload, which is a batch if `batched`."""

    metadata: bytes
    payload: bytes
    batched: bool


class KafkaEntries:
    """Converts entries singly, by the rules of the broker's conversion for consumers."""

    def __init__(self) -> None:
        # A row has the key as bytes, so the key need not be base64.
        self._converter = KafkaConverter(KafkaOptions(key=KeyText.UTF8))

    def convert(self, body: bytes) -> ConvertedEntry | None:
        """Headers and payload of one entry, translated; None when its format is another than kafka.

        Raises ConverterError or KafkaFormatError: the payload is no sound record set, or larger than the limits allow.
        """
        entry = Entry(body)
        metadata: MessageMetadata = entry.metadata
        if entry_format(metadata) != "kafka" or not outer_compression.is_known(metadata):
            return None
        payload = outer_compression.decompress(metadata, entry.payload, DEFAULT_LIMITS.max_entry_bytes)
        found = self._converter.convert(metadata, payload)
        return ConvertedEntry(
            found.metadata.SerializeToString(),
            bytes(found.payload),
            found.metadata.HasField("num_messages_in_batch"),
        )


CONVERSION_ERRORS = (ConverterError, KafkaFormatError)
