"""Identity of a data directory: exclusive use, refusals, files set aside."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from magnetar.storage.embedded import engine
from magnetar.storage.embedded.engine import open_embedded
from magnetar.storage.embedded.recovery.frame_replay import KnownLedgers
from magnetar.storage.embedded.store_version import encode_version, parse_version
from magnetar.storage.embedded.verify.command import verify_store
from magnetar.storage.errors import (
    DamagedFileError,
    MetadataDamagedError,
    StoreLockedError,
    StoreMismatchError,
    UnsupportedFormatError,
)
from tests.storage.engine_for_tests import ROOT, World, append, read_all

FILES_WITH_HEADER = ["journal/00000000.journal", "journal/checkpoint", "ledgers/000000000000.ledger"]


async def filled(world: World) -> None:
    storage = await world.open()
    writer = await storage.ledgers.create()
    await append(writer, [b"a", b"b"])
    await storage.close()


def newer(data: bytes) -> bytes:
    """The same file as format version 99, with a right header checksum."""
    head = bytearray(data[:64])
    struct.pack_into("<II", head, 8, 99, 0)
    struct.pack_into("<I", head, 12, crc32c(bytes(head)))
    return bytes(head) + data[64:]


async def test_a_newer_format_is_refused_and_left_untouched():
    for name in FILES_WITH_HEADER[:2]:
        world = World()
        await filled(world)
        path = f"{ROOT}/{name}"
        data = newer(world.disk.content(path))
        if name == "journal/checkpoint":
            data = newer(data[: len(data) // 2]) * 2
        world.disk.put(path, data)
        with pytest.raises(UnsupportedFormatError) as caught:
            await world.open()
        assert (caught.value.path, caught.value.found, caught.value.supported) == (path, 99, 2)
        assert name in str(caught.value)
        assert world.disk.content(path) == data


async def test_a_newer_version_file_is_refused():
    world = World()
    await filled(world)
    line = f"magnetar-store 3 {'00' * 16}"
    world.disk.put(f"{ROOT}/VERSION", f"{line} {crc32c(line.encode()):08x}\n".encode())
    with pytest.raises(UnsupportedFormatError, match="version 3"):
        await world.open()


def test_version_file_round_trip():
    data = encode_version(b"0123456789abcdef")
    assert parse_version("V", data) == (2, b"0123456789abcdef")
    assert parse_version("V", encode_version(b"0123456789abcdef", 1)) == (1, b"0123456789abcdef")
    for bad in (b"", data[:-2], b"x" + data, data.replace(b"2 ", b"1 ", 1), data.replace(b" ", b"\t", 1), b"\xff" * 50):
        with pytest.raises(DamagedFileError):
            parse_version("V", bad)


async def test_unknown_files_are_set_aside_not_removed():
    world = World()
    await filled(world)
    strangers = {
        "ledgers/000000000099.ledger": b"not ours",
        "ledgers/notes.txt": b"hello",
        "journal/x.tmp": b"?",
    }
    for name, data in strangers.items():
        world.disk.put(f"{ROOT}/{name}", data)
    world.disk.make_dir(f"{ROOT}/lost+found")
    world.disk.put(f"{ROOT}/lost+found/notes.txt", b"earlier")
    storage = await world.open()
    assert len(storage.recovery.set_aside) == 3
    assert await read_all(storage.ledgers, 0, 1) == [b"a", b"b"]
    await storage.close()
    assert world.disk.content(f"{ROOT}/lost+found/000000000099.ledger") == b"not ours"
    assert world.disk.content(f"{ROOT}/lost+found/notes.txt") == b"earlier"
    assert world.disk.content(f"{ROOT}/lost+found/notes.txt.1") == b"hello"
    assert world.disk.content(f"{ROOT}/lost+found/x.tmp") == b"?"


class _Joined(set):
    """A set that counts how often it is joined with others, which takes as long as it is large."""

    joins = 0

    def union(self, *others):
        _Joined.joins += 1
        return super().union(*others)


@pytest.mark.parametrize("count", [1, 30])
async def test_a_start_joins_the_known_ledgers_as_often_for_many_ledgers(count, monkeypatch):
    """A start with 100,000 topics once took 70 s for a join of these for each file."""
    world = World()
    for _ in range(count):
        await filled(world)
    monkeypatch.setattr(engine, "KnownLedgers", lambda ids, *rest: KnownLedgers(_Joined(ids), *rest))
    _Joined.joins = 0
    storage = await world.open()
    await storage.close()
    assert _Joined.joins == 2


async def test_lost_metadata_are_refused_and_nothing_is_touched():
    world = World()
    await filled(world)
    for path in world.disk.paths():
        if "/metadata/" in path:
            world.disk.remove(path)
    before = {path: world.disk.content(path) for path in world.disk.paths()}
    with pytest.raises(MetadataDamagedError, match="missing or empty") as caught:
        await world.open()
    assert "magnetar verify --repair metadata" in str(caught.value)
    assert {path: world.disk.content(path) for path in world.disk.paths()} == before


async def test_metadata_of_another_store_are_refused():
    first, second = World(), World()
    second.entropy = lambda size: b"\x42" * size
    await filled(first)
    await filled(second)
    for path in first.disk.paths():
        if "/metadata/" in path:
            first.disk.put(path, second.disk.content(path))
    with pytest.raises(StoreMismatchError, match="names store"):
        await first.open()


async def test_a_failed_start_releases_the_lock():
    world = World()
    await filled(world)
    good = world.disk.content(f"{ROOT}/VERSION")
    world.disk.put(f"{ROOT}/VERSION", encode_version(b"x" * 16))
    for _ in range(2):
        with pytest.raises(StoreMismatchError):
            await world.open()
    world.disk.put(f"{ROOT}/VERSION", good)
    await (await world.open()).close()


async def test_second_process_is_refused_by_name_of_the_first(tmp_path):
    import os

    storage = await open_embedded(str(tmp_path))
    with pytest.raises(StoreLockedError) as caught:
        await open_embedded(str(tmp_path))
    assert caught.value.pid == os.getpid()
    assert str(os.getpid()) in str(caught.value)
    await storage.close()
    await (await open_embedded(str(tmp_path))).close()


@pytest.mark.parametrize("meanwhile", ["unlink", "replace"])
async def test_second_process_is_refused_when_the_lock_file_was_removed(tmp_path, meanwhile):
    storage = await open_embedded(str(tmp_path))
    (tmp_path / "LOCK").unlink()
    if meanwhile == "replace":
        (tmp_path / "LOCK").write_text("1\n")
    with pytest.raises(StoreLockedError):
        await open_embedded(str(tmp_path))
    with pytest.raises(StoreLockedError):
        verify_store(str(tmp_path))
    await storage.close()
    await (await open_embedded(str(tmp_path))).close()


@pytest.mark.parametrize("version", [1, None])
async def test_garbage_instead_of_the_database_of_format_1(tmp_path, version):
    if version is not None:
        (tmp_path / "VERSION").write_bytes(encode_version(b"x" * 16, version))
    (tmp_path / "metadata.sqlite").write_bytes(b"this is no database" * 100)
    with pytest.raises(MetadataDamagedError, match=r"metadata\.sqlite"):
        await open_embedded(str(tmp_path))
