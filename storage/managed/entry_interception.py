"""Entry metadata beyond timestamp and index: the general, slower way to stamp a run.

The usual way is ``speed.stamp``, which writes these two fields only. For more fields an ``EntryMetadataSource`` makes
the whole prefix of each entry (magic, size, ``BrokerEntryMetadata``), and each record consists of prefix and entry.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple, Protocol

from magnetar.protocol import speed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.protocol.runs import EntryRun

__all__ = ["EntryMetadataSource", "Stamping", "stamp_with"]

_NOTHING = -1
_NO_INDEX = -2


class Stamping(NamedTuple):
    """The values that ``speed.stamp`` would write before the entries: -1 is no timestamp, -2 no index."""

    timestamp_ms: int
    index_before: int


class EntryMetadataSource(Protocol):
    """Decides which bytes are stored before each entry."""

    @property
    def max_bytes(self) -> int:
        """Upper bound of the bytes put before an entry."""
        ...

    def prefixes(self, managed_ledger: str, run: EntryRun, start: int, end: int, stamping: Stamping) -> Sequence[bytes]:
        """The bytes stored before the entries ``start .. end - 1``: ``0x0e02``, u32 size, metadata; or none.

        It must not raise: the broker stores the entries in any case.
        """
        ...


def stamp_with(
    source: EntryMetadataSource,
    managed_ledger: str,
    run: EntryRun,
    start: int,
    end: int,
    ledger_id: int,
    first_entry_id: int,
    last_add_confirmed: int,
    stamping: Stamping,
) -> tuple[bytes, bytes]:
    """(records, offsets) as ``speed.stamp`` gives them, with the source's metadata."""
    where, data = memoryview(run.offsets).cast("q"), memoryview(run.data)
    prefixes = source.prefixes(managed_ledger, run, start, end, stamping)
    parts: list[bytes | memoryview] = []
    offsets = array("q", [0])
    at = 0
    for k, prefix in zip(range(start, end), prefixes, strict=True):
        entry = data[where[k] + run.gap : where[k + 1]]
        parts += (prefix, entry)
        at += len(prefix) + len(entry)
        offsets.append(at)
    return speed.stamp(
        b"".join(parts),
        offsets.tobytes(),
        run.num_messages[start * 8 : end * 8],
        0,
        end - start,
        ledger_id,
        first_entry_id,
        last_add_confirmed,
        _NOTHING,
        _NO_INDEX,
    )
