"""Start-up: bring the ledger files to the state the journal promises. Safe to be interrupted and repeated anywhere.

1. The checkpoint names the first frame of the journal that is needed.
2. Every segment is scanned; frames are put in order of their sequence.
3. The records of whole frames are replayed. A frame that is not whole and precedes another frame is damaged: its intact
   records count where neither a whole frame nor the ledger file has the entry; its other records are lost and reported.
   The last frame may be torn (it was never acknowledged): its records count up to the first damaged record. If a
   ledger has entries of that frame behind this record, the frame was acknowledged, and counts as damaged.
4. Touched ledger files are synced; a new checkpoint marks the journal as empty.

It removes no file; it moves unknown files to ``lost+found``. When a ledger of this store is missing in the metadata
alone, the start is refused and changes nothing.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magnetar.storage.embedded.checkpoint_file import Checkpoint, read_checkpoint, write_checkpoint
from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES
from magnetar.storage.embedded.journal.salvage import LostRecord, SalvagedRecord, salvage
from magnetar.storage.embedded.journal.uses import BoundSalts, damaged_headers, scan_uses
from magnetar.storage.embedded.layout import ledger_id_of, segment_id_of
from magnetar.storage.embedded.ledger_head import BIRTH_ENTRY_ID, NO_PROOF, proof_of
from magnetar.storage.embedded.recovery.metadata_check import (
    forgotten_ledgers,
    forgotten_problem,
    greatest_ledger_id,
    metadata_lag,
)
from magnetar.storage.embedded.recovery.replay import LedgerReplay
from magnetar.storage.errors import DamagedFileError, MetadataDamagedError
from magnetar.storage.records import ANY_LEDGER, scan_records, with_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from magnetar.storage.embedded.files import FileSystem
    from magnetar.storage.embedded.journal.scan import FrameRef, SegmentScan
    from magnetar.storage.embedded.layout import Layout
    from magnetar.storage.embedded.ledger_files import LedgerFiles
    from magnetar.storage.interfaces import Clock
    from magnetar.storage.position import Position

__all__ = ["KnownLedgers", "Recovered", "Recovery", "RecoveryReport", "journal_work", "unfinished"]


@dataclass(slots=True)
class RecoveryReport:
    """The findings and actions of recovery."""

    frames: int = 0
    entries: int = 0
    """Replayed into ledger files."""
    unknown_records: int = 0
    """Records of ledgers that were deleted since."""
    torn_frame: int | None = None
    """Sequence of the unfinished last frame."""
    missing_frames: list[tuple[int, int]] = field(default_factory=list)
    """Sequences (first, last) of frames that are nowhere."""
    damaged_entries: list[Position] = field(default_factory=list)
    damaged_files: list[DamagedFileError] = field(default_factory=list)
    set_aside: list[str] = field(default_factory=list)
    duration_s: float = 0.0
    newest_ledger_id: int = -1
    """The newest id of the ledgers that exist."""
    greatest_ledger_id: int = -1
    """The greatest id of all ledgers that ever existed, as far as files and metadata show."""


@dataclass(slots=True)
class Recovered:
    """The state from which the engine starts."""

    checkpoint: Checkpoint
    checkpoint_intact: bool
    """False: the checkpoint was lost, so an unsealed ledger not named in it may hold entries all the same."""
    next_segment_id: int
    segments: list[tuple[int, int]]
    """(segment id, bytes) of all segments; all are free."""
    report: RecoveryReport


def journal_work(
    scans: list[SegmentScan], next_sequence: int, report: RecoveryReport, *, from_first: bool = False
) -> list[FrameRef]:
    """Frames and damaged regions to replay, in order. A region without sequence is given only where frames are missing.

    ``from_first``: the checkpoint is lost, so recovery expects no frames before the first frame found.
    """
    work: list[FrameRef] = []
    expected = next_sequence
    if from_first:
        expected = min((f.sequence for scan in scans for f in scan.frames if f.sequence >= 0), default=next_sequence)
    pending: list[FrameRef] = []
    used = sorted((scan for scan in scans if scan.generation), key=lambda scan: scan.generation)
    ends = {scan.generation - 1: scan.end_before for scan in used}
    for scan in used:
        for frame in scan.frames:
            if frame.sequence < 0:
                pending.append(frame)
                continue
            if frame.sequence >= next_sequence:
                if frame.sequence > expected:
                    work += pending
                    report.missing_frames.append((expected, frame.sequence - 1))
                work.append(frame)
                expected = frame.sequence + 1
            pending = []
        tail = scan.bounded_tail(ends.get(scan.generation))
        if tail is not None:
            pending.append(tail)
    return _last_tries(work)


def _last_tries(work: list[FrameRef]) -> list[FrameRef]:
    """The journal writes a frame that found no space again with the same sequence, perhaps in another segment: of
    several frames with the same sequence the last frame counts.
    """
    last = {frame.sequence: index for index, frame in enumerate(work)}
    return [frame for index, frame in enumerate(work) if frame.sequence < 0 or last[frame.sequence] == index]


def unfinished(work: list[FrameRef]) -> FrameRef | None:
    """The last frame, if it is not whole: the journal writes a frame only when the frame before is synced."""
    last = max(work, key=lambda frame: frame.sequence, default=None)
    return last if last is not None and last.sequence >= 0 and not last.whole else None


@dataclass(frozen=True, slots=True)
class KnownLedgers:
    """The ledgers as the metadata list them."""

    ids: set[int]
    half_deleted: Collection[int]
    """Ledgers whose deletion was interrupted: their files may still exist."""
    properties: Callable[[int], Mapping[str, str]]
    """The properties of a ledger."""
    end: Callable[[int], tuple[int, int] | None]
    """(entries, length) of a closed ledger; None: it is open."""
    last_sequence: int
    """Number of the last change of the metadata."""


class Recovery:
    """A single recovery of a store."""

    def __init__(
        self,
        files: FileSystem,
        layout: Layout,
        store_id: bytes,
        ledger_files: LedgerFiles,
        metadata: KnownLedgers,
        clock: Clock,
        max_record_bytes: int,
    ) -> None:
        self._files, self._layout, self._store_id = files, layout, store_id
        self._ledger_files, self._metadata, self._clock = ledger_files, metadata, clock
        self._known = metadata.ids
        self._seen_ids = set[int]()
        """Ledgers with records in the journal."""
        self._strangers: list[str] = []
        self._max_record_bytes = max_record_bytes
        self._replays: dict[int, LedgerReplay] = {}
        self._proofs: dict[int, int] = {}
        self._lost: list[LostRecord] = []
        self._report = RecoveryReport()
        self._checkpoint = Checkpoint()
        self._checkpoint_intact = True

    def run(self) -> Recovered:
        """Recover the store. Raises OSError, UnsupportedFormatError; a repetition is safe after both. Raises
        MetadataDamagedError before any change.
        """
        started = self._clock.now_s()
        # An earlier process may have ended between making a name and syncing its folder (or given up on a full disk):
        # we see the name, a power loss would not leave it. Nothing may be built on it before it is durable.
        self._files.sync_dir(self._layout.journal)
        self._files.sync_dir(self._layout.ledgers)
        self._read_checkpoint()
        segments, scans = self._scan_segments()
        self._check_metadata(scans)
        work = journal_work(scans, self._checkpoint.next_sequence, self._report, from_first=not self._checkpoint_intact)
        last = max((frame.sequence for frame in work), default=self._checkpoint.next_sequence - 1)
        self._report.damaged_files += damaged_headers(scans, self._checkpoint.next_sequence, last)
        self._sync_last(work)
        torn = unfinished(work)
        for frame in work:
            if frame is not torn:
                self._replay_frame(frame)
        if torn is not None and self._was_confirmed(self._payload(torn)):
            self._replay_frame(torn)
            torn = None
        if torn is not None:
            self._note_torn(self._payload(torn))
        self._settle()
        if torn is not None:
            self._report.torn_frame = torn.sequence
            self._replay_torn(self._payload(torn))
        self._finish(scans, last + 1 if torn is None else last)
        self._set_aside_strangers()
        others = [*self._known, *self._metadata.half_deleted, *self._checkpoint.synced, *self._seen_ids]
        self._report.greatest_ledger_id = greatest_ledger_id(self._files, self._layout, others)
        self._report.duration_s = self._clock.now_s() - started
        next_segment_id = max((segment_id for segment_id, _ in segments), default=-1) + 1
        return Recovered(self._checkpoint, self._checkpoint_intact, next_segment_id, segments, self._report)

    def _check_metadata(self, scans: list[SegmentScan]) -> None:
        known = self._known.union(self._metadata.half_deleted)
        forgotten = forgotten_ledgers(self._files, self._layout, self._store_id, known)
        problems = metadata_lag(self._checkpoint, scans, self._metadata.last_sequence) + forgotten_problem(forgotten)
        if problems:
            raise MetadataDamagedError(self._layout.root, problems)

    def _read_checkpoint(self) -> None:
        try:
            self._checkpoint = read_checkpoint(self._files, self._layout)
            if self._checkpoint.damaged_copies:
                self._report.damaged_files.append(DamagedFileError(self._layout.checkpoint, 0, "one copy is damaged"))
        except (FileNotFoundError, DamagedFileError) as error:
            self._checkpoint_intact = False
            self._report.damaged_files.append(
                error
                if isinstance(error, DamagedFileError)
                else DamagedFileError(self._layout.checkpoint, 0, "missing")
            )

    def _scan_segments(self) -> tuple[list[tuple[int, int]], list[SegmentScan]]:
        """Sizes and frames of all segments."""
        paths: list[tuple[str, int]] = []
        sizes: dict[str, int] = {}
        for name in self._files.list_dir(self._layout.journal):
            segment_id = segment_id_of(name)
            path = posixpath.join(self._layout.journal, name)
            if segment_id is not None:
                paths.append((path, segment_id))
            elif path not in {self._layout.checkpoint, self._layout.checkpoint + ".new"}:
                self._strangers.append(path)

        def read(path: str) -> bytes:
            file = self._files.open_read_only(path)
            try:
                sizes[path] = file.size()
                return file.read(sizes[path], 0)
            finally:
                file.close()

        before = self._checkpoint
        bound = before.bound_salts if self._checkpoint_intact else None
        salts = BoundSalts(self._store_id)
        scans = scan_uses(paths, read, salts, before.next_sequence, before.free_generation, bound=bound)
        return [(segment_id, sizes[path]) for path, segment_id in paths], scans

    def _sync_last(self, work: list[FrameRef]) -> None:
        """The process may have ended between writing and syncing the last frame: a power loss must not take the bytes
        that this start reads. Else the next start finds entries of an unacknowledged frame in ledger files.
        """
        last = max(work, key=lambda frame: frame.sequence, default=None)
        if last is not None:
            file = self._files.open_read_only(self._layout.segment(last.segment_id))
            try:
                file.sync()
            finally:
                file.close()

    def _replay_frame(self, frame: FrameRef) -> None:
        payload = self._payload(frame)
        if frame.whole:
            self._report.frames += 1
            self._replay_whole(payload)
            return
        path = self._layout.segment(frame.segment_id)
        self._report.damaged_files.append(DamagedFileError(path, frame.offset, "damaged journal frame"))
        for record in salvage(payload, self._known, self._proof_of, exact=frame.exact):
            if isinstance(record, SalvagedRecord):
                self._replay_record(record, payload, doubtful=True)
            elif not record.is_birth and not self._repair(record, payload):
                self._lost.append(record)

    def _payload(self, frame: FrameRef) -> bytes:
        file = self._files.open_read_only(self._layout.segment(frame.segment_id))
        try:
            return file.read(frame.payload_bytes, frame.offset)
        finally:
            file.close()

    def _was_confirmed(self, payload: bytes) -> bool:
        """Whether the last frame, which is not whole, was acknowledged: a ledger has entries of it from the first
        damaged record on. An interrupted start writes only the entries before.
        """
        beyond: dict[int, int] = {}
        end, is_damaged = 0, False
        for record in salvage(payload, self._known, self._proof_of, exact=True):
            is_damaged = is_damaged or isinstance(record, LostRecord) or record.start != end
            end = record.end if isinstance(record, SalvagedRecord) else end
            if not 0 <= record.entry_id < BIRTH_ENTRY_ID or self._may_be_old(record.ledger_id, record.entry_id):
                continue
            replay = self._replay_of(record.ledger_id)
            if replay is None or record.entry_id < replay.next_entry:
                continue
            if is_damaged:
                beyond.setdefault(record.ledger_id, record.entry_id)
            else:
                beyond[record.ledger_id] = record.entry_id + 1
        return any(self._replays[ledger_id].has_from(entry_id) for ledger_id, entry_id in beyond.items())

    def _may_be_old(self, ledger_id: int, entry_id: int) -> bool:
        """Whether an earlier use of the segment may have left the record: the file had the entry at the checkpoint."""
        if ledger_id not in self._known:
            return True
        synced, end = self._checkpoint.synced.get(ledger_id), self._metadata.end(ledger_id)
        if synced is not None:
            return entry_id < synced[0]
        return end is not None and self._ledger_files.size(ledger_id) >= FILE_HEADER_BYTES + end[1]

    def _note_torn(self, payload: bytes) -> None:
        for record in salvage(payload, self._known, self._proof_of):
            if isinstance(record, LostRecord):
                return
            replay = self._replay_of(record.ledger_id) if record.entry_id >= 0 else None
            # A record that an earlier use of the segment left there is in the file, or in a whole frame.
            if replay is not None and replay.torn_from is None and record.entry_id >= replay.next_entry:
                replay.torn_from = record.entry_id

    def _replay_torn(self, payload: bytes) -> None:
        for record in salvage(payload, self._known, self._proof_of):
            if isinstance(record, LostRecord):
                return
            replay = self._replay_of(record.ledger_id)
            if replay is not None and record.entry_id > replay.next_entry:
                return  # never acknowledged: nothing is filled up for it
            self._replay_record(record, payload)

    def _replay_whole(self, payload: bytes) -> None:
        at = 0
        while at < len(payload):
            offsets, end, reason = scan_records(payload, at, len(payload), ANY_LEDGER)
            count = (len(offsets) >> 3) - 1
            if count == 0:
                raise AssertionError(f"frame with a right checksum holds a wrong record ({reason})")
            ledger_id = int.from_bytes(payload[at + 8 : at + 16], "little")
            first = int.from_bytes(payload[at + 16 : at + 24], "little")
            self._seen_ids.add(ledger_id)
            if first == BIRTH_ENTRY_ID:
                at = end
                continue
            replay = self._replay_of(ledger_id)
            if replay is not None:
                replay.add_run(first, count, payload, memoryview(offsets).cast("q"))
            else:
                self._report.unknown_records += count
            at = end

    def _replay_record(self, record: SalvagedRecord, payload: bytes, *, doubtful: bool = False) -> None:
        self._seen_ids.add(record.ledger_id)
        if record.entry_id < 0:
            return  # a birth record: the metadata say the same
        replay = self._replay_of(record.ledger_id)
        if replay is None:
            self._report.unknown_records += 1
        elif doubtful:
            replay.doubt(record.entry_id, payload[record.start : record.end])
        else:
            replay.add(record.entry_id, payload[record.start : record.end])

    def _replay_of(self, ledger_id: int) -> LedgerReplay | None:
        replay = self._replays.get(ledger_id)
        if replay is None and ledger_id in self._known:
            self._ledger_files.identify(ledger_id, self._metadata.properties(ledger_id))
            begin, end = self._checkpoint.synced.get(ledger_id), self._metadata.end(ledger_id)
            proof = self._proof_of(ledger_id)
            if begin is None and not self._checkpoint_intact:
                replay = LedgerReplay.from_file(self._ledger_files, ledger_id, self._max_record_bytes, end, proof)
            else:
                replay = LedgerReplay(self._ledger_files, ledger_id, begin or (0, 0), end, proof)
            self._replays[ledger_id] = replay
        return replay

    def _proof_of(self, ledger_id: int) -> int:
        """The number that every record of the ledger has, as the metadata say."""
        proof = self._proofs.get(ledger_id)
        if proof is None:
            known = ledger_id in self._known
            properties = self._metadata.properties(ledger_id) if known else None
            proof = self._proofs[ledger_id] = proof_of(self._store_id, ledger_id, properties) if known else NO_PROOF
        return proof

    def _repair(self, lost: LostRecord, payload: bytes) -> bool:
        """If only its ids are damaged, the record's own checksum tells which they were: the next entry of some
        ledger.
        """
        for ledger_id in [*self._replays, *self._checkpoint.synced]:
            replay = self._replay_of(ledger_id)
            for entry_id in () if replay is None else replay.may_follow():
                record = with_ids(payload, lost.start, ledger_id, entry_id, self._proof_of(ledger_id))
                if replay is not None and record is not None:
                    replay.doubt(entry_id, record)
                    return True
        return False

    def _settle(self) -> None:
        """Settle the ledgers that no whole frame names: ledgers of lost frames have entries in their files."""
        if self._report.damaged_files or self._report.missing_frames:
            for ledger_id in self._checkpoint.synced:
                self._replay_of(ledger_id)
        for each in self._replays.values():
            each.settle()
        self._replace_lost()

    def _replace_lost(self) -> None:
        """A lost record before intact records of its ledger shows as a gap. A lost record at the end of its ledger is
        known only by its own header, or by the record before it.
        """
        damaged = {position for replay in self._replays.values() for position in replay.damaged}
        for lost in self._lost:
            replay = self._replay_of(lost.ledger_id)
            if replay is not None and replay.may_end_with(lost.entry_id):
                replay.fill(lost.entry_id + 1)
            elif (lost.ledger_id, lost.entry_id) not in damaged and lost.after is not None:
                before = self._replay_of(lost.after.ledger_id)
                # A record from before the checkpoint was left there by an earlier use of the segment.
                if before is not None and before.first_entry <= lost.after.entry_id == before.next_entry - 1:
                    before.fill_one()

    def _finish(self, scans: list[SegmentScan], next_sequence: int) -> None:
        for replay in self._replays.values():
            replay.finish()
            self._report.entries += replay.replayed
            self._report.damaged_entries += replay.damaged
        changed = [replay for replay in self._replays.values() if replay.changed]
        for replay in changed:
            self._ledger_files.sync(replay.ledger_id)
        self._ledger_files.sync_names()
        newest = max((scan.generation for scan in scans), default=0)
        old = self._checkpoint
        if self._checkpoint_intact and not self._replays and newest <= old.free_generation and old.bound_salts:
            return
        synced = {ledger_id: at for ledger_id, at in old.synced.items() if ledger_id in self._known}
        for replay in changed:
            synced[replay.ledger_id] = (replay.next_entry, replay.offset - 64)
        generation = max(newest, old.free_generation)
        noted = self._metadata.last_sequence
        self._checkpoint = Checkpoint(old.number + 1, next_sequence, generation, synced, metadata_sequence=noted)
        write_checkpoint(self._files, self._layout, self._store_id, self._checkpoint, self._clock.now_ms())

    def _set_aside_strangers(self) -> None:
        for path in self._strangers:
            self._set_aside(path)
        for name in self._files.list_dir(self._layout.ledgers):
            ledger_id = ledger_id_of(name)
            if ledger_id is None or ledger_id not in self._known.union(self._metadata.half_deleted):
                self._set_aside(posixpath.join(self._layout.ledgers, name))

    def _set_aside(self, path: str) -> None:
        self._files.make_dir(self._layout.lost)
        name = posixpath.basename(path)
        target, number = posixpath.join(self._layout.lost, name), 0
        while self._files.exists(target):
            number += 1
            target = posixpath.join(self._layout.lost, f"{name}.{number}")
        self._files.rename(path, target)
        self._files.sync_dir(self._layout.lost)
        self._files.sync_dir(posixpath.dirname(path))
        self._report.set_aside.append(target)
