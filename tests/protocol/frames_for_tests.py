"""Frames, entries and mutated bytes for the tests of this room; random values come from the generator given."""

from __future__ import annotations

import random  # noqa: TC003 - used in annotations of helpers that tests call
import struct
from array import array

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.checksum import crc32c

U64 = (1 << 64) - 1
EDGES = (0, 1, 127, 128, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, U64)


def u64(rng: random.Random) -> int:
    return rng.choice(EDGES) if rng.random() < 0.3 else rng.getrandbits(rng.choice((7, 14, 31, 48, 64)))


def i64(rng: random.Random) -> int:
    value = u64(rng)
    return value - (1 << 64) if value >> 63 else value


def metadata(rng: random.Random) -> pb.MessageMetadata:
    """Metadata with any mixture of the fields that decide how an entry is treated."""
    meta = pb.MessageMetadata(
        producer_name=rng.choice(("p", "", "standalone-0-1", "ü")), sequence_id=u64(rng), publish_time=u64(rng)
    )
    maybe = {
        "partition_key": lambda: rng.choice(("", "k1", "key02", "a2V5", "a2V=", "!!", "ü" * 9)),
        "partition_key_b64_encoded": lambda: rng.random() < 0.5,
        "ordering_key": lambda: rng.randbytes(rng.randrange(9)),
        "num_messages_in_batch": lambda: rng.choice((1, 2, 500, 0, -1)),
        "deliver_at_time": lambda: i64(rng),
        "marker_type": lambda: rng.choice((10, 21, -1)),
        "chunk_id": lambda: rng.randrange(4),
        "num_chunks_from_msg": lambda: rng.randrange(5),
        "compression": lambda: rng.choice((pb.LZ4, pb.ZSTD)),
        "uncompressed_size": lambda: rng.getrandbits(32),
        "event_time": lambda: u64(rng),
        "schema_version": lambda: rng.randbytes(8),
        "uuid": lambda: "u-1",
        "highest_sequence_id": lambda: u64(rng),
    }
    for name, value in maybe.items():
        if rng.random() < 0.2:
            setattr(meta, name, value())
    for _ in range(rng.choice((0, 0, 0, 1, 3))):
        key = rng.choice(("k", "entry.format", "entry.formats", "Entry.format"))
        meta.properties.add(key=key, value=rng.choice(("", "v", "w" * 200)))
    for _ in range(rng.choice((0,) * 9 + (1, 2))):
        found = meta.encryption_keys.add(key=rng.choice(("k", "")), value=b"v" * rng.choice((0, 1, 200)))
        for _ in range(rng.choice((0, 0, 1, 3))):
            found.metadata.add(key=rng.choice(("k", "entry.format")), value="v")
    if rng.random() < 0.1:
        meta.compacted_batch_indexes.extend((1, 2, 300))
    return meta


def entry(meta: pb.MessageMetadata, payload: bytes = b"", *, checksum: bool = True) -> bytes:
    """Headers and payload as a client sends them."""
    encoded = meta.SerializePartialToString()
    body = struct.pack(">I", len(encoded)) + encoded + payload
    return b"\x0e\x01" + struct.pack(">I", crc32c(body)) + body if checksum else body


def frame(base: pb.BaseCommand, payload: bytes = b"") -> bytes:
    command = base.SerializePartialToString()
    return struct.pack(">II", 4 + len(command) + len(payload), len(command)) + command + payload


def send(rng: random.Random, producer_id: int) -> bytes:
    """A SEND frame of any shape, most of them sound."""
    base = pb.BaseCommand(type=pb.BaseCommand.SEND)
    base.send.producer_id = producer_id
    base.send.sequence_id = u64(rng)
    for name, value in (
        ("num_messages", rng.choice((1, 5, 0, -1))),
        ("highest_sequence_id", u64(rng)),
        ("is_chunk", True),
        ("marker", True),
    ):
        if rng.random() < 0.15:
            setattr(base.send, name, value)
    if rng.random() < 0.05:
        base.send.txnid_least_bits = 1
    if rng.random() < 0.05:
        base.send.message_id.ledgerId = 1
        base.send.message_id.entryId = 1
    payload = entry(metadata(rng), rng.randbytes(rng.choice((0, 5, 100, 700, 5000))), checksum=rng.random() < 0.9)
    if rng.random() < 0.05:
        payload = payload[: rng.randrange(len(payload) + 1)]
    return frame(base, payload)


def stream(rng: random.Random) -> bytes:
    """Frames of a few producers with other commands between."""
    frames = []
    for _ in range(rng.randrange(12)):
        if rng.random() < 0.75:
            frames.append(send(rng, rng.choice((0, 0, 0, 1, U64))))
        else:
            base = pb.BaseCommand(type=pb.BaseCommand.FLOW)
            base.flow.consumer_id = u64(rng)
            base.flow.messagePermits = 1
            frames.append(frame(base))
    return b"".join(frames)


def mutated(rng: random.Random, data: bytes) -> bytes:
    """`data` with a few bytes changed, cut out, doubled or put in."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(out) + 1)
        kind = rng.randrange(5)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(out):
            out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            del out[at : at + rng.randrange(1, 9)]
        elif kind == 3:
            out[at:at] = out[at : at + rng.randrange(1, 9)]
        else:
            out[at:at] = rng.randbytes(rng.randrange(1, 5))
    return bytes(out)


def resealed(rng: random.Random, meta: bytes, payload: bytes = b"x") -> bytes:
    """An entry with these metadata bytes, sound or not, and a checksum that is right."""
    body = struct.pack(">I", len(meta)) + meta + payload
    return b"\x0e\x01" + struct.pack(">I", crc32c(body)) + body if rng.random() < 0.8 else body


def run_of(entries: list[bytes]) -> tuple[bytes, bytes]:
    """Data and offsets of a run of these entries."""
    offsets = array("q", [0])
    for each in entries:
        offsets.append(offsets[-1] + len(each))
    return b"".join(entries), offsets.tobytes()
