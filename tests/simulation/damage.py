"""A single damage of the disk in a history: a flipped bit, a write that the device loses, or makes at a wrong place.

Each must be harmless, or reported and limited to the damaged entries, which ``Damage`` finds by their bytes around the
damaged place. Damage that only a later frame distinguishes from a write that never happened is documented: so for some
seconds after the damage nothing else goes wrong, and then the process is killed. Where the process ends all the same
before it confirms the damaged frame, the entries of that frame from the damage on may be missing without a report.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from magnetar.storage import events
from magnetar.storage.embedded.journal.format import FRAME_HEADER_BYTES, PAGE_BYTES, parse_frame
from magnetar.storage.records import ANY_LEDGER, scan_records
from magnetar.storage.slab import RECORD_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from random import Random

    from magnetar.storage.embedded.journal.format import FrameHeader
    from tests.simulation.history import Sent, SubscriptionHistory, TopicHistory
    from tests.simulation.world import World
    from tests.twins.sim_files import SimDisk

ENTRY_METADATA = b"\x0e\x02"
KINDS = ("flipped_bit", "lost_write", "misdirected_write")
OF_JOURNAL = ("lost_header", "stray_page")
"""``lost_header``: the device loses the header page of a segment that is taken into use; ``stray_page``: it writes a
page of a frame into a ledger file, too.
"""
FLIPPED_HEADER = "flipped_header"
"""A flipped bit in the record header of an entry whose message contains records."""
DECAYED_FILE = "decayed_file"
"""A flipped bit in a file of any kind, while no process runs: ``decay.py``."""
FLIPS = ("flipped_bit", FLIPPED_HEADER, DECAYED_FILE)
QUIET_S = 5.0
CONFIRMED_S = 1.7
"""Seconds until another frame follows a damaged last frame."""
UNCONFIRMED_S = 2.5
"""Seconds. A process that ends sooner after its last frame, or sooner after a slow disk has continued, may leave that
frame unconfirmed; docs/durability.md.
"""
_AROUND_BYTES = 20_000
"""More than the largest entry."""
_HEAD_BYTES = 128
"""More than the bytes before an entry's own bytes: record header, entry metadata."""
REPORTS = frozenset(
    {
        events.DAMAGE_FOUND,
        events.ENTRY_LOST,
        events.ENTRY_DAMAGED,
        events.FRAMES_MISSING,
        events.CURSOR_STATE_DAMAGED,
        events.CURSOR_STATE_LOST,
        "entry.skipped",
        "compacted_entry.lost",
        "deduplication.entry_unreadable",
        "delayed_index.bucket_lost",
        "delayed_index.catalogue_damaged",
        "delayed_index.snapshot_lost",
    }
)
"""Events that tell of damage."""


@dataclass(frozen=True)
class DamagedFrame:
    """A frame of the journal as it was before the damage."""

    sequence: int
    written_ms: int
    payload: bytes
    begin: int
    """Offset of the damage in the payload; negative when the damage begins in the frame's header."""

    def entries(self, topic: TopicHistory) -> set[int]:
        """Identities of the entries from the damaged record on."""
        return {
            id(entry)
            for body, entry in topic.by_body.items()
            if (at := self.payload.rfind(body)) >= 0 and at + len(body) > self.begin
        }

    def ledgers(self) -> set[int]:
        """Ledgers with records in the frame."""
        found, at = set(), 0
        while at < len(self.payload):
            offsets, end, _ = scan_records(self.payload, at, len(self.payload), ANY_LEDGER)
            assert len(offsets) > 8
            found.add(int.from_bytes(self.payload[at + 8 : at + 16], "little"))
            at = end
        return found


@dataclass
class Damage:
    """One damage of the disk."""

    world: World
    chance: Random
    kind: str
    folder: str
    """The damage hits paths that contain this text."""
    done: bool = False
    reported: bool = False
    where: str = ""
    is_frame: bool = False
    """A write of the journal was lost, which may hold records of several cursors."""
    spots: list[tuple[bytes, int, int]] = field(default_factory=list)
    """(bytes as they should be, begin and end of the damage within them)."""
    set_back: set[str] = field(default_factory=set)
    """Subscriptions (with their topic) whose saved acknowledgements the damage has set back."""
    frames: list[DamagedFrame] = field(default_factory=list)
    """Damaged frames that no start has read yet."""
    unconfirmed: list[DamagedFrame] = field(default_factory=list)
    """Damaged last frames of a process that ended before it confirmed them."""

    # --- doing ------------------------------------------------------------------------------------------------------

    def happen(self) -> None:
        """Flip a bit that was written long ago; or wait for the next write, and damage that write."""
        disk = self.world.disk
        if self.kind == FLIPPED_HEADER:
            self._flip_header(disk)
            return
        if self.kind != "flipped_bit" or self.chance.random() < 0.6:
            disk.bad_writes = self
            return
        paths = [path for path in disk.paths() if self.folder in path] or disk.paths()
        used = [(path, len(disk.content(path).rstrip(b"\0"))) for path in paths if not path.endswith("/LOCK")]
        if not (filled := [(path, size) for path, size in used if size]):  # all files have only preallocated zeros
            disk.bad_writes = self
            return
        path, size = self.chance.choice(filled)
        self._flip(disk, path, self.chance.randrange(size))

    def _flip_header(self, disk: SimDisk) -> None:
        """Of the newest entry that is in the folder; later, if there is none yet."""
        for topic in self.world.history.topics.values():
            for entry in reversed(topic.receipts.values()):
                for path in disk.paths():
                    at = disk.content(path).rfind(entry.body) if self.folder in path else -1
                    if at >= 0 and entry.count:
                        header = disk.content(path).rfind(ENTRY_METADATA, 0, at) - RECORD_HEADER_BYTES
                        self._flip(disk, path, header + self.chance.randrange(RECORD_HEADER_BYTES))
                        return
        self.world.timers.after(0.1, self.happen)

    def _flip(self, disk: SimDisk, path: str, at: int) -> None:
        self._spot(path, disk.content(path), at, at + 1)
        disk.flip_bit(path, at * 8 + self.chance.randrange(8))
        self._happened(f"{path} byte {at}")

    def on_write(self, disk: SimDisk, path: str, data: bytes, offset: int) -> Callable[[], None]:
        """The device loses a whole write or, in half of the histories, a page of it; of metadata always a page, because
        their two copies are separate writes. A write at a wrong place is a page.
        """
        if self.done or self.folder not in path or not any(data) or self.chance.random() < 0.5:
            return lambda: None
        begin, end = offset, offset + len(data)
        if self.kind in OF_JOURNAL:
            return self._on_frame(disk, path, data, offset)
        loses_page = "/metadata/" in path or self.world.plan.seed % 2
        if self.kind == "misdirected_write" or (self.kind == "lost_write" and loses_page):
            begin = self.chance.randrange(offset, end) // PAGE_BYTES * PAGE_BYTES
            begin, end = max(begin, offset), min(begin + PAGE_BYTES, end)
        if self.kind == "flipped_bit":
            at = begin + self.chance.randrange(len(data.rstrip(b"\0")))
            return lambda: self._flip(disk, path, at)
        before = disk.content(path)[begin:end].ljust(end - begin, b"\0")
        self.is_frame = "/journal/" in path

        def lose() -> None:
            whole = disk.content(path)
            self._spot(path, whole, begin, end)
            disk.overwrite(path, begin, before)
            to = self._elsewhere(disk, path, begin, whole[begin:end]) if self.kind == "misdirected_write" else ""
            self._happened(f"{path} {begin}-{end}{to}")

        return lose

    def _on_frame(self, disk: SimDisk, path: str, data: bytes, offset: int) -> Callable[[], None]:
        """Lose a header or write a stray page. A lost header excuses no missing entry."""
        if self.kind == "lost_header":
            if offset or not any(data[PAGE_BYTES:]):
                return lambda: None
            before = disk.content(path)[:PAGE_BYTES]

            def lose() -> None:
                disk.overwrite(path, 0, before)
                self._happened(f"{path} header")

            return lose
        at = self.chance.randrange(0, len(data), PAGE_BYTES)
        page = data[at : at + PAGE_BYTES]

        def stray() -> None:
            self._happened(f"{path} {offset + at}{self._elsewhere(disk, path, offset + at, page, '/ledgers/')}")

        return stray

    def _elsewhere(self, disk: SimDisk, path: str, begin: int, page: bytes, folder: str = "") -> str:
        """Write the page at another place, at least four pages from its own: the second copy of a metadata page is near
        it.
        """
        places = [
            (other, at)
            for other in disk.paths()
            if folder in other and not other.endswith(("/LOCK", "/VERSION"))
            for at in range(0, len(disk.content(other)), PAGE_BYTES)
            if other != path or abs(at - begin) > 4 * PAGE_BYTES
        ]
        if not places:
            return ""
        other, at = self.chance.choice(places)
        whole = disk.content(other)
        page = page[: len(whole) - at]
        self._spot(other, whole, at, at + len(page))
        self.is_frame = self.is_frame or "/journal/" in other
        disk.overwrite(other, at, page)
        return f" to {other} {at}"

    def _spot(self, path: str, content: bytes, begin: int, end: int) -> None:
        first = max(0, begin - _AROUND_BYTES)
        self.spots.append((content[first : end + _AROUND_BYTES], begin - first, end - first))
        if path.endswith(".journal") and (frame := damaged_frame(content, begin, end)):
            self.frames.append(frame)

    def process_ended(self) -> None:
        """No process runs."""

    def start_failed(self, error: Exception) -> None:
        """A start has failed."""

    def process_begins(self) -> None:
        """Note the damaged frames that the previous process left unconfirmed: a start recovers its journal now."""
        frames, self.frames = self.frames, []
        contents = [self.world.disk.content(path) for path in self.world.disk.paths() if path.endswith(".journal")]
        newest = max((frame.sequence for content in contents for frame in frames_of(content)), default=-1)
        for frame in frames:
            since_s = max(self.world.clock.when(frame.written_ms), self.world.held_until_s)
            alone_s = self.world.ended_s - since_s
            if frame.sequence >= newest and alone_s <= UNCONFIRMED_S:
                self.unconfirmed.append(frame)
                self._known.clear()

    def _happened(self, where: str) -> None:
        self.done, self.where = True, where
        self.world.disk.bad_writes = None
        self.world.note(f"{self.kind} {where}")
        if self.world.broker is None:
            self.process_begins()  # a starting broker is about to read, or has read
        self.world.faults.keep_quiet(QUIET_S)
        if not self.world.faults.stopped:
            self.world.timers.after(self.chance.uniform(CONFIRMED_S, QUIET_S), lambda: self.world.end_life("crash"))

    # --- effects that it excuses ------------------------------------------------------------------------------------

    def look_for_reports(self, logs: Iterable[Any]) -> None:
        self.reported = self.reported or (self.done and any(entry["event"] in REPORTS for entry in logs))

    def told(self) -> bool:
        """Whether the broker has reported the damage."""
        self.look_for_reports(self.world.logs)
        return self.reported

    def costs(self) -> bool:
        """Whether entries may be missing."""
        return self.told() or bool(self.unconfirmed)

    def hit(self, topic: TopicHistory, entry: Sent) -> bool:
        """Whether the damage lies on this entry's bytes, and was reported: then the entry may be missing. One bit costs
        one entry.
        """
        if self._is_unconfirmed(topic, entry):
            return True
        if not self.lies_on(topic, entry):
            return False
        self._lost.add(id(entry))
        return len(self._lost) == 1 or self.kind not in FLIPS

    def lies_on(self, topic: TopicHistory, entry: Sent) -> bool:
        """Like ``hit``, for an entry that may be missing for another reason: the entry does not count as lost."""
        return self._is_unconfirmed(topic, entry) or (self.told() and id(entry) in self._hits(topic))

    def _is_unconfirmed(self, topic: TopicHistory, entry: Sent) -> bool:
        return any(id(entry) in frame.entries(topic) for frame in self.unconfirmed)

    def _hits(self, topic: TopicHistory) -> set[int]:
        known = self._known.get(topic.name)
        if known is None:
            known = self._known[topic.name] = {
                id(entry) for body, entry in topic.by_body.items() if any(_overlaps(spot, body) for spot in self.spots)
            }
        return known

    def hides_newest(self, topic: TopicHistory, entry: Sent) -> bool:
        """Whether a reader of the compacted topic may miss the entry."""
        return False

    def lost_keys(self, topic: TopicHistory) -> int:
        """The most keys whose newest value a reader of the compacted topic may miss besides."""
        return 0

    _known: dict[str, set[int]] = field(default_factory=dict)
    _lost: set[int] = field(default_factory=set)

    def may_set_back(self, topic: TopicHistory, subscription: SubscriptionHistory) -> bool:
        """Whether saved acknowledgements of this subscription may be lost: one subscription for each damaged place,
        several when a frame of the journal was lost.
        """
        if not self.costs():
            return False
        self.set_back.add(f"{topic.name} {subscription.name}")
        of_frames = sum(len(frame.ledgers()) for frame in self.unconfirmed)
        if not self.told():
            return len(self.set_back) <= of_frames
        return len(self.set_back) <= len(self.spots) + of_frames or self.is_frame


def frames_of(content: bytes) -> Iterator[FrameHeader]:
    """All intact frame headers of a segment, of any use."""
    for at in range(PAGE_BYTES, len(content), PAGE_BYTES):
        if (header := parse_frame(content, at)) is not None:
            yield header


def damaged_frame(content: bytes, begin: int, end: int) -> DamagedFrame | None:
    """The frame that contains these bytes of a segment; None: no frame contains them."""
    for at in range((end - 1) // PAGE_BYTES * PAGE_BYTES, 0, -PAGE_BYTES):
        header = parse_frame(content, at)
        if header is not None:
            payload = at + FRAME_HEADER_BYTES
            if payload + header.payload_bytes <= begin:
                return None
            whole = content[payload : payload + header.payload_bytes]
            return DamagedFrame(header.sequence, header.written_ms, whole, begin - payload)
    return None


def _overlaps(spot: tuple[bytes, int, int], body: bytes) -> bool:
    window, begin, end = spot
    at = window.find(body)
    while at >= 0:
        if at - _HEAD_BYTES < end and begin < at + len(body):
            return True
        at = window.find(body, at + 1)
    return False
