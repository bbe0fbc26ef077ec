"""Replays the frames of the journal into ledger files, and decides whether the last frame was acknowledged.

A start writes the files; ``magnetar verify`` gives a view of the files that drops all writes, and uses only the
decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES
from magnetar.storage.embedded.journal.salvage import LostRecord, SalvagedRecord, salvage
from magnetar.storage.embedded.ledger_head import BIRTH_ENTRY_ID, NO_PROOF, proof_of
from magnetar.storage.embedded.recovery.replay import LedgerReplay
from magnetar.storage.errors import DamagedFileError
from magnetar.storage.records import ANY_LEDGER, scan_records, with_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from magnetar.storage.embedded.checkpoint_file import Checkpoint
    from magnetar.storage.embedded.files import FileSystem
    from magnetar.storage.embedded.journal.scan import FrameRef
    from magnetar.storage.embedded.layout import Layout
    from magnetar.storage.embedded.recovery.recovery_report import RecoveryReport
    from magnetar.storage.embedded.recovery.replay import ReplayedFiles

__all__ = ["FrameReplay", "KnownLedgers", "unfinished"]


@dataclass(frozen=True, slots=True)
class KnownLedgers:
    """The ledgers as the metadata list them."""

    ids: set[int]
    half_deleted: Collection[int]
    """Ledgers whose deletion was interrupted: their files may still exist."""
    properties: Callable[[int], Mapping[str, str]]
    """The properties of a ledger."""
    end: Callable[[int], tuple[int, int] | None]
    """(entries, length in bytes) of a closed ledger; None: the ledger is open."""
    last_sequence: int
    """Sequence of the last change of the metadata."""


class FrameReplay:
    """The replay of one journal: frame by frame, the last frame behind all others."""

    def __init__(
        self,
        files: FileSystem,
        layout: Layout,
        store_id: bytes,
        ledger_files: ReplayedFiles,
        metadata: KnownLedgers,
        checkpoint: Checkpoint,
        report: RecoveryReport,
        *,
        checkpoint_intact: bool,
        max_record_bytes: int,
    ) -> None:
        self._files, self._layout, self._store_id = files, layout, store_id
        self._ledger_files, self._metadata, self._checkpoint = ledger_files, metadata, checkpoint
        self._known = metadata.ids
        self._report = report
        self._checkpoint_intact, self._max_record_bytes = checkpoint_intact, max_record_bytes
        self.seen_ids = set[int]()
        """Ledgers with records in the journal."""
        self.replays: dict[int, LedgerReplay] = {}
        self._proofs: dict[int, int] = {}
        self._lost: list[LostRecord] = []

    def run(self, work: list[FrameRef]) -> FrameRef | None:
        """Replay all frames; returns the last frame if it is torn, else None. Ledger files are complete only after the
        caller calls ``finish`` of each replay. Raises OSError.
        """
        torn = self.torn_frame(work)
        if torn is not None:
            self._note_torn(torn)
        self._settle()
        if torn is not None:
            self._report.torn_frame = torn.sequence
            self._replay_torn(torn)
        return torn

    def torn_frame(self, work: list[FrameRef]) -> FrameRef | None:
        """Replay the acknowledged frames; returns the last frame if it was never acknowledged, else None."""
        torn = unfinished(work)
        for frame in work:
            if frame is not torn:
                self._replay_frame(frame)
        if torn is None or not self._was_confirmed(torn):
            return torn
        self._replay_frame(torn)
        return None

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

    def _was_confirmed(self, frame: FrameRef) -> bool:
        """Whether the last frame, which is not whole, was acknowledged. The frame was acknowledged when a ledger has
        entries of the frame from the first damaged record on, because an interrupted start writes only the entries
        before that record.
        """
        beyond: dict[int, int] = {}
        end, is_damaged = 0, False
        for record in salvage(self._payload(frame), self._known, self._proof_of, exact=True):
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
        return any(self.replays[ledger_id].has_from(entry_id) for ledger_id, entry_id in beyond.items())

    def _may_be_old(self, ledger_id: int, entry_id: int) -> bool:
        """Whether an earlier use of the segment may have left the record: the file had the entry at the checkpoint."""
        if ledger_id not in self._known:
            return True
        synced, end = self._checkpoint.synced.get(ledger_id), self._metadata.end(ledger_id)
        if synced is not None:
            return entry_id < synced[0]
        return end is not None and self._ledger_files.size(ledger_id) >= FILE_HEADER_BYTES + end[1]

    def _note_torn(self, frame: FrameRef) -> None:
        for record in salvage(self._payload(frame), self._known, self._proof_of):
            if isinstance(record, LostRecord):
                return
            replay = self._replay_of(record.ledger_id) if record.entry_id >= 0 else None
            # Entries before ``next_entry`` come from the file or a whole frame: an earlier use of the segment left this
            # record.
            if replay is not None and replay.torn_from is None and record.entry_id >= replay.next_entry:
                replay.torn_from = record.entry_id

    def _replay_torn(self, frame: FrameRef) -> None:
        payload = self._payload(frame)
        for record in salvage(payload, self._known, self._proof_of):
            if isinstance(record, LostRecord):
                return
            replay = self._replay_of(record.ledger_id)
            if replay is not None and record.entry_id > replay.next_entry:
                return  # never acknowledged, so the replay makes no placeholders before the record
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
            self.seen_ids.add(ledger_id)
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
        self.seen_ids.add(record.ledger_id)
        if record.entry_id < 0:
            return  # a birth record: the metadata hold the same properties
        replay = self._replay_of(record.ledger_id)
        if replay is None:
            self._report.unknown_records += 1
        elif doubtful:
            replay.doubt(record.entry_id, payload[record.start : record.end])
        else:
            replay.add(record.entry_id, payload[record.start : record.end])

    def _replay_of(self, ledger_id: int) -> LedgerReplay | None:
        replay = self.replays.get(ledger_id)
        if replay is None and ledger_id in self._known:
            self._ledger_files.identify(ledger_id, self._metadata.properties(ledger_id))
            begin, end = self._checkpoint.synced.get(ledger_id), self._metadata.end(ledger_id)
            proof = self._proof_of(ledger_id)
            if begin is None and not self._checkpoint_intact:
                replay = LedgerReplay.from_file(self._ledger_files, ledger_id, self._max_record_bytes, end, proof)
            else:
                replay = LedgerReplay(self._ledger_files, ledger_id, begin or (0, 0), end, proof)
            self.replays[ledger_id] = replay
        return replay

    def _proof_of(self, ledger_id: int) -> int:
        """The number that every record of the ledger has, from the ledger's properties in the metadata."""
        proof = self._proofs.get(ledger_id)
        if proof is None:
            known = ledger_id in self._known
            properties = self._metadata.properties(ledger_id) if known else None
            proof = self._proofs[ledger_id] = proof_of(self._store_id, ledger_id, properties) if known else NO_PROOF
        return proof

    def _repair(self, lost: LostRecord, payload: bytes) -> bool:
        """Replay a record of which only the ids are damaged, and return True; False for other damage.

        The record's checksum shows which ids are right. The method tries the entries that may follow in each ledger.
        """
        for ledger_id in [*self.replays, *self._checkpoint.synced]:
            replay = self._replay_of(ledger_id)
            for entry_id in () if replay is None else replay.may_follow():
                record = with_ids(payload, lost.start, ledger_id, entry_id, self._proof_of(ledger_id))
                if replay is not None and record is not None:
                    replay.doubt(entry_id, record)
                    return True
        return False

    def _settle(self) -> None:
        """Settle every ledger of the replay. After damage, also settle the ledgers of the checkpoint that no whole
        frame names, because ledgers of lost frames may have entries in their files.
        """
        if self._report.damaged_files or self._report.missing_frames:
            for ledger_id in self._checkpoint.synced:
                self._replay_of(ledger_id)
        for each in self.replays.values():
            each.settle()
        self._replace_lost()

    def _replace_lost(self) -> None:
        """Fill in lost records at the end of their ledgers. Only the header of such a record, or the record before it
        in the frame, shows the loss; a lost record before intact records of its ledger shows as a gap.
        """
        damaged = {position for replay in self.replays.values() for position in replay.damaged}
        for lost in self._lost:
            replay = self._replay_of(lost.ledger_id)
            if replay is not None and replay.may_end_with(lost.entry_id):
                replay.fill(lost.entry_id + 1)
            elif (lost.ledger_id, lost.entry_id) not in damaged and lost.after is not None:
                before = self._replay_of(lost.after.ledger_id)
                # An earlier use of the segment left a record whose entry is from before the checkpoint.
                if before is not None and before.first_entry <= lost.after.entry_id == before.next_entry - 1:
                    before.fill_one()


def unfinished(work: list[FrameRef]) -> FrameRef | None:
    """The last frame if it is not whole, else None. Only the last frame may be torn, because the journal writes a frame
    only after the sync of the frame before.
    """
    last = max(work, key=lambda frame: frame.sequence, default=None)
    return last if last is not None and last.sequence >= 0 and not last.whole else None
