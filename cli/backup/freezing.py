"""Stops a broker's process for an instant. The process is resumed in any case, also when the backup process dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from magnetar.cli.backup.own_files import holds_open, open_own
from magnetar.cli.errors import ConflictError, DeniedError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LONGEST_STOP_S: Final = 10.0
"""The guard resumes the broker after this time in any case."""
_SETTLED_S: Final = 0.05
"""Pause after the stop, within which writes that began earlier end."""
_STOPPED: Final = frozenset("Tt")
_PROCESSES: Final = Path("/proc/self")


def broker_of(data_dir: Path) -> int | None:
    """Return the id of the process that uses the directory; None when no process does.

    Raises: NotFoundError, ConflictError, DeniedError.
    """
    path = data_dir / "LOCK"
    try:
        descriptor = open_own(data_dir, "LOCK")
    except FileNotFoundError:
        if (data_dir / "VERSION").exists():  # made by `restore`, for example
            raise NotFoundError(f"no broker has used {data_dir} yet: start a broker there, or copy the whole") from None
        raise NotFoundError(
            f"{data_dir} is no data directory: it has no LOCK; name the broker's with --data-dir"
        ) from None
    except OSError as error:
        raise DeniedError(f"cannot read {path}: {error.strerror}; run this as the broker's user") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(data_dir, descriptor)
    else:
        return None
    finally:
        os.close(descriptor)


def _holder(data_dir: Path, lock: int) -> int:
    """Return the id of the process that LOCK names. LOCK may contain any number, so the process must have LOCK open.

    Raises: ConflictError, DeniedError.
    """
    if not _PROCESSES.exists():
        raise ConflictError(f"a broker uses {data_dir}: on this system, which has no /proc, stop the broker first")
    text = os.pread(lock, 32, 0).decode(errors="replace").strip()
    if not (text.isascii() and text.isdigit()) or not Path(f"/proc/{text}").exists():
        raise ConflictError(f"process {text or '?'} uses {data_dir}, but is not here: run this where the broker runs")
    try:
        holds = holds_open(int(text), lock)
    except OSError:
        raise DeniedError(f"process {text} may not be looked at: run this as its user, or as root") from None
    if not holds:
        raise ConflictError(f"LOCK of {data_dir} names process {text}, which has not opened it: it is not stopped")
    return int(text)


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop the process for the time of the context.

    Raises: DeniedError when the caller may not stop the process; ConflictError when the process has ended, does not
    stop, or was resumed by the guard before the end of the context.
    """
    release = _guard(pid)
    try:
        try:
            os.kill(pid, signal.SIGSTOP)
        except PermissionError:
            raise DeniedError(f"process {pid} may not be stopped: run this as its user, or as root") from None
        except ProcessLookupError:
            raise ConflictError(f"process {pid} has just ended: try again") from None
        _wait_stopped(pid)
        time.sleep(_SETTLED_S)
        yield
        if _state(pid) not in _STOPPED:
            raise ConflictError(f"the image took longer than {LONGEST_STOP_S:.0f} s: nothing was kept")
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGCONT)
        release()


def _wait_stopped(pid: int) -> None:
    """Return when every thread of the process is stopped. Raises: ConflictError after LONGEST_STOP_S."""
    deadline = time.monotonic() + LONGEST_STOP_S
    while any(_state(f"{pid}/task/{each.name}") not in _STOPPED for each in Path(f"/proc/{pid}/task").iterdir()):
        if time.monotonic() > deadline:
            raise ConflictError(f"process {pid} does not stop")
        time.sleep(0.001)


def _state(process: int | str) -> str:
    """Return the letter of the state of a process or thread; the empty text when the process is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(") ")[2][:1]
    except OSError:
        return ""


def _guard(pid: int) -> Callable[[], None]:
    """Start a process that resumes the broker when the backup process ends, or after LONGEST_STOP_S.

    Returns a function that ends the guard process.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.setsid()  # a signal to the group of this command does not reach the guard
        select.select([reading], [], [], LONGEST_STOP_S)  # returns once the parent has closed the pipe or is dead
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGCONT)
        os._exit(0)
    os.close(reading)

    def release() -> None:
        os.close(writing)
        os.waitpid(child, 0)

    return release
