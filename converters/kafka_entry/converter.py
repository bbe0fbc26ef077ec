"""The Kafka converter: `entry.format=kafka` to a Pulsar entry of the same message count.

    stored:    MessageMetadata{entry.format=kafka, num_messages_in_batch=n} | record batches or message sets
    converted: MessageMetadata{entry.format.origin=kafka, ...}              | n x { u32 size, SingleMessageMetadata,
        value }

* Without num_messages_in_batch the entry counts as one message: it must hold one record, which becomes a plain message.
* Control records and compacted offsets become holes, unless the entry declares the number of its records (slots.py).
* A cut-off tail is dropped, as in a Kafka consumer.
* The converter does not check transactions: the listener filters entries of aborted transactions before conversion.
"""

from __future__ import annotations

from magnetar.converters.entry import replace_entry_format
from magnetar.converters.errors import ConversionCountError, ConversionError
from magnetar.converters.interface import DEFAULT_LIMITS, Conversion, ConverterSettings
from magnetar.converters.kafka.codecs import CODEC_BITS
from magnetar.converters.kafka.record_set import RecordSet
from magnetar.converters.kafka_entry.options import Compression, KafkaOptions
from magnetar.converters.kafka_entry.slots import SlotWriter
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata

_PLAIN_FIELDS = ("partition_key", "partition_key_b64_encoded", "ordering_key", "event_time", "null_value")
"""Fields that SingleMessageMetadata and MessageMetadata share by name and meaning."""


class KafkaConverter:
    """The converter that the module describes. Any number of threads may share one instance."""

    name = "kafka"
    version = "1"
    entry_formats = frozenset(("kafka",))

    def __init__(self, options: KafkaOptions | None = None) -> None:
        self._options = options or KafkaOptions()
        self._limits = DEFAULT_LIMITS

    def init(self, settings: ConverterSettings) -> None:
        """Raises: ConverterSettingsError."""
        if settings.values:
            self._options = KafkaOptions.parse(settings.values)
        self._limits = settings.limits

    def close(self) -> None:
        """The converter holds nothing."""

    def accepts(self, metadata: MessageMetadata, head: memoryview) -> bool:  # noqa: ARG002 - the format decides alone
        return True

    def convert(self, metadata: MessageMetadata, payload: memoryview) -> Conversion:
        """Raises: ConversionError and its subclasses, KafkaFormatError."""
        declared = metadata.num_messages_in_batch
        try:
            writer, compressed = self._collect(payload, declared, dense=False)
        except ConversionCountError:
            # The offsets span more than the declared count: then the number of records must equal the declared count.
            writer, compressed = self._collect(payload, declared, dense=True)
        converted = MessageMetadata()
        converted.CopyFrom(metadata)
        replace_entry_format(converted, self.name)
        if not metadata.HasField("num_messages_in_batch") and not writer.holes:
            return _plain(converted, writer.payload)
        converted.num_messages_in_batch = metadata.num_messages_in_batch
        compress = compressed and self._options.compression is Compression.AUTO
        return Conversion(converted, writer.payload, tuple(writer.holes), compress)

    def _collect(self, payload: memoryview, declared: int, *, dense: bool) -> tuple[SlotWriter, bool]:
        """Returns: the writer with all messages, and whether any batch was compressed."""
        allowed, headers = self._limits.allowed(len(payload)), self._limits.max_headers
        writer = SlotWriter(self._options, declared, allowed, dense=dense, max_headers=headers)
        compressed, empty = False, True
        for batch in RecordSet(payload).batches():
            batch.ensure_valid()
            compressed, empty = compressed or batch.attributes & CODEC_BITS != 0, False
            writer.add(batch)
        if empty:
            raise ConversionError(f"{len(payload)} bytes hold no complete record batch")
        writer.finish()
        return writer, compressed


def _plain(converted: MessageMetadata, batch: bytearray) -> Conversion:
    """Turn a batch of one message into a message without batch framing."""
    end = 4 + int.from_bytes(batch[:4], "big")
    single = SingleMessageMetadata.FromString(bytes(batch[4:end]))
    assert end + single.payload_size == len(batch), "the writer took no more than the one declared message"
    for field in _PLAIN_FIELDS:
        if single.HasField(field):
            setattr(converted, field, getattr(single, field))
    converted.properties.extend(single.properties)
    return Conversion(converted, bytes(batch[end:]))
