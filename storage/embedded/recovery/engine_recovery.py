"""Brings the ledger files at a start to the state that the journal records. A start may be interrupted anywhere and
repeated.

1. The checkpoint names the first frame of the journal that recovery needs.
2. Recovery scans every segment and puts the frames in order.
3. Recovery replays the records of whole frames. A frame that is not whole and precedes another frame is damaged: its
   intact records count when neither a whole frame nor the ledger file has the entry; its other records are lost and
   reported. The last frame may be torn (never acknowledged): its records count up to the first damaged record. If a
   ledger has entries of that frame from this record on, the frame was acknowledged, and counts as damaged.
4. Recovery syncs the changed ledger files; a new checkpoint marks the journal as empty.

Recovery removes no file; it moves unknown files to ``lost+found``. When the metadata do not list a ledger of this store
whose file holds entries, recovery raises MetadataDamagedError before any change.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.storage.embedded.checkpoint_file import Checkpoint, read_checkpoint, write_checkpoint
from magnetar.storage.embedded.journal.uses import BoundSalts, damaged_headers, scan_uses
from magnetar.storage.embedded.layout import ledger_id_of, segment_id_of
from magnetar.storage.embedded.recovery.frame_replay import FrameReplay
from magnetar.storage.embedded.recovery.metadata_check import (
    forgotten_ledgers,
    forgotten_problem,
    greatest_ledger_id,
    metadata_lag,
)
from magnetar.storage.embedded.recovery.recovery_report import RecoveryReport
from magnetar.storage.errors import DamagedFileError, MetadataDamagedError

if TYPE_CHECKING:
    from magnetar.storage.embedded.files import FileSystem
    from magnetar.storage.embedded.journal.scan import FrameRef, SegmentScan
    from magnetar.storage.embedded.layout import Layout
    from magnetar.storage.embedded.ledger_files import LedgerFiles
    from magnetar.storage.embedded.recovery.frame_replay import KnownLedgers
    from magnetar.storage.interfaces import Clock

__all__ = ["Recovered", "Recovery", "journal_work"]


@dataclass(slots=True)
class Recovered:
    """The state from which the engine starts."""

    checkpoint: Checkpoint
    checkpoint_intact: bool
    """False: the checkpoint was lost, so an unsealed ledger may hold entries that no checkpoint names."""
    next_segment_id: int
    segments: list[tuple[int, int]]
    """(segment id, bytes) of all segments; all are free."""
    report: RecoveryReport


def journal_work(
    scans: list[SegmentScan], next_sequence: int, report: RecoveryReport, *, from_first: bool = False
) -> list[FrameRef]:
    """Return the frames and damaged regions to replay, in order; add missing frames to the report. The result has
    regions without a sequence only where frames are missing.

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
    """Keep the last of several frames with the same sequence: after lack of space the journal writes the next frame
    with the sequence of the failed frame, perhaps in another segment.
    """
    last = {frame.sequence: index for index, frame in enumerate(work)}
    return [frame for index, frame in enumerate(work) if frame.sequence < 0 or last[frame.sequence] == index]


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
        self._strangers: list[str] = []
        self._max_record_bytes = max_record_bytes
        self._report = RecoveryReport()
        self._checkpoint = Checkpoint()
        self._checkpoint_intact = True

    def run(self) -> Recovered:
        """Recover the store. Raises OSError and UnsupportedFormatError, after which a new recovery is safe, and
        MetadataDamagedError before any change.
        """
        started = self._clock.now_s()
        # An earlier process may have ended between making a name and syncing its folder (or stopped on a full disk).
        # This process sees the name, but a power loss would remove the name, so recovery first makes it durable.
        self._files.sync_dir(self._layout.journal)
        self._files.sync_dir(self._layout.ledgers)
        self._read_checkpoint()
        segments, scans = self._scan_segments()
        self._check_metadata(scans)
        work = journal_work(scans, self._checkpoint.next_sequence, self._report, from_first=not self._checkpoint_intact)
        last = max((frame.sequence for frame in work), default=self._checkpoint.next_sequence - 1)
        self._report.damaged_files += damaged_headers(scans, self._checkpoint.next_sequence, last)
        self._sync_last(work)
        frames = FrameReplay(
            self._files,
            self._layout,
            self._store_id,
            self._ledger_files,
            self._metadata,
            self._checkpoint,
            self._report,
            checkpoint_intact=self._checkpoint_intact,
            max_record_bytes=self._max_record_bytes,
        )
        torn = frames.run(work)
        self._finish(frames, scans, last + 1 if torn is None else last)
        self._set_aside_strangers()
        others = [*self._known, *self._metadata.half_deleted, *self._checkpoint.synced, *frames.seen_ids]
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
        """Sync the segment of the last frame, because the process before may have ended between writing and syncing
        that frame. Otherwise a power loss may remove bytes that this start reads, and the next start finds entries of
        an unacknowledged frame in ledger files.
        """
        last = max(work, key=lambda frame: frame.sequence, default=None)
        if last is not None:
            file = self._files.open_read_only(self._layout.segment(last.segment_id))
            try:
                file.sync()
            finally:
                file.close()

    def _finish(self, frames: FrameReplay, scans: list[SegmentScan], next_sequence: int) -> None:
        for replay in frames.replays.values():
            replay.finish()
            self._report.entries += replay.replayed
            self._report.damaged_entries += replay.damaged
        changed = [replay for replay in frames.replays.values() if replay.changed]
        for replay in changed:
            self._ledger_files.sync(replay.ledger_id)
        self._ledger_files.sync_names()
        newest = max((scan.generation for scan in scans), default=0)
        old = self._checkpoint
        if self._checkpoint_intact and not frames.replays and newest <= old.free_generation and old.bound_salts:
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
        known = self._known.union(self._metadata.half_deleted)
        for name in self._files.list_dir(self._layout.ledgers):
            ledger_id = ledger_id_of(name)
            if ledger_id is None or ledger_id not in known:
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
