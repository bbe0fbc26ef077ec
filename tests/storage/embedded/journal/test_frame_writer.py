"""The compiled writer on real files: the same bytes as ``format.py`` makes, and every way an error can come."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import pathlib
import random
import select
import struct
import tempfile
from typing import TYPE_CHECKING

import pytest

from magnetar.protocol.checksum import crc32c
from magnetar.storage.embedded.files import RealFiles
from magnetar.storage.embedded.journal.format import PAGE_BYTES, encode_frame
from magnetar.storage.embedded.journal.frame_writer import CompiledFrameWriter, Frame, open_frame_writer
from tests.storage.embedded.journal.frame_twins import CHECKS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from magnetar.storage.embedded.files import File

helper = pytest.importorskip("magnetar.storage.embedded.journal._frame_writer")
WAYS = pytest.mark.parametrize(
    ("is_awaited", "direct"), [(True, True), (False, True), (False, False)], ids=["async", "thread", "cache"]
)
PAYLOADS = [
    [],
    [b""],
    [b"a"],
    [b"x" * 4032],
    [b"x" * 4033],
    [bytes(100), b"", b"y" * 9000],
    [os.urandom(300_000), b"z"],
]


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    """A folder beside the sources, on a disk: a temporary folder may lie in memory and refuse direct writes."""
    with tempfile.TemporaryDirectory(dir=pathlib.Path(__file__).parent) as name:
        yield pathlib.Path(name)


def frame_of(file: File, payload: list[bytes], offset: int = PAGE_BYTES, prefix: bytes = b"") -> Frame:
    return Frame(file, offset, prefix, 3, 1 << 63, 77, -5, 9, payload)


async def written(writer: CompiledFrameWriter, frame: Frame, is_awaited: bool = False) -> OSError | None:
    future: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()

    def done(error: OSError | None, seconds: float) -> None:
        assert 0 <= seconds < 60
        future.set_result(error)

    writer.write(frame, done, is_awaited=is_awaited)
    assert not future.done(), "never within the call"
    return await future


@WAYS
async def test_the_bytes_are_those_of_the_format(folder: pathlib.Path, is_awaited: bool, direct: bool):
    writer = CompiledFrameWriter()
    file = RealFiles(direct=direct).open(str(folder / "segment"), create=True)
    file.allocate(1 << 20)
    offset = 0
    for payload in PAYLOADS:
        prefix = os.urandom(PAGE_BYTES) if offset == 0 else b""
        frame = frame_of(file, payload, offset, prefix)
        assert await written(writer, frame, is_awaited) is None
        expected = prefix + b"".join(encode_frame(3, 1 << 63, 77, payload, -5, 9))
        assert b"".join(frame.buffers()) == expected
        assert file.read(len(expected), offset) == expected
        offset += len(expected)
    writer.close()
    file.close()


@WAYS
@pytest.mark.parametrize("known", ["all", "some"])
async def test_known_checksums_give_the_same_bytes(folder: pathlib.Path, is_awaited: bool, direct: bool, known: str):
    writer = CompiledFrameWriter()
    file = RealFiles(direct=direct).open(str(folder / "segment"), create=True)
    file.allocate(1 << 20)
    for payload in (*PAYLOADS, [os.urandom(size) for size in (0, 1, 511, 512, 513, 65_600, 100_000)]):
        checksums = [crc32c(one) if known == "all" or k % 2 else -1 for k, one in enumerate(payload)]
        assert await written(writer, frame_of(file, payload, 0)._replace(checksums=checksums), is_awaited) is None
        expected = b"".join(encode_frame(3, 1 << 63, 77, payload, -5, 9))
        assert file.read(len(expected), 0) == expected
    writer.close()
    file.close()


@pytest.mark.parametrize("checksums", [[1], [1, 2, 3], [1, 1 << 32], [-2, 0]], ids=str)
async def test_checksums_that_cannot_be_are_refused(folder: pathlib.Path, checksums: list[int]):
    writer = CompiledFrameWriter()
    file = RealFiles(direct=False).open(str(folder / "segment"), create=True)
    frame = frame_of(file, [b"a", b"b"], 0)
    with pytest.raises(ValueError, match="checksum"):
        writer.write(frame._replace(checksums=checksums), lambda *_: None)
    assert await written(writer, frame) is None
    writer.close()
    file.close()


@WAYS
async def test_views_of_larger_buffers_are_written_as_they_are(folder: pathlib.Path, is_awaited: bool, direct: bool):
    writer = CompiledFrameWriter()
    file = RealFiles(direct=direct).open(str(folder / "segment"), create=True)
    whole = os.urandom(10_000)
    views = [memoryview(whole)[7:5000], memoryview(whole)[5000:9999]]
    assert await written(writer, frame_of(file, views, 0), is_awaited) is None  # type: ignore[arg-type]
    assert file.read(1 << 20, 0) == b"".join(encode_frame(3, 1 << 63, 77, views, -5, 9))
    writer.close()
    file.close()


@pytest.mark.parametrize("is_awaited", [True, False], ids=["async", "thread"])
async def test_a_wait_ends_with_the_report_of_the_frame(folder: pathlib.Path, is_awaited: bool):
    writer = CompiledFrameWriter()
    file = RealFiles(direct=True).open(str(folder / "segment"), create=True)
    assert not writer.wait(60.0), "no frame is under way"
    reported: list[OSError | None] = []
    for number in range(20):
        frame = frame_of(file, [bytes([number]) * 100_000], number * 32 * PAGE_BYTES)
        writer.write(frame, lambda error, _seconds: reported.append(error), is_awaited=is_awaited)
        for _ in range(10_000):  # the end comes within a wait, or other threads took the processor meanwhile
            if writer.wait(60.0):
                break
        assert reported == [None] * (number + 1)
        assert not writer.wait(0.0), "a frame ends once"
        assert file.read(32 * PAGE_BYTES, frame.offset) == b"".join(frame.buffers())
    for _ in range(3):
        await asyncio.sleep(0.001)  # the descriptor reports ends that were taken before
    assert len(reported) == 20
    writer.close()
    assert not writer.wait(0.0)
    file.close()


@WAYS
async def test_errors_of_the_system_are_reported_and_the_writer_goes_on(
    folder: pathlib.Path, is_awaited: bool, direct: bool
):
    writer = CompiledFrameWriter()
    files = RealFiles(direct=direct)
    full, good = files.open("/dev/full"), files.open(str(folder / "segment"), create=True)
    error = await written(writer, frame_of(full, [b"x"]), is_awaited)
    assert error is not None
    assert error.errno == errno.ENOSPC
    assert await written(writer, frame_of(good, [b"x"]), is_awaited) is None
    read_only = files.open_read_only(str(folder / "segment"))
    error = await written(writer, frame_of(read_only, [b"x"]), is_awaited)
    assert error is not None
    assert error.errno == errno.EBADF
    assert await written(writer, frame_of(good, [b"x"], 2 * PAGE_BYTES), is_awaited) is None
    writer.close()
    for file in (full, good, read_only):
        file.close()


@pytest.mark.parametrize("is_awaited", [True, False], ids=["async", "thread"])
async def test_a_file_system_that_refuses_direct_writes_gets_ordinary_writes(folder: pathlib.Path, is_awaited: bool):
    """The test uses an offset between blocks: the refusal is that of a file system without direct writes."""
    writer = CompiledFrameWriter()
    file = RealFiles().open(str(folder / "segment"), create=True)
    file.allocate(1 << 20)
    assert await written(writer, frame_of(file, [b"odd"], 100), is_awaited) is None
    assert await written(writer, frame_of(file, [b"even"], 2 * PAGE_BYTES), is_awaited) is None
    assert writer.submitted() <= 1, "the thread writes all that follows"
    assert file.read(PAGE_BYTES, 100) == b"".join(encode_frame(3, 1 << 63, 77, [b"odd"], -5, 9))
    assert file.read(PAGE_BYTES, 2 * PAGE_BYTES) == b"".join(encode_frame(3, 1 << 63, 77, [b"even"], -5, 9))
    writer.close()
    file.close()


async def test_without_a_descriptor_for_direct_writes_a_frame_goes_through_the_cache(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(_fd: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    writer = CompiledFrameWriter()
    file = RealFiles().open(str(folder / "segment"), create=True)
    with monkeypatch.context() as patched:
        patched.setattr("magnetar.storage.embedded.files.open_direct", refuse)
        assert await written(writer, frame_of(file, [b"x"])) is None
    assert file.read(PAGE_BYTES, PAGE_BYTES) == b"".join(encode_frame(3, 1 << 63, 77, [b"x"], -5, 9))
    assert await written(writer, frame_of(file, [b"y"], 2 * PAGE_BYTES)) is None
    writer.close()
    file.close()


def ready_segment(folder: pathlib.Path) -> File:
    """A segment whose bytes are written, as the journal's are: a direct write changes no metadata of the file system."""
    file = RealFiles(direct=True).open(str(folder / "segment"), create=True)
    file.write([bytes(1 << 20)], 0, durable=True)
    try:
        file.direct_fileno()
    except OSError:
        pytest.skip("this file system has no direct writes")
    return file


async def test_an_awaited_frame_needs_no_thread(folder: pathlib.Path):
    file = ready_segment(folder)
    with_async, without = CompiledFrameWriter(), CompiledFrameWriter(is_async=False)
    for writer in (with_async, without):
        for number, is_awaited in enumerate([True, False, True]):
            frame = frame_of(file, [bytes([number])], number * PAGE_BYTES)
            assert await written(writer, frame, is_awaited) is None
            assert file.read(PAGE_BYTES, frame.offset) == b"".join(frame.buffers())
    assert with_async.submitted() == 2, "the frames that are awaited"
    assert without.submitted() == 0
    with_async.close()
    without.close()
    file.close()


async def test_close_waits_for_an_awaited_frame(folder: pathlib.Path):
    file = ready_segment(folder)
    for number in range(20):
        writer = CompiledFrameWriter()
        frame = frame_of(file, [bytes([number]) * 30_000], number * 8 * PAGE_BYTES)
        writer.write(frame, lambda _error, _seconds: None, is_awaited=True)
        writer.close()
        assert file.read(8 * PAGE_BYTES, frame.offset) == b"".join(frame.buffers())
    file.close()


TAIL_AT = 12
"""The place of ``tail`` in a ring."""
RING_AT = 32
"""The place of ``ring`` in a ``Writer`` of ``_frame_writer.c``; ``aio``, which has the same address, lies before it."""


def made_ring(writer: CompiledFrameWriter, result: int, tail: int) -> ctypes.Array[ctypes.c_char]:
    """Give the writer a ring in which `tail` requests, 0 or 1, have ended with this result, whatever the system
    reports.
    """
    place = id(writer._writer) + RING_AT
    aio, ring = struct.unpack("QQ", ctypes.string_at(place - 8, 16))
    if not ring:
        pytest.skip("the system has no asynchronous I/O")
    assert aio == ring
    head, count = 0, 8
    made = ctypes.create_string_buffer(struct.pack("8I", 0, count, head, tail, 0, 0, 0, 32), 32 + count * 32)
    struct.pack_into("QQqq", made, 32, 0, 0, result, 0)
    ctypes.c_uint64.from_address(place).value = ctypes.addressof(made)
    return made


@pytest.mark.parametrize(
    ("result", "found"),
    [
        (PAGE_BYTES, None),
        (0, None),
        (-errno.EAGAIN, None),
        (-errno.EINTR, None),
        (-errno.EINVAL, None),
        (-errno.EIO, errno.EIO),
    ],
    ids=["short", "nothing", "would wait", "interrupted", "refused", "failed"],
)
async def test_an_awaited_frame_is_durable_before_its_report(folder: pathlib.Path, result: int, found: int | None):
    """The thread writes a frame that the system has not written as a whole, and no frame whose write has failed."""
    file = ready_segment(folder)
    writer = CompiledFrameWriter()
    ring = made_ring(writer, result, 0)
    frame = frame_of(file, [b"y" * 9000])
    report = asyncio.ensure_future(written(writer, frame, True))
    await asyncio.sleep(0)
    assert writer.submitted() == 1
    ended = select.poll()
    ended.register(writer._writer.fileno(), select.POLLIN)
    assert ended.poll(60_000)
    file.write([bytes(3 * PAGE_BYTES)], frame.offset, durable=True)  # as if the system had written nothing
    ctypes.c_uint32.from_buffer(ring, TAIL_AT).value = 1
    error = await report
    assert (error and error.errno) == found
    expected = b"".join(frame.buffers()) if found is None else bytes(3 * PAGE_BYTES)
    assert file.read(3 * PAGE_BYTES, frame.offset) == expected
    writer.close()
    file.close()
    del ring


async def test_the_thread_writes_a_frame_at_once_for_which_the_loop_would_have_to_wait(folder: pathlib.Path):
    file = ready_segment(folder)
    writer = CompiledFrameWriter()
    ring = made_ring(writer, -errno.EAGAIN, 1)
    frame = frame_of(file, [b"y" * 9000])
    reported: list[OSError | None] = []
    writer.write(frame, lambda error, _seconds: reported.append(error), is_awaited=True)
    ring.raw = bytes(len(ring))  # the call has taken the end of the request, so that the report is the thread's
    for _ in range(10_000):
        if writer.wait(60.0):
            break
    assert reported == [None]
    assert file.read(3 * PAGE_BYTES, frame.offset) == b"".join(frame.buffers())
    writer.close()
    file.close()


async def test_with_a_preloaded_library_no_frame_passes_libc_by(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("MAGNETAR_PURE", raising=False)
    for preloaded, expected in (("", True), ("libfaults.so", False)):
        monkeypatch.setenv("LD_PRELOAD", preloaded)
        writer = open_frame_writer()
        assert isinstance(writer, CompiledFrameWriter)
        assert writer.is_async is expected
        writer.close()


async def test_one_frame_at_a_time_and_none_after_close(folder: pathlib.Path):
    writer = CompiledFrameWriter()
    file = RealFiles().open(str(folder / "segment"), create=True)
    first = asyncio.ensure_future(written(writer, frame_of(file, [b"first"])))
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="under way"):
        writer.write(frame_of(file, [b"second"]), lambda _error, _seconds: None)
    assert await first is None
    with pytest.raises(ValueError, match="whole pages"):
        writer.write(frame_of(file, [b"x"], 0, b"half a page"), lambda _error, _seconds: None)
    with pytest.raises(TypeError):
        writer.write(frame_of(file, [3]), lambda _error, _seconds: None)  # type: ignore[list-item]
    writer.close()
    writer.close()
    with pytest.raises(RuntimeError, match="closed"):
        writer.write(frame_of(file, [b"late"]), lambda _error, _seconds: None)
    file.close()


async def test_it_is_there_unless_the_pure_twins_are_wanted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("MAGNETAR_PURE", raising=False)
    writer = open_frame_writer()
    assert writer is not None
    writer.close()
    monkeypatch.setenv("MAGNETAR_PURE", "1")
    assert open_frame_writer() is None


@pytest.mark.parametrize("check", CHECKS)
def test_the_helper_does_as_its_twin(check):
    for seed in range(20):
        check(helper, random.Random(seed))


async def test_a_call_comes_after_its_time_and_replaces_the_call_before():
    writer = CompiledFrameWriter()
    loop = asyncio.get_running_loop()
    called: asyncio.Future[float] = loop.create_future()
    began = loop.time()
    writer.call_after(3600, lambda: called.set_exception(AssertionError("replaced")))
    writer.call_after(0.003, lambda: called.set_result(loop.time()))
    assert await called >= began + 0.003
    writer.close()


@pytest.mark.parametrize("delay_s", [0.0, -1.0])
async def test_a_call_whose_time_has_come_is_not_made_within_call_after(delay_s: float):
    writer = CompiledFrameWriter()
    called = asyncio.Event()
    writer.call_after(delay_s, called.set)
    assert not called.is_set()
    await called.wait()
    writer.close()


async def test_a_closed_writer_calls_nothing():
    writer = CompiledFrameWriter()
    writer.call_after(0.0, lambda: pytest.fail("called"))
    writer.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
