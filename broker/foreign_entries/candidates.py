"""Which entries of a slab a converter would take. Found once per slab, for all subscriptions that read it.

A slab none of whose entries names `entry.format` (`EntryFlag.NAMES_FORMAT`) is passed by as a whole. Where a converter
asks for every entry, the metadata of every entry has to be parsed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from magnetar.converters.entry import CHECKSUM_MAGIC, HEAD_BYTES
from magnetar.protocol import speed
from magnetar.protocol.runs import EntryFlag
from magnetar.storage.slab import RECORD_HEADER_BYTES

if TYPE_CHECKING:
    from magnetar.converters.chain import ConverterChain, LoadedConverter
    from magnetar.storage.slab import Slab, Span

_KNOWN: Final = "_candidates"
"""The key of a slab's candidates in its `__dict__`."""
_NAMES_FORMAT = int(EntryFlag.NAMES_FORMAT)


class Candidates:
    """Asks a chain about entries, and remembers."""

    def __init__(self, chain: ConverterChain) -> None:
        self._chain = chain
        self._nothing: tuple[Candidates, dict[int, LoadedConverter | None]] = (self, {})
        """The mark kept with a slab without an entry for the chain."""
        self.flags = _NAMES_FORMAT if chain.by_format_only else 0
        """Entries without any of these flags are for no converter of the chain; 0: the chain examines every entry."""

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
