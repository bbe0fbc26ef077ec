"""The process of the guard: ends a broker that stands still. Uses only the standard library, so that it is small and
starts quickly.

    python -S -E guard_process.py BROKER_PID TICK_SECONDS TICKS

The broker writes to its standard input while its event loop turns. After so many consecutive ticks without input the
guard kills the broker; when the broker ends, the guard ends. A tick is a wait of this process: a time in which both
processes were suspended, with their machine or their shell, counts as a single tick. A starved broker gets
``PATIENCE`` times as many ticks.
"""

import os
import select
import signal
import sys

PATIENCE = 3


def main(broker: int, tick_s: float, ticks: int) -> int:
    """The exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the broker decides when it ends
    missed, used_s = 0, processor_s(broker)
    while missed < ticks or (missed < PATIENCE * ticks and is_starved(broker, used_s, missed * tick_s)):
        if select.select([0], [], [], tick_s)[0]:
            if not os.read(0, 4096):
                return 0
            missed, used_s = 0, processor_s(broker)
        else:
            missed += 1
    if os.getppid() == broker:
        text = f"the broker has stood still for {missed * tick_s:g} s and is ended: its clients wait for it"
        os.write(2, f"magnetar: error: {text}\n".encode())
        os.kill(broker, signal.SIGKILL)
    return 0


def is_starved(broker: int, used_s: float, silent_s: float) -> bool:
    """Whether a thread of the broker is ready to run, and the broker has had a processor for less than half of
    ``silent_s`` since ``processor_s`` was ``used_s``. Such a broker neither is suspended nor computes without an end:
    other processes take the processors, and the next owners of its topics would get no more of these.
    """
    return processor_s(broker) - used_s < silent_s / 2 and _has_ready_thread(broker)


def processor_s(process: int) -> float:
    """Seconds of processor time of a process; 0 where the system does not report these."""
    try:
        fields = _fields(f"/proc/{process}/stat")
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def _has_ready_thread(process: int) -> bool:
    folder = f"/proc/{process}/task"
    try:
        threads = os.listdir(folder)  # noqa: PTH208 - pathlib takes longer to load than the rest of the program
        return any(_fields(f"{folder}/{thread}/stat")[0] == "R" for thread in threads)
    except (OSError, IndexError):
        return False


def _fields(path: str) -> list[str]:
    """The fields behind the name of the program, the state first (proc_pid_stat(5))."""
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - the same
        return file.read().rpartition(")")[2].split()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])))
