"""The ordered chain: the first converter that accepts an entry converts it, alone (guarantee G1).

    select(entry)            once per entry on the dispatch path; nanoseconds for entries without `entry.format`
    convert(entry, chosen)   pure and thread-safe: call it on the loop for small entries, in a worker pool for large
    entries

    stored bytes -> checksum -> metadata -> outer decompression -> converter -> output check -> frame with new checksum
                    |           (select refuses bad entries)     |            |
                    ConversionFailure: checksum                   exception,   invalid, oversize

The chain holds no mutable state; a reload builds a new chain, and the old chain closes after its last conversion.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING

from magnetar.converters import outer_compression
from magnetar.converters.entry import (
    CHECKSUM_MAGIC,
    FORMAT_NEEDLE,
    Entry,
    build_entry,
    declared_messages,
    entry_format,
)
from magnetar.converters.errors import ConversionTooLargeError, ConverterError, EntryChecksumError, EntryError
from magnetar.converters.interface import (
    DEFAULT_LIMITS,
    MAX_MESSAGES_WITH_HOLES,
    Conversion,
    ExpansionLimits,
    MessageConverter,
)
from magnetar.converters.outcome import ConversionFailure, Converted, FailureReason
from magnetar.converters.output_check import InvalidOutputError, check_output
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_HEAD = Struct(">H4xI")  # magic and metadata size of an entry with a checksum, in one call


@dataclass(frozen=True, slots=True)
class LoadedConverter:
    """A converter of the chain. `tag` names converter, version and settings: with the position, a cache key (G11)."""

    converter: MessageConverter
    name: str
    tag: str


def loaded(converter: MessageConverter, settings: Iterable[tuple[str, str]] = ()) -> LoadedConverter:
    """Make `converter` an element of a chain; the same settings give the same tag in every process."""
    digest = zlib.crc32(repr(sorted(settings)).encode())
    return LoadedConverter(converter, converter.name, f"{converter.name}/{converter.version}/{digest:08x}")


class ConverterChain:
    """An immutable chain over initialized converters (`registry.load_chain` builds one from settings)."""

    def __init__(self, converters: Sequence[LoadedConverter] = (), limits: ExpansionLimits = DEFAULT_LIMITS) -> None:
        self.converters = tuple(converters)
        self.limits = limits
        formats = {name for each in converters for name in each.converter.entry_formats or ()}
        self._by_format = {
            name: tuple(
                each
                for each in converters
                if each.converter.entry_formats is None or name in each.converter.entry_formats
            )
            for name in formats
        }
        self._generic = tuple(each for each in converters if each.converter.entry_formats is None)

    def __bool__(self) -> bool:
        return bool(self.converters)

    @property
    def by_format_only(self) -> bool:
        """Whether all converters need the property `entry.format`: a slab without it then needs no `select`."""
        return not self._generic

    def select(self, data: bytes) -> LoadedConverter | None:
        """Return the converter for this entry; None when the stored bytes are to be sent.

        None also for entries that are encrypted, chunked, markers, compressed with an unknown codec (guarantees G13,
        G14) or whose metadata cannot be read. If `accepts` raises, the converter counts as accepting: `convert` then
        reports the failure, and the client gets no bytes that it cannot read.
        """
        if not self.converters:
            return None
        if not self._generic:
            if len(data) < _HEAD.size:
                return None
            magic, size = _HEAD.unpack_from(data)
            end = 10 + size if magic == CHECKSUM_MAGIC else 4 + int.from_bytes(data[:4], "big")
            if data.find(FORMAT_NEEDLE, 4, end) < 0:
                return None
        return self._select(data)

    def _select(self, data: bytes) -> LoadedConverter | None:
        try:
            entry = Entry(data)
            metadata = entry.metadata
        except EntryError:
            return None
        name = entry_format(metadata)
        candidates = self._generic if name is None else self._by_format.get(name, self._generic)
        if not candidates or not _is_convertible(metadata):
            return None
        head = entry.head
        for candidate in candidates:
            try:
                accepted = candidate.converter.accepts(metadata, head)
            except Exception:  # noqa: BLE001 - a converter may be foreign code; convert() reports the problem
                accepted = True
            if accepted:
                return candidate if outer_compression.is_known(metadata) else None
        return None

    def convert(self, data: bytes, chosen: LoadedConverter) -> Converted | ConversionFailure:
        """Convert one entry with the converter `select` chose for it. Never raises; the input is never changed."""
        try:
            entry = Entry(data)
            entry.verify_checksum()
            return self._convert(entry, chosen)
        except EntryChecksumError as error:
            return ConversionFailure(FailureReason.CHECKSUM, chosen.name, str(error))
        except ConversionTooLargeError as error:
            return ConversionFailure(FailureReason.OVERSIZE, chosen.name, str(error))
        except InvalidOutputError as error:
            return ConversionFailure(FailureReason.INVALID, chosen.name, str(error), defect=True)
        except ConverterError as error:
            return ConversionFailure(FailureReason.EXCEPTION, chosen.name, str(error))
        except Exception as error:  # noqa: BLE001 - a converter may be foreign code and harms only its own entry (G8)
            message = f"{type(error).__name__}: {error}"
            return ConversionFailure(FailureReason.EXCEPTION, chosen.name, message, defect=True)

    def _convert(self, entry: Entry, chosen: LoadedConverter) -> Converted:
        limit = self.limits.allowed(len(entry.data))
        stored = entry.metadata
        before = stored.SerializeToString(deterministic=True)
        payload = outer_compression.decompress(stored, entry.payload, limit)
        offered = stored
        if payload.obj is not entry.data:
            offered = MessageMetadata.FromString(before)
            offered.ClearField("compression")
            offered.ClearField("uncompressed_size")
        offered_bytes = offered.SerializeToString(deterministic=True)
        conversion = chosen.converter.convert(offered, payload)
        if not isinstance(conversion, Conversion):
            raise InvalidOutputError(f"convert returned {type(conversion).__name__}, not a Conversion")
        messages = declared_messages(stored)
        if conversion.metadata is offered and conversion.payload is payload:
            if offered.SerializeToString(deterministic=True) != offered_bytes:
                raise InvalidOutputError("convert changed its argument instead of returning new metadata")
            return Converted(entry.data, messages, identity=True)
        if len(conversion.payload) > limit:
            raise ConversionTooLargeError(f"{len(conversion.payload)} bytes of payload, {limit} are allowed")
        if 0 < len(conversion.holes) < messages and messages > MAX_MESSAGES_WITH_HOLES:
            raise ConversionTooLargeError(f"holes among {messages} messages, {MAX_MESSAGES_WITH_HOLES} are allowed")
        check_output(MessageMetadata.FromString(before), conversion)
        return Converted(self._frame(conversion, limit), messages, conversion.holes)

    @staticmethod
    def _frame(conversion: Conversion, limit: int) -> bytes:
        metadata, payload = conversion.metadata, conversion.payload
        if conversion.compress and len(payload) > outer_compression.COMPRESS_FROM_BYTES:
            payload = outer_compression.compress_lz4(metadata, payload) or payload
        data = build_entry(metadata.SerializeToString(), payload)
        if len(data) > limit:
            raise ConversionTooLargeError(f"{len(data)} bytes of entry, {limit} are allowed")
        return data

    def close(self) -> list[tuple[str, Exception]]:
        """Close every converter, also after the failure of another; return the failures, raise none."""
        failures: list[tuple[str, Exception]] = []
        for each in self.converters:
            try:
                each.converter.close()
            except Exception as error:  # noqa: BLE001 - a converter may be foreign code
                failures.append((each.name, error))
        return failures


def _is_convertible(metadata: MessageMetadata) -> bool:
    return not (
        metadata.encryption_keys
        or metadata.HasField("chunk_id")
        or metadata.num_chunks_from_msg > 1
        or metadata.HasField("marker_type")
    )
