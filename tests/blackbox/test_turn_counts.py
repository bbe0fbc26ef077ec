"""The cost of durable messages in context switches and system calls of a broker process, counted by the system.

Unlike times, neither depends on other work of the machine: a context switch counts when a thread of the broker waits,
not when it has to make room for others. An allowance is well above the counted figure and well below the cost of a
hand-over between threads per message: of a run of 100 that would be hundreds. Which thread finds the lock of the
interpreter taken depends a little on the machine.

For a lone message the loop waits for the message and for the end of its frame, and the journal's thread for the frame,
for the device and for its flush.

The producer rests between two windows. Without a rest the broker polls for the next lone message for some microseconds
behind each receipt, and how often the broker looks in that time depends on the speed of the machine.
"""

import os
import pathlib
import time

import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.storage.embedded.journal.busy_poll import REST_S
from tests.blackbox.raw import RawPeer, send

pytest.importorskip("magnetar.storage.embedded.journal._frame_writer")


def counted(pid: int) -> tuple[int, int]:
    """(times a thread of the process waited, its reads and writes of files and sockets)"""
    waits = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        status = (task / "status").read_text()
        waits += int(status.partition("\nvoluntary_ctxt_switches:")[2].split(maxsplit=1)[0])
    io = dict(line.split(": ") for line in pathlib.Path(f"/proc/{pid}/io").read_text().splitlines())
    return waits, int(io["syscr"]) + int(io["syscw"])


def publish(peer: RawPeer, first: int, messages: int, window: int) -> None:
    """Publish so many at a time, behind a rest, and wait for all their receipts."""
    for start in range(first, first + messages, window):
        time.sleep(4 * REST_S)  # behind a longer rest than REST_S the broker does not poll
        peer.write(b"".join(send(1, number, b"x" * 1000) for number in range(start, start + window)))
        for _ in range(window):
            assert peer.receive().type == pb.BaseCommand.SEND_RECEIPT


@pytest.mark.skipif(os.environ.get("MAGNETAR_PURE") is not None, reason="counts the compiled writer")
@pytest.mark.parametrize(
    ("window", "turns", "most_waits", "most_calls"),
    [pytest.param(1, 400, 8.0, 6.5, id="one-in-flight"), pytest.param(100, 60, 24.0, 24.0, id="runs-of-100")],
)
def test_waits_and_calls_of_a_turn(new_broker, window: int, turns: int, most_waits: float, most_calls: float):
    broker = new_broker(pings=False)
    peer = RawPeer(broker.url)
    peer.producer("persistent://public/default/counted", producer_id=1)
    publish(peer, 0, 20 * window, window)  # the first ledger and segment are made
    before = counted(broker.process.pid)
    publish(peer, 20 * window, turns * window, window)
    waits, calls = (after - first for first, after in zip(before, counted(broker.process.pid), strict=True))
    print(f"{waits / turns:.2f} waits, {calls / turns:.2f} reads and writes a turn")
    assert waits / turns <= most_waits
    assert calls / turns <= most_calls
