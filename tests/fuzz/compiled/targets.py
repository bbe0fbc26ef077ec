"""The compiled helpers on bytes that libFuzzer chose: each must act as its Python twin, or refuse.

``run.sh`` builds the helpers with coverage and sanitizers into the folder ``MAGNETAR_FUZZ_BUILT``. Two kinds of targets:
some give the bytes to a function as they are; ``drawn`` makes the random decisions of the twins' checks
(``tests/protocol/*twins.py``) out of them, so that checksums and sizes are right where that is needed to get further.
"""

from __future__ import annotations

import importlib.util
import os
import random
import sys
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "protocol"))

import column_twins
import delivery_twins
import twins
from google.protobuf.message import DecodeError

from magnetar.bookkeeper.wire import packed_answers, packed_batches, packed_runs
from magnetar.bookkeeper.wire.digests import Digester, DigestType, master_key
from magnetar.bookkeeper.wire.entries import ADD_HEADER, encode_run
from magnetar.delayed.sorted_run import Columns
from magnetar.delayed.sorting import pure_sorted_columns
from magnetar.protocol import _pure, _pure_columns
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.acks import pure_whole_entries
from magnetar.protocol.checksum import crc32c
from magnetar.protocol.deliveries import pure_deliveries
from magnetar.protocol.key_hash import pure_java_hash, pure_murmur3_32
from tests.fuzz import targets as readers

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TARGETS", "target"]

LIMIT = 1 << 16
KEY = master_key(b"")


class Drawn(random.Random):
    """Decisions out of given bytes; where they end, out of a generator that they seed."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._data, self._at = data, 0

    def getrandbits(self, bits: int, /) -> int:
        end = self._at + (bits + 7) // 8
        if end > len(self._data):
            self._at = len(self._data)
            return super().getrandbits(bits)
        taken, self._at = self._data[self._at : end], end
        return int.from_bytes(taken, "little") & ((1 << bits) - 1)

    def random(self) -> float:
        return self.getrandbits(16) / (1 << 16)

    def randbytes(self, n: int) -> bytes:
        return self.getrandbits(8 * n).to_bytes(n, "little")


def _same(compiled: Callable[..., Any], twin: Callable[..., Any], *given: Any) -> None:
    """Same result, or an error of the same kind."""
    assert _result(compiled, *given) == _result(twin, *given)


def _result(function: Callable[..., Any], *given: Any) -> Any:
    try:
        return function(*given)
    except (ValueError, OverflowError) as error:
        return type(error)


def _words(data: bytes) -> list[int]:
    return list(array("q", data[: len(data) // 8 * 8]))


def cut(helper: Any, data: bytes) -> None:
    """A read of a socket; with the checksums as they come, and right."""
    for each in (data, _resealed(data)):
        for limit in (LIMIT, 600):
            _same(helper.cut, _pure.cut, each, 0, len(each), limit)
        _same(helper.cut, _pure.cut, bytearray(each), min(3, len(each)), len(each), LIMIT)


def _resealed(data: bytes) -> bytes:
    """Frames whose entries have the right checksum."""
    out, at = bytearray(data), 0
    while at + 8 <= len(data):
        total, command = (int.from_bytes(data[place : place + 4], "big") for place in (at, at + 4))
        entry, end = at + 8 + command, at + 4 + total
        if entry + 6 <= end <= len(data) and data[entry : entry + 2] == b"\x0e\x01":
            out[entry + 2 : entry + 6] = crc32c(data[entry + 6 : end]).to_bytes(4, "big")
        at += 4 + total
    return bytes(out)


def records(helper: Any, data: bytes) -> None:
    """Records of a file; then the intact records as a slab, and the other bytes as a slab with false offsets."""
    _same(helper.scan_records, _pure.scan_records, data, 0, len(data), -1)
    offsets, _, _ = helper.scan_records(data, 0, len(data), -1)
    n = len(offsets) // 8 - 1
    for mode in (0, 1, 2):
        _same(helper.encode_messages, _pure.encode_messages, 1, data, offsets, 0, n, -1, mode, -1, None)
        _same(helper.encode_picked, _pure.encode_picked, 1, data, offsets, bytes(8 * min(n, 2)), -1, mode, -1)
    _same(helper.entry_facts, _pure.entry_facts, data, offsets, 0, n, True)
    false = data[: min(len(data), 64) // 8 * 8]
    i, j = (data[0] % 9, data[-1] % 9) if data else (0, 1)
    counts = bytes(8 * 9)
    for call in (
        lambda: helper.entry_facts(data, false, i, j, True),
        lambda: helper.encode_messages(1, data, false, i, j, -1, i % 3, -1, None),
        lambda: helper.encode_picked(1, data, false, false, -1, i % 3, -1),
        lambda: helper.stamp(data, false, counts, i, j, 1, 2, 3, 4, 5),
        lambda: helper.encode_receipts(1, false, false, i, j, 1, 1, 0),
    ):
        _result(call)


def columns(helper: Any, data: bytes) -> None:
    """Entries of a ledger file as a whole, and ranges that the bytes choose."""
    whole = (data, array("q", [0]).tobytes(), array("q", [len(data)]).tobytes())
    words = [word % (len(data) + 9) for word in _words(data[:64])]
    chosen = (data, array("q", words).tobytes(), array("q", reversed(words)).tobytes())
    for given in (whole, chosen):
        ones = array("q", [1 + len(data) % 3] * (len(given[1]) // 8)).tobytes()
        _same(helper.entry_columns, _pure_columns.entry_columns, *given, False)
        _same(helper.entry_columns, _pure_columns.entry_columns, *given, True)
        _same(helper.message_columns, _pure_columns.message_columns, *given, ones, 9, 0, 0, 0)
        for rows in range(3):
            _same(helper.property_columns, _pure_columns.property_columns, *given, 4, rows)


def deliveries(helper: Any, data: bytes) -> None:
    """A read of the client's socket."""
    assert delivery_twins.result(helper.deliveries, data, 0) == delivery_twins.result(pure_deliveries, data, 0)


def sorting(helper: Any, data: bytes) -> None:
    """Columns of delayed messages; their order is stable."""
    n = len(data) // 20
    rows = [data[20 * k : 20 * k + 20] for k in range(n)]
    parts = [
        Columns.of(
            (
                int.from_bytes(r[:8], "little") >> 1,
                int.from_bytes(r[8:16], "little") >> 1,
                int.from_bytes(r[16:], "little"),
            )
            for r in rows[first::3]
        )
        for first in range(3)
    ]
    assert helper.sorted_columns(parts) == pure_sorted_columns(parts)
    third = len(data) // 3
    _result(helper.sorted_columns, [(data[:third], data[third : 2 * third], data[2 * third :])])


def add_frames(helper: Any, data: bytes) -> None:
    """Runs of adds to a bookie; in places that fit, as the twin writes them."""
    half, skip = len(data) // 2, len(data) % 5
    if half > skip:
        sound = array("q", [0, half, len(data)]).tobytes()
        frames, ends, length = helper.encode_packed(data, sound, skip, 7, 3, -1, 0, KEY, ADD_HEADER)
        run = packed_runs.encode_packed_pure(data, sound, skip, 7, 3, -1, 0, Digester(DigestType.CRC32C, b""), KEY)
        assert (frames, array("q", ends), length) == (run.frames, run.offsets, run.length)
    _result(helper.encode_packed, data, data[:80], skip, 7, 3, -1, 0, KEY, ADD_HEADER)


def batches(helper: Any, data: bytes) -> None:
    """Batches of entries from a bookie: good batches with bytes behind them, and arbitrary bytes."""
    digester = Digester(DigestType.CRC32C, b"")
    cut = len(data) // 3
    run = encode_run(7, 3, 2, 0, [data[:cut], data[cut : 2 * cut]], digester, KEY)
    entries = [bytes(run.part(entry_id, entry_id))[28:] for entry_id in (3, 4)]
    good = b"".join(len(entry).to_bytes(4, "big") + entry for entry in entries)
    for packed in (good, good + data[2 * cut :], good[: -len(data) % len(good)]):
        if packed[:4] == good[:4] and len(packed) >= 4 + len(entries[0]):
            expected = packed_batches.records_of_batch_pure(packed, 7, 3, 100, digester)
            assert helper.records_of_batch(packed, 7, 3, 100) == (expected.data, expected.offsets)
    _result(helper.records_of_batch, data, 7, 3, 100)


def answers(helper: Any, data: bytes) -> None:
    """Answers of a bookie: arbitrary bytes, and acknowledgements of which one has arbitrary bytes."""
    good = b"".join(bytes.fromhex("000000180201000000000000") + bytes([0] * 7 + [7] + [0] * 7 + [k]) for k in range(9))
    at = len(data) % len(good)
    for given in (data, good[:at] + data, good[:at] + data[:5] + good[at + 5 :]):
        for begin in (0, 28, len(given)):
            assert helper.join_added(given, begin) == packed_answers.join_added_pure(given, begin)


def acks(helper: Any, data: bytes) -> None:
    """Acknowledgements: arbitrary bytes, and those of which Protobuf makes a command, as it writes them."""
    _result(helper.whole_entries, data)
    try:
        command = pb.CommandAck.FromString(data)
    except DecodeError:
        return
    found = helper.whole_entries(command.SerializePartialToString())
    assert found is None or found == pure_whole_entries(command)  # None: the broker reads the ids one by one


def key_hashes(helper: Any, data: bytes) -> None:
    """Keys as bytes, and as texts of the three widths of characters."""
    assert helper.murmur3_32(data) == pure_murmur3_32(data)
    assert helper.murmur3_32(memoryview(data)[1:]) == pure_murmur3_32(data[1:])
    for text in (data.decode("latin-1"), data[: len(data) & ~1].decode("utf-16-le", "surrogatepass")):
        assert helper.java_hash(text) == pure_java_hash(text)


def drawn(helpers: list[Any], data: bytes) -> None:
    """The first byte selects the check."""
    if not data:
        return
    checks = [
        *((check, helpers[0]) for check in twins.CHECKS),
        *((check, helpers[1]) for check in column_twins.CHECKS),
        *((check, helpers[2]) for check in delivery_twins.CHECKS),
    ]
    check, helper = checks[data[0] % len(checks)]
    check(helper, Drawn(data[1:]))


TARGETS: dict[str, tuple[Callable[[Any, bytes], None], tuple[str, ...]]] = {
    "cut": (cut, ("_speedups",)),
    "records": (records, ("_speedups",)),
    "columns": (columns, ("_entry_columns",)),
    "deliveries": (deliveries, ("_deliveries",)),
    "sorting": (sorting, ("_sorting",)),
    "add_frames": (add_frames, ("_add_frames",)),
    "batches": (batches, ("_add_frames",)),
    "answers": (answers, ("_add_frames",)),
    "acks": (acks, ("_acks",)),
    "key_hashes": (key_hashes, ("_key_hashes",)),
    "drawn": (drawn, ("_speedups", "_entry_columns", "_deliveries")),
}


def seeds(name: str) -> list[bytes]:
    """Inputs to begin with."""
    entries, frames = readers.TARGETS["entries"].seeds(), readers.TARGETS["frames"].seeds()
    record = twins.entries_of(random.Random(5))
    slab, _ = _pure.stamp(*twins.run_of(record), bytes(8 * len(record)), 0, len(record), 7, 0, -1, 5, 9)
    ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual)
    for entry_id in range(3):
        ack.message_id.add(ledgerId=entry_id % 2, entryId=entry_id, batch_index=-1)
    begin = {"cut": frames, "columns": entries, "deliveries": frames, "records": [slab]}
    return begin.get(name, [ack.SerializeToString()] if name == "acks" else [bytes(60)])


def target(name: str) -> Callable[[bytes], None]:
    """The function that libFuzzer calls."""
    run, names = TARGETS[name]
    built = [_built(each) for each in names]
    helper = built if len(built) > 1 else built[0]
    return lambda data: run(helper, data)


def _built(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, f"{os.environ['MAGNETAR_FUZZ_BUILT']}/{name}.so")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _write_seeds(folder: str) -> None:
    for name in TARGETS:
        (Path(folder) / name).mkdir(exist_ok=True)
        for number, data in enumerate(seeds(name)):
            (Path(folder) / name / f"seed-{number}").write_bytes(data)


if __name__ == "__main__":
    _write_seeds(sys.argv[1])
