"""The entries of a slab that a converter takes, found once per slab for all subscriptions that read the slab.

A slab without an entry that names `entry.format` (`EntryFlag.NAMES_FORMAT`) is skipped as a whole. When a converter
accepts entries of any format, the broker has to parse the metadata of every entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from magnetar.broker.foreign_entries.loading import ForeignConverter, describe
from magnetar.converters.chain import LoadedConverter
from magnetar.converters.entry import CHECKSUM_MAGIC, FORMAT_NEEDLE, HEAD_BYTES
from magnetar.protocol import speed
from magnetar.protocol.runs import EntryFlag
from magnetar.storage.slab import RECORD_HEADER_BYTES

if TYPE_CHECKING:
    from magnetar.converters.chain import ConverterChain
    from magnetar.storage.slab import Slab, Span

_KNOWN: Final = "_candidates"
"""The key of the candidates in the `__dict__` of their slab."""
_MOST_HEAD_BYTES: Final = 64 << 10
"""Metadata beyond this size take too long on the event loop: a MiB of properties has 170,000 of them."""
_NAMES_FORMAT = int(EntryFlag.NAMES_FORMAT)


class Candidates:
    """Finds the candidates of a chain, and keeps them with each slab."""

    def __init__(self, chain: ConverterChain) -> None:
        self._chain = chain
        self._nothing: tuple[Candidates, dict[int, LoadedConverter | None]] = (self, {})
        """The value kept with a slab that has no entry for the chain."""
        self.flags = _NAMES_FORMAT if chain.by_format_only else 0
        """No converter of the chain takes an entry without any of these flags; 0: the chain examines every entry."""
        self._elsewhere = _in_worker(chain.converters[0]) if chain else None
        """The choice for an entry whose metadata only a worker parses; the worker may decline the entry."""

    def of(self, span: Span) -> list[tuple[int, LoadedConverter]]:
        """(index in the slab, converter) of each entry that a converter takes, in order."""
        slab, start, end = span
        known = self._known(slab)
        if self._chain.by_format_only:
            return [(k, chosen) for k, chosen in known.items() if start <= k < end and chosen] if known else []
        found = []
        for k in range(start, end):
            if k in known:
                chosen = known[k]
            else:
                chosen = known[k] = self._select(slab, k)
            if chosen is not None:
                found.append((k, chosen))
        return found

    def declined(self, slab: Slab, index: int) -> None:
        """Note that no converter takes the entry after all: every subscription gets it as it is stored."""
        self._known(slab)[index] = None

    def _known(self, slab: Slab) -> dict[int, LoadedConverter | None]:
        owner, known = slab.__dict__.get(_KNOWN, (None, None))
        if owner is not self:
            by_format = self._chain.by_format_only
            known = self._formatted(slab) if by_format else {}
            slab.__dict__[_KNOWN] = self._nothing if by_format and not known else (self, known)
        return known  # type: ignore[no-any-return]

    def _formatted(self, slab: Slab) -> dict[int, LoadedConverter | None]:
        facts = slab.facts()
        if not facts.any_flags & _NAMES_FORMAT:
            return {}
        known: dict[int, LoadedConverter | None] = {}
        for k, flags in enumerate(memoryview(facts.flags).cast("I")):
            if flags & _NAMES_FORMAT:
                chosen = self._select(slab, k)
                if chosen is not None:
                    known[k] = chosen
        return known

    def _select(self, slab: Slab, index: int) -> LoadedConverter | None:
        head = _head(slab, index)
        if len(head) <= _MOST_HEAD_BYTES:
            return self._chain.select(head)
        return self._elsewhere if FORMAT_NEEDLE in head or not self._chain.by_format_only else None


def _in_worker(first: LoadedConverter) -> LoadedConverter:
    return LoadedConverter(ForeignConverter(describe(first)), first.name, first.tag)


def _head(slab: Slab, index: int) -> bytes:
    """The part of the entry that `accepts` may examine: metadata and the first bytes of the payload."""
    body = slab.body(index)
    start = speed.after_prefix(body)
    at = start + 6 if int.from_bytes(body[start : start + 2], "big") == CHECKSUM_MAGIC else start
    size = int.from_bytes(body[at : at + 4], "big")
    return bytes(body[start : at + 4 + size + HEAD_BYTES])


def stored_entry(slab: Slab, index: int) -> bytes:
    """Headers and payload of an entry, without broker entry metadata."""
    body = slab.body(index)
    return bytes(body[speed.after_prefix(body) :])


def entry_bytes(slab: Slab, index: int) -> int:
    """Size of an entry as stored, broker entry metadata included."""
    offsets = slab.offset_view
    size: int = offsets[index + 1] - offsets[index] - RECORD_HEADER_BYTES
    return size
