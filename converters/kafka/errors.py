"""Errors of Kafka bytes. Each class has the error code for the answer of a Kafka listener.

    KafkaFormatError                          -1 UNKNOWN_SERVER_ERROR (never raised itself)
      CorruptRecordError                       2 CORRUPT_MESSAGE
        CrcMismatchError                       2 CORRUPT_MESSAGE
        UnsupportedMagicError                  2 CORRUPT_MESSAGE
        DamagedLogError                        2 CORRUPT_MESSAGE
      InvalidRecordError                      87 INVALID_RECORD
        MixedMagicError                       87 INVALID_RECORD
      UnsupportedForMessageFormatError        43 UNSUPPORTED_FOR_MESSAGE_FORMAT
      UnsupportedCompressionError             76 UNSUPPORTED_COMPRESSION_TYPE
      InvalidTimestampError                   32 INVALID_TIMESTAMP
      DecompressedTooLargeError               10 MESSAGE_TOO_LARGE

Source of the codes: the error table of the Apache Kafka protocol guide.
"""

from __future__ import annotations

from typing import ClassVar

from magnetar.converters.errors import ConversionTooLargeError, ConverterError


class KafkaFormatError(ConverterError):
    """Root of the Kafka errors. Reading any bytes gives records or raises one of these errors."""

    kafka_code: ClassVar[int] = -1


class CorruptRecordError(KafkaFormatError):
    """Framing, lengths or compressed data are inconsistent."""

    kafka_code: ClassVar[int] = 2


class CrcMismatchError(CorruptRecordError):
    """A stored checksum differs from the computed checksum."""

    def __init__(self, *, offset: int, stored: int, computed: int) -> None:
        super().__init__(f"record set entry at offset {offset}: stored crc {stored:#010x}, computed {computed:#010x}")
        self.offset = offset
        self.stored = stored
        self.computed = computed


class UnsupportedMagicError(CorruptRecordError):
    """Byte 16 of an entry is not 0, 1 or 2."""

    def __init__(self, magic: int) -> None:
        super().__init__(f"unknown magic {magic}: known are 0, 1 and 2")
        self.magic = magic


class DamagedLogError(CorruptRecordError):
    """A place in a file where no entry can be read."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"position {position}: {reason}")
        self.position = position
        self.reason = reason


class InvalidRecordError(KafkaFormatError):
    """Well-framed records that break a rule of the format or of the topic."""

    kafka_code: ClassVar[int] = 87


class MixedMagicError(InvalidRecordError):
    """Messages of different magics were given to one record set."""


class UnsupportedForMessageFormatError(KafkaFormatError):
    """The target magic cannot carry the requested data (headers, producer ids, log append time)."""

    kafka_code: ClassVar[int] = 43


class UnsupportedCompressionError(KafkaFormatError):
    """An unknown codec id, or a codec that this magic does not allow (zstd below magic 2)."""

    kafka_code: ClassVar[int] = 76


class InvalidTimestampError(KafkaFormatError):
    """A record timestamp outside the range the topic allows."""

    kafka_code: ClassVar[int] = 32


class DecompressedTooLargeError(KafkaFormatError, ConversionTooLargeError):
    """Decompression was stopped because the output would pass the limit."""

    kafka_code: ClassVar[int] = 10

    def __init__(self, limit: int) -> None:
        super().__init__(f"decompressed data exceeds the limit of {limit} bytes")
        self.limit = limit
