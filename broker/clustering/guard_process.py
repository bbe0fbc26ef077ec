"""The process of the guard: ends a broker that stands still. With the standard library alone, to be small and quick.

    python -S -E guard_process.py BROKER_PID TICK_SECONDS TICKS

The broker writes to its standard input while its event loop turns. When nothing came for so many ticks, one after the
other, the broker is killed; when the broker ends, the guard does. Ticks are waits of this process: a time in which both
were suspended, with their machine or their shell, counts as one.
"""

import os
import select
import signal
import sys


def main(broker: int, tick_s: float, ticks: int) -> int:
    """The exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the broker decides when it ends
    missed = 0
    while missed < ticks:
        if select.select([0], [], [], tick_s)[0]:
            if not os.read(0, 4096):
                return 0
            missed = 0
        else:
            missed += 1
    if os.getppid() == broker:
        text = f"the broker has stood still for {ticks * tick_s:g} s and is ended: its clients wait for it"
        os.write(2, f"magnetar: error: {text}\n".encode())
        os.kill(broker, signal.SIGKILL)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])))
