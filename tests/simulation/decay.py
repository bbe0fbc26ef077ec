"""A bit of one file flips while no process runs, so that the next start and its clients read the damaged file.

Each kind of file is hit as often as any other: the file of the version, segments of the journal, the checkpoint, logs and
snapshots of the metadata, and the ledgers of each component (messages, cursors, buckets of delayed messages). The promises
are those of ``damage.py``, and two more: a broker reports only damage that ``magnetar verify`` has named before the
start, with its file; a start that fails names the file, which an operator then restores. In some histories an operator
repairs the directory before the start, which costs no more.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Any

from magnetar.broker.rebuilding import rebuild_records
from magnetar.storage.embedded.verify.command import verify_store
from tests.simulation.damage import DECAYED_FILE, Damage
from tests.simulation.history import ViolationError
from tests.simulation.plan import FIRST_WITH_REPAIRS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.history import Sent, TopicHistory
    from tests.twins.sim_files import SimDisk

_COMPONENT = re.compile(rb'"component": ?"([^"]+)"')
_HEAD_BYTES = 1024
_AGAIN_S = 0.2
COMPACTED_LEDGER = "ledger of compacted-ledger"
COMPACTED_ENTRY_LOST = "compacted_entry.lost"


def kind_of(disk: SimDisk, path: str) -> str:
    """The kind of a file: its suffix or name; of a ledger the component that has written the ledger."""
    name = posixpath.basename(path)
    if not name.endswith(".ledger"):
        return name.rpartition(".")[2]
    found = _COMPONENT.search(disk.content(path)[:_HEAD_BYTES])
    return "ledger of " + (found[1].decode() if found else "messages")


class Decay(Damage):
    """``happen`` ends a process; its end damages a file."""

    _waits = False
    named = False
    """Whether ``verify`` finds the damage, and names its file."""
    _path, _bit = "", 0
    _is_compacted = False
    _lost_of: frozenset[str] = frozenset()
    """The topics of which a compaction left a damaged entry out."""

    def happen(self) -> None:
        self._waits = True
        self._end_process()

    def _end_process(self) -> None:
        if self.done or self.world.faults.stopped:  # then no process ends any more, or the present end damages a file
            return
        if self.world.broker is None:
            self.world.timers.after(_AGAIN_S, self._end_process)
        else:
            self.world.end_life(self.chance.choice(["crash", "restart"]))

    def process_ended(self) -> None:
        if not self._waits or self.done:
            return
        disk = self.world.disk
        kinds: dict[str, list[str]] = {}
        for path in disk.paths():
            if not path.endswith("/LOCK") and disk.content(path).rstrip(b"\0"):
                kinds.setdefault(kind_of(disk, path), []).append(path)
        kind = self.chance.choice(sorted(kinds))
        path = self.chance.choice(sorted(kinds[kind]))
        at = self.chance.randrange(len(disk.content(path).rstrip(b"\0")))
        self._path, self._bit = path, at * 8 + self.chance.randrange(8)
        self._spot(path, disk.content(path), at, at + 1)
        disk.flip_bit(path, self._bit)
        self._happened(f"{kind}: {path} byte {at}")
        self._is_compacted = kind == COMPACTED_LEDGER
        self._verify(disk.copy())
        if self.world.plan.seed >= FIRST_WITH_REPAIRS and self.chance.random() < 0.6:
            self._repair(disk)

    def _repair(self, disk: SimDisk) -> None:
        disk.crash_at = -1
        parts = [name for name in ("index", "torn-tail", "metadata") if self.chance.random() < 0.8]
        report = verify_store("/data", files=disk, clock=self.world.clock, repair=parts, rebuild=rebuild_records)
        self.world.note(f"repairs {parts}: {report.repaired}")
        self.reported = self.reported or self.named  # the broker need not find damage that the repair has removed

    def hides_newest(self, topic: TopicHistory, entry: Sent) -> bool:
        return self.done and self.lies_on(topic, entry)

    def lost_keys(self, topic: TopicHistory) -> int:
        """An entry of a compacted ledger has one key here. A compaction leaves the entry out, and reports the loss, where
        the log may have dropped the original.
        """
        self.look_for_reports(self.world.logs)
        return int(self._is_compacted and topic.name in self._lost_of)

    def _verify(self, disk: SimDisk) -> None:
        disk.crash_at = -1
        findings = verify_store("/data", files=disk, clock=self.world.clock).findings
        name = posixpath.basename(self._path)
        self.named = any(name == posixpath.basename(finding.file) for finding in findings)
        self.world.note(f"verify finds {[(finding.severity, finding.kind) for finding in findings]}")

    def look_for_reports(self, logs: Iterable[Any]) -> None:
        before = self.reported
        super().look_for_reports(logs)
        self._lost_of |= {entry["topic"] for entry in logs if entry["event"] == COMPACTED_ENTRY_LOST}
        if self.reported and not before and not self.named:
            raise ViolationError(f"the broker reports damage that verify does not find: {self.where}")

    def start_failed(self, error: Exception) -> None:
        """An operator restores the file that the error names."""
        name = posixpath.basename(self._path)
        if not self.done or self.restored or name not in str(error):
            return
        if not self.named:
            raise ViolationError(f"a start fails at damage that verify does not find: {error}")
        self.restored = True
        self.world.disk.flip_bit(self._path, self._bit)
        self.world.note(f"restores {name}")

    restored = False


__all__ = ["DECAYED_FILE", "Decay", "kind_of"]
