"""Which entries of a slab a converter would take. Found once per slab, for all subscriptions that read it.

A slab whose entries have no properties, or none of whose bytes name `entry.format`, is passed by as a whole. Where a
converter asks for every entry, the metadata of every entry has to be parsed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.converters.entry import CHECKSUM_MAGIC, HEAD_BYTES, may_have_entry_format
from magnetar.protocol import speed
from magnetar.protocol.runs import EntryFlag
from magnetar.storage.slab import RECORD_HEADER_BYTES

if TYPE_CHECKING:
    from magnetar.converters.chain import ConverterChain, LoadedConverter
    from magnetar.storage.slab import Slab, Span

_KNOWN = "_candidates"
_HAS_PROPERTIES = int(EntryFlag.HAS_PROPERTIES)
_SMALL_ENTRY_BYTES = 4096
"""On average below this the whole slab is searched at once; larger payloads are left out of the search."""


class Candidates:
    """Asks a chain about entries, and remembers."""

    def __init__(self, chain: ConverterChain) -> None:
        self._chain = chain

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
        """The entry is sent as it is stored, now and whenever it is met."""
        self._known(slab)[index] = None

    def _known(self, slab: Slab) -> dict[int, LoadedConverter | None]:
        owner, known = slab.__dict__.get(_KNOWN, (None, None))
        if owner is not self:
            known = self._formatted(slab) if self._chain.by_format_only else {}
            slab.__dict__[_KNOWN] = (self, known)
        return known  # type: ignore[no-any-return]

    def _formatted(self, slab: Slab) -> dict[int, LoadedConverter | None]:
        facts = slab.facts()
        if not facts.any_flags & _HAS_PROPERTIES:
            return {}
        offsets = slab.offset_view
        small = slab.size_bytes <= slab.count * _SMALL_ENTRY_BYTES
        if small and not may_have_entry_format(slab.data, offsets[0], offsets[slab.count]):
            return {}
        flags = memoryview(facts.flags).cast("I")
        known: dict[int, LoadedConverter | None] = {}
        for k in range(slab.count):
            if flags[k] & _HAS_PROPERTIES and (chosen := self._select(slab, k)) is not None:
                known[k] = chosen
        return known

    def _select(self, slab: Slab, index: int) -> LoadedConverter | None:
        return self._chain.select(_head(slab, index))


def _head(slab: Slab, index: int) -> bytes:
    """The entry up to where `accepts` may look: metadata and the first bytes of the payload."""
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
