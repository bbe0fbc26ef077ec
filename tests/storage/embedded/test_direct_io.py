"""Writes past the cache on the real disk of the test directory, or in the ordinary way where it has no such writes."""

import ctypes
import errno
import os
import random
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.storage.embedded import direct_io, files
from magnetar.storage.embedded.files import RealFiles


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "file")


pieces = st.lists(st.integers(0, 9000), min_size=1, max_size=5)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.booleans(), pieces), max_size=12), st.integers(0, 5000), st.integers(0, 1 << 32))
def test_appended_bytes_read_back_whichever_way_they_went(writes, start, seed):
    content, random_bytes = bytearray(start), random.Random(seed).randbytes
    with tempfile.TemporaryDirectory() as folder:
        file = RealFiles().open(f"{folder}/file", create=True)
        file.write([bytes(start)], 0)
        for past_cache, sizes in writes:
            buffers = [random_bytes(size) for size in sizes]
            (file.write_past_cache if past_cache else file.write)(buffers, len(content))
            content += b"".join(buffers)
            assert file.read(len(content) + 1, 0) == content
        file.sync()
        assert file.size() == len(content)
        file.close()


def test_a_repetition_of_a_write_that_failed_half_way(path):
    """The disk was full: the same bytes go to the same offset again."""
    file = RealFiles().open(path, create=True)
    first, second = os.urandom(100_000), os.urandom(300_000)
    file.write_past_cache([first], 64)
    file.write([second[:70_000]], 100_064)
    file.write_past_cache([second], 100_064)
    assert file.read(1 << 20, 64) == first + second
    file.close()


def test_more_than_one_buffer(path, monkeypatch):
    monkeypatch.setattr(direct_io, "_BUFFER_BYTES", 8192)
    file = RealFiles().open(path, create=True)
    data = os.urandom(50_000)
    file.write_past_cache([data[:20_001], memoryview(data)[20_001:]], 10)
    assert file.read(1 << 20, 10) == data
    file.close()


@pytest.mark.parametrize("taken", [0, 8192])
def test_a_file_system_that_refuses_gets_ordinary_writes(path, monkeypatch, taken):
    real, left = os.pwrite, [taken]

    def pwrite(fd, data, offset):
        if len(data) > left[0]:
            raise OSError(errno.EINVAL, "no direct writes here")
        left[0] -= len(data)
        return real(fd, data, offset)

    monkeypatch.setattr(direct_io, "_BUFFER_BYTES", 4096)
    monkeypatch.setattr(direct_io.os, "pwrite", pwrite)
    file = RealFiles().open(path, create=True)
    data = os.urandom(30_000)
    assert file.write_past_cache([data], 1) == (taken > 0)
    assert file.write_past_cache([data], 30_001) is False
    assert file.read(1 << 20, 1) == data + data
    file.close()


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOENT, errno.EACCES])
def test_without_a_second_descriptor_writes_are_ordinary(path, monkeypatch, code):
    """Where the system refuses to open a file under /proc, the broker goes on with ordinary writes."""
    file = RealFiles().open(path, create=True)

    def refuse(_path, _flags):
        raise OSError(code, "not here")

    monkeypatch.setattr(direct_io.os, "open", refuse)
    data = os.urandom(30_000)
    assert file.write_past_cache([data], 5) is False
    assert file.read(1 << 20, 5) == data
    file.close()


def test_short_writes_go_on_at_a_block(path, monkeypatch):
    real = os.pwrite
    monkeypatch.setattr(direct_io.os, "pwrite", lambda fd, data, offset: real(fd, data[:4096], offset))
    file = RealFiles().open(path, create=True)
    data = os.urandom(30_000)
    file.write_past_cache([data], 7)
    assert file.read(1 << 20, 7) == data
    file.close()


def test_errors_of_the_device_are_raised(path, monkeypatch):
    file = RealFiles().open(path, create=True)
    if not file.write_past_cache([bytes(8192)], 0):
        pytest.skip("the test directory's file system has no direct writes")

    def full(_fd, _data, _offset):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(direct_io.os, "pwrite", full)
    with pytest.raises(OSError, match="full"):
        file.write_past_cache([bytes(8192)], 8192)
    file.close()


def test_without_direct_writes_everything_goes_through_the_cache(path):
    file = RealFiles(direct=False).open(path, create=True)
    assert not file.write_past_cache([b"x" * 20_000], 3)
    assert file.read(1 << 20, 3) == b"x" * 20_000
    file.close()


@pytest.mark.parametrize("direct", [True, False])
def test_blocks_are_read_past_the_cache_up_to_the_end_of_the_file(path, direct):
    file = RealFiles(direct=direct).open(path, create=True)
    data = os.urandom(40_000)
    file.write([data], 0)
    memory, start = direct_io.aligned_memory(64 << 10)
    target = memoryview(memory)[start : start + (64 << 10)]
    assert file.read_past_cache(target[:8192], 4096) == 8192
    assert target[:8192] == data[4096 : 4096 + 8192]
    assert file.read_past_cache(target, 0) == len(data)
    assert target[: len(data)] == data
    assert file.read_past_cache(target[:4096], 40_960) == 0
    file.close()


def test_blocks_are_read_through_the_cache_where_the_device_takes_no_direct_reads(path, monkeypatch):
    file = RealFiles().open(path, create=True)
    data = os.urandom(8192)
    file.write([data], 0)
    real, refused = os.preadv, file.direct_fileno()

    def preadv(fd, buffers, offset):
        if fd == refused:
            raise OSError(errno.EINVAL, "no direct reads")
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)
    target = memoryview(bytearray(8192))
    assert file.read_past_cache(target, 0) == 8192
    assert target == data
    file.close()


def test_errors_of_a_read_past_the_cache_are_raised(path, monkeypatch):
    file = RealFiles().open(path, create=True)
    file.write([bytes(8192)], 0)

    def broken(_fd, _buffers, _offset):
        raise OSError(errno.EIO, "bad sector")

    monkeypatch.setattr(os, "preadv", broken)
    with pytest.raises(OSError, match="bad sector"):
        file.read_past_cache(memoryview(bytearray(4096)), 0)
    file.close()


def test_no_descriptor_stays_behind(path):
    before = len(os.listdir("/proc/self/fd"))
    file = RealFiles().open(path, create=True)
    file.write_past_cache([bytes(20_000)], 0)
    file.close()
    file.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("copy", {direct_io.copy, direct_io._pure_copy}, ids=lambda function: type(function).__name__)
def test_both_copies_fill_the_target_from_the_pieces(copy):
    pieces = [memoryview(b"ab"), b"", memoryview(b"xcdefx")[1:5], bytearray(b"gh")]
    whole = b"".join(pieces)
    for start in range(len(whole) + 1):
        for size in range(len(whole) - start + 1):
            target = bytearray(size)
            copy(target, pieces, start)
            assert target == whole[start : start + size]
    target = bytearray(b"." * 8)
    with memoryview(target) as view:
        copy(view[:3], pieces, 2)
    assert target == b"cde....."
    for bad, start in ((pieces, 1), ([], 0), ([b"ab", 3], 0)):
        with pytest.raises((ValueError, TypeError)):
            copy(bytearray(8), bad, start)


@pytest.mark.parametrize("size", [2047, 2048, 2111, 2112, 2200, 4096])
def test_long_pieces_are_copied_whole_at_any_place_in_source_and_target(size):
    source, memory = bytes(i * 7 % 251 for i in range(size + 64)), bytearray(b"." * (size + 130))
    with memoryview(source) as read, memoryview(memory) as written:
        for shift in range(64):
            at = 1 + shift * 5 % 64
            direct_io.copy(written[at : at + size], [read[shift : shift + size]], 0)
            assert written[at : at + size] == read[shift : shift + size]
            assert memory[:at] == b"." * at
            assert memory[at + size :] == b"." * (130 - at)
            written[:] = b"." * len(memory)


def test_aligned_memory_is_private_for_shared_memory_gets_no_huge_pages():
    memory, start = direct_io.aligned_memory(64 << 10)
    first = ctypes.c_char.from_buffer(memory)
    address = ctypes.addressof(first) + start
    del first
    with open("/proc/self/maps") as maps:
        for line in maps:
            low, high = (int(each, 16) for each in line.split()[0].split("-"))
            if low <= address < high:
                assert line.split()[1] == "rw-p"
                return
    raise AssertionError("the memory is mapped nowhere")


def test_without_a_free_descriptor_writes_go_through_the_cache(path, monkeypatch):
    def refuse(_):
        raise OSError(errno.EMFILE, "Too many open files (simulated)")

    file, data = RealFiles().open(path, create=True), os.urandom(50_000)
    with monkeypatch.context() as patch:
        patch.setattr(files, "open_direct", refuse)
        assert not file.write_past_cache([data], 0)
    assert file.read(1 << 20, 0) == data
    file.write_past_cache([data], len(data))
    assert file.read(1 << 20, len(data)) == data
    file.close()
