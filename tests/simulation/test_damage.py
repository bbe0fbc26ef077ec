"""The excuse for an unconfirmed last frame: the entries of that frame from the damage on, and no others; and the
damage of one file between two processes.
"""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest

from magnetar.storage import events
from magnetar.storage.embedded.file_header import JOURNAL_MAGIC, FileHeader
from magnetar.storage.embedded.journal.format import encode_first_page, encode_frame
from tests.simulation.damage import DECAYED_FILE, UNCONFIRMED_S, Damage
from tests.simulation.decay import Decay, kind_of
from tests.simulation.history import Sent, SubscriptionHistory, TopicHistory, ViolationError
from tests.simulation.timers import WallClock
from tests.storage.records_for_tests import record
from tests.twins.sim_files import SimDisk

PATH = "/data/journal/00000001.journal"
EPOCH_MS = 1_700_000_000_000
WRITTEN_S = 10.0
BODIES = [b"before", b"first", b"second", b"third"]
LAST = 2
"""Sequence of the last frame with entries; the frame before has ``before``, each has a record of its own ledger."""


class Bench:
    """A journal with two frames, and a damage in it."""

    def __init__(self, *, confirmed: bool, ended_s: float, held_until_s: float = 0.0) -> None:
        def frame(sequence: int, *records: bytes) -> bytes:
            return b"".join(encode_frame(1, 7, sequence, records, EPOCH_MS + round(WRITTEN_S * 1000)))

        header = FileHeader(JOURNAL_MAGIC, bytes(16), 1, 1, 7, 0)
        frames = [frame(1, record(5, 0, BODIES[0])), frame(LAST, *(record(5, n, BODIES[n]) for n in (1, 2, 3)))]
        if confirmed:
            frames.append(frame(3))
        disk = SimDisk()
        disk.put(PATH, encode_first_page(header, 0) + b"".join(frames) + bytes(4096))
        self.world = SimpleNamespace(
            disk=disk,
            clock=WallClock(EPOCH_MS),
            ended_s=ended_s,
            held_until_s=held_until_s,
            broker=object(),
            logs=[],
        )
        self.damage = Damage(self.world, Random(1), "flipped_bit", "/journal/")
        self.topic = TopicHistory("topic", keeps_all=True, deduplicates=False)
        for number, body in enumerate(BODIES):
            self.topic.by_body[body] = Sent("p", number, 1, body, 0.0)

    def damaged_at(self, what: bytes) -> set[bytes]:
        """The entries that may be missing without a report when this byte is damaged."""
        content = self.world.disk.content(PATH)
        at = content.find(what)
        self.damage.done = True
        self.damage._spot(PATH, content, at, at + 1)
        self.damage.process_begins()
        return {body for body, entry in self.topic.by_body.items() if self.damage.hit(self.topic, entry)}


def test_an_unconfirmed_frame_may_lose_its_entries_from_the_damage_on():
    bench = Bench(confirmed=False, ended_s=WRITTEN_S + 1)
    assert bench.damaged_at(b"second") == {b"second", b"third"}
    assert bench.damage.costs()
    assert not bench.damage.told()


def test_a_slow_disk_holds_back_the_frame_that_confirms():
    ended_s = WRITTEN_S + 2 * UNCONFIRMED_S
    assert Bench(confirmed=False, ended_s=ended_s, held_until_s=ended_s).damaged_at(b"third") == {b"third"}
    held_before = Bench(confirmed=False, ended_s=ended_s, held_until_s=ended_s - UNCONFIRMED_S - 0.1)
    assert held_before.damaged_at(b"third") == set()


def test_a_damaged_frame_header_may_cost_all_entries_of_the_frame():
    content = Bench(confirmed=False, ended_s=WRITTEN_S).world.disk.content(PATH)
    bench = Bench(confirmed=False, ended_s=WRITTEN_S)
    assert bench.damaged_at(content[8192:8250]) == {b"first", b"second", b"third"}


@pytest.mark.parametrize(
    ("confirmed", "ended_s", "what"),
    [
        (True, WRITTEN_S + 1, b"second"),
        (False, WRITTEN_S + UNCONFIRMED_S + 0.1, b"second"),
        (False, WRITTEN_S + 1, b"before"),
    ],
    ids=["a frame follows", "the process went on", "not the last frame"],
)
def test_nothing_else_is_excused(confirmed: bool, ended_s: float, what: bytes):
    bench = Bench(confirmed=confirmed, ended_s=ended_s)
    assert bench.damaged_at(what) == set()
    assert not bench.damage.costs()


def test_as_many_subscriptions_go_back_as_the_frame_has_ledgers():
    bench = Bench(confirmed=False, ended_s=WRITTEN_S)
    bench.damaged_at(b"first")
    first, second = SubscriptionHistory("a"), SubscriptionHistory("b")
    assert bench.damage.may_set_back(bench.topic, first)
    assert not bench.damage.may_set_back(bench.topic, second)


def test_a_clock_that_was_set_tells_when_a_frame_was_written():
    clock = WallClock(EPOCH_MS)
    clock.loop = SimpleNamespace(now_s=5.0)
    clock.set_by(7200)
    clock.loop.now_s = 8.0
    stamp = clock.now_ms()
    clock.set_by(-60)
    clock.loop.now_s = 9.0
    assert clock.when(stamp) == pytest.approx(8.0)
    assert clock.when(clock.now_ms()) == pytest.approx(9.0)


def decayed(*, named: bool) -> Decay:
    """A damaged file of the version."""
    disk = SimDisk()
    disk.put("/data/VERSION", b"\0")
    world = SimpleNamespace(disk=disk, note=lambda _what: None)
    damage = Decay(world, Random(1), DECAYED_FILE, "")
    damage.done, damage.named, damage._path, damage._bit = True, named, "/data/VERSION", 3
    return damage


def test_a_broker_reports_no_damage_that_verify_does_not_find():
    reports = [{"event": events.ENTRY_LOST}]
    decayed(named=True).look_for_reports(reports)
    with pytest.raises(ViolationError, match="verify does not find"):
        decayed(named=False).look_for_reports(reports)


def test_a_file_that_a_failed_start_names_is_restored_once():
    damage = decayed(named=True)
    damage.start_failed(OSError("no space"))
    assert damage.world.disk.content("/data/VERSION") == b"\0"
    for _ in range(2):
        damage.start_failed(OSError("/data/VERSION: damaged"))
        assert damage.world.disk.content("/data/VERSION") == b"\x08"
    with pytest.raises(ViolationError, match="a start fails at damage"):
        decayed(named=False).start_failed(OSError("/data/VERSION: damaged"))


def test_the_kind_of_a_ledger_is_the_component_that_wrote_the_ledger():
    disk = SimDisk()
    disk.put("/data/ledgers/000000000001.ledger", b'..{"application": "pulsar", "component": "schema"}..')
    disk.put("/data/ledgers/000000000002.ledger", b"..{}..")
    disk.put("/data/metadata/00000002.snapshot", b"..")
    assert [kind_of(disk, path) for path in disk.paths()] == ["ledger of schema", "ledger of messages", "snapshot"]
