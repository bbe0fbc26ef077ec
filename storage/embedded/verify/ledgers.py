"""The part of ``verify`` that reads ledger files."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES
from magnetar.storage.embedded.ledger_format import FOOTER_BYTES, encode_index, parse_footer, parse_index
from magnetar.storage.embedded.ledger_head import parse_ledger_head
from magnetar.storage.embedded.ledger_reader import LedgerReader, LedgerScan
from magnetar.storage.embedded.verify.report import DAMAGE, NOTE, Finding, VerifyReport
from magnetar.storage.errors import DamagedFileError
from magnetar.storage.records import is_placeholder

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.checkpoint_file import Checkpoint
    from magnetar.storage.embedded.files import FileSystem
    from magnetar.storage.embedded.layout import Layout
    from magnetar.storage.embedded.ledger_catalog import LedgerNode
    from magnetar.storage.embedded.ledger_files import LedgerFiles
    from magnetar.storage.embedded.verify.metadata import StoredNodes
    from magnetar.storage.records import Damage

__all__ = ["MAX_RECORD_BYTES", "JournalledEntries", "LedgerVerifier"]

MAX_RECORD_BYTES = 1 << 30
_HEAD_BYTES = 1 << 20


class JournalledEntries:
    """The entries that the next start replays."""

    def __init__(self) -> None:
        self._entries: dict[int, set[int]] = {}

    def add(self, ledger_id: int, entry_id: int) -> None:
        self._entries.setdefault(ledger_id, set()).add(entry_id)

    def has(self, ledger_id: int, entry_id: int) -> bool:
        return entry_id in self._entries.get(ledger_id, ())

    def first(self, ledger_id: int) -> int | None:
        """The lowest entry of the ledger; None without entries."""
        return min(self._entries.get(ledger_id, ()), default=None)


class LedgerVerifier:
    """Checks one ledger file after the other and adds to the report."""

    def __init__(
        self,
        files: FileSystem,
        layout: Layout,
        ledger_files: LedgerFiles,
        nodes: StoredNodes,
        checkpoint: Checkpoint,
        journalled: JournalledEntries,
        report: VerifyReport,
        proof_of: Callable[[int], int],
    ) -> None:
        self._files, self._layout, self._ledger_files = files, layout, ledger_files
        self._nodes, self._checkpoint, self._journalled, self._report = nodes, checkpoint, journalled, report
        self._proof_of = proof_of

    def verify(self, ledger_id: int, node: LedgerNode, repair: frozenset[str]) -> None:
        """Check one ledger of the metadata, report the damage, and make the repairs in ``repair``. Raises OSError, but
        for a file that the device does not read, unless ``repair`` asks for changes.
        """
        path = self._layout.ledger(ledger_id)
        try:
            self._check(path, ledger_id, node, repair)
        except OSError as error:
            if repair or error.errno != errno.EIO:
                error.filename = error.filename or path
                raise
            last = node.last_entry_id if node.closed else None
            self._entries(
                DAMAGE, "unreadable", path, None, f"the device does not read it: {error.strerror}", ledger_id, 0, last
            )

    def _check(self, path: str, ledger_id: int, node: LedgerNode, repair: frozenset[str]) -> None:
        promised = self._promised(ledger_id, node)
        if not self._files.exists(path):
            if promised:
                self._entries(DAMAGE, "missing-file", path, 0, "the file is missing", ledger_id, 0, promised - 1)
            return
        if promised:
            self._header(path, ledger_id)
        size = self._ledger_files.size(ledger_id)
        self._report.bytes_read += size
        # The index follows the last entry of a closed ledger, also while the journal still has the entries.
        end = FILE_HEADER_BYTES + node.length_bytes if node.closed and node.length_bytes else size
        reader = LedgerReader(self._ledger_files, ledger_id, MAX_RECORD_BYTES, self._proof_of(ledger_id))
        if node.closed:
            scan = reader.scan(0, FILE_HEADER_BYTES, min(end, size))
        else:
            scan = self._scan_open(path, ledger_id, reader, size, promised)
        damaged = sum(self._damage(path, ledger_id, damage, promised) for damage in scan.damage)
        self._report.entries += scan.entries - damaged
        if scan.entries < promised:
            detail = f"the file holds entries up to {scan.entries - 1}, promised are {promised}"
            self._entries(DAMAGE, "short-file", path, scan.end_offset, detail, ledger_id, scan.entries, promised - 1)
        if node.closed:
            self._index(path, ledger_id, node, scan, size, repair)
        elif "torn-tail" in repair and scan.entries >= promised and size > scan.end_offset and not damaged:
            self._ledger_files.truncate(ledger_id, scan.end_offset)
            self._ledger_files.sync(ledger_id)
            self._report.repaired.append(f"{path}: cut {size - scan.end_offset} bytes behind entry {scan.entries - 1}")

    def _promised(self, ledger_id: int, node: LedgerNode) -> int:
        """The entries that must be in the file, because the journal no longer has them."""
        if node.closed:
            entries = node.last_entry_id + 1
        else:
            entries, _ = self._checkpoint.synced.get(ledger_id, (0, 0))
        first = self._journalled.first(ledger_id)
        return entries if first is None else min(entries, first)

    def _scan_open(self, path: str, ledger_id: int, reader: LedgerReader, size: int, promised: int) -> LedgerScan:
        """Scan the file of an open ledger. Report entries behind the end that the checkpoint records for them, as
        behind inserted bytes: the next start ends the ledger's entries of the file there.
        """
        _, length = self._checkpoint.synced.get(ledger_id, (0, 0))
        front = reader.scan(0, FILE_HEADER_BYTES, min(FILE_HEADER_BYTES + length, size))
        scan = reader.scan(front.entries, front.end_offset, size)
        found, end = front.entries, min(promised, scan.entries)
        for damage in scan.damage:
            if damage.first_entry_id <= found <= damage.last_entry_id:
                found = damage.last_entry_id + 1
        if found < end:
            detail = f"entry {found} and those behind it are displaced: the next start does not find them"
            self._entries(DAMAGE, "short-file", path, FILE_HEADER_BYTES + length, detail, ledger_id, found, end - 1)
        scan.damage[:0] = [each for each in front.damage if each.first_entry_id <= each.last_entry_id]
        return scan

    def _header(self, path: str, ledger_id: int) -> None:
        try:
            head = parse_ledger_head(path, self._ledger_files.head(ledger_id, _HEAD_BYTES))
        except DamagedFileError as error:
            detail = f"{error.detail} (the entries are not touched by it)"
            self._report.findings.append(Finding(DAMAGE, "header", path, 0, detail, ledger_id))
            return
        for found in head.damage:
            detail = f"{found.detail} (the entries are not touched by it)"
            self._report.findings.append(Finding(DAMAGE, "header", path, found.offset, detail, ledger_id))
        if head.header.file_id != ledger_id or head.header.store_id != self._nodes.store_id:
            detail = f"the file of ledger {head.header.file_id} of store {head.header.store_id.hex()}"
            self._report.findings.append(Finding(DAMAGE, "header", path, 0, detail, ledger_id))

    def _damage(self, path: str, ledger_id: int, damage: Damage, promised: int) -> int:
        """Report one damaged place; returns how many entries it costs."""
        first, last = damage.first_entry_id, damage.last_entry_id
        if last < first:
            # No intact record follows: the record is torn, or in the journal, or missing (reported as a short file).
            if first >= promised:
                detail = "no intact record behind the last one; not promised, or still in the journal"
                self._entries(NOTE, "torn-tail", path, damage.start, detail, ledger_id, first, None)
            return 0
        if all(self._journalled.has(ledger_id, entry) for entry in range(first, last + 1)):
            detail = "not intact in the ledger file, but still in the journal"
            self._entries(NOTE, "torn-tail", path, damage.start, detail, ledger_id, first, last)
            return last - first + 1
        lost = is_placeholder(self._ledger_files.read(ledger_id, 32, damage.start), 0)
        detail = "lost with a damaged journal frame before" if lost else f"record fails its check ({damage.reason})"
        kind = "lost-entry" if lost else "entry"
        self._entries(DAMAGE, kind, path, damage.start, detail, ledger_id, first, last)
        return last - first + 1

    def _index(
        self, path: str, ledger_id: int, node: LedgerNode, scan: LedgerScan, size: int, repair: frozenset[str]
    ) -> None:
        entries, length = node.last_entry_id + 1, node.length_bytes
        if not entries or scan.entries < entries:
            return
        offset = FILE_HEADER_BYTES + length
        footer = parse_footer(self._ledger_files.read(ledger_id, FOOTER_BYTES, max(0, size - FOOTER_BYTES)))
        said = (footer.ledger_id, footer.entries, footer.length_bytes) if footer is not None else None
        if footer is not None and said == (ledger_id, entries, length):
            data = self._ledger_files.read(ledger_id, footer.index_bytes, footer.index_offset)
            if parse_index(footer, data) is not None:
                return
        wanted = encode_index(ledger_id, entries, length, scan.index)
        absent = size <= offset
        found = self._ledger_files.read(ledger_id, max(0, size - offset), offset)
        unfinished = absent or (not scan.damage and _is_unfinished(found, wanted))
        state = "not written to its end" if unfinished else "damaged"
        detail = "no index yet" if absent else f"index or footer is {state}"
        finding = Finding(
            NOTE if unfinished else DAMAGE,
            "index",
            path,
            self._ledger_files.file_offset(ledger_id, offset),
            f"{detail} (made again when read)",
            ledger_id,
        )
        self._report.findings.append(finding)
        if "index" in repair and not scan.damage:
            self._ledger_files.write(ledger_id, [wanted], offset, create=False)
            self._ledger_files.truncate(ledger_id, offset + len(wanted))
            self._ledger_files.sync(ledger_id)
            self._report.repaired.append(f"{path}: index and footer written anew")

    def _entries(
        self,
        severity: str,
        kind: str,
        file: str,
        offset: int | None,
        detail: str,
        ledger_id: int,
        entry_id: int,
        last_entry_id: int | None,
    ) -> None:
        place = 0 if offset is None else self._ledger_files.file_offset(ledger_id, offset)
        self._report.findings.append(Finding(severity, kind, file, place, detail, ledger_id, entry_id, last_entry_id))


def _is_unfinished(found: bytes, wanted: bytes) -> bool:
    """Whether a power loss in a write of the wanted bytes explains the found bytes: some sectors are missing. A damaged
    device would have left other bytes.
    """
    return len(found) <= len(wanted) and all(a in (0, b) for a, b in zip(found, wanted, strict=False))
