"""Offline check of a data directory: ``magnetar verify DIR``.

Reads everything, reports every damage with file, offset, ledger and entry, changes nothing. Repairs only what is
asked for:

``index``      write index and footer of closed ledgers anew where they are damaged and all records are intact
``torn-tail``  cut what is behind the last intact record of an open ledger, if the checkpoint does not vouch for it

Entries are never removed, files never deleted.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from magnetar.storage.clock import SystemClock
from magnetar.storage.embedded.checkpoint_file import Checkpoint, read_checkpoint
from magnetar.storage.embedded.files import RealFiles
from magnetar.storage.embedded.journal.salvage import LostRecord, salvage
from magnetar.storage.embedded.journal.scan import FrameRef, SegmentScan, scan_segment
from magnetar.storage.embedded.layout import Layout, ledger_id_of, segment_id_of
from magnetar.storage.embedded.ledger_files import LedgerFiles
from magnetar.storage.embedded.recovery.engine_recovery import RecoveryReport, damaged_headers, journal_work
from magnetar.storage.embedded.store_directory import parse_version
from magnetar.storage.embedded.verify.ledgers import JournalledEntries, LedgerVerifier
from magnetar.storage.embedded.verify.metadata import StoredNodes, read_sqlite_nodes
from magnetar.storage.embedded.verify.report import DAMAGE, NOTE, WARNING, Finding, VerifyReport
from magnetar.storage.errors import DamagedFileError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from magnetar.storage.embedded.files import FileSystem
    from magnetar.storage.interfaces import Clock

__all__ = ["REPAIRS", "verify_store"]

REPAIRS = frozenset({"index", "torn-tail"})


def verify_store(
    data_dir: str,
    *,
    repair: Iterable[str] = (),
    files: FileSystem | None = None,
    nodes: StoredNodes | None = None,
    clock: Clock | None = None,
) -> VerifyReport:
    """Check the store in ``data_dir``.

    Raises StoreLockedError while a process uses it, UnsupportedFormatError for a newer format, FileNotFoundError when
    there is no store, ValueError for an unknown repair.
    """
    wanted = frozenset(repair)
    if unknown := wanted - REPAIRS:
        raise ValueError(f"unknown repair {sorted(unknown)}; known are {sorted(REPAIRS)}")
    files = files or RealFiles()
    layout = Layout(data_dir)
    if not files.exists(layout.journal) or not files.exists(layout.ledgers):
        raise FileNotFoundError(f"{data_dir} is not a data directory (no journal/ and ledgers/)")
    release = files.lock(layout.lock, claim=False)
    try:
        nodes = nodes or read_sqlite_nodes(layout.metadata)
        return _Verification(files, layout, nodes, clock or SystemClock(), wanted).run()
    finally:
        release()


class _Verification:
    """One run."""

    def __init__(
        self, files: FileSystem, layout: Layout, nodes: StoredNodes, clock: Clock, repair: frozenset[str]
    ) -> None:
        self._files, self._layout, self._nodes, self._repair = files, layout, nodes, repair
        self._clock = clock
        self._report = VerifyReport(layout.root)
        self._checkpoint = Checkpoint()
        self._checkpoint_intact = True
        self._journalled = JournalledEntries()

    def run(self) -> VerifyReport:
        self._version()
        for problem in self._nodes.problems:
            self._add(DAMAGE, "metadata", self._layout.metadata, 0, problem)
        self._read_checkpoint()
        self._journal()
        self._ledgers()
        if self._files.exists(self._layout.lost):
            for name in self._files.list_dir(self._layout.lost):
                path = posixpath.join(self._layout.lost, name)
                self._add(WARNING, "set-aside", path, 0, "set aside by an earlier start; nobody knew it")
        return self._report

    def _add(self, severity: str, kind: str, file: str, offset: int, detail: str) -> None:
        self._report.findings.append(Finding(severity, kind, file, offset, detail))

    def _version(self) -> None:
        path = self._layout.version
        store_id = self._nodes.store_id
        self._report.store_id = store_id.hex() if store_id else ""
        if not self._files.exists(path):
            self._add(DAMAGE, "version", path, 0, "missing")
            return
        try:
            found = parse_version(path, self._read(path))
        except DamagedFileError as error:
            self._add(DAMAGE, "version", path, 0, error.detail)
            return
        if store_id is not None and found != store_id:
            self._add(DAMAGE, "version", path, 0, f"names store {found.hex()}, the metadata {store_id.hex()}")

    def _read_checkpoint(self) -> None:
        path = self._layout.checkpoint
        try:
            self._checkpoint = read_checkpoint(self._files, self._layout)
        except FileNotFoundError:
            self._checkpoint_intact = False
            self._add(DAMAGE, "checkpoint", path, 0, "missing")
        except DamagedFileError as error:
            self._checkpoint_intact = False
            self._add(DAMAGE, "checkpoint", path, error.offset, error.detail)
        else:
            if self._checkpoint.damaged_copies:
                self._add(DAMAGE, "checkpoint", path, 0, "one of its two copies is damaged (the other one is intact)")

    def _journal(self) -> None:
        scans: list[SegmentScan] = []
        for name in self._files.list_dir(self._layout.journal):
            path = posixpath.join(self._layout.journal, name)
            segment_id = segment_id_of(name)
            if segment_id is None:
                if path not in {self._layout.checkpoint, self._layout.checkpoint + ".new"}:
                    self._add(WARNING, "unknown-file", path, 0, "not a journal file; the next start sets it aside")
                continue
            self._report.segments += 1
            scans.append(scan_segment(path, segment_id, self._read(path), self._checkpoint.free_generation))
        found = RecoveryReport()
        work = journal_work(scans, self._checkpoint.next_sequence, found, from_first=not self._checkpoint_intact)
        last_whole = max((frame.sequence for frame in work if frame.whole), default=self._checkpoint.next_sequence - 1)
        for error in damaged_headers(scans, last_whole):
            self._add(DAMAGE, "segment", error.path, error.offset, error.detail)
        for frame in work:
            self._frame(frame, last_whole)
        for first, last in found.missing_frames:
            if not any(frame.sequence < 0 for frame in work):
                detail = f"frames {first} to {last} are nowhere"
                self._add(DAMAGE, "missing-frames", self._layout.journal, 0, detail)

    def _frame(self, frame: FrameRef, last_whole: int) -> None:
        path = self._layout.segment(frame.segment_id)
        file = self._files.open_read_only(path)
        try:
            payload = file.read(frame.payload_bytes, frame.offset)
        finally:
            file.close()
        if frame.sequence > last_whole:
            self._add(NOTE, "torn-tail", path, frame.offset, "unfinished last frame, never acknowledged")
            return
        self._report.frames += frame.whole
        for record in salvage(payload, self._nodes.ledgers):
            if isinstance(record, LostRecord):
                detail = "damaged record in a journal frame"
                ids = (record.ledger_id, record.entry_id) if record.ledger_id in self._nodes.ledgers else (None, None)
                self._report.findings.append(Finding(DAMAGE, "frame", path, frame.offset + record.start, detail, *ids))
            else:
                self._journalled.add(record.ledger_id, record.entry_id)
        if not frame.whole and not any(finding.kind == "frame" for finding in self._report.findings):
            self._add(DAMAGE, "frame", path, frame.offset, "frame has a wrong checksum; its records are intact")

    def _ledgers(self) -> None:
        ledger_files = LedgerFiles(self._files, self._layout, self._nodes.store_id or b"", self._clock, max_open=8)
        verifier = LedgerVerifier(
            self._files, self._layout, ledger_files, self._nodes, self._checkpoint, self._journalled, self._report
        )
        try:
            for name in self._files.list_dir(self._layout.ledgers):
                ledger_id = ledger_id_of(name)
                if ledger_id is None or ledger_id not in self._nodes.ledgers:
                    deleted = ledger_id in self._nodes.half_deleted
                    detail = (
                        "of a deleted ledger; the next start removes it"
                        if deleted
                        else ("the metadata do not know it; the next start sets it aside")
                    )
                    path = posixpath.join(self._layout.ledgers, name)
                    self._add(NOTE if deleted else WARNING, "unknown-file", path, 0, detail)
            for ledger_id, node in sorted(self._nodes.ledgers.items()):
                self._report.ledgers += 1
                verifier.verify(ledger_id, node, self._repair)
        finally:
            ledger_files.close()

    def _read(self, path: str) -> bytes:
        file = self._files.open_read_only(path)
        try:
            data = file.read(file.size(), 0)
        except OSError as error:
            raise StorageError(f"{path}: {error}") from error
        finally:
            file.close()
        self._report.bytes_read += len(data)
        return data
