"""Zigzag varints of Kafka's magic 2 records (signed; not the unsigned varints of the flexible API versions).

    encoded = (n << 1) ^ (n >> 63), then LEB128: seven bits a byte, low group first, high bit = more follows.

A varint holds an int32 in at most 5 bytes, a varlong an int64 in at most 10. `records.py` decodes forms of one and two
bytes in line, because nearly all varints are so short, and longer forms here.
"""

from __future__ import annotations

from magnetar.converters.kafka.errors import CorruptRecordError

# A third of all varints in real batches take one byte: a table is faster for them than arithmetic.
SMALL_VARINTS = tuple(bytes([n]) if n < 0x80 else bytes([n & 0x7F | 0x80, n >> 7]) for n in range(1 << 12))


def encode_varint(value: int) -> bytes:
    """Encode a signed integer of at most 64 bits."""
    raw = (value << 1) ^ (value >> 63)
    if 0 <= raw < 1 << 12:
        return SMALL_VARINTS[raw]
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def encode_unsigned(value: int) -> bytes:
    """Encode a non-negative integer as a plain varint (the protobuf form)."""
    if value < 1 << 12:
        return SMALL_VARINTS[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """Read an int32 varint at `pos`.

    Returns: (value, position after it).
    Raises:  CorruptRecordError when it is longer than 5 bytes or its value needs more than 32 bits;
             IndexError when the data ends inside it.
    """
    raw, pos = _read_raw(data, pos, 5)
    if raw > 0xFFFFFFFF:
        raise CorruptRecordError("varint needs more than 32 bits")
    return (raw >> 1) ^ -(raw & 1), pos


def read_varlong(data: bytes, pos: int) -> tuple[int, int]:
    """Read an int64 varlong at `pos`; as `read_varint` with 10 bytes and 64 bits."""
    raw, pos = _read_raw(data, pos, 10)
    if raw > 0xFFFFFFFFFFFFFFFF:
        raise CorruptRecordError("varlong needs more than 64 bits")
    return (raw >> 1) ^ -(raw & 1), pos


def _read_raw(data: bytes, pos: int, max_bytes: int) -> tuple[int, int]:
    raw = 0
    for shift in range(0, 7 * max_bytes, 7):
        byte = data[pos]
        pos += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw, pos
    raise CorruptRecordError(f"varint is longer than {max_bytes} bytes")
