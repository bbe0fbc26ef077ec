"""Rates of the hot path, compiled and pure: SENDs cut, records stamped, receipts and messages encoded, facts read.

    python bench/protocol_bench.py [--seconds 0.5]

Prints thousands of entries a second and the ratio of the two helpers, for entries of 100 bytes and of 1 KiB in one
socket read
of a megabyte; and the cost of a parse of a small command.
"""

from __future__ import annotations

import argparse
import random
import time
from array import array

from magnetar.protocol import _pure
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.checksum import crc32c
from magnetar.protocol.runs import EntryRun

try:
    from magnetar.protocol import _speedups
except ImportError:
    _speedups = None

READ_BYTES = 1 << 20
LIMIT = 5 * 1024 * 1024 + 10240


def sends(payload_bytes: int) -> tuple[bytes, int]:
    """One socket read full of SENDs."""
    payload = random.Random(1).randbytes(payload_bytes)
    frames, size = [], 0
    while size < READ_BYTES:
        base = pb.BaseCommand(type=pb.BaseCommand.SEND)
        base.send.producer_id, base.send.sequence_id, base.send.num_messages = 1, len(frames), 1
        meta = pb.MessageMetadata(
            producer_name="standalone-0-1", sequence_id=len(frames), publish_time=1_700_000_000_000
        )
        meta.uncompressed_size = payload_bytes
        encoded, command = meta.SerializeToString(), base.SerializeToString()
        body = len(encoded).to_bytes(4, "big") + encoded + payload
        entry = b"\x0e\x01" + crc32c(body).to_bytes(4, "big") + body
        head = (4 + len(command) + len(entry)).to_bytes(4, "big") + len(command).to_bytes(4, "big")
        frames.append(head + command + entry)
        size += len(frames[-1])
    return b"".join(frames), len(frames)


def rate(call, entries: int, seconds: float) -> float:
    """Entries a second in the fastest of the calls that fit into `seconds`."""
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return entries / best


def rates(helper, data: bytes, n: int, seconds: float) -> dict[str, float]:
    run = EntryRun.from_cut(helper.cut(data, 0, len(data), LIMIT)[1][0])
    slab, offsets = helper.stamp(run.data, run.offsets, run.num_messages, 0, n, 1, 0, -1, 1_700_000_000_000, 0)
    ids = array("q", range(n)).tobytes()
    calls = {
        "cut": lambda: helper.cut(data, 0, len(data), LIMIT),
        "stamp": lambda: helper.stamp(run.data, run.offsets, run.num_messages, 0, n, 1, 0, -1, 1_700_000_000_000, 0),
        "scan_records": lambda: helper.scan_records(slab, 0, len(slab), 1),
        "encode_receipts": lambda: helper.encode_receipts(1, ids, ids, 0, n, 1, 0),
        "encode_messages": lambda: helper.encode_messages(1, slab, offsets, 0, n, -1, 0, -1, None),
        "entry_facts": lambda: helper.entry_facts(slab, offsets, 0, n, False),
        "entry_facts + hash": lambda: helper.entry_facts(slab, offsets, 0, n, True),
    }
    return {name: rate(call, n, seconds) for name, call in calls.items()}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=0.3, help="time for each figure")
    seconds = arguments.parse_args().seconds
    for payload_bytes in (100, 1024):
        data, n = sends(payload_bytes)
        pure = rates(_pure, data, n, seconds)
        compiled = rates(_speedups, data, n, seconds) if _speedups else {}
        print(f"payload of {payload_bytes} bytes, {n} entries a read: thousand entries a second")
        for name, slow in pure.items():
            fast = compiled.get(name)
            more = f" compiled {fast / 1000:9.0f}  ratio {fast / slow:5.0f}" if fast else ""
            print(f"  {name:20} pure {slow / 1000:7.0f} {more}")
    base = pb.BaseCommand(type=pb.BaseCommand.FLOW)
    base.flow.consumer_id, base.flow.messagePermits = 1, 500
    flow = base.SerializeToString()
    parses = rate(lambda: [pb.BaseCommand.FromString(flow) for _ in range(1000)], 1000, seconds)
    print(f"protobuf parse of a FLOW: {1e6 / parses:.2f} microseconds")


if __name__ == "__main__":
    main()
