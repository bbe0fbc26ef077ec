"""A process that ends with its standard input, and so with the process at the other end of the pipe.

A program that starts a broker may be killed, and then ends nothing itself. The system closes its end of the pipe in any
case.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from typing import Final

_PIECE: Final = 64 * 1024


def stop_with_input() -> None:
    """Send this process a SIGTERM when its standard input is at its end; bytes before the end have no effect.

    A signal acts as at any other time: it ends a broker that recovers, and stops a running broker in order.
    """
    try:
        descriptor = os.dup(0)  # a later file of this process could get the number of a closed input
    except OSError:
        _stop()
        return
    threading.Thread(target=_read_to_end, args=(descriptor,), name="standard-input", daemon=True).start()


def _read_to_end(descriptor: int) -> None:
    with contextlib.suppress(OSError):  # a terminal that is gone
        while os.read(descriptor, _PIECE):
            pass
    _stop()


def _stop() -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write("magnetar: warning: standard input has ended, so the broker stops (--stop-with-stdin)\n")
    os.kill(os.getpid(), signal.SIGTERM)
