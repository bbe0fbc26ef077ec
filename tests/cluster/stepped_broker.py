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


def follow(path):
    global ahead_s  # noqa: PLW0603 - the clock of the process
    while True:
        with contextlib.suppress(OSError, ValueError):
            ahead_s = float(path.read_text())
        time.sleep(0.02)


time.time = lambda: real_time() + ahead_s
time.time_ns = lambda: real_time_ns() + int(ahead_s * 1e9)
threading.Thread(target=follow, args=(pathlib.Path(sys.argv[-1] + ".clock"),), daemon=True).start()

from magnetar.__main__ import main  # noqa: E402 - behind the change of the clock

sys.exit(main())
