"""Offline check of a data directory: ``magnetar verify DIR``.

Reads all files, reports every damage with file, offset, ledger and entry, and changes nothing. Repairs only the
requested parts:

``index``      write index and footer of closed ledgers anew where they are damaged and all records are intact
``torn-tail``  cut the bytes behind the last intact record of an open ledger, if no synced entry is missing or damaged
``metadata``   write damaged metadata anew, from their remains, from ledger files and from the journal
               (``metadata_repair.py``)

Entries are never removed, files never deleted.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from magnetar.storage.embedded.checkpoint_file import Checkpoint, read_checkpoint
from magnetar.storage.embedded.files import RealFiles
from magnetar.storage.embedded.journal.salvage import LostRecord, salvage
from magnetar.storage.embedded.journal.uses import BoundSalts, damaged_headers, scan_uses
from magnetar.storage.embedded.layout import Layout, ledger_id_of, segment_id_of
from magnetar.storage.embedded.ledger_catalog import ledger_path
from magnetar.storage.embedded.ledger_files import LedgerFiles
from magnetar.storage.embedded.ledger_head import NO_PROOF, parse_properties, proof_of
from magnetar.storage.embedded.recovery.engine_recovery import journal_work
from magnetar.storage.embedded.recovery.frame_replay import FrameReplay, unfinished
from magnetar.storage.embedded.recovery.metadata_check import forgotten_ledgers, metadata_lag
from magnetar.storage.embedded.recovery.recovery_report import RecoveryReport
from magnetar.storage.embedded.store_version import read_version
from magnetar.storage.embedded.verify.identities import FoundLedgers, LedgerIdentity
from magnetar.storage.embedded.verify.ledgers import MAX_RECORD_BYTES, JournalledEntries, LedgerVerifier
from magnetar.storage.embedded.verify.metadata import StoredNodes, read_stored_nodes
from magnetar.storage.embedded.verify.metadata_repair import Rebuild, repair_metadata
from magnetar.storage.embedded.verify.report import DAMAGE, NOTE, WARNING, Finding, VerifyReport
from magnetar.storage.errors import DamagedFileError, StorageError
from magnetar.storage.interfaces import SystemClock
from magnetar.storage.slab import RECORD_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from magnetar.storage.embedded.files import Buffer, FileSystem
    from magnetar.storage.embedded.journal.scan import FrameRef, SegmentScan
    from magnetar.storage.interfaces import Clock

__all__ = ["REPAIRS", "verify_store"]

Progress = Callable[[int, int], None]
REPAIRS = frozenset({"index", "torn-tail", "metadata"})


def verify_store(
    data_dir: str,
    *,
    repair: Iterable[str] = (),
    files: FileSystem | None = None,
    nodes: StoredNodes | None = None,
    clock: Clock | None = None,
    rebuild: Rebuild | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Check the store in ``data_dir``. ``rebuild``: additions of the layers above to repaired metadata. The function
    calls ``progress`` with (bytes read, bytes in all) before it reads a segment or a ledger.

    Raises StoreLockedError while a process uses the store, UnsupportedFormatError for a newer format, FileNotFoundError
    when there is no store, ValueError for an unknown repair, StorageError for an unreadable segment.
    """
    wanted = frozenset(repair)
    if unknown := wanted - REPAIRS:
        raise ValueError(f"unknown repair {sorted(unknown)}; known are {sorted(REPAIRS)}")
    files = files or RealFiles()
    layout = Layout(data_dir)
    if not files.exists(layout.journal) or not files.exists(layout.ledgers):
        data = f"{data_dir}/data"
        hint = f": name {data} of this image" if files.exists(Layout(data).journal) else ""
        raise FileNotFoundError(f"{data_dir} is not a data directory (no journal/ and ledgers/){hint}")
    release = files.lock(layout.lock, claim=False)
    try:
        nodes = nodes or read_stored_nodes(files, layout)
        return _Verification(files, layout, nodes, clock or SystemClock(), wanted, rebuild, progress).run()
    finally:
        release()


class _Verification:
    """One run of ``verify_store``."""

    def __init__(
        self,
        files: FileSystem,
        layout: Layout,
        nodes: StoredNodes,
        clock: Clock,
        repair: frozenset[str],
        rebuild: Rebuild | None,
        progress: Progress | None,
    ) -> None:
        self._files, self._layout, self._nodes, self._repair = files, layout, nodes, repair
        self._clock = clock
        self._report = VerifyReport(layout.root)
        self._checkpoint = Checkpoint()
        self._checkpoint_intact = True
        self._journalled = JournalledEntries()
        self._rebuild = rebuild
        self._progress = progress
        self._total_bytes = nodes.bytes_read + _bytes_of(files, layout) if progress is not None else 0
        self._found = FoundLedgers()
        self._store_id = nodes.store_id
        self._seen_sequence = 0
        """The last change of the metadata that the checkpoint or the journal records."""

    def run(self) -> VerifyReport:
        self._version()
        self._metadata()
        self._read_checkpoint()
        self._journal()
        self._ledgers()
        if self._files.exists(self._layout.lost):
            for name in self._files.list_dir(self._layout.lost):
                path = posixpath.join(self._layout.lost, name)
                self._add(WARNING, "set-aside", path, 0, "set aside by an earlier start: a file without an owner")
        if "metadata" in self._repair:
            self._repair_metadata()
        return self._report

    def _metadata(self) -> None:
        self._report.bytes_read += self._nodes.bytes_read
        for severity, found in ((DAMAGE, self._nodes.problems), (NOTE, self._nodes.remarks)):
            for error in found:
                self._add(severity, "metadata", error.path, error.offset, error.detail)
        for path in self._nodes.strangers:
            self._add(WARNING, "unknown-file", path, 0, "not a file of the metadata")

    def _add(self, severity: str, kind: str, file: str, offset: int, detail: str) -> None:
        self._report.findings.append(Finding(severity, kind, file, offset, detail))

    def _version(self) -> None:
        path = self._layout.version
        store_id = self._nodes.store_id
        self._report.store_id = store_id.hex() if store_id else ""
        found, damage = read_version(self._files, self._layout)
        if damage is not None:
            self._add(DAMAGE, "version", path, 0, damage.detail)
        elif found is None:
            self._add(DAMAGE, "version", path, 0, "missing")
        elif store_id is not None and found[1] != store_id:
            self._add(DAMAGE, "version", path, 0, f"names store {found[1].hex()}, the metadata {store_id.hex()}")
        elif store_id is None:
            self._store_id = found[1]

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
                self._add(DAMAGE, "checkpoint", path, 0, "one of its two copies is damaged (the other copy is intact)")

    def _journal(self) -> None:
        segments: list[tuple[str, int]] = []
        for name in self._files.list_dir(self._layout.journal):
            path = posixpath.join(self._layout.journal, name)
            segment_id = segment_id_of(name)
            if segment_id is None:
                if path not in {self._layout.checkpoint, self._layout.checkpoint + ".new"}:
                    self._add(WARNING, "unknown-file", path, 0, "not a journal file; the next start sets it aside")
                continue
            self._report.segments += 1
            segments.append((path, segment_id))
        scans = self._scan(segments)
        self._lag(scans)
        found = RecoveryReport()
        work = journal_work(scans, self._checkpoint.next_sequence, found, from_first=not self._checkpoint_intact)
        last = max((frame.sequence for frame in work), default=self._checkpoint.next_sequence - 1)
        for error in damaged_headers(scans, self._checkpoint.next_sequence, last):
            self._add(DAMAGE, "segment", error.path, error.offset, error.detail)
        torn = self._torn_frame(work)
        for frame in work:
            self._frame(frame, is_torn=frame is torn)
        for first, last in found.missing_frames:
            if not any(frame.sequence < 0 for frame in work):
                detail = f"frames {first} to {last} are nowhere"
                self._add(DAMAGE, "missing-frames", self._layout.journal, 0, detail)

    def _torn_frame(self, work: list[FrameRef]) -> FrameRef | None:
        """The last frame if it was never acknowledged, else None. The decision is that of a start: the method replays
        the journal without writing.

        With incomplete metadata a start fails; then a last frame that is not whole counts as torn.
        """
        last = unfinished(work)
        if last is None or not self._nodes.complete or self._store_id is None:
            return last
        ledger_files = self._ledger_files(cast("FileSystem", _Reading(self._files)))
        try:
            replay = FrameReplay(
                self._files,
                self._layout,
                self._store_id,
                _Unwritten(ledger_files),
                self._nodes.known_ledgers(),
                self._checkpoint,
                RecoveryReport(),
                checkpoint_intact=self._checkpoint_intact,
                max_record_bytes=MAX_RECORD_BYTES,
            )
            return replay.torn_frame(work)
        finally:
            ledger_files.close()

    def _ledger_files(self, files: FileSystem) -> LedgerFiles:
        return LedgerFiles(files, self._layout, self._nodes.store_id or b"", self._clock, max_open=8)

    def _scan(self, segments: list[tuple[str, int]]) -> list[SegmentScan]:
        """The frames of all segments."""
        said = self._checkpoint
        bound = said.bound_salts if self._checkpoint_intact else None
        salts = BoundSalts(self._store_id or b"")
        counted = set[str]()

        def read(path: str) -> bytes:
            self._tell()
            data = self._read(path, counts=path not in counted)
            counted.add(path)
            return data

        return scan_uses(segments, read, salts, said.next_sequence, said.free_generation, bound=bound)

    def _lag(self, scans: list[SegmentScan]) -> None:
        """Report metadata that end before the last change that the checkpoint or the journal records."""
        if self._nodes.last_sequence is None:
            return
        frames = (frame.metadata_sequence for scan in scans for frame in scan.frames)
        self._seen_sequence = max([self._checkpoint.metadata_sequence, *frames])
        for problem in metadata_lag(self._checkpoint, scans, self._nodes.last_sequence):
            self._add(DAMAGE, "metadata", self._layout.metadata, 0, problem)

    def _frame(self, frame: FrameRef, *, is_torn: bool) -> None:
        path = self._layout.segment(frame.segment_id)
        file = self._files.open_read_only(path)
        try:
            payload = file.read(frame.payload_bytes, frame.offset)
        finally:
            file.close()
        if is_torn:
            self._add(NOTE, "torn-tail", path, frame.offset, "unfinished last frame, never acknowledged")
            return
        self._report.frames += frame.whole
        known = self._nodes.ledgers if self._nodes.complete else range(1 << 62)
        for record in salvage(payload, known, self._proof_of, exact=frame.exact):
            if isinstance(record, LostRecord):
                if record.is_birth:
                    continue
                detail = "damaged record in a journal frame"
                ids = (record.ledger_id, record.entry_id) if record.ledger_id in self._nodes.ledgers else (None, None)
                self._report.findings.append(Finding(DAMAGE, "frame", path, frame.offset + record.start, detail, *ids))
            elif record.entry_id < 0:
                body = payload[record.start + RECORD_HEADER_BYTES : record.end]
                self._found.add_journalled(record.ledger_id, parse_properties(body))
            elif frame.whole or self._may_be_of_this_use(record.ledger_id, record.entry_id):
                self._journalled.add(record.ledger_id, record.entry_id)
                self._found.add_journalled(record.ledger_id, None)
        if not frame.whole and not any(finding.kind == "frame" for finding in self._report.findings):
            self._add(
                DAMAGE, "frame", path, frame.offset, "frame has a wrong checksum; the records found in it are intact"
            )

    def _proof_of(self, ledger_id: int) -> int:
        node = self._nodes.ledgers.get(ledger_id)
        if node is None or self._store_id is None:
            return NO_PROOF  # no node or no store id, so no proof: the records count by their checksums
        return proof_of(self._store_id, ledger_id, node.properties)

    def _may_be_of_this_use(self, ledger_id: int, entry_id: int) -> bool:
        """Whether a record of a damaged frame may count. A record of a closed ledger, or of an entry that the
        checkpoint has as synced, may be from an earlier use of the segment, on a page whose write was lost.
        """
        node = self._nodes.ledgers.get(ledger_id)
        synced = self._checkpoint.synced.get(ledger_id)
        if synced is None:
            return node is None or not node.closed
        return entry_id >= synced[0]

    def _ledgers(self) -> None:
        files = self._files if self._repair else cast("FileSystem", _Reading(self._files))
        ledger_files = self._ledger_files(files)
        verifier = LedgerVerifier(
            self._files,
            self._layout,
            ledger_files,
            self._nodes,
            self._checkpoint,
            self._journalled,
            self._report,
            self._proof_of,
        )
        try:
            self._strangers()
            for ledger_id, node in sorted(self._nodes.ledgers.items()):
                self._report.ledgers += 1
                self._tell()
                verifier.verify(ledger_id, node, self._repair)
        finally:
            ledger_files.close()

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self._report.bytes_read, self._total_bytes)

    def _strangers(self) -> None:
        """Report files of ledgers that the metadata do not list."""
        nodes = self._nodes
        known = {*nodes.ledgers, *nodes.half_deleted}
        forgotten = set(forgotten_ledgers(self._files, self._layout, self._store_id or b"", known))
        for name in self._files.list_dir(self._layout.ledgers):
            ledger_id = ledger_id_of(name)
            path = posixpath.join(self._layout.ledgers, name)
            if ledger_id in nodes.half_deleted and ledger_id not in nodes.ledgers:
                self._add(NOTE, "unknown-file", path, 0, "of a deleted ledger; the next start removes it")
            elif ledger_id in forgotten:
                detail = "the metadata do not know this ledger, which holds entries: a start is refused"
                self._report.findings.append(Finding(DAMAGE, "metadata", path, 0, detail, ledger_id))
            elif ledger_id not in nodes.ledgers:
                self._add(WARNING, "unknown-file", path, 0, "not of this store; the next start sets it aside")

    def _repair_metadata(self) -> None:
        damaged = any(each.severity == DAMAGE and each.kind == "metadata" for each in self._report.findings)
        if not damaged or self._store_id is None:
            if damaged:
                self._report.repaired.append("metadata: not repaired, nothing tells which store this is")
            return
        self._found.add_files(self._files, self._layout, self._store_id)
        last = max(self._seen_sequence, self._nodes.last_sequence or 0)
        found = [each for each in self._found.all() if not self._was_deleted(each)]
        self._report.repaired += repair_metadata(
            self._files, self._layout, self._clock, self._nodes, self._store_id, found, last, self._rebuild
        )

    def _was_deleted(self, ledger: LedgerIdentity) -> bool:
        """Whether the metadata have every change and do not list a ledger that the journal alone has."""
        nodes = self._nodes
        is_listed = ledger.ledger_id in nodes.ledgers or nodes.tree.get(ledger_path(ledger.ledger_id)) is not None
        has_all = nodes.complete and nodes.last_sequence is not None and nodes.last_sequence >= self._seen_sequence
        return has_all and not is_listed and not ledger.in_file

    def _read(self, path: str, *, counts: bool = True) -> bytes:
        file = self._files.open_read_only(path)
        try:
            data = file.read(file.size(), 0)
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror or error}") from error
        finally:
            file.close()
        self._report.bytes_read += len(data) if counts else 0
        return data


class _Reading:
    """Opens all files for reading only: the store may lie on a read-only mount, or belong to another user."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files

    def open(self, path: str, **_: object) -> object:
        return self._files.open_read_only(path)

    def __getattr__(self, name: str) -> object:
        return getattr(self._files, name)


class _Unwritten:
    """Ledger files for a replay without writes. A replay never reads the bytes that it has written."""

    def __init__(self, files: LedgerFiles) -> None:
        self.identify, self.read, self.size = files.identify, files.read, files.size

    def write(self, ledger_id: int, buffers: Sequence[Buffer], offset: int) -> None:
        """Write nothing."""

    def truncate(self, ledger_id: int, size: int) -> None:
        """Cut nothing."""


def _bytes_of(files: FileSystem, layout: Layout) -> int:
    """The size in bytes of all files in ``journal/`` and ``ledgers/``."""
    total = 0
    for folder in (layout.journal, layout.ledgers):
        for name in files.list_dir(folder):
            file = files.open_read_only(posixpath.join(folder, name))
            try:
                total += file.size()
            finally:
                file.close()
    return total
