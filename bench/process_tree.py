"""CPU time and memory of this process and of all that it has started: JVMs and Python workers too. Linux only.

On a machine that others use, CPU time a message says more than the clock does.
"""

import os
import pathlib

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def _stat(pid):
    """Fields of /proc/PID/stat behind the name, None for a process that is gone."""
    try:
        return pathlib.Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def tree(root=None):
    """Process ids: the root (this process) and everything below it."""
    parents = {}
    for each in pathlib.Path("/proc").iterdir():
        if each.name.isdigit() and (found := _stat(each.name)) is not None:
            parents.setdefault(int(found[1]), []).append(int(each.name))
    pids, todo = [], [root or os.getpid()]
    while todo:
        pids.append(todo.pop())
        todo += parents.get(pids[-1], [])
    return pids


def cpu_s(pids=None):
    """CPU seconds of the processes (default: of the tree), with those of their ended children."""
    stats = [found for pid in pids or tree() if (found := _stat(pid)) is not None]
    return sum(sum(int(each) for each in found[11:15]) for found in stats) * _TICK_S


def rss_bytes(pid):
    """Resident memory in bytes; 0 for a process that is gone."""
    found = _stat(pid)
    return int(found[21]) * _PAGE if found else 0


def command_line(pid):
    """The arguments of a process with blanks between them; empty for a process that is gone."""
    try:
        return pathlib.Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""
