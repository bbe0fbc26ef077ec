"""The three converters of the original proposal (PIP-94), shipped as examples and used by tests and benchmarks."""

from __future__ import annotations

from magnetar.converters.entry import replace_entry_format
from magnetar.converters.errors import ConversionCountError, ConverterSettingsError
from magnetar.converters.interface import Conversion, ConverterSettings
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata


def refuse_settings(name: str, settings: ConverterSettings) -> None:
    """Refuse settings for a converter that has none. Raises: ConverterSettingsError."""
    if settings.values:
        raise ConverterSettingsError(f"converter {name!r} has no settings, got {sorted(settings.values)}")


class RejectAllConverter:
    """Declares that it accepts no entry: measures the cost of the chain itself."""

    name = "reject-all"
    version = "1"
    entry_formats: frozenset[str] = frozenset()

    def init(self, settings: ConverterSettings) -> None:
        refuse_settings(self.name, settings)

    def close(self) -> None:
        """The converter holds nothing."""

    def accepts(self, metadata: MessageMetadata, head: memoryview) -> bool:  # noqa: ARG002 - the interface's arguments
        return False

    def convert(self, metadata: MessageMetadata, payload: memoryview) -> Conversion:  # noqa: ARG002 - as above
        raise AssertionError("a converter that accepts no entry was called to convert")


class EchoConverter:
    """Accepts every entry and does not change it: the consumer gets exactly the stored bytes."""

    name = "echo"
    version = "1"
    entry_formats = None

    def init(self, settings: ConverterSettings) -> None:
        refuse_settings(self.name, settings)

    def close(self) -> None:
        """The converter holds nothing."""

    def accepts(self, metadata: MessageMetadata, head: memoryview) -> bool:  # noqa: ARG002 - the interface's arguments
        return True

    def convert(self, metadata: MessageMetadata, payload: memoryview) -> Conversion:
        return Conversion(metadata, payload)


class BytesConverter:
    """`entry.format=bytes`: the payload is the user's bytes without any SingleMessageMetadata.

    | num_messages_in_batch | result                                                             |
    |-----------------------|--------------------------------------------------------------------|
    | absent                | a plain message; the payload is not touched                        |
    | 1                     | a batch of one: u32 size, SingleMessageMetadata{payload_size}, payload |
    | other                 | ConversionCountError: raw bytes have no boundaries                 |
    """

    name = "bytes"
    version = "1"
    entry_formats = frozenset(("bytes",))

    def init(self, settings: ConverterSettings) -> None:
        refuse_settings(self.name, settings)

    def close(self) -> None:
        """The converter holds nothing."""

    def accepts(self, metadata: MessageMetadata, head: memoryview) -> bool:  # noqa: ARG002 - the format decides alone
        return True

    def convert(self, metadata: MessageMetadata, payload: memoryview) -> Conversion:
        converted = MessageMetadata()
        converted.CopyFrom(metadata)
        replace_entry_format(converted, self.name)
        if not metadata.HasField("num_messages_in_batch"):
            return Conversion(converted, payload)
        if metadata.num_messages_in_batch != 1:
            raise ConversionCountError(f"raw bytes cannot hold {metadata.num_messages_in_batch} messages")
        single = SingleMessageMetadata(payload_size=len(payload)).SerializeToString()
        return Conversion(converted, b"".join((len(single).to_bytes(4, "big"), single, payload)))
