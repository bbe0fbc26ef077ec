"""``verify``: finds every damage with its place, makes no change, repairs only requested parts."""

from __future__ import annotations

import errno
import json
import os

import pytest

from magnetar.storage.embedded.engine import open_embedded
from magnetar.storage.embedded.ledger_format import FOOTER_BYTES
from magnetar.storage.embedded.ledger_reader import LedgerReader
from magnetar.storage.embedded.verify.command import verify_store
from magnetar.storage.embedded.verify.metadata import read_stored_nodes
from magnetar.storage.embedded.verify.report import DAMAGE, NOTE, WARNING
from magnetar.storage.errors import CorruptEntryError, StoreLockedError
from tests.storage.engine_for_tests import ROOT, World, append, run_until_crash, settle
from tests.storage.records_for_tests import record

BODIES = [b"first", b"second" * 9, b"third", b"fourth"]


async def closed_store(world: World) -> None:
    storage = await world.open()
    sealed, left_open = await storage.ledgers.create(), await storage.ledgers.create()
    await append(sealed, BODIES)
    await append(left_open, BODIES[:2])
    await sealed.close()
    await storage.close()


def test_an_image_of_a_backup_names_its_data(tmp_path):
    for name in ("journal", "ledgers"):
        (tmp_path / "image" / "data" / name).mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="image/data of this image"):
        verify_store(str(tmp_path / "image"))


def verify(world: World, repair=()):
    before = {path: world.disk.content(path) for path in world.disk.paths()}
    report = verify_store(ROOT, files=world.disk, clock=world.clock, repair=repair)
    if not report.repaired:
        assert {path: world.disk.content(path) for path in world.disk.paths()} == before
    json.dumps(report.to_json())
    return report


def kinds(report):
    return [(finding.severity, finding.kind) for finding in report.findings]


def named_entries(report):
    return {
        entry_id
        for found in report.findings
        if found.severity == DAMAGE and found.entry_id is not None
        for entry_id in range(found.entry_id, found.last_entry_id + 1)
    }


SEALED = f"{ROOT}/ledgers/000000000000.ledger"
OPEN = f"{ROOT}/ledgers/000000000001.ledger"


@pytest.fixture
async def world():
    made = World()
    await closed_store(made)
    return made


async def test_a_whole_store(world):
    report = verify(world)
    assert report.findings == []
    assert not report.damaged
    assert (report.ledgers, report.entries, report.frames) == (2, 6, 0)


def offset_of(world, path, body):
    return world.disk.content(path).index(body)


async def test_each_damaged_entry_is_named(world):
    world.disk.flip_bit(SEALED, offset_of(world, SEALED, BODIES[1]) * 8 + 3)
    world.disk.flip_bit(OPEN, offset_of(world, OPEN, BODIES[1]) * 8)
    report = verify(world)
    assert report.damaged
    found = [(f.kind, f.file, f.ledger_id, f.entry_id) for f in report.findings if f.severity == DAMAGE]
    assert ("entry", SEALED, 0, 1) in found
    assert any(f[1] == OPEN and f[2:] == (1, 1) for f in found)
    assert report.entries == 4


async def test_damaged_header_checkpoint_and_version(world):
    world.disk.flip_bit(SEALED, 100)
    world.disk.flip_bit(f"{ROOT}/VERSION", 20)
    world.disk.flip_bit(f"{ROOT}/journal/checkpoint", 700)
    assert {kind for severity, kind in kinds(verify(world)) if severity == DAMAGE} == {
        "header",
        "version",
        "checkpoint",
    }


async def test_missing_and_short_files(world):
    data = world.disk.content(SEALED)
    world.disk.put(SEALED, data[:120])
    finding = verify(world).findings[-1]
    assert (finding.severity, finding.kind, finding.ledger_id) == (DAMAGE, "short-file", 0)
    assert finding.last_entry_id == 3
    world.disk.remove(SEALED)
    finding = verify(world).findings[-1]
    assert (finding.kind, finding.entry_id, finding.last_entry_id) == ("missing-file", 0, 3)


@pytest.mark.parametrize("before", [b"first", b"second", b"sec", b"ond"], ids=["first", "between", "length", "body"])
@pytest.mark.parametrize("size", [1, 40, 5000])
@pytest.mark.parametrize("is_killed", [False, True])
async def test_entries_behind_inserted_bytes_of_an_open_ledger_are_named_before_the_start(before, size, is_killed):
    """The start ends the file where the checkpoint says, and verify named the loss only afterwards."""
    world = World()
    storage = await world.open()
    writer = await storage.ledgers.create()
    await append(writer, BODIES)
    await storage.checkpoint()
    if is_killed:
        await append(writer, [b"of the journal"] * 2)
        await settle()
    else:
        await storage.close()
    path = f"{ROOT}/ledgers/{writer.ledger_id:012}.ledger"
    disk = world.disk.after_kill()
    data = disk.content(path)
    at = data.index(before) - (32 if before in BODIES[0] or before == b"second" else 0)
    disk.put(path, data[:at] + b"\xaa" * size + data[at:])
    named = named_entries(verify(World(disk.copy())))
    after = World(disk)
    storage = await after.open()
    await storage.ledgers.open_recover(writer.ledger_id)
    lost = set()
    for entry_id in range(len(BODIES) + 2 * is_killed):
        try:
            await storage.ledgers.read(writer.ledger_id, entry_id, entry_id, 1)
        except CorruptEntryError:
            lost.add(entry_id)
    await storage.close()
    assert named & lost
    if not is_killed:  # else the replay may write over further displaced entries
        assert lost <= named


async def test_a_ledger_file_that_the_device_does_not_read_is_named_and_its_neighbours_are_checked(world, monkeypatch):
    scan = LedgerReader.scan

    def refuse(reader, *given):
        if reader.ledger_id == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return scan(reader, *given)

    monkeypatch.setattr(LedgerReader, "scan", refuse)
    report = verify(world)
    assert [(f.severity, f.kind, f.file, f.last_entry_id) for f in report.findings] == [
        (DAMAGE, "unreadable", SEALED, 3)
    ]
    assert report.entries == 2
    with pytest.raises(OSError, match=SEALED):
        verify(world, repair=["index"])


async def test_unknown_files_and_files_set_aside(world):
    world.disk.put(f"{ROOT}/ledgers/000000000077.ledger", b"?")
    world.disk.put(f"{ROOT}/journal/junk", b"?")
    world.disk.make_dir(f"{ROOT}/lost+found")
    world.disk.put(f"{ROOT}/lost+found/old", b"?")
    assert sorted(kinds(verify(world))) == [
        (WARNING, "set-aside"),
        (WARNING, "unknown-file"),
        (WARNING, "unknown-file"),
    ]


async def test_damaged_index_is_repaired_only_when_asked(world):
    size = len(world.disk.content(SEALED))
    world.disk.flip_bit(SEALED, (size - FOOTER_BYTES + 30) * 8)
    assert kinds(verify(world)) == [(DAMAGE, "index")]
    assert kinds(verify(world)) == [(DAMAGE, "index")]
    report = verify(world, repair=["index"])
    assert len(report.repaired) == 1
    assert verify(world).findings == []


@pytest.mark.parametrize("lost", [range(FOOTER_BYTES), range(FOOTER_BYTES // 2), range(7, FOOTER_BYTES)])
async def test_an_index_that_a_power_loss_has_cut_off_is_no_damage(world, lost):
    whole = world.disk.content(SEALED)
    kept, footer = whole[:-FOOTER_BYTES], bytearray(whole[-FOOTER_BYTES:])
    for at in lost:
        footer[at] = 0
    for left in (kept + footer, (kept + footer).rstrip(b"\0"), whole[: -FOOTER_BYTES + 5]):
        world.disk.put(SEALED, left)
        assert kinds(verify(world)) == [(NOTE, "index")]
    world.disk.put(SEALED, whole + b"x")
    assert kinds(verify(world)) == [(DAMAGE, "index")]
    assert len(verify(world, repair=["index"]).repaired) == 1
    assert world.disk.content(SEALED) == whole


def test_an_index_is_repaired_also_where_the_journal_still_has_the_entries():
    """A repair that was cut off may be repeated, and the bytes of the index are no torn entry."""
    world = World()

    async def run() -> None:
        storage = await world.open()
        sealed = await storage.ledgers.create()
        await append(sealed, BODIES)
        await sealed.close()
        await settle()

    run_until_crash(world.disk, run())
    after = world.after_crash("everything")
    assert (NOTE, "index") in kinds(verify(after))
    assert len(verify(after, repair=["index"]).repaired) == 1
    assert verify(after).findings == []
    whole = after.disk.content(SEALED)
    after.disk.put(SEALED, whole[: -FOOTER_BYTES // 2])
    assert kinds(verify(after)) == [(NOTE, "index")]
    assert len(verify(after, repair=["index"]).repaired) == 1
    assert after.disk.content(SEALED) == whole


async def test_torn_tail_is_cut_only_when_asked(world):
    whole = world.disk.content(OPEN)
    world.disk.put(OPEN, whole + record(1, 2, b"torn away")[:-3])
    assert kinds(verify(world)) == [(NOTE, "torn-tail")]
    report = verify(world, repair=["torn-tail"])
    assert len(report.repaired) == 1
    assert world.disk.content(OPEN) == whole
    with pytest.raises(ValueError, match="unknown repair"):
        verify(world, repair=["everything"])


async def test_entries_of_a_store_whose_id_is_lost_count_and_stay(world, monkeypatch):
    """The proofs of its records are unknown then."""

    def without_id(*given):
        nodes = read_stored_nodes(*given)
        nodes.store_id = None
        return nodes

    monkeypatch.setattr("magnetar.storage.embedded.verify.command.read_stored_nodes", without_id)
    world.disk.flip_bit(f"{ROOT}/VERSION", 20)
    world.disk.remove(f"{ROOT}/journal/checkpoint")
    whole = world.disk.content(OPEN)
    report = verify(world, repair=["torn-tail"])
    assert report.entries == 6
    assert world.disk.content(OPEN) == whole


def test_a_crashed_store_has_notes_at_most():
    world = World()

    async def run() -> None:
        storage = await world.open()
        writer = await storage.ledgers.create()
        await append(writer, BODIES)
        await settle()

    run_until_crash(world.disk, run())
    for mode in ("nothing", "everything", "some"):
        report = verify(world.after_crash(mode, 5))
        assert not report.damaged, report.findings
        assert report.frames >= 1


def test_damaged_journal_frame_names_the_entry():
    world = World()

    async def run() -> None:
        storage = await world.open()
        writer = await storage.ledgers.create()
        await append(writer, BODIES[:2])
        await append(writer, BODIES[2:])

    run_until_crash(world.disk, run())
    after = world.after_crash("nothing")
    path = f"{ROOT}/journal/00000000.journal"
    after.disk.flip_bit(path, after.disk.content(path).index(BODIES[1]) * 8)
    finding = next(f for f in verify(after).findings if f.severity == DAMAGE)
    assert (finding.kind, finding.file, finding.ledger_id, finding.entry_id) == ("frame", path, 0, 1)


def test_an_entry_lost_with_its_frame_is_still_named_after_recovery():
    world = World()

    async def run() -> None:
        storage = await world.open()
        writer = await storage.ledgers.create()
        await append(writer, BODIES[:2])
        await append(writer, BODIES[2:])

    run_until_crash(world.disk, run())
    after = world.after_crash("nothing")
    path = f"{ROOT}/journal/00000000.journal"
    after.disk.flip_bit(path, after.disk.content(path).index(BODIES[1]) * 8)

    async def recover() -> None:
        storage = await after.open()
        assert storage.recovery.damaged_entries == [(0, 1)]
        assert (await storage.ledgers.open_recover(0)).last_entry_id == 3
        with pytest.raises(CorruptEntryError):
            await storage.ledgers.read(0, 1, 3, 1)
        assert await storage.ledgers.read(0, 2, 3, 1)
        await storage.close()

    run_until_crash(after.disk, recover())
    finding = next(f for f in verify(after).findings if f.severity == DAMAGE)
    assert (finding.kind, finding.ledger_id, finding.entry_id) == ("lost-entry", 0, 1)


async def test_on_a_real_directory(tmp_path):
    storage = await open_embedded(str(tmp_path))
    writer = await storage.ledgers.create()
    await append(writer, BODIES)
    with pytest.raises(StoreLockedError):
        verify_store(str(tmp_path))
    await storage.close()
    report = verify_store(str(tmp_path))
    assert report.findings == []
    assert report.entries == 4
    log = tmp_path / "metadata" / "00000001.log"
    data = bytearray(log.read_bytes())
    at = data.index(b'"properties"')
    data[at + 3] ^= 4
    log.write_bytes(data)
    assert ("damage", "metadata") in kinds(verify_store(str(tmp_path)))
    log.unlink()
    assert ("damage", "metadata") in kinds(verify_store(str(tmp_path)))
    with pytest.raises(FileNotFoundError):
        verify_store(str(tmp_path / "elsewhere"))


async def real_store(path):
    storage = await open_embedded(str(path))
    ledger = await storage.ledgers.create()
    await append(ledger, BODIES)
    await storage.close()


@pytest.mark.parametrize("lock_file", [True, False])
async def test_a_read_only_mount_is_verified(tmp_path, monkeypatch, lock_file):
    await real_store(tmp_path)
    if not lock_file:
        (tmp_path / "LOCK").unlink()
    real = os.open

    def refuse(path, flags, *rest, **more):
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, "Read-only file system", path)
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    report = verify_store(str(tmp_path))
    assert not report.damaged
    assert report.entries == len(BODIES)


async def test_progress_is_reported_up_to_the_end(tmp_path):
    await real_store(tmp_path)
    told = []
    report = verify_store(str(tmp_path), progress=lambda done, total: told.append((done, total)))
    assert told
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert all(done <= total for done, total in told)
    assert report.bytes_read >= told[-1][0]
