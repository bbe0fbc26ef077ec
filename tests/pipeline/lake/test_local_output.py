"""A local file written in blocks by a thread: any sizes of writes, with and without O_DIRECT, and failing disks."""

import errno
import fcntl
import os
import random
import threading

import pytest

from magnetar.pipeline.lake import local_output
from magnetar.pipeline.lake.local_output import ALIGNMENT, BLOCK_BYTES, LocalOutput

WAYS = pytest.mark.parametrize("direct", [True, False], ids=["direct", "cached"])
POOL = random.Random(1).randbytes(5 * BLOCK_BYTES)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "f"


def is_direct(descriptor):
    return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)


def replace_pwrite(monkeypatch, write):
    """`write(real, descriptor, data, offset)` in place of os.pwrite."""
    real = os.pwrite
    monkeypatch.setattr(local_output.os, "pwrite", lambda *of_call: write(real, *of_call))


@WAYS
@pytest.mark.parametrize(
    "sizes",
    [
        [],
        [0, 1, ALIGNMENT],
        [BLOCK_BYTES - 1, 1],
        [BLOCK_BYTES, BLOCK_BYTES, BLOCK_BYTES],
        [5, 3 * BLOCK_BYTES - 5, 7],
        [BLOCK_BYTES // 3] * 8,
        [1, BLOCK_BYTES + ALIGNMENT + 1, 2 * BLOCK_BYTES - 1, 4],
    ],
    ids=str,
)
def test_the_file_has_the_bytes_in_their_order(path, sizes, direct):
    output, at = LocalOutput(str(path), direct=direct), 0
    for size in sizes:
        assert output.tell() == at
        assert output.write(POOL[at : at + size]) == size
        at += size
    output.close()
    output.close()
    assert output.tell() == at
    assert path.read_bytes() == POOL[:at]


def test_a_new_file_replaces_an_old_file(path):
    path.write_bytes(b"longer than the new content")
    output = LocalOutput(str(path))
    output.write(b"new")
    output.close()
    assert path.read_bytes() == b"new"


def test_whole_blocks_go_past_the_cache_and_the_rest_through_it(path, monkeypatch):
    seen = []

    def write(real, descriptor, data, offset):
        seen.append((is_direct(descriptor), offset, len(data)))
        return real(descriptor, data, offset)

    replace_pwrite(monkeypatch, write)
    output = LocalOutput(str(path))
    if output._disk._direct is None:
        pytest.skip("this file system has no O_DIRECT")
    output.write(POOL[: 2 * BLOCK_BYTES + 9])
    output.close()
    assert seen == [(True, 0, BLOCK_BYTES), (True, BLOCK_BYTES, BLOCK_BYTES), (False, 2 * BLOCK_BYTES, 9)]


@pytest.mark.parametrize("refused_after", [0, 1])
def test_a_file_system_that_refuses_direct_writes(path, monkeypatch, refused_after):
    left = [refused_after]

    def write(real, descriptor, data, offset):
        if is_direct(descriptor):
            if not left[0]:
                raise OSError(errno.EINVAL, "Invalid argument")
            left[0] -= 1
        return real(descriptor, data, offset)

    replace_pwrite(monkeypatch, write)
    output = LocalOutput(str(path))
    output.write(POOL)
    output.close()
    assert path.read_bytes() == POOL


@WAYS
@pytest.mark.parametrize("most", [100, ALIGNMENT, 3 * ALIGNMENT + 1])
def test_writes_that_take_a_part(path, monkeypatch, direct, most):
    """A signal or a nearly full disk may end a write early, at any byte."""
    part = [True]

    def write(real, descriptor, data, offset):
        part[0] = not part[0]
        step = data[: most - most % ALIGNMENT] if is_direct(descriptor) else data[:most]
        return real(descriptor, data if part[0] else step, offset)

    replace_pwrite(monkeypatch, write)
    output = LocalOutput(str(path), direct=direct)
    output.write(POOL[: 2 * BLOCK_BYTES + 9])
    output.close()
    assert path.read_bytes() == POOL[: 2 * BLOCK_BYTES + 9]


@WAYS
def test_an_error_of_the_thread_reaches_the_caller_every_time(path, monkeypatch, direct):
    def write(real, descriptor, data, offset):
        if offset >= BLOCK_BYTES:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data, offset)

    replace_pwrite(monkeypatch, write)
    before = threading.active_count()
    output = LocalOutput(str(path), direct=direct)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            output.write(POOL)
    with pytest.raises(OSError, match="No space left"):
        output.close()
    output.close()
    assert threading.active_count() == before
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(output._disk._file)


def test_without_direct_writes_the_thread_syncs_now_and_then(path, monkeypatch):
    """The kernel reports an error of writing back once: an early sync that fails ends the file."""
    monkeypatch.setattr(local_output, "SYNC_BYTES", 2 * BLOCK_BYTES)
    failing = [OSError(errno.EIO, "Input/output error")]

    def fdatasync(_):
        if failing:
            raise failing.pop()

    monkeypatch.setattr(local_output.os, "fdatasync", fdatasync)
    output = LocalOutput(str(path), direct=False)
    output.write(POOL[: 2 * BLOCK_BYTES])
    with pytest.raises(OSError, match="Input/output"):
        output.close()
    assert not failing


def test_a_small_file_needs_no_thread(path):
    before = threading.active_count()
    output = LocalOutput(str(path))
    output.write(POOL[:1000])
    assert threading.active_count() == before
    output.close()
    assert path.read_bytes() == POOL[:1000]
