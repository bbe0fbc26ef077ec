"""Journal records into ledger files, idempotent by (ledger, entry).

A ledger's file is rewritten from where the last checkpoint found it: the same records go to the same offsets however
often recovery is repeated. Entries a damaged frame lost are taken from the ledger file when it has them; else a
placeholder stands for each, and exactly those positions will be reported as damaged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES
from magnetar.storage.embedded.ledger_reader import LedgerReader
from magnetar.storage.position import Position
from magnetar.storage.records import find_entry, placeholder

if TYPE_CHECKING:
    from magnetar.storage.embedded.ledger_files import LedgerFiles

__all__ = ["LedgerReplay"]

_FLUSH_BYTES = 4 << 20
_GAP_WINDOW_BYTES = 64 << 20


class LedgerReplay:
    """Replay of one ledger. ``begin_at``: (entries, length) that are safely in the file."""

    def __init__(self, files: LedgerFiles, ledger_id: int, begin_at: tuple[int, int]) -> None:
        self._files, self.ledger_id = files, ledger_id
        self.next_entry = begin_at[0]
        self.offset = FILE_HEADER_BYTES + begin_at[1]
        self.replayed = 0
        self.damaged: list[Position] = []
        self.wrote = False
        self._held_back: dict[int, bytes] = {}
        """Intact records of damaged frames by entry id, beyond a gap: perhaps of a page written to a wrong place."""
        self._buffers: list[bytes] = []
        self._buffered = 0

    @classmethod
    def from_file(cls, files: LedgerFiles, ledger_id: int, max_record_bytes: int) -> LedgerReplay:
        """Without a checkpoint: begin behind what the file holds without a break."""
        size = files.size(ledger_id)
        scan = LedgerReader(files, ledger_id, max_record_bytes).scan(0, FILE_HEADER_BYTES, size)
        if not scan.damage:
            return cls(files, ledger_id, (scan.entries, scan.end_offset - FILE_HEADER_BYTES))
        first = scan.damage[0]
        return cls(files, ledger_id, (first.first_entry_id, first.start - FILE_HEADER_BYTES))

    def add(self, entry_id: int, record: bytes) -> None:
        """One record; an entry the file has already is passed over."""
        if entry_id < self.next_entry:
            return
        if entry_id > self.next_entry:
            self.fill(entry_id)
        self._put(record)
        self.replayed += 1

    def hold_back(self, entry_id: int, record: bytes) -> None:
        """One record of a damaged frame. Behind a gap it waits: what closes the gap may follow in this frame, or in
        later ones where this record was made by a write to a wrong place.
        """
        if entry_id <= self.next_entry:
            self.add(entry_id, record)
            self._take_held_back()
        else:
            self._held_back.setdefault(entry_id, record)

    def settle(self) -> None:
        """Nothing more comes: what was held back counts, whatever gaps are before it."""
        for entry_id in sorted(self._held_back):
            if entry_id >= self.next_entry:
                self.fill(entry_id)
                self._take_held_back()
        self._held_back.clear()

    def _take_held_back(self) -> None:
        """Go on with records that were held back and come next."""
        while (record := self._held_back.pop(self.next_entry, None)) is not None:
            self._put(record)
            self.replayed += 1

    def add_run(self, first_entry_id: int, count: int, payload: bytes, offsets: memoryview) -> None:
        """Consecutive intact records at ``offsets`` of ``payload``."""
        skip = max(self.next_entry - first_entry_id, 0)
        if skip >= count:
            return
        if first_entry_id > self.next_entry:
            self.fill(first_entry_id)
        self._put(payload[offsets[skip] : offsets[count]], count - skip)
        self.replayed += count - skip

    def fill(self, end_entry_id: int) -> None:
        """The journal lost the entries up to ``end_entry_id``: from the file, or placeholders."""
        self.flush()
        while self.next_entry < end_entry_id:
            if self.next_entry in self._held_back:
                self._put(self._held_back.pop(self.next_entry))
                self.replayed += 1
                self.flush()
                continue
            window = self._file_window()
            found = find_entry(window, 0, len(window), self.ledger_id, self.next_entry) if window else None
            if found is not None and found[1] == self.next_entry:
                # The file's own copy is intact and lies where it always lay: the bytes between stay as they are.
                length = int.from_bytes(window[found[0] : found[0] + 4], "little") + 32
                self.offset += found[0] + length
                self.next_entry += 1
                self.wrote = True
            else:
                self.damaged.append(Position(self.ledger_id, self.next_entry))
                self._put(placeholder(self.ledger_id, self.next_entry))
                self.flush()

    def flush(self) -> None:
        """Write what is gathered."""
        if self._buffers:
            self._files.write(self.ledger_id, self._buffers, self.offset - self._buffered)
            self._buffers, self._buffered = [], 0
            self.wrote = True

    def finish(self) -> None:
        """Write the rest and cut what is behind it (never synced, and not in the journal); not yet synced."""
        self.flush()
        if self.wrote and self._files.size(self.ledger_id) > self.offset:
            self._files.truncate(self.ledger_id, self.offset)

    def _put(self, data: bytes, entries: int = 1) -> None:
        self._buffers.append(data)
        self._buffered += len(data)
        self.offset += len(data)
        self.next_entry += entries
        if self._buffered >= _FLUSH_BYTES:
            self.flush()

    def _file_window(self) -> bytes:
        try:
            return self._files.read(self.ledger_id, _GAP_WINDOW_BYTES, self.offset)
        except FileNotFoundError:
            return b""
