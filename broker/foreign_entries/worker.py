"""The worker process: builds the chain of its first message, then converts one entry after the other.

The process ends at the end of its input (the broker closed the pipe or ended). On Linux the kernel kills the process
when the broker ends, and the address space of the process is limited. Output of foreign code goes to the broker's
standard error.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from typing import TYPE_CHECKING, BinaryIO, Final

import msgspec

from magnetar.broker.foreign_entries import frames
from magnetar.broker.foreign_entries.loading import load
from magnetar.broker.time_slices import set_slice

if TYPE_CHECKING:
    from magnetar.converters.chain import ConverterChain


_PR_SET_PDEATHSIG = 1
NICENESS: Final = 10
SLICE_NS: Final = 50_000_000
"""Time slice of a worker."""


def main() -> None:
    """Entry point of `python -m magnetar.broker.foreign_entries.worker`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the broker, which then ends the worker
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # a terminal may stop background processes that print
    _die_with_parent()
    source, sink = _take_pipes()
    hello = msgspec.json.decode(_frame(source), type=frames.Hello)
    sys.path[:] = hello.path
    _limit(hello.memory_bytes)
    chain, welcome = load(hello)
    data = msgspec.json.encode(welcome)
    _write(sink, [frames.SIZE.pack(len(data)), data])
    try:
        while entry := _frame(source):
            _write(sink, frames.encode_answer(answer(chain, entry)))
    finally:
        chain.close()


def answer(chain: ConverterChain, entry: bytes) -> frames.Answer:
    """Convert one entry."""
    chosen = chain.select(entry)
    return frames.DECLINED if chosen is None else chain.convert(entry, chosen)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 - only here

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1:
            sys.exit(0)  # the broker ended before the worker looked


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Return standard input and output for the worker alone. Foreign code gets an empty standard input, and its
    standard output is standard error.
    """
    source, sink = os.fdopen(os.dup(0), "rb", 1 << 16), os.fdopen(os.dup(1), "wb", 0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return source, sink


def _limit(memory_bytes: int) -> None:
    refusals = () if sys.platform == "linux" else (OSError, ValueError)  # macOS has no such limit
    with contextlib.suppress(*refusals):
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    go_behind()


def _frame(source: BinaryIO) -> bytes:
    """The next frame; empty at the end of the input or for an incomplete frame."""
    head = source.read(frames.SIZE.size)
    if len(head) < frames.SIZE.size:
        return b""
    (size,) = frames.SIZE.unpack(head)
    data = source.read(size)
    return data if len(data) == size else b""


def _write(sink: BinaryIO, parts: list[bytes]) -> None:
    for part in parts:
        view = memoryview(part)
        while view:
            view = view[sink.write(view) :]


def go_behind() -> None:
    """Give the broker priority; unsupported or forbidden system calls are skipped.

    Takes three measures, because no single measure is enough:

    - a niceness, so that a worker gets a small share of a busy processor, but always a share (`SCHED_IDLE` may starve
      it until its conversions exceed their time limit);
    - `SCHED_BATCH`: a waiting conversion interrupts no other process;
    - a long time slice (`time_slices`). With equal slices a broker woken up waits for the next tick, up to 4 ms, with
      any niceness.

    The niceness counts among processes of one session (sched_autogroup_enabled): a worker has a process group of its
    own, but the session of its broker.
    """
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    set_slice(SLICE_NS, os.SCHED_BATCH)


if __name__ == "__main__":
    main()
