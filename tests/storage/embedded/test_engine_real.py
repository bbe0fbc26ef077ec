"""The engine on the real file system, with real threads and SQLite: kill -9, thousands of ledgers, stats."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from magnetar.storage.embedded.engine import EngineSettings, open_embedded
from magnetar.storage.embedded.environment import EngineEnvironment
from magnetar.storage.embedded.files import RealFiles
from magnetar.storage.embedded.verify.command import verify_store
from magnetar.storage.errors import StorageClosedError, StorageFailedError, StorageFullError
from tests.storage.engine_for_tests import append, read_all
from tests.storage.records_for_tests import slab_of
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.engine import EmbeddedStorage

REPOSITORY = Path(__file__).parents[3]

WRITER = """
import asyncio, sys
from magnetar.storage.embedded.engine import EngineSettings, open_embedded
from tests.storage.engine_for_tests import append
from tests.storage.records_for_tests import slab_of

async def main():
    storage = await open_embedded(sys.argv[1], EngineSettings(checkpoint_bytes=1 << 16, journal_segment_bytes=1 << 16,
        journal_first_segment_bytes=1 << 16, journal_zeroed_bytes=0))
    number = 0
    while True:
        writer = await storage.ledgers.create()
        for _ in range(40):
            bodies = [b"%d:%d:" % (writer.ledger_id, writer.last_add_pushed + 1 + k) + b"." * 300 for k in range(7)]
            await append(writer, bodies)
            print(writer.ledger_id, writer.last_add_confirmed, flush=True)
        if number % 2:
            await writer.close()
        number += 1

asyncio.run(main())
"""


@pytest.mark.parametrize("receipts", [3, 90, 400])
def test_kill_9_loses_nothing_acknowledged(tmp_path, receipts):
    """A process is killed in the middle of appends; every entry it reported is there afterwards."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", WRITER, str(tmp_path / "data")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=REPOSITORY)
    promised: dict[int, int] = {}
    assert process.stdout is not None
    lines = 0
    for line in process.stdout:
        words = line.split()
        if len(words) == 2 and words[0].isdigit():
            promised[int(words[0])] = int(words[1])
            lines += 1
        if lines == receipts:
            break
    process.send_signal(signal.SIGKILL)
    for line in process.stdout:
        words = line.split()
        if line.endswith(b"\n") and len(words) == 2 and words[0].isdigit():
            promised[int(words[0])] = int(words[1])
    process.stdout.close()
    process.wait()
    assert not verify_store(str(tmp_path / "data")).damaged

    async def check() -> None:
        storage = await open_embedded(str(tmp_path / "data"))
        assert not storage.recovery.damaged_entries
        assert not storage.recovery.damaged_files
        for ledger_id, last in promised.items():
            info = await storage.ledgers.open_recover(ledger_id)
            assert info.last_entry_id >= last
            bodies = await read_all(storage.ledgers, ledger_id, info.last_entry_id)
            assert bodies == [b"%d:%d:" % (ledger_id, k) + b"." * 300 for k in range(info.entries)]
        await storage.close()

    asyncio.run(check())


async def test_thousands_of_idle_ledgers_hold_no_files(tmp_path):
    storage = await open_embedded(str(tmp_path), EngineSettings(max_open_files=16))
    writers = await asyncio.gather(*(storage.ledgers.create() for _ in range(2000)))
    for writer in writers[:100]:
        await append(writer, [b"one"])
    await storage.checkpoint()
    stats = storage.stats()
    assert stats.open_files <= 16
    assert len(os.listdir(tmp_path / "ledgers")) == 100
    await storage.close()
    storage = await open_embedded(str(tmp_path))
    assert len(await storage.ledgers.list_ledgers()) == 2000
    assert storage.stats().open_files == 0
    assert await read_all(storage.ledgers, writers[50].ledger_id, 0) == [b"one"]
    await storage.close()


async def test_stats_count_the_operations(tmp_path):
    storage = await open_embedded(str(tmp_path))
    writer = await storage.ledgers.create()
    await append(writer, [b"x" * 100] * 10)
    storage.ledgers.read_cached(writer.ledger_id, 0, 0, 1)
    await storage.checkpoint()
    stats = storage.stats()
    assert (stats.appended_entries, stats.appended_bytes) == (10, 1320)
    assert stats.journal_frames == sum(stats.journal_sync.counts) == 1
    assert stats.checkpoints == 1
    assert stats.unwritten_bytes == 0
    assert (stats.cache.hits, stats.state) == (1, "running")
    await storage.close()


async def test_many_writers_share_their_syncs(tmp_path):
    storage = await open_embedded(str(tmp_path))
    writers = [await storage.ledgers.create() for _ in range(50)]
    answered = asyncio.get_running_loop().create_future()
    left = [50 * 20]

    def done(error):
        assert error is None
        left[0] -= 1
        if not left[0]:
            answered.set_result(None)

    for number in range(20):
        for writer in writers:
            writer.append(slab_of(writer.ledger_id, number, [b"e"], writer.record_proof), done)
    await answered
    assert storage.stats().journal_frames < 200
    await storage.close()


async def test_entries_larger_than_a_segment_survive_a_crash(tmp_path):
    storage = await open_embedded(str(tmp_path / "a"))
    writer = await storage.ledgers.create()
    bodies = [b"small", os.urandom(5 << 20), b"", os.urandom(9 << 20), b"last"]
    for body in bodies:
        await append(writer, [body])
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    await storage.close()
    for name in "ab":
        storage = await open_embedded(str(tmp_path / name))
        assert (await storage.ledgers.open_recover(writer.ledger_id)).last_entry_id == 4
        assert await read_all(storage.ledgers, writer.ledger_id, 4) == bodies
        await storage.close()


async def test_appends_wait_while_too_much_is_unwritten_and_then_go_on(tmp_path):
    settings = EngineSettings(max_unwritten_bytes=4096, write_behind_bytes=1)
    storage = await open_embedded(str(tmp_path), settings)
    writer = await storage.ledgers.create()
    answers: list[object] = []
    answered = asyncio.get_running_loop().create_future()

    def done(error: object) -> None:
        answers.append(error)
        if len(answers) == 50:
            answered.set_result(None)

    for number in range(50):
        writer.append(slab_of(writer.ledger_id, number, [b"x" * 3000], writer.record_proof), done)
    await answered
    assert answers == [None] * 50
    await storage.close()


async def all_bodies(storage: EmbeddedStorage, ledger_id: int, entries: int) -> list[bytes]:
    """The entries as a dispatcher reads them: from memory where they are, else from the device."""
    found: list[bytes] = []
    while len(found) < entries:
        first = len(found)
        slab = storage.ledgers.read_cached(ledger_id, first, entries - 1, 64 << 10)
        slabs = [slab] if slab else await storage.ledgers.read(ledger_id, first, entries - 1, 64 << 10)
        for item in slabs:
            span = item.span(max(first, item.first_entry_id), entries - 1)
            found += [bytes(span.body(k)) for k in range(span.entries)]
    return found


def counted(calls: collections.Counter[str], name: str, function: Callable[..., bytes]) -> Callable[..., bytes]:
    def call(*arguments: int) -> bytes:
        calls[name] += 1
        return function(*arguments)

    return call


async def test_backlog_is_read_in_pieces_with_read_ahead(tmp_path, monkeypatch):
    settings = EngineSettings(cache_bytes=1 << 20, read_piece_bytes=64 << 10)
    storage = await open_embedded(str(tmp_path), settings)
    writer = await storage.ledgers.create()
    bodies = [b"%06d" % number * 100 for number in range(3000)]
    for start in range(0, 3000, 100):
        await append(writer, bodies[start : start + 100])
    await writer.close()
    await storage.checkpoint()
    files, calls = storage._parts.ledger_files, collections.Counter[str]()
    once = storage._parts.reads._once
    for name, owner, method in (("read", files, "read"), ("read_once", once, "read"), ("read_once", once, "begin")):
        monkeypatch.setattr(owner, method, counted(calls, name, getattr(owner, method)))
    assert await all_bodies(storage, writer.ledger_id, 3000) == bodies
    assert calls["read_once"] > 20, "the first reader reads past the cache"
    before = calls["read_once"]
    assert await all_bodies(storage, writer.ledger_id, 3000) == bodies
    assert calls["read_once"] <= before + 1, (
        "the system's cache keeps the pieces of the second reader, but for the last"
    )
    stats = storage.stats()
    assert stats.read_aheads > 5
    assert stats.cache.held_bytes <= 1 << 20
    await storage.close()


@pytest.mark.parametrize(
    ("number", "expected", "failed"),
    [(errno.EIO, StorageFailedError, True), (errno.ENOSPC, StorageFullError, False)],
)
async def test_errors_under_the_metadata_are_typed_and_a_failing_disk_fails_the_store(
    tmp_path, number, expected, failed
):
    storage = await open_embedded(str(tmp_path))
    await storage.metadata.put("/a", b"1")
    log = storage.metadata._log
    append = log.append

    def broken(_payload: bytes) -> None:
        raise OSError(number, "simulated")

    log.append = broken
    with pytest.raises(expected):
        await storage.metadata.put("/a", b"2")
    log.append = append
    assert await storage.metadata.get("/a") == (b"1", 0)
    assert (storage.health.failed is not None) == failed
    if failed:
        with pytest.raises(StorageFailedError):
            await storage.metadata.put("/a", b"2")
    else:
        assert await storage.metadata.put("/a", b"2") == 1
    await storage.close()


async def test_appends_to_an_engine_that_closes_are_answered_in_order(tmp_path):
    """Also those that come while the lane ends its last frames, and those behind its end."""
    storage = await open_embedded(str(tmp_path / "data"))
    writer, answers, pushed = await storage.ledgers.create(), [], []

    def push():
        slab = slab_of(writer.ledger_id, writer.last_add_pushed + 1, [b"x"], writer.record_proof)
        pushed.append(len(pushed))
        writer.append(slab, lambda error, number=pushed[-1]: answers.append((number, error)))

    push()
    closing = asyncio.create_task(storage.close())
    while not closing.done():
        push()
        await asyncio.sleep(0)
    push()
    await until(lambda: len(answers) == len(pushed))
    assert [number for number, _ in answers] == pushed
    stored = writer.last_add_confirmed + 1
    assert stored >= 1
    assert writer.last_add_pushed == writer.last_add_confirmed
    assert [error for _, error in answers[:stored]] == [None] * stored
    assert {type(error) for _, error in answers[stored:]} == {StorageClosedError}


async def test_too_few_descriptors_are_no_lack_of_space(tmp_path):
    class Files(RealFiles):
        def open(self, path, **options):
            raise OSError(errno.EMFILE, "Too many open files", path)

    environment = dataclasses.replace(EngineEnvironment.real(), files=Files())
    with pytest.raises(OSError, match="Too many open files"):
        await open_embedded(str(tmp_path / "data"), None, environment)
