"""`magnetar`, for tests of a stepped clock: its wall clock is ahead by the seconds in the file ``CONFIG.clock``, beside the
configuration file. Monotonic time is that of the machine.
"""

import contextlib
import pathlib
import sys
import threading
import time

ahead_s = 0.0
real_time, real_time_ns = time.time, time.time_ns


def read(path):
    global ahead_s  # noqa: PLW0603 - the clock of the process
    with contextlib.suppress(OSError, ValueError):
        ahead_s = float(path.read_text())


def follow(path):
    while True:
        time.sleep(0.02)
        read(path)


clock = pathlib.Path(sys.argv[-1] + ".clock")
read(clock)  # the broker starts with this clock
time.time = lambda: real_time() + ahead_s
time.time_ns = lambda: real_time_ns() + int(ahead_s * 1e9)
threading.Thread(target=follow, args=(clock,), daemon=True).start()

from magnetar.__main__ import main  # noqa: E402 - behind the change of the clock

sys.exit(main())
