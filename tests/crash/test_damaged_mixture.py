"""Damage of a directory with all kinds of entries at once: batches, chunks, delayed messages, compacted topics, cursors
with parts of batches, sequence ids of producers.

A history of the simulation makes the directory, and rests until its last frame is confirmed. Then either a power loss
takes all bytes of ledger files, so that the journal alone has the entries, or the process is killed and all bytes are
there. In each directory a bit flips, or a sector is lost or replaced. A flipped bit costs at most its entry; each loss is
reported by the start and by ``verify``; no reader gets other bytes; the metadata lose nothing; a broker takes no entry
for acknowledged that no consumer acknowledged.

``make test`` damages a seeded sample of places, ``MAGNETAR_CRASH_LONG=1`` 1,500 in each directory, ``MAGNETAR_MIXED_FLIPS``
as many as it says.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import random
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
import structlog.testing

from magnetar.broker import broker as broker_module
from magnetar.broker.broker import Broker
from magnetar.broker.errors import BrokerError
from magnetar.broker.settings import Settings
from magnetar.protocol import _pure_records
from magnetar.protocol.topic_name import TopicName
from magnetar.storage import records
from magnetar.storage.embedded import engine
from magnetar.storage.embedded.engine import EngineEnvironment
from magnetar.storage.embedded.ledger_store import EmbeddedLedgerStore
from magnetar.storage.embedded.recovery.recovery_report import RecoveryReport
from magnetar.storage.embedded.verify.command import verify_store
from magnetar.storage.embedded.verify.ledgers import LedgerVerifier
from magnetar.storage.errors import CorruptEntryError, StorageError
from magnetar.storage.managed.cursors.ack_state import AckState
from magnetar.storage.position import Position
from tests.simulation import planted
from tests.simulation import world as simulation
from tests.simulation.plan import COMPACTING, SMALL, SMALL_BUCKETS, Plan
from tests.simulation.threads import SimThreads
from tests.simulation.timers import SimLoop, Timers, WallClock
from tests.storage.engine_for_tests import ROOT, World, run_until_crash

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.twins.sim_files import SimDisk

DEDUPLICATION_CURSOR = "pulsar.dedup"
PLACES = int(os.environ.get("MAGNETAR_MIXED_FLIPS", "1500" if os.environ.get("MAGNETAR_CRASH_LONG") else "20"))
MOST_PLACES = 400
BROKER_EVERY = 6
"""A whole broker starts on each directory of this number."""
RESTS_S = 12.0
"""Behind the last message; the next clients come after 20 s."""
JOURNAL_ALONE = dataclasses.replace(
    SMALL,
    journal_segment_bytes=4 << 20,
    journal_first_segment_bytes=4 << 20,
    checkpoint_bytes=1 << 30,
    checkpoint_interval_s=1_000_000,
)
PLAN = dataclasses.replace(
    Plan.of(12),
    seconds=6.0,
    keeps_all=True,
    deduplicates=True,
    pace_s=0.0001,
    latency_s=0.0005,
    delayed_share=0.3,
    producers=2,
    consumers=3,
    readers=0,
    compacted=True,
    parts=("chunks", "portions"),
    faults=(),
    damage="",
    forges=False,
    settings={
        **Plan.of(12).settings,
        **COMPACTING,
        **SMALL_BUCKETS,
        "acknowledgment_at_batch_index_level_enabled": True,
        "auto_skip_non_recoverable_data": True,
        "broker_deduplication_enabled": True,
        "default_retention_size_in_mb": -1,
        "default_retention_time_in_minutes": -1,
        "managed_ledger_max_entries_per_ledger": 10,
    },
)


@dataclasses.dataclass
class Content:
    """The entries and nodes that an engine reads on a directory."""

    ledgers: dict[int, list[bytes | None]]
    """None for an unreadable entry."""
    nodes: dict[str, bytes]
    noticed: bool
    """Whether the start or a read reported damage."""


@dataclasses.dataclass
class Loaded:
    """The topics that a broker loads on a directory."""

    acked: dict[tuple[str, str], set[Position]] = dataclasses.field(default_factory=dict)
    """The acknowledged entries by topic and cursor."""
    last_ids: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    """Topic -> the last sequence id of each producer."""
    errors: list[str] = dataclasses.field(default_factory=list)
    """The unexpected errors of the log."""


@dataclasses.dataclass
class Made:
    """The directory, and its content."""

    disk: SimDisk
    topics: list[str]
    content: Content
    loaded: Loaded


@functools.cache
def made(how: str) -> Made:
    """Play the history and end its process: "power loss" or "kill"."""
    taken: list[SimDisk] = []
    world = simulation.World(PLAN)
    for part in world.parts:
        part.is_cut_off = False  # a start writes the ledger files

    def take() -> None:
        taken.append(world.disk.after_crash("nothing") if how == "power loss" else world.disk.after_kill())

    world.timers.after(PLAN.seconds + RESTS_S, take)
    with mock.patch.object(simulation, "SMALL", JOURNAL_ALONE if how == "power loss" else SMALL):
        topics = list(world.run().topics)
    (disk,) = taken
    report = verify_store(ROOT, files=disk.copy())
    assert not report.damaged, report.findings
    whole, failure = content(disk.copy())
    assert whole is not None, failure
    return Made(disk, topics, whole, load(disk.copy(), topics))


def content(disk: SimDisk) -> tuple[Content | None, str]:
    """The content for an engine; None, and the error, where the start fails."""
    found: list[Content] = []

    async def read() -> None:
        world = World(disk)
        storage = await world.open(SMALL)
        report = storage.recovery
        noticed = bool(report.damaged_files or report.damaged_entries or report.missing_frames or report.torn_frame)
        ledgers: dict[int, list[bytes | None]] = {}
        for ledger_id in await storage.ledgers.list_ledgers():
            info = await storage.ledgers.open_recover(ledger_id)
            bodies = ledgers[ledger_id] = []
            for entry in range(info.entries):
                try:
                    slab = (await storage.ledgers.read(ledger_id, entry, entry, 1))[0]
                    bodies.append(bytes(slab.body(entry - slab.first_entry_id)))
                except CorruptEntryError:
                    noticed = True
                    bodies.append(None)
        tree = storage.metadata._tree.nodes
        nodes = {path: node[0] for path, node in tree.items() if not path.startswith("/ledgers/")}
        await storage.close()
        found.append(Content(ledgers, nodes, noticed))

    error = run_until_crash(disk, read())
    if isinstance(error, StorageError):
        return None, str(error)
    if error is not None:
        raise error
    return found[0], ""


def load(disk: SimDisk, topics: list[str]) -> Loaded:
    """The topics that a broker loads. Raises the error of a failed start."""
    timers = Timers()
    loop = SimLoop(timers)
    clock = WallClock(simulation.WALL_EPOCH_MS)
    clock.loop = loop
    threads = SimThreads(random.Random(1), 0.0001, loop.stop)
    environment = EngineEnvironment(disk, clock, threads, loop, random.Random(1).randbytes)
    settings = Settings(data_dir=ROOT, broker_service_port=None, web_service_port=None, **PLAN.settings)
    found = Loaded()

    async def look() -> None:
        broker = Broker(settings, environment)
        await broker.start()
        for name in topics:
            try:
                topic = await broker.topics.get(TopicName.parse(name), create=False)
            except (BrokerError, StorageError):
                continue  # the load names the damage
            log = topic.ledger
            found.last_ids[name] = dict(topic.deduplication.table.persisted)
            every = [Position(slot.ledger_id, entry) for slot in log.ledgers for entry in range(slot.entries)]
            for cursor in log.cursors.values():
                found.acked[name, cursor.name] = {place for place in every if cursor.is_deleted(place)}
        await broker.stop()
        await broker.wait_stopped()

    with (
        structlog.testing.capture_logs() as logs,
        mock.patch.object(broker_module, "engine_settings", return_value=SMALL),
    ):
        try:
            loop.run_until_complete(look())
        finally:
            loop.close()
    found.errors = [str(entry) for entry in logs if entry.get("exc_info")]
    return found


def places(disk: SimDisk, folders: tuple[str, ...], chance: random.Random) -> tuple[str, Callable[[SimDisk], None]]:
    """A place of the used bytes of a folder's files, in each folder as often, and its damage."""
    files = {
        folder: [
            path
            for path in sorted(disk.paths())
            if f"/{folder}/" in path and not path.endswith("/checkpoint") and disk.content(path).rstrip(b"\0")
        ]
        for folder in folders
    }
    found = files[chance.choice(folders)]
    path = chance.choices(found, [len(disk.content(path).rstrip(b"\0")) for path in found])[0]
    data = disk.content(path)
    at = chance.randrange(len(data))
    while not data[at]:  # most bytes of a journal fill up pages
        at = chance.randrange(len(data))
    how = chance.choice(["flip", "flip", "flip", "flip", "zeros 512", "zeros 4096", "garbage 512"])
    if how == "flip":
        bit = at * 8 + chance.randrange(8)
        return f"{how} {path} bit {bit}", lambda damaged: damaged.flip_bit(path, bit)
    size = int(how.rpartition(" ")[2])
    at -= at % size
    sector = chance.randbytes(size) if "garbage" in how else bytes(size)

    def replace(damaged: SimDisk) -> None:
        damaged.put(path, data[:at] + sector[: len(data) - at] + data[at + size :])

    return f"{how} {path} byte {at}", replace


def check(pristine: Made, damaged: SimDisk, where: str, *, whole: bool) -> int:
    """Check a damaged directory; return the number of lost entries."""
    named = verify_store(ROOT, files=damaged.copy()).damaged
    found, failure = content(damaged.copy())
    if found is None:
        assert named, f"{where}: a start fails and verify finds nothing: {failure}"
        return 0
    known = pristine.content
    assert found.nodes == known.nodes, where
    lost = set()
    for ledger_id, bodies in known.ledgers.items():
        left = found.ledgers.get(ledger_id, [])
        assert len(left) <= len(bodies), f"{where}: ledger {ledger_id} has {len(left)} entries of {len(bodies)}"
        for entry, body in enumerate(bodies):
            if left[entry : entry + 1] != [body]:
                lost.add(Position(ledger_id, entry))
                assert left[entry : entry + 1] in ([], [None]), f"{where}: other bytes at {ledger_id}:{entry}"
    assert len(lost) <= 1 or not where.startswith("flip"), f"{where}: {sorted(lost)}"
    assert not lost or found.noticed, f"{where}: the start does not report the loss of {sorted(lost)}"
    assert not lost or named, f"{where}: verify does not report the loss of {sorted(lost)}"
    if whole:
        check_loaded(pristine, load(damaged.copy(), pristine.topics), lost, where, named=named)
    return len(lost)


def check_loaded(pristine: Made, found: Loaded, lost: set[Position], where: str, *, named: bool) -> None:
    """Check the topics that a broker loads on a damaged directory."""
    assert not found.errors, where
    for cursor, before in pristine.loaded.acked.items():
        now = found.acked.get(cursor, set())
        if cursor[1] == DEDUPLICATION_CURSOR and lost:
            continue  # behind the loss of its state the load reads more entries and moves the cursor up to them
        assert now - before <= lost, f"{where}: {cursor} has more acknowledgements: {sorted(now - before)[:5]}"
        assert before <= now or named, f"{where}: {cursor} lost acknowledgements without a report"
    for name, ids in found.last_ids.items():
        before = pristine.loaded.last_ids[name]
        assert ids == before or lost, f"{where}: {name} has the sequence ids {ids}, not {before}"
        assert all(last <= before.get(producer, -1) for producer, last in ids.items()), f"{where}: {name} has {ids}"


@pytest.mark.parametrize("how", ["power loss", "kill"])
def test_the_mixture_has_all_kinds_of_entries(how: str):
    pristine = made(how)
    bodies = [body for entries in pristine.content.ledgers.values() for body in entries]
    assert not pristine.content.noticed
    assert len(bodies) > 300
    sizes = [len(pristine.disk.content(path)) for path in pristine.disk.paths() if "/ledgers/" in path]
    assert any(sizes) == (how == "kill")
    assert {path.split("/")[1] for path in pristine.content.nodes} >= {"managed-ledgers", "delayed-index", "admin"}
    assert {cursor for _, cursor in pristine.loaded.acked} >= {"__compaction", DEDUPLICATION_CURSOR, "a", "b"}
    assert any(pristine.loaded.last_ids.values())


@pytest.mark.timeout(300 + PLACES * 5)
@pytest.mark.parametrize("how", ["power loss", "kill"])
def test_damage_of_the_mixture_costs_at_most_the_damaged_entries_and_is_reported(how: str):
    pristine, chance = made(how), random.Random(f"mixture {how}")
    folders = ("journal",) if how == "power loss" else ("journal", "ledgers", "ledgers", "metadata")
    losses = 0
    for number in range(PLACES):
        where, damage = places(pristine.disk, folders, chance)
        damaged = pristine.disk.copy()
        damage(damaged)
        losses += bool(check(pristine, damaged, where, whole=number % BROKER_EVERY == 0))
    assert losses


# --- bugs that the checks must find -----------------------------------------------------------------------------------


def records_that_are_not_checked(patch: Any) -> None:
    patch.setattr(_pure_records, "crc32c", lambda *_: planted._Right())
    patch.setattr(records, "scan_records", _pure_records.scan_records)


def a_ledger_that_ends_before_its_damage(patch: Any) -> None:
    """Without a word: the start has no report either."""
    open_recover = EmbeddedLedgerStore.open_recover

    async def shorter(self: Any, ledger_id: int) -> Any:
        info = await open_recover(self, ledger_id)
        for entry in range(info.entries):
            try:
                await self.read(ledger_id, entry, entry, 1)
            except CorruptEntryError:
                return dataclasses.replace(info, last_entry_id=entry - 1)
        return info

    patch.setattr(EmbeddedLedgerStore, "open_recover", shorter)
    silent = property(lambda _: RecoveryReport(), lambda *_: None)
    patch.setattr(engine.EmbeddedStorage, "recovery", silent, raising=False)


def a_verify_that_reports_no_entry(patch: Any) -> None:
    patch.setattr(LedgerVerifier, "_damage", lambda *_: 0)


def a_state_that_counts_as_all_acknowledged(patch: Any) -> None:
    """A cursor without a readable state begins at the end."""
    patch.setattr(AckState, "is_deleted", lambda self, place: place.entry_id % 2 == 0 or self.mark_delete >= place)


BUGS: dict[Callable[[Any], None], tuple[str, str, bool]] = {
    records_that_are_not_checked: ("flip /data/ledgers/", "other bytes at", False),
    planted.damage_that_costs_what_follows: ("flip /data/ledgers/", r": \[Position", False),
    a_ledger_that_ends_before_its_damage: ("zeros 4096 /data/ledgers/", "the start does not report", False),
    a_verify_that_reports_no_entry: ("flip /data/ledgers/", "verify does not report", False),
    a_state_that_counts_as_all_acknowledged: ("flip /data/journal/", "more acknowledgements", True),
}
"""Bug -> the places that show the bug, the error of the check, and whether a broker has to start for it."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch):
    pristine, chance = made("kill"), random.Random("planted")
    wanted, message, whole = BUGS[plant]
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=message):
        search(pristine, wanted, chance, whole=whole)


def search(pristine: Made, wanted: str, chance: random.Random, *, whole: bool) -> None:
    """Damage places of the wanted kind, until the check of one fails."""
    for _ in range(MOST_PLACES):
        where, damage = places(pristine.disk, ("journal", "ledgers"), chance)
        if where.startswith(wanted):
            damaged = pristine.disk.copy()
            damage(damaged)
            check(pristine, damaged, where, whole=whole)
