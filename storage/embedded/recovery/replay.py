"""Writes journal records into ledger files, idempotent by (ledger, entry).

A replay writes a ledger's file again from the end that the last checkpoint recorded: the same records go to the same
offsets however often recovery is repeated. The sources of an entry, in this order: a whole frame; the ledger file,
which holds only confirmed entries; a damaged frame (*doubtful*: a page whose write was lost holds bytes of an earlier
use of the segment). An entry without a source gets a placeholder, and readers report exactly these positions as
damaged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES
from magnetar.storage.embedded.journal.format import PAGE_BYTES
from magnetar.storage.embedded.ledger_head import NO_PROOF
from magnetar.storage.embedded.ledger_reader import LedgerReader
from magnetar.storage.position import Position
from magnetar.storage.records import find_again, find_entry, find_exactly, peek_record, placeholder, scan_records
from magnetar.storage.slab import RECORD_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from magnetar.storage.embedded.files import Buffer

__all__ = ["LedgerReplay", "ReplayedFiles"]

_FLUSH_BYTES = 4 << 20
_PIECE_BYTES = 4 << 20
_GAP_WINDOW_BYTES = 64 << 20
_MOST_MISSING = 1 << 20
"""The most entries of a ledger that damaged frames may have lost in a row: a record of a later entry does not count."""


class ReplayedFiles(Protocol):
    """The ledger files by ledger id. A replay reads only behind the bytes that the replay has written."""

    def identify(self, ledger_id: int, properties: Mapping[str, str], /) -> None:
        """Note the properties for the head of the ledger's file."""
        ...

    def read(self, ledger_id: int, size: int, offset: int, /) -> bytes:
        """Read up to ``size`` bytes. Raises FileNotFoundError."""
        ...

    def size(self, ledger_id: int, /) -> int:
        """Bytes of the file, 0 for a missing file."""
        ...

    def write(self, ledger_id: int, buffers: Sequence[Buffer], offset: int, /) -> None: ...
    def truncate(self, ledger_id: int, size: int, /) -> None: ...


class LedgerReplay:
    """Replay of one ledger."""

    def __init__(
        self,
        files: ReplayedFiles,
        ledger_id: int,
        begin_at: tuple[int, int],
        end: tuple[int, int] | None = None,
        proof: int = NO_PROOF,
    ) -> None:
        """``begin_at``: (entries, length in bytes) that the file holds durably. ``end``: (entries, length in bytes) of
        a closed ledger, None for an open ledger. ``proof``: the proof in each record of the ledger.
        """
        self._files, self.ledger_id, self._proof = files, ledger_id, proof
        self.first_entry = self.next_entry = begin_at[0]
        self.offset = FILE_HEADER_BYTES + begin_at[1]
        self.replayed = 0
        self.damaged: list[Position] = []
        self.changed = False
        """The replay wrote the file, or found entries in the file behind ``begin_at``: the file needs a sync."""
        self.torn_from: int | None = None
        """First entry of the ledger in a torn frame. The file has entries from there on only as far as an interrupted
        start wrote them, and a gap from this entry on is no lost entry.
        """
        self._end = end
        self._wrote = False
        self._doubtful: dict[int, bytes] = {}
        """Intact records of damaged frames by entry id."""
        self._buffers: list[bytes] = []
        self._buffered = 0

    @classmethod
    def from_file(
        cls,
        files: ReplayedFiles,
        ledger_id: int,
        max_record_bytes: int,
        end: tuple[int, int] | None = None,
        proof: int = NO_PROOF,
    ) -> LedgerReplay:
        """Make a replay that begins behind the unbroken records of the file, for a ledger without a checkpoint."""
        reader = LedgerReader(files, ledger_id, max_record_bytes, proof)
        scan = reader.scan(0, FILE_HEADER_BYTES, files.size(ledger_id))
        entries, length = scan.entries, scan.end_offset - FILE_HEADER_BYTES
        if scan.damage:
            entries, length = scan.damage[0].first_entry_id, scan.damage[0].start - FILE_HEADER_BYTES
        replay = cls(files, ledger_id, (entries, length), end, proof)
        replay.changed = True  # the content of the file may not be durable yet
        return replay

    def add(self, entry_id: int, record: bytes) -> None:
        """Add one record; skip an entry before ``next_entry`` or beyond the end of a closed ledger, and fill a gap
        before the entry.
        """
        if self._confirmed(entry_id, 1) == 0:
            return
        if entry_id > self.next_entry:
            self.fill(entry_id)
        if entry_id == self.next_entry:
            self._put(record)
            self.replayed += 1

    def add_run(self, first_entry_id: int, count: int, payload: bytes, offsets: memoryview) -> None:
        """Add ``count`` consecutive intact records at ``offsets`` of ``payload``, like ``add``."""
        count = self._confirmed(first_entry_id, count)
        if count == 0:
            return
        if first_entry_id > self.next_entry:
            self.fill(first_entry_id)
        skip = max(self.next_entry - first_entry_id, 0)
        if skip >= count:
            return
        self._put(payload[offsets[skip] : offsets[count]], count - skip)
        self.replayed += count - skip

    def _confirmed(self, first_entry_id: int, count: int) -> int:
        """How many of these entries a closed ledger has. The others belong to a frame whose sync failed: they were
        never confirmed, and the index of the file follows the last entry of the ledger.
        """
        return count if self._end is None else max(0, min(count, self._end[0] - first_entry_id))

    def doubt(self, entry_id: int, record: bytes) -> None:
        """Note one record of a damaged frame, for use when no better source has the entry. Skips an entry beyond the
        end of a closed ledger, because such an entry was never confirmed.
        """
        if entry_id >= self.next_entry and self._confirmed(entry_id, 1):
            self._doubtful.setdefault(entry_id, record)

    def has_from(self, entry_id: int) -> bool:
        """Whether the ledger has this entry or a later entry: by the end of a closed ledger, else by the file."""
        if self._end is not None:
            return self._end[0] > entry_id
        self.flush()
        window = self._window()
        return find_entry(window, 0, len(window), self.ledger_id, entry_id, self._proof) is not None

    def may_follow(self) -> set[int]:
        """The entry ids that a record with damaged ids may have."""
        last = max(self._doubtful, default=-1)
        following = self.next_entry
        while following in self._doubtful:
            following += 1
        return {following, max(last + 1, following)}

    def may_end_with(self, entry_id: int) -> bool:
        """Whether ``entry_id`` follows the last known entry, and the ledger may have this entry."""
        return entry_id == self.next_entry and (self._end is None or entry_id < self._end[0])

    def fill_one(self) -> None:
        """Fill in the entry behind the last known entry, which is lost, if the ledger may have this entry."""
        if self.may_end_with(self.next_entry):
            self.fill(self.next_entry + 1)

    def fill(self, end_entry_id: int) -> None:
        """Fill in the entries before ``end_entry_id``, which no whole frame has: from the file, else from a damaged
        frame, else as placeholders.
        """
        self.flush()
        while self.next_entry < end_entry_id:
            if self._take_from_file() or self._take_doubtful():
                continue
            self.damaged.append(Position(self.ledger_id, self.next_entry))
            self._put(placeholder(self.ledger_id, self.next_entry))
            self.flush()

    def settle(self) -> None:
        """Add later entries of the file and of damaged frames, also behind gaps, up to the end of a closed ledger. Call
        after all whole frames were replayed.
        """
        while True:
            if self._take_from_file() or self._take_doubtful():
                continue
            most = self.next_entry + _MOST_MISSING
            last = max((entry_id for entry_id in self._doubtful if self.next_entry <= entry_id <= most), default=None)
            following = self._following_in_file()
            if following is not None and (last is None or following < last):
                self.fill(following)
            elif last is not None:
                self.fill(last)
            else:
                break
        self._doubtful.clear()
        self._complete()

    def flush(self) -> None:
        """Write the gathered records."""
        if self._buffers:
            self._files.write(self.ledger_id, self._buffers, self.offset - self._buffered)
            self._buffers, self._buffered = [], 0
            self.changed = self._wrote = True

    def finish(self) -> None:
        """Write the gathered records and cut the bytes behind them, which were never synced and are not in the journal.
        The method does not sync the file.

        A closed ledger without new records keeps the bytes behind its records, which are its index. A closed ledger to
        which a torn frame added a record after ``settle`` keeps its other entries.
        """
        self.flush()
        self._complete()
        self.flush()
        if (self._wrote or self._end is None) and self._files.size(self.ledger_id) > self.offset:
            self._files.truncate(self.ledger_id, self.offset)

    def _complete(self) -> None:
        """If the ledger is closed and the replay wrote its file, fill in all entries up to the ledger's end."""
        if self._end is not None and self._wrote:
            self.fill(self._end[0])

    def _put(self, data: bytes, entries: int = 1) -> None:
        self._buffers.append(data)
        self._buffered += len(data)
        self.offset += len(data)
        self.next_entry += entries
        if self._buffered >= _FLUSH_BYTES:
            self.flush()

    def _take_doubtful(self) -> bool:
        record = self._doubtful.pop(self.next_entry, None)
        if record is None:
            return False
        self._put(record)
        self.flush()
        self.replayed += 1
        return True

    def _take_from_file(self) -> bool:
        """Pass over the file's own intact entries, which stay in place; False if the next entry is missing.

        Behind a placeholder the entries do not follow at once, because the placeholder is shorter than the lost entry.
        """
        self.flush()
        limit = self._limit()
        window = self._read(min(_PIECE_BYTES, limit))
        header = peek_record(window, 0)
        if header is None:
            return False
        if (header.ledger_id, header.entry_id) == (self.ledger_id, self.next_entry):
            if RECORD_HEADER_BYTES + header.body_bytes > len(window):
                window = self._read(min(RECORD_HEADER_BYTES + header.body_bytes, limit, _GAP_WINDOW_BYTES))
            offsets, end, _ = scan_records(window, 0, len(window), self.ledger_id, self._proof)
            count = (len(offsets) >> 3) - 1
            if count > 0:
                self._pass(count, end)
                return True
        return self._take_displaced()

    def _take_displaced(self) -> bool:
        """Take the next entry from a later place in the file; False without such an entry.

        Records that go on for more than a page, to the end of the window, or into a cut-off record stay in place. The
        method copies fewer records to the present offset, because they may be a page that the device wrote at a wrong
        place, and the ledger's end must not move.
        """
        window = self._window()
        found = find_exactly(window, 0, len(window), self.ledger_id, self.next_entry, self._proof)
        if found is None:
            return False
        offsets, end, reason = scan_records(window, found, len(window), self.ledger_id, self._proof)
        count = (len(offsets) >> 3) - 1
        if end - found > PAGE_BYTES or end == len(window) or reason == "short":
            self._pass(count, end)
        else:
            self._put(window[found:end], count)
            self.flush()
        return True

    def _pass(self, entries: int, size: int) -> None:
        """Pass entries that are in the file."""
        self.offset += size
        self.next_entry += entries
        self.changed = True

    def _following_in_file(self) -> int | None:
        """The first intact entry of the file behind damage, or None. If that entry comes from the torn frame, the first
        entry of the torn frame when entries before it are lost, else None.
        """
        window = self._window()
        found = find_again(window, 0, len(window), self.ledger_id, self.next_entry, self._proof) if window else None
        if found is None or found[1] <= self.next_entry:
            return None
        if self.torn_from is None or found[1] <= self.torn_from:
            return found[1]
        return self.torn_from if self.next_entry < self.torn_from else None

    def _window(self) -> bytes:
        return self._read(min(_GAP_WINDOW_BYTES, self._limit()))

    def _limit(self) -> int:
        """Bytes behind the present offset that may hold records."""
        size = self._files.size(self.ledger_id)
        return (size if self._end is None else min(size, FILE_HEADER_BYTES + self._end[1])) - self.offset

    def _read(self, size: int) -> bytes:
        try:
            return self._files.read(self.ledger_id, size, self.offset) if size > 0 else b""
        except FileNotFoundError:
            return b""
