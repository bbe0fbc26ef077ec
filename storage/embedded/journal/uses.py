"""Finds the use of a segment that its frames belong to, when the device lost the segment's header. Pure.

A segment's header and its first frame go out in one write. A device that loses this write leaves the header of an
earlier use, or no header, before the frames of the last use. The salt of a use is therefore bound to store, segment and
generation by the store id, which clients do not have: a frame with such a salt belongs to this store, whatever bytes
clients send, and the greatest generation among the frames of a segment is the generation of its last use.

Salts of stores of earlier versions are random only. A checkpoint records whether the salts of all later segments are
bound (``Checkpoint``); when they are not, a frame without a header counts only for a generation that no segment has.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import TYPE_CHECKING

from magnetar.storage.embedded.journal.scan import scan_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from magnetar.storage.embedded.journal.scan import SegmentScan
    from magnetar.storage.errors import DamagedFileError

__all__ = ["NONCE_BYTES", "BoundSalts", "damaged_headers", "lost_generations", "scan_uses"]

NONCE_BYTES = 3
_PROOF_BYTES = 5
_USE = struct.Struct("<QQ")


class BoundSalts:
    """Salts of the segments of one store."""

    def __init__(self, store_id: bytes) -> None:
        self._store_id = store_id

    def make(self, segment_id: int, generation: int, nonce: bytes) -> int:
        """The salt of a use. ``nonce``: random bytes, of which the first ``NONCE_BYTES`` count. They make salts differ
        when the store uses a generation twice, because the first write of a use was torn.
        """
        nonce = nonce[:NONCE_BYTES]
        return int.from_bytes(nonce + self._proof(segment_id, generation, nonce), "little")

    def is_bound(self, segment_id: int, generation: int, salt: int) -> bool:
        """Whether this store made the salt for that use."""
        found = salt.to_bytes(NONCE_BYTES + _PROOF_BYTES, "little")
        nonce = found[:NONCE_BYTES]
        return found[NONCE_BYTES:] == self._proof(segment_id, generation, nonce)

    def _proof(self, segment_id: int, generation: int, nonce: bytes) -> bytes:
        use = _USE.pack(segment_id, generation) + nonce
        return blake2b(use, key=self._store_id, digest_size=_PROOF_BYTES, person=b"segment use").digest()


def scan_uses(
    segments: Collection[tuple[str, int]],
    read: Callable[[str], bytes],
    salts: BoundSalts,
    next_sequence: int,
    free_generation: int,
    *,
    bound: bool | None,
) -> list[SegmentScan]:
    """Return the last use of each segment (path, segment id). ``read`` returns a whole segment, because a frame of any
    size may follow a lost header.

    ``bound``: whether all salts are bound; None: unknown, the checkpoint is lost. Raises UnsupportedFormatError.
    """
    if bound is None:
        scans = [scan_segment(path, segment_id, read(path), free_generation) for path, segment_id in segments]
        bound = any(scan.header_salt and _has_bound_header(scan, salts) for scan in scans)
    if bound:
        return [
            scan_segment(path, segment_id, read(path), free_generation, is_bound=salts.is_bound)
            for path, segment_id in segments
        ]
    scans = [scan_segment(path, segment_id, read(path), free_generation) for path, segment_id in segments]
    lost = lost_generations(scans, next_sequence, free_generation)
    for index, (path, segment_id) in enumerate(segments):
        if not _is_needed(scans[index], next_sequence):
            found = scan_segment(path, segment_id, read(path), free_generation, lost)
            if _is_needed(found, next_sequence):
                scans[index] = found
    return scans


def lost_generations(scans: list[SegmentScan], next_sequence: int, free_generation: int) -> set[int]:
    """Generations that no segment with frames has, from the generation before the first needed generation to the
    generation after the newest generation, above ``free_generation``.
    """
    used = {scan.generation for scan in scans if scan.frames}
    needed = [scan.generation for scan in scans if _is_needed(scan, next_sequence)]
    newest = max(used, default=free_generation)
    first = min(needed, default=newest + 1) - 1
    return set(range(max(first, free_generation + 1), newest + 2)) - used


def damaged_headers(scans: list[SegmentScan], next_sequence: int, last: int) -> list[DamagedFileError]:
    """The damage of segment headers that had been synced. A header goes out in one write with its first frame, so the
    header was synced when the segment has a whole frame before ``last``, the newest frame of the journal; otherwise the
    write of the header may have been torn. Frames before ``next_sequence`` are of an earlier use.
    """
    return [
        scan.damage
        for scan in scans
        if scan.damage is not None
        and any(frame.whole and next_sequence <= frame.sequence < last for frame in scan.frames)
    ]


def _is_needed(scan: SegmentScan, next_sequence: int) -> bool:
    return any(frame.sequence >= next_sequence for frame in scan.frames)


def _has_bound_header(scan: SegmentScan, salts: BoundSalts) -> bool:
    return salts.is_bound(scan.segment_id, scan.header_generation, scan.header_salt)
