"""Entries as columns, compiled against the Python twin: one random case a call, AssertionError when they differ."""

from __future__ import annotations

import random  # noqa: TC003 - used in annotations of helpers that tests call
from array import array

from frames_for_tests import i64, metadata, mutated, resealed, u64

from magnetar.protocol import _pure_columns
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import encode_batch


def single(rng: random.Random) -> pb.SingleMessageMetadata:
    """Metadata of a message in a batch with any mixture of fields."""
    out = pb.SingleMessageMetadata(payload_size=0)
    maybe = {
        "partition_key": lambda: rng.choice(("", "k1", "a2V5", "ü" * 90)),
        "partition_key_b64_encoded": lambda: rng.random() < 0.5,
        "ordering_key": lambda: rng.randbytes(rng.randrange(9)),
        "event_time": lambda: u64(rng),
        "sequence_id": lambda: u64(rng),
        "null_value": lambda: rng.random() < 0.5,
        "null_partition_key": lambda: rng.random() < 0.5,
        "compacted_out": lambda: rng.random() < 0.5,
    }
    for name, value in maybe.items():
        if rng.random() < 0.3:
            setattr(out, name, value())
    for _ in range(rng.choice((0, 0, 1, 3))):
        out.properties.add(key=rng.choice(("a", "entry.format", "k" * 200)), value=rng.choice(("", "v", "ü")))
    return out


def body(rng: random.Random, *, sound: bool = False) -> bytes:
    """An entry as stored; unless all entries must be sound, some have a changed part."""
    meta = metadata(rng)
    for _ in range(rng.choice((0, 0, 2))):
        meta.properties.add(key=rng.choice(("a", "entry.format", "k" * 200)), value=rng.choice(("", "v")))
    if rng.random() < 0.2:
        key = meta.encryption_keys.add(key="k", value=b"v")
        key.metadata.add(key="a", value="b")
    encoded = meta.SerializePartialToString()
    out = resealed(
        rng, mutated(rng, encoded) if not sound and rng.random() < 0.3 else encoded, rng.randbytes(rng.randrange(50))
    )
    if rng.random() < 0.7:
        broker = pb.BrokerEntryMetadata(broker_timestamp=u64(rng))
        if rng.random() < 0.8:
            broker.index = u64(rng)
        head = broker.SerializeToString()
        head = mutated(rng, head) if not sound and rng.random() < 0.1 else head
        out = b"\x0e\x02" + len(head).to_bytes(4, "big") + head + out
    return mutated(rng, out) if not sound and rng.random() < 0.2 else out


def laid_out(rng: random.Random, bodies: list[bytes]) -> tuple[bytes, bytes, bytes]:
    """Bodies with other bytes between them."""
    data, starts, ends = bytearray(), array("q"), array("q")
    for each in bodies:
        data += rng.randbytes(rng.choice((0, 0, 5)))
        starts.append(len(data))
        data += each
        ends.append(len(data))
    return bytes(data + rng.randbytes(rng.randrange(3))), starts.tobytes(), ends.tobytes()


def check_entries(compiled, rng: random.Random) -> None:
    given = laid_out(rng, [body(rng) for _ in range(rng.randrange(7))])
    for verify in (False, True):
        assert compiled.entry_columns(*given, verify) == _pure_columns.entry_columns(*given, verify)


def batch(rng: random.Random) -> tuple[bytes, int]:
    count = rng.choice((0, 1, 3, 20))
    data = encode_batch([(single(rng), rng.randbytes(rng.choice((0, 3, 200)))) for _ in range(count)])
    if rng.random() < 0.3:
        data = mutated(rng, data)
    return data, rng.choice((count, count, count, count + 1, i64(rng)))


def check_messages(compiled, rng: random.Random) -> None:
    batches = [batch(rng) for _ in range(rng.randrange(5))]
    data, starts, ends = laid_out(rng, [each for each, _ in batches])
    counts = array("q", [count for _, count in batches]).tobytes()
    max_rows = rng.choice((1, 2, 7, 1000))
    place = (0, int.from_bytes(starts[:8], "little"), 0)
    for _ in range(2000):
        given = (data, starts, ends, counts, max_rows, *place)
        found = compiled.message_columns(*given)
        assert found == _pure_columns.message_columns(*given)
        place = found[1:4]
        if found[4] or place[0] == len(batches):
            break


def check_properties(compiled, rng: random.Random) -> None:
    encoded = [
        mutated(rng, single(rng).SerializeToString()) if rng.random() < 0.2 else single(rng).SerializeToString()
        for _ in range(rng.randrange(6))
    ]
    given = laid_out(rng, encoded)
    for rows in range(12):
        assert result(compiled.property_columns, *given, 1, rows) == result(
            _pure_columns.property_columns, *given, 1, rows
        )


def check_wrong_arrays(compiled, rng: random.Random) -> None:
    """Arrays that do not fit their data are refused, never read."""
    data = rng.randbytes(60)
    starts, ends = (array("q", [rng.randrange(-5, 70) for _ in range(rng.randrange(3))]).tobytes() for _ in "12")
    counts = array("q", [rng.randrange(4) for _ in range(rng.randrange(3))]).tobytes()
    place = (rng.randrange(-1, 4), rng.randrange(-5, 70), rng.randrange(-1, 3))
    for name, given in (
        ("entry_columns", (True,)),
        ("message_columns", (counts, rng.choice((-1, 0, 9, 1 << 40)), *place)),
        ("property_columns", (1, rng.choice((-1, 0, 1)))),
    ):
        assert result(getattr(compiled, name), data, starts, ends, *given) == result(
            getattr(_pure_columns, name), data, starts, ends, *given
        )


def check_gather(compiled, rng: random.Random) -> None:
    buffers = [rng.randbytes(rng.randrange(20)) for _ in range(rng.randrange(4))]
    n = rng.randrange(6)
    which = array(
        "q", [rng.randrange(-1, 4) if rng.random() < 0.1 else rng.randrange(max(len(buffers), 1)) for _ in range(n)]
    )
    starts, lengths = array("q"), array("q")
    for number in which:
        room = len(buffers[number]) if 0 <= number < len(buffers) else 0
        starts.append(rng.choice((-3, 2**62, room)) if rng.random() < 0.05 else rng.randrange(room + 1))
        lengths.append(
            rng.choice((-1, 2**62, room + 1)) if rng.random() < 0.1 else rng.randrange(room - min(starts[-1], room) + 1)
        )
    given = (buffers, which, starts, lengths)
    assert result(compiled.gather, *given) == result(_pure_columns.gather, *given)


def result(function, *given):
    try:
        return function(*given)
    except ValueError as e:
        return str(e)


CHECKS = (check_entries, check_messages, check_properties, check_gather, check_wrong_arrays)
