"""The compiled helper against its Python twin: one random case a call, AssertionError when they differ."""

from __future__ import annotations

import random  # noqa: TC003 - used in annotations of helpers that tests call
import socket
from array import array
from itertools import accumulate

from frames_for_tests import U64, entry, frame, i64, metadata, mutated, resealed, run_of, stream, u64

from magnetar.protocol import _pure
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.checksum import crc32c

LIMIT = 5 * 1024 * 1024 + 10240
GAPS = (0, 0, 1, 32, 53)
IDS = (7, 100, -1, -1, -2)


def entries_of(rng: random.Random) -> list[bytes]:
    out = []
    for _ in range(rng.randrange(8)):
        kind = rng.random()
        if kind < 0.5:
            out.append(entry(metadata(rng), rng.randbytes(rng.randrange(300)), checksum=rng.random() < 0.9))
        elif kind < 0.9:
            out.append(resealed(rng, mutated(rng, metadata(rng).SerializeToString())))
        else:
            out.append(rng.randbytes(rng.randrange(12)))
    return out


def check_cut(compiled, rng: random.Random) -> None:
    data = stream(rng)
    if rng.random() < 0.6:
        data = mutated(rng, data)
    before = rng.randbytes(rng.randrange(4))
    buffer = bytearray(before + data + rng.randbytes(rng.randrange(3)))
    end = len(before) + len(data)
    limit = rng.choice((LIMIT, LIMIT, 600))
    given = (buffer, len(before), end, limit, rng.choice(GAPS))
    assert compiled.cut(*given) == _pure.cut(*given)


def check_like_frames(compiled, rng: random.Random) -> None:
    """Consecutive SENDs of a client, some of them changed: `cut` recognizes each SEND by its predecessor."""
    base, meta = pb.BaseCommand(type=pb.BaseCommand.SEND), metadata(rng)
    base.send.producer_id = rng.choice((0, 7, 300, U64))
    first = rng.choice((0, 120, 16_380, 2**63 - 4, u64(rng)))
    if rng.random() < 0.5:
        base.send.num_messages = rng.choice((1, 1, 100, 127, 128))
    if rng.random() < 0.1:
        base.send.is_chunk = True
    if rng.random() < 0.2:
        meta.producer_name = rng.choice(("n" * 127, "n" * 128, "\x10\x01\x18\x01" * 40))
    keyed, highest = rng.random() < 0.3, rng.random() < 0.2
    frames = []
    for i in range(rng.randrange(1, 12)):
        if keyed:
            meta.partition_key = rng.choice("abc") * rng.choice((0, 3, 3, 3, 130))
        if highest:
            base.send.highest_sequence_id = min(first + 300 * i, U64)
        base.send.sequence_id = meta.sequence_id = min(first + i * rng.choice((1, 1, 1, 0, 200)), U64)
        meta.publish_time = 1_700_000_000_000 + i * rng.choice((0, 1, 200))
        frames.append(changed(rng, base, meta, rng.randbytes(rng.choice((0, 10, 10, 300)))))
    data = b"".join(frames)
    end = max(len(data) - rng.choice((0, 0, 1, 9, 20)), 0)  # the later bytes of the buffer are of an earlier read
    for buffer, gap in ((data, 0), (bytearray(data), rng.choice(GAPS))):
        assert compiled.cut(buffer, 0, end, LIMIT, gap) == _pure.cut(buffer, 0, end, LIMIT, gap)
    assert compiled.cut(data, 0, end, 200) == _pure.cut(data, 0, end, 200)


def changed(rng: random.Random, base: pb.BaseCommand, meta: pb.MessageMetadata, payload: bytes) -> bytes:
    """A SEND, now and then with a bit of its command, metadata or sizes changed and the checksum right all the same."""
    command, encoded = bytearray(base.SerializeToString()), bytearray(meta.SerializeToString())
    size = len(encoded)
    kind = rng.random()
    if kind < 0.1:
        return mutated(rng, frame(base, entry(meta, payload)))
    if kind < 0.25:
        change = rng.choice((command, encoded))
        change[rng.randrange(len(change))] ^= rng.choice((1, 2, 64, 128, 128))
    elif kind < 0.3:
        size += rng.choice((1, 2, len(payload), len(payload) + 1, len(payload) + 40, -1, -len(encoded)))
    body = size.to_bytes(4, "big") + encoded + payload
    sealed = b"\x0e\x01" + crc32c(body).to_bytes(4, "big") + body
    if rng.random() < 0.03:
        sealed = sealed[: rng.randrange(14)]
    return (4 + len(command) + len(sealed)).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command + sealed


def check_metadata(compiled, rng: random.Random) -> None:
    """Metadata and SEND commands of any bytes inside a frame that is sound."""
    base = pb.BaseCommand(type=pb.BaseCommand.SEND)
    base.send.producer_id = u64(rng)
    base.send.sequence_id = u64(rng)
    payload = resealed(rng, mutated(rng, metadata(rng).SerializeToString()))
    data = frame(base, payload)
    if rng.random() < 0.3:
        command = mutated(rng, base.SerializeToString())
        data = (
            (4 + len(command) + len(payload)).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command + payload
        )
    assert compiled.cut(data, 0, len(data), LIMIT) == _pure.cut(data, 0, len(data), LIMIT)


def stamped(rng: random.Random) -> tuple[tuple, int]:
    entries = entries_of(rng)
    gap = rng.choice(GAPS)
    data, offsets = run_of([bytes(gap) + one for one in entries])
    counts = array("q", [rng.choice((1, 1, 3, 0, -1)) for _ in entries]).tobytes()
    i = rng.randrange(len(entries) + 1)
    j = rng.randrange(i, len(entries) + 1)
    now = rng.choice((-1, 0, 1_700_000_000_001))
    index = rng.choice((-2, -1, 0, 127, 2**40))
    return (data, offsets, counts, i, j, rng.getrandbits(40), rng.getrandbits(20), i64(rng), now, index, gap), j - i


def check_records(compiled, rng: random.Random) -> None:
    """stamp, scan_records, encode_messages, encode_picked and entry_facts over the same records."""
    given, count = stamped(rng)
    slab, offsets = _pure.stamp(*given)
    assert compiled.stamp(*given) == (slab, offsets)
    assert _pure.scan_records(slab, 0, len(slab), given[5]) == (offsets, len(slab), None)
    damaged = mutated(rng, slab) if slab and rng.random() < 0.5 else slab
    ledger = rng.choice((given[5], -1, given[5] + 1))
    assert compiled.scan_records(damaged, 0, len(damaged), ledger) == _pure.scan_records(
        damaged, 0, len(damaged), ledger
    )
    i = rng.randrange(count + 1)
    j = rng.randrange(i, count + 1)
    counts = rng.choice((None, [rng.choice((0, 1, 200, 2**32 - 1)) for _ in range(j - i)]))
    consumer, epoch = u64(rng), rng.choice((-1, 0, 5, U64))
    for mode in (0, 1, 2):
        given = (consumer, slab, offsets, i, j, rng.choice((-1, 0, 200)), mode, epoch, counts)
        assert compiled.encode_messages(*given) == _pure.encode_messages(*given)
    picks = array("q", [rng.randrange(count) for _ in range(rng.randrange(5))] if count else []).tobytes()
    for mode in (0, 1, 2):
        given = (consumer, slab, offsets, picks, rng.choice((-1, 0, 200)), mode, epoch)
        assert compiled.encode_picked(*given) == _pure.encode_picked(*given)
    want_hash = rng.random() < 0.5
    assert compiled.entry_facts(slab, offsets, i, j, want_hash) == _pure.entry_facts(slab, offsets, i, j, want_hash)


def check_sent(compiled, rng: random.Random) -> None:
    """A socket gets the frames of the records as far as it takes them, and the caller the rest."""
    sizes = (0, 1, 500, 3000, 40_000)
    entries = [rng.randbytes(rng.choice(sizes)) for _ in range(rng.choice((0, 3, 31, 32, 33, 70)))]
    entries = [b"\x0e\x02\0\0\0\3abc" + each if rng.random() < 0.3 else each for each in entries]
    ends = array("q", accumulate(map(len, entries), initial=0)).tobytes()
    slab, offsets = _pure.stamp(b"".join(entries), ends, bytes(8 * len(entries)), 0, len(entries), *IDS)
    i = rng.randrange(len(entries) + 1)
    j = rng.randrange(i, len(entries) + 1)
    given = (u64(rng), slab, offsets, i, j, rng.choice((-1, 200)), rng.randrange(3), rng.choice((-1, 5, U64)))
    frames = _pure.encode_messages(*given, None)
    ours, peer = socket.socketpair()
    with ours, peer:
        ours.setblocking(False)
        for send in (compiled.send_messages, _pure.send_messages):
            rest = send(ours.fileno(), *given)
            data = b""
            while len(data) + len(rest) < len(frames):
                data += peer.recv(1 << 20)
            assert data + rest == frames
        peer.close()
        assert compiled.send_messages(ours.fileno(), *given) == frames
    assert compiled.send_messages(-1, *given) == frames


def check_in_place(compiled, rng: random.Random) -> None:
    """Records made in a run's own bytes are those of a copy; where they do not fit, nothing is changed."""
    now, index = rng.choice((-1, 0, 1_700_000_000_001)), rng.choice((-2, -1, 0, 120, 2**21 - 5, 2**40))
    usual = len(_pure.entry_prefix(now, max(index, 0) if index != -2 else -1)) if now >= 0 or index != -2 else 0
    gap = rng.choice((0, 31, 32, 32 + usual, 32 + usual, 33 + usual))
    sizes = (0, 10, 500, 501, 502, 3000, 70_000)
    entries = [entry(metadata(rng), rng.randbytes(rng.choice(sizes))) for _ in range(rng.randrange(1, 6))]
    if rng.random() < 0.2:
        entries.append(rng.randbytes(rng.randrange(1, 12)))
    verified = all(one.startswith(b"\x0e\x01") for one in entries)
    data, offsets = run_of([bytes(gap) + one for one in entries])
    counts = array("q", [rng.choice((1, 1, 1, 1, 2, 0, -3)) for _ in entries]).tobytes()
    ids = (rng.getrandbits(40), rng.getrandbits(20), i64(rng), now, index)
    copied = _pure.stamp(data, offsets, counts, 0, len(entries), *ids, gap)
    own = bytes(bytearray(data))
    checksum = compiled.stamp_in_place(own, offsets, counts, gap, verified, *ids)
    if checksum is not None:
        assert (own, offsets) == copied
        assert checksum == (crc32c(own) if verified and all(len(one) >= 6 + 512 for one in entries) else -1)
    else:
        assert own == data
        assert len(copied[0]) != len(data) or copied[1] != offsets
    assert _pure.stamp_in_place(own, offsets, counts, gap, verified, *ids) is None


def check_receipts(compiled, rng: random.Random) -> None:
    n = rng.randrange(9)
    sequences = array("q", [i64(rng) for _ in range(n)]).tobytes()
    highest = array("q", [i64(rng) for _ in range(n)]).tobytes()
    i = rng.randrange(n + 1)
    j = rng.randrange(i, n + 1)
    given = (
        u64(rng),
        sequences,
        highest,
        i,
        j,
        rng.choice((-1, 0, rng.getrandbits(62))),
        rng.choice((-1, 0, 2**40)),
        rng.choice((0, 1)),
    )
    assert compiled.encode_receipts(*given) == _pure.encode_receipts(*given)


def check_crc(compiled, rng: random.Random) -> None:
    data = rng.randbytes(rng.choice((0, 1, 7, 8, 191, 192, 193, 3071, 3072, 3073, 70_000)))
    start = rng.getrandbits(32)
    assert compiled.crc32c(data, start) == _pure.crc32c(data, start)


def check_bounds(compiled, rng: random.Random) -> None:
    """Arrays that do not fit their data are refused, never read."""
    data, offsets = rng.randbytes(100), array("q", [rng.randrange(-10, 200) for _ in range(4)]).tobytes()
    i, j = rng.randrange(-2, 6), rng.randrange(-2, 6)
    counts = array("q", [1] * rng.randrange(4)).tobytes()
    for call in (
        lambda: compiled.stamp(data, offsets, counts, i, j, 1, 1, 1, -1, -2),
        lambda: compiled.stamp(data, offsets, counts, i, j, 1, 1, 1, -1, -2, rng.randrange(-1, 40)),
        lambda: compiled.stamp_in_place(data, offsets, counts, rng.randrange(-1, 60), True, 1, 1, 1, -1, -2),
        lambda: compiled.encode_messages(1, data, offsets, i, j, -1, 0, -1, None),
        lambda: compiled.send_messages(-1, 1, data, offsets, i, j, -1, 0, -1),
        lambda: compiled.encode_picked(1, data, offsets, array("q", [i, j]).tobytes(), -1, 0, -1),
        lambda: compiled.entry_facts(data, offsets, i, j, True),
        lambda: compiled.encode_receipts(1, counts, counts, i, j, 1, 1),
        lambda: compiled.scan_records(data, i, j + 90, -1),
        lambda: compiled.cut(data, i, j + 97, 600),
    ):
        try:
            call()
        except ValueError:
            continue


CHECKS = (
    check_cut,
    check_like_frames,
    check_metadata,
    check_records,
    check_sent,
    check_in_place,
    check_receipts,
    check_crc,
    check_bounds,
)
