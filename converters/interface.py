"""A message converter: a translator of one foreign entry format into Pulsar's, pure and without state.

Rules for implementations, checked where they can be (`registry.py` at start, `output_check.py` for every output):

* `accepts` and `convert` are pure, deterministic and thread-safe: same bytes and same version, same result (guarantee
  G6). No I/O, no clock, no awaiting. Their arguments are read-only; memoryviews must not be kept.
* `accepts` looks at parsed metadata and at most 64 bytes of the payload.
* `convert` keeps the message count and everything that identifies the message: producer_name, sequence_id,
  publish_time, deliver_at_time, transaction ids, schema_version, replicated_from. It never deals with checksums or
  frames.
* A changed `version` means other output for the same input; it is part of the cache key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magnetar.protocol.pulsar_api_pb2 import MessageMetadata


@dataclass(frozen=True, slots=True)
class ExpansionLimits:
    """Limits of one conversion, in bytes.

    max_entry_bytes: hard limit of the converted entry: maxMessageSize plus 10 KiB for metadata and frame.
    max_ratio: output divided by input, once the output is larger than `free_bytes`. Small well-compressed entries may
        expand a hundredfold without harm, so the ratio alone is no useful limit.
    max_headers: the most headers that a converter turns into properties one by one, over all records of the entry.
    """

    max_entry_bytes: int = 5 * 1024 * 1024 + 10 * 1024
    max_ratio: int = 16
    free_bytes: int = 1024 * 1024
    max_headers: int = 1 << 31

    def allowed(self, entry_bytes: int) -> int:
        """Return the largest allowed output, in bytes, for an input of `entry_bytes`."""
        return min(self.max_entry_bytes, max(self.free_bytes, self.max_ratio * entry_bytes))


DEFAULT_LIMITS = ExpansionLimits()


MAX_MESSAGES_WITH_HOLES: Final = 1 << 18
"""The most messages of an entry with holes: no acknowledgement names the messages of a larger batch."""


class Conversion(NamedTuple):
    """The result of `convert`.

    metadata, payload: the new values. The objects passed in mean "do not change the entry".
    holes: batch indexes without a message, which the payload fills with compacted_out placeholders; ascending.
    compress: allow the chain to compress a large payload with LZ4 (sensible when the stored bytes were compressed).
    """

    metadata: MessageMetadata
    payload: bytes | bytearray | memoryview
    holes: tuple[int, ...] = ()
    compress: bool = False


class ConverterSettings(NamedTuple):
    """The argument of `init`: the converter's own settings (`<name>.<key>` in the configuration), and the limits of
    all converters.
    """

    values: Mapping[str, str]
    limits: ExpansionLimits


@runtime_checkable
class MessageConverter(Protocol):
    """One converter of the chain.

    name: lower-case, unique in the chain; label of metrics.   version: part of the cache key.
    entry_formats: values of the property `entry.format` (lower-case) that select this converter, found with one
        dict lookup. None = every entry; then the metadata of every entry are parsed. Empty = no entry.
    """

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def entry_formats(self) -> frozenset[str] | None: ...

    def init(self, settings: ConverterSettings) -> None:
        """Called once, before anything else. Raises: ConverterSettingsError for settings that do not fit."""

    def close(self) -> None:
        """Called once, after the last conversion."""

    def accepts(self, metadata: MessageMetadata, head: memoryview) -> bool:
        """Whether this converter will convert the entry."""

    def convert(self, metadata: MessageMetadata, payload: memoryview) -> Conversion:
        """Translate one entry whose payload is already decompressed by the entry's own codec.

        Raises: ConversionError or KafkaFormatError; anything else counts as a defect of the converter.
        """
