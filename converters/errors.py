"""The exception tree of the converters room.

    ConverterError                  root
      ConverterSettingsError        `messageConverters` or a converter's settings do not fit; raised at start only
      EntryError                    the outer frame of an entry cannot be read
        EntryChecksumError          ... its CRC-32C does not match
      ConversionError               a converter cannot translate this entry
        ConversionTooLargeError     ... because the output would pass an expansion limit
        ConversionCountError        ... because the message count would change
      kafka.errors.KafkaFormatError bytes that are no Kafka record set (its own subtree)

None of these crosses `ConverterChain.convert`: there they become a `ConversionFailure` with a `FailureReason`.
"""

from __future__ import annotations


class ConverterError(Exception):
    """Root of everything this room raises on purpose."""


class ConverterSettingsError(ConverterError):
    """The configured chain cannot be built. The message names the setting, the value and the valid values."""


class EntryError(ConverterError):
    """Headers-and-payload bytes without a readable frame or MessageMetadata."""


class EntryChecksumError(EntryError):
    """The stored CRC-32C of an entry does not match its bytes (guarantee G3: a conversion must not hide corruption)."""


class ConversionError(ConverterError):
    """The payload contradicts `entry.format`, or cannot be expressed for a Pulsar client."""


class ConversionTooLargeError(ConversionError):
    """The output would be larger than the limits allow (guarantee G10)."""


class ConversionCountError(ConversionError):
    """More messages than num_messages_in_batch declares, or a batch where one message was declared (guarantee G4)."""
