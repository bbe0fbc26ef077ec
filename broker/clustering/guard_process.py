"""The process of the guard: ends a broker that stands still. Uses only the standard library, so that it is small and
starts quickly.

    python -S -E guard_process.py BROKER_PID TICK_SECONDS TICKS

The broker writes to its standard input while its event loop turns. After so many consecutive ticks without input the
guard kills the broker; when the broker ends, the guard ends. A tick is a wait of this process: a time in which both
processes were suspended, with their machine or their shell, counts as a single tick.
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
