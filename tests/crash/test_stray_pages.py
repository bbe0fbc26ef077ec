"""A device that writes a page of the journal into a ledger file: entries of which no byte is under the page stay, the
others are taken from the journal where a frame behind the checkpoint has them, else reported.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from magnetar.storage.embedded.verify.command import verify_store
from tests.storage.engine_for_tests import ROOT, TINY, World, append, found_entries, run_until_crash, settle

if TYPE_CHECKING:
    from magnetar.storage.embedded.engine import EngineSettings

LONG = bool(os.environ.get("MAGNETAR_CRASH_LONG"))
PAGE = 4096
SETTINGS = replace(
    TINY,
    journal_first_segment_bytes=64 << 10,
    journal_segment_bytes=64 << 10,
    journal_zeroed_bytes=64 << 10,
    journal_max_frame_bytes=32 << 10,
)
PROPERTIES = {"managed-ledger": "public/default/persistent/topic"}


class Entries:
    """Appended bodies by ledger; each is unlike all others."""

    def __init__(self) -> None:
        self.bodies: dict[int, list[bytes]] = {}

    def make(self, ledger_id: int, sizes: list[int]) -> list[bytes]:
        known = self.bodies.setdefault(ledger_id, [])
        made = [(b"<%d:%d>" % (ledger_id, len(known) + k)).ljust(size, b".") for k, size in enumerate(sizes)]
        known += made
        return made


async def _fill(world: World, entries: Entries, settings: EngineSettings, checkpoints: tuple[str, ...]) -> None:
    """Ledger 0 closed, ledger 1 open, both of several pages; ledger 2 small and open."""
    storage = await world.open(settings)
    first = await storage.ledgers.create(PROPERTIES)
    second = await storage.ledgers.create(PROPERTIES)
    third = await storage.ledgers.create(PROPERTIES)
    await append(first, entries.make(0, [10, 2500, 40, 3000, 7]))
    await append(second, entries.make(1, [20] * 30))
    await append(first, entries.make(0, [1500, 1500, 30, 30, 4000]))
    await append(second, entries.make(1, [2000, 2000, 2000]))
    if "open" in checkpoints:
        await storage.checkpoint()
    await append(first, entries.make(0, [5] * 40))
    await first.close()
    await append(third, entries.make(2, [12, 13, 14]))
    if "closed" in checkpoints:
        await storage.checkpoint()
    await append(second, entries.make(1, [900] * 9))
    await append(third, entries.make(2, [100] * 50))
    for _ in range(2):
        world.scheduler.advance(1.5)
        await settle()


def stopped(checkpoints: tuple[str, ...], files: str) -> tuple[World, Entries]:
    world, entries = World(), Entries()
    run_until_crash(world.disk, _fill(world, entries, SETTINGS, checkpoints))
    return world.after_crash(files), entries


def journal_pages(world: World) -> list[tuple[str, int]]:
    """(path, offset) of each journal page with frames."""
    found = []
    for path in world.disk.paths():
        if "/journal/0" in path:
            data = world.disk.content(path)
            found += [(path, at) for at in range(PAGE, len(data), PAGE) if any(data[at : at + PAGE])]
    return found


def found_in(world: World) -> dict[int, list[bytes | None]]:
    """Entries of each ledger, None for a damaged entry."""
    found: dict[int, list[bytes | None]] = {}

    async def main() -> None:
        storage = await world.open(SETTINGS)
        found.update(await found_entries(storage.ledgers))
        await storage.close()

    run_until_crash(world.disk, main())
    return found


def under(content: bytes, body: bytes, at: int, size: int) -> bool:
    """Whether a byte of the record with this body lies under the page at ``at``."""
    place = content.find(body)
    return place >= 0 and place - 32 < at + size and at < place + len(body)


def check(before: World, entries: Entries, source: tuple[str, int], target: tuple[str, int], *, moved: bool) -> str:
    """Write one stray page and start the store; return why the outcome is wrong, "" when it is right."""
    after = before.after_crash("everything")
    disk = after.disk
    page = disk.content(source[0])[source[1] : source[1] + PAGE]
    path, at = target
    held = disk.content(path)
    disk.put(path, held[:at].ljust(at, b"\0") + page + held[at + PAGE :])
    journal = disk.content(source[0])
    if moved:
        disk.put(source[0], journal[: source[1]] + bytes(PAGE) + journal[source[1] + PAGE :])
    verify_store(ROOT, files=disk.copy(), clock=after.clock)
    found = found_in(after)
    wrong = []
    for ledger_id, bodies in entries.bodies.items():
        got = found.get(ledger_id, [])
        name = f"{ROOT}/ledgers/{ledger_id:012d}.ledger"
        file = before.disk.content(name) if name in before.disk.paths() else b""
        # An entry at the end of its ledger leaves no trace when its journal page and its place in the file are both
        # lost.
        is_lost_at_end = moved and all(
            under(journal, body, source[1], PAGE)
            and (body not in file or (name == path and under(held, body, at, PAGE)))
            for body in bodies[len(got) :]
        )
        for number, body in enumerate(bodies):
            is_hit = name == path and under(held, body, at, PAGE)
            is_gone = moved and body not in file and under(journal, body, source[1], PAGE)
            read = got[number] if number < len(got) else None
            if read != body and not ((is_hit or is_gone) and read is None and (number < len(got) or is_lost_at_end)):
                wrong.append(f"{ledger_id}:{number} {read and read[:12]!r}")
    if not wrong:
        return ""
    return f"{source} to {target}, moved {moved}: {wrong[:6]} of {len(wrong)}"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("moved", [False, True], ids=["written twice", "misdirected"])
@pytest.mark.parametrize("files", ["nothing", "everything"])
@pytest.mark.parametrize("checkpoints", [(), ("open",), ("closed",), ("open", "closed")], ids="-".join)
def test_a_stray_page_costs_at_most_the_entries_under_it(checkpoints: tuple[str, ...], files: str, moved: bool):
    before, entries = stopped(checkpoints, files)
    targets = [
        (path, at)
        for path in before.disk.paths()
        if "/ledgers/" in path
        for at in range(0, len(before.disk.content(path)) + 2 * PAGE, PAGE)
    ]
    plays = [(source, target) for source in journal_pages(before) for target in targets]
    step = 1 if LONG else max(1, len(plays) // 12)
    wrong = [problem for play in plays[:: step | 1] if (problem := check(before, entries, *play, moved=moved))]
    assert not wrong, f"{len(wrong)} of {len(plays[:: step | 1])}:\n" + "\n".join(wrong[:8])
