"""The direct reader: the compiled reader on a real disk and its twin keep the same promises; reads of a ledger use it."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import pathlib
import random
import struct
import tempfile
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from magnetar.protocol.checksum import crc32c
from magnetar.storage.embedded import direct_reader, files
from magnetar.storage.embedded.direct_reader import (
    MOST_BYTES,
    CompiledDirectReader,
    ReadRecords,
    Wanted,
    open_direct_reader,
)
from magnetar.storage.embedded.files import RealFiles
from magnetar.storage.embedded.lanes import RealThreads
from magnetar.storage.embedded.layout import Layout
from magnetar.storage.errors import CorruptEntryError
from magnetar.storage.records import scan_records
from tests.storage.embedded import direct_twins
from tests.storage.engine_for_tests import ROOT, TINY, World, append, read_all, settle
from tests.twins.pool_direct_reader import PoolDirectReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from magnetar.storage.embedded.direct_reader import DirectReader
    from magnetar.storage.embedded.files import File

CONTENT = random.Random(1).randbytes(300_001)
SMALL_CACHE = replace(TINY, cache_bytes=16 << 10, unwritten_memory_bytes=0)
BODIES = [b"%03d" % number * 100 for number in range(400)]
NO_RECORDS = Wanted(-1, 0)


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    """A folder beside the sources, on a disk: a temporary folder may lie in memory and refuse direct reads."""
    with tempfile.TemporaryDirectory(dir=pathlib.Path(__file__).parent) as name:
        yield pathlib.Path(name)


@pytest.fixture
def file(folder: pathlib.Path) -> Iterator[File]:
    opened = RealFiles().open(str(folder / "file"), create=True)
    opened.write_past_cache([CONTENT], 0)
    opened.sync()
    yield opened
    opened.close()


def reader_named(name: str) -> DirectReader:
    if name == "twin":
        return PoolDirectReader(RealThreads())
    pytest.importorskip("magnetar.storage.embedded._direct_reader")
    return CompiledDirectReader()


BOTH = pytest.mark.parametrize("name", ["compiled", "twin"])


async def read_records(
    reader: DirectReader, file: File, ranges: Sequence[tuple[int, int]], wanted: Wanted, *, useful: bool = True
) -> ReadRecords | None:
    """The result of ``done``; raises BlockingIOError where the reader does not take the read."""
    future: asyncio.Future[ReadRecords | None] = asyncio.get_running_loop().create_future()

    def done(found: ReadRecords | None) -> bool:
        future.set_result(found)
        return useful

    if not reader.begin(file, ranges, wanted, done):
        raise BlockingIOError
    assert not future.done(), "never within the call"
    return await future


async def read(
    reader: DirectReader, file: File, ranges: Sequence[tuple[int, int]], *, useful: bool = True
) -> bytes | None:
    """The bytes of ``done``; raises BlockingIOError where the reader does not take the read."""
    found = await read_records(reader, file, ranges, NO_RECORDS, useful=useful)
    if found is None:
        return None
    assert found.offsets == bytes(8)
    return found.data


@BOTH
async def test_ranges_are_joined_and_end_with_the_file(name: str, file: File):
    reader = reader_named(name)
    end = len(CONTENT)
    cases = [[(0, end)], [(end - 10, 20)], [(end - 10, 5), (end - 2, 20)], [(end, 1)], [(5, 1), (9, 4096), (70_000, 3)]]
    for ranges in cases:
        assert await read(reader, file, ranges) == b"".join(CONTENT[at : at + size] for at, size in ranges)
    await reader.close()
    await reader.close()


def records(ledger_id: int, proof: int, bodies: Sequence[bytes]) -> bytes:
    found = b""
    for entry_id, body in enumerate(bodies, 7):
        rest = struct.pack("<QQq", ledger_id, entry_id, proof) + body
        length = struct.pack("<I", len(body))
        found += length + struct.pack("<I", crc32c(rest, crc32c(length))) + rest
    return found


@BOTH
async def test_the_records_of_the_bytes_are_checked(name: str, folder: pathlib.Path):
    reader = reader_named(name)
    log = records(5, 99, [b"a" * 1000, b"", b"c" * 70_000, b"d"])
    bad = bytearray(log)
    bad[-1] ^= 1
    cases: list[tuple[bytes, Wanted]] = [
        *((log, Wanted(*each)) for each in ((5, 99), (5, 0), (-1, 0), (5, 98), (6, 99))),
        *((each, Wanted(5, 99)) for each in (bytes(bad), log[:-1], log[:20], log + log, log + bytes(100), b"")),
    ]
    for number, (content, wanted) in enumerate(cases):
        file = RealFiles().open(str(folder / str(number)), create=True)
        file.write_past_cache([bytes(5000) + content], 0)
        file.sync()
        found = await read_records(reader, file, [(5000, 1 << 20)], wanted)
        assert found is not None
        assert found.data == content
        assert found.offsets == bytes(scan_records(content, 0, len(content), *wanted)[0])
        file.close()
    await reader.close()


@BOTH
async def test_four_reads_at_a_time(name: str, file: File):
    reader = reader_named(name)
    ended: list[int] = []

    def begin(number: int) -> bool:
        def done(found: ReadRecords | None) -> bool:
            assert found is not None
            assert found.data == CONTENT[number : number + 100]
            ended.append(number)
            return True

        return reader.begin(file, [(number, 100)], NO_RECORDS, done)

    assert [begin(number) for number in range(6)] == [True] * 4 + [False] * 2
    await reader.close()
    assert sorted(ended) == [0, 1, 2, 3], "close waits for the reads under way"
    assert not begin(7)


@BOTH
async def test_a_reader_that_closes_takes_no_further_read(name: str, file: File):
    reader = reader_named(name)
    ended: list[bool] = []

    def done(_found: ReadRecords | None) -> bool:
        ended.append(reader.begin(file, [(0, 100)], NO_RECORDS, done))
        return True

    assert reader.begin(file, [(0, 100)], NO_RECORDS, done)
    closing = asyncio.ensure_future(reader.close())
    await asyncio.sleep(0)
    await closing
    assert ended == [False], "each read that the reader has taken has ended"


async def test_an_error_of_the_caller_loses_no_other_read(file: File):
    reader = reader_named("compiled")
    helper = reader._reader
    ended: list[int] = []
    reported: list[BaseException | None] = []

    class Together:
        def reap(self) -> list[tuple[int, int]]:
            found: list[tuple[int, int]] = []
            while len(found) < 4:
                found += helper.reap()
            return found

        def __getattr__(self, name: str) -> Any:
            return getattr(helper, name)

    reader._reader = Together()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context.get("exception")))

    def begin(number: int) -> bool:
        def done(_found: ReadRecords | None) -> bool:
            ended.append(number)
            raise MemoryError

        return reader.begin(file, [(0, 100)], NO_RECORDS, done)

    assert [begin(number) for number in range(4)] == [True] * 4
    await reader.close()
    assert sorted(ended) == [0, 1, 2, 3]
    assert [type(each) for each in reported] == [MemoryError] * 4


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOMEM, errno.EROFS])
async def test_a_file_that_cannot_be_opened_again_is_left_to_a_thread(
    code: int, file: File, monkeypatch: pytest.MonkeyPatch
):
    reader = reader_named("compiled")

    def fails(_fd: int) -> int:
        raise OSError(code, "simulated")

    monkeypatch.setattr(files, "open_direct", fails)
    cold = RealFiles().open(f"/proc/self/fd/{file.fileno()}")  # type: ignore[attr-defined]
    with pytest.raises(BlockingIOError):
        await read(reader, cold, [(0, 10)])
    cold.close()
    await reader.close()


async def test_the_compiled_reader_takes_real_files_alone(file: File):
    reader = reader_named("compiled")
    world = World()
    with pytest.raises(BlockingIOError):
        await read(reader, world.disk.open("/simulated", create=True), [(0, 1)])
    with pytest.raises(BlockingIOError):
        await read(reader, file, [(0, 0)])
    await reader.close()


async def test_the_compiled_reader_reads_a_mebibyte_at_a_time(folder: pathlib.Path):
    reader = reader_named("compiled")
    file = RealFiles().open(str(folder / "large"), create=True)
    content = CONTENT * 8
    file.write_past_cache([content], 0)
    file.sync()
    assert await read(reader, file, [(0, len(content))]) == content[:MOST_BYTES]
    assert await read(reader, file, [(5000, len(content))]) == content[5000 : 4096 + MOST_BYTES]
    cut = [(4095, 1), (9000, 10), (MOST_BYTES - 5, 20), (MOST_BYTES, 9)]
    assert (
        await read(reader, file, cut) == content[4095:4096] + content[9000:9010] + content[MOST_BYTES - 5 : MOST_BYTES]
    )
    await reader.close()
    file.close()


async def test_without_direct_access_there_is_no_read(folder: pathlib.Path):
    reader = reader_named("compiled")
    cached = RealFiles(direct=False).open(str(folder / "cached"), create=True)
    with pytest.raises(BlockingIOError):
        await read(reader, cached, [(0, 1)])
    await reader.close()


async def attempts_to_the_next_read(reader: DirectReader, file: File) -> int:
    attempts = 0
    while True:
        attempts += 1
        try:
            await read(reader, file, [(0, 10)], useful=False)
        except BlockingIOError:
            continue
        return attempts


async def test_behind_reads_of_no_use_attempts_get_rare(file: File):
    reader = reader_named("compiled")
    assert [await attempts_to_the_next_read(reader, file) for _ in range(11)] == [
        *(1, 2, 3, 5, 9, 17, 33, 65, 129, 257, 257)
    ]
    for _ in range(256):
        with pytest.raises(BlockingIOError):
            await read(reader, file, [(0, 10)])
    for _ in range(3):
        assert await read(reader, file, [(0, 10)]) == CONTENT[:10]
    await reader.close()


async def test_a_read_that_would_wait_fails(file: File, monkeypatch: pytest.MonkeyPatch):
    reader = reader_named("compiled")
    helper = reader._reader

    class Refusing:
        def reap(self) -> list[tuple[int, int]]:
            return [(number, -11) for number, _ in helper.reap()]

        def __getattr__(self, name: str) -> Any:
            return getattr(helper, name)

    monkeypatch.setattr(reader, "_reader", Refusing())
    assert await read(reader, file, [(0, 10)], useful=False) is None
    with pytest.raises(BlockingIOError):
        await read(reader, file, [(0, 10)])
    await reader.close()


@pytest.mark.parametrize("variable", ["MAGNETAR_PURE", "LD_PRELOAD"])
async def test_variables_that_rule_the_reader_out(variable: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(variable, "1")
    assert open_direct_reader() is None


async def test_a_system_without_asynchronous_reads(monkeypatch: pytest.MonkeyPatch):
    def refused() -> CompiledDirectReader:
        raise PermissionError(1, "not permitted")

    monkeypatch.delenv("MAGNETAR_PURE", raising=False)
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    monkeypatch.setattr(direct_reader, "CompiledDirectReader", refused)
    assert open_direct_reader() is None


@pytest.mark.parametrize("seed", range(20))
def test_the_helper_reads_the_bytes_of_the_file(seed: int):
    helper = pytest.importorskip("magnetar.storage.embedded._direct_reader")
    for check in direct_twins.CHECKS:
        check(helper, random.Random(seed))


def test_a_closed_helper_refuses_each_call():
    reader = pytest.importorskip("magnetar.storage.embedded._direct_reader").Reader()
    reader.close()
    reader.close()
    for call in (lambda: reader.begin(0, 0, 4096, [], 1, 0), reader.reap, lambda: reader.take(0)):
        with pytest.raises(RuntimeError):
            call()


def test_a_helper_without_a_close_ends_with_its_reads(file: File):
    """The memory of a read under way is not freed before the read has ended."""
    helper = pytest.importorskip("magnetar.storage.embedded._direct_reader")
    fd = file.direct_fileno()  # type: ignore[attr-defined]
    if fd < 0:
        pytest.skip("a file system without direct reads")
    for _ in range(20):
        reader = helper.Reader()
        assert reader.begin(fd, 0, 65536, [(0, 65536)], 1, 0) >= 0
        del reader
        gc.collect(0)  # a young object, should a reference have stayed


@pytest.mark.parametrize("begun", [True, False])
def test_a_fork_of_the_process_has_no_reader(begun: bool, file: File):
    helper = pytest.importorskip("magnetar.storage.embedded._direct_reader")
    fd = file.direct_fileno()  # type: ignore[attr-defined]
    reader = helper.Reader()
    if begun and reader.begin(fd, 0, 4096, [(0, 100)], 1, 0) < 0:
        pytest.skip("a file system without direct reads")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the process has threads
        child = os.fork()
    if child == 0:
        try:
            refused = reader.begin(fd, 0, 4096, [(0, 100)], 1, 0) == -1
            reader.close()
        except BaseException:
            os._exit(2)
        os._exit(0 if refused else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    if begun:
        while not (ended := reader.reap()):
            pass
        assert ended == [(0, 4096)]
        assert reader.take(0) == (CONTENT[:100], bytes(8))
    reader.close()


async def backlog(world: World) -> Any:
    """A store with BODIES in a ledger that is no longer in the cache; returns (store, ledger id)."""
    storage = await world.open(SMALL_CACHE)
    writer = await storage.ledgers.create()
    for start in range(0, len(BODIES), 8):
        await append(writer, BODIES[start : start + 8])
    return storage, writer


@pytest.mark.parametrize("written", [True, False], ids=["ledger file", "journal"])
async def test_pieces_in_order_come_from_the_direct_reader(written: bool):
    world = World()
    storage, writer = await backlog(world)
    if written:
        await writer.close()
        await storage.checkpoint()
        await settle(200)
    assert await read_all(storage.ledgers, writer.ledger_id, len(BODIES) - 1) == BODIES
    assert world.direct.useful > 10
    assert world.direct.useful == world.direct.reads
    await storage.close()


async def test_a_reader_that_reads_less_than_a_piece_gives_smaller_pieces():
    world = World()
    storage, writer = await backlog(world)
    world.direct._most_bytes = 1 << 10
    assert await read_all(storage.ledgers, writer.ledger_id, len(BODIES) - 1) == BODIES
    assert world.direct.useful == world.direct.reads > 80
    await storage.close()


async def test_a_failing_direct_read_is_repeated_in_the_pool():
    world = World()
    storage, writer = await backlog(world)
    failing = world.direct._pool.run

    def run(job: Any, done: Any) -> None:
        failing(job, lambda data, _: done(None, OSError(5, "simulated")))

    world.direct._pool.run = run
    assert await read_all(storage.ledgers, writer.ledger_id, len(BODIES) - 1) == BODIES
    assert world.direct.reads > 10
    assert not world.direct.useful
    await storage.close()


async def test_entries_larger_than_a_piece_are_read_in_the_pool():
    world = World()
    storage = await world.open(SMALL_CACHE)
    writer = await storage.ledgers.create()
    bodies = [b"%02d" % number * 9000 for number in range(30)]
    for body in bodies:
        await append(writer, [body])
    await writer.close()
    await storage.checkpoint()
    await settle(200)
    assert await read_all(storage.ledgers, writer.ledger_id, len(bodies) - 1) == bodies
    assert not world.direct.useful
    await storage.close()


async def test_damage_costs_the_damaged_entry_alone():
    world = World()
    storage, writer = await backlog(world)
    await writer.close()
    await storage.checkpoint()
    await settle(200)
    path = Layout(ROOT).ledger(writer.ledger_id)
    world.disk.flip_bit(path, world.disk.content(path).index(BODIES[200]) * 8 + 1)
    assert await read_all(storage.ledgers, writer.ledger_id, 199) == BODIES[:200]
    with pytest.raises(CorruptEntryError) as caught:
        await storage.ledgers.read(writer.ledger_id, 200, 200, 1)
    assert caught.value.position.entry_id == 200
    found = await storage.ledgers.read(writer.ledger_id, 201, 399, 1 << 20)
    assert found[0].first_entry_id <= 201
    await storage.close()
