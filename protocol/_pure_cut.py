"""Cutting frames in Python: the part of `_pure` that makes runs of SENDs out of a socket read (see `speed.cut`).

The protobuf runtime parses the first SEND of a form; later SENDs of this form are recognised without parsing. `_Usual`
keeps the bytes of a parsed SEND, and `_usual_frames` takes the frames behind it as long as they differ only where a
client's consecutive SENDs differ (sizes, checksum, the low bits of the sequence id, the entry itself). Metadata behind
the three required fields are looked up in a cache of parsed metadata. All other frames are parsed, so both ways give
the same result for any bytes.
"""

from __future__ import annotations

import operator
import re
import struct
from array import array
from typing import Any

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol._pure_looks import (
    MAGIC_CHECKSUM,
    command_type,
    look_at,
    metadata_flags,
    parse_metadata,
    parse_send,
    signed,
)
from magnetar.protocol.checksum import crc32c
from magnetar.protocol.runs import EntryFlag

_U32 = struct.Struct(">I")
_PAIR = struct.Struct(">II")
_SEND = pb.BaseCommand.SEND
_HAS_CHECKSUM = int(EntryFlag.HAS_CHECKSUM)
_HAS_DELIVER_AT = int(EntryFlag.HAS_DELIVER_AT)

# A SEND with producer id, sequence id and optionally a number of messages below 128; varints of up to nine bytes.
_USUAL_SEND = re.compile(
    rb"\x08\x06\x32.\x08[\x80-\xff]{0,8}[\x00-\x7f]\x10([\x80-\xff]{0,8}[\x00-\x7f])(?:\x18[\x00-\x7f])?", re.DOTALL
)
# MessageMetadata behind its producer name: sequence id, publish time, the rest.
_BEHIND_NAME = re.compile(rb"\x10[\x80-\xff]{0,8}[\x00-\x7f]\x18[\x80-\xff]{0,8}[\x00-\x7f](.*)", re.DOTALL)
_KNOWN_RESTS = 1024
_KNOWN_REST_BYTES = 128
_rests: dict[bytes, int] = {}
"""Bytes of metadata behind producer name, sequence id and publish time -> flags; never metadata with deliver_at."""


def _flags_of(metadata: bytes, rest: bytes) -> int:
    """Return the flags of an entry whose metadata ends with `rest`, and cache them under `rest`; -1 for unreadable
    metadata and metadata with deliver_at, which `look_at` has to parse.
    """
    parsed = parse_metadata(metadata)
    flags = _HAS_CHECKSUM | metadata_flags(parsed) if parsed is not None else -1
    if parsed is None or flags & _HAS_DELIVER_AT:
        return -1
    if len(rest) <= _KNOWN_REST_BYTES:
        if len(_rests) >= _KNOWN_RESTS:
            _rests.clear()
        _rests[rest] = flags
    return flags


class _Run:
    """A run to which frames are still added."""

    __slots__ = (
        "counts",
        "deliver_at",
        "ends",
        "flags",
        "gap",
        "highest",
        "parts",
        "producer_id",
        "sequences",
        "size",
        "usual",
    )

    def __init__(self, producer_id: int, gap: int) -> None:
        self.producer_id = producer_id
        self.gap = gap
        self.usual: _Usual | None = None
        self.parts: list[memoryview] = []
        self.size = 0
        self.ends = [0]
        self.sequences: list[int] = []
        self.highest: list[int] = []
        self.counts: list[int] = []
        self.deliver_at: list[int] = []
        self.flags: list[int] = []

    def add(self, send: pb.CommandSend, entry: memoryview, flags: int, deliver_at: int) -> None:
        self.parts.append(entry)
        self.size += len(entry)
        self.ends.append(self.size)
        self.sequences.append(signed(send.sequence_id))
        highest = signed(send.highest_sequence_id)
        self.highest.append(highest if highest >= signed(send.sequence_id) else 0)  # smaller: counts as absent
        self.counts.append(send.num_messages)
        self.deliver_at.append(deliver_at)
        self.flags.append(flags)

    def done(self) -> tuple[Any, ...]:
        any_flags, all_flags = 0, 0xFFFFFFFF
        for flag in set(self.flags):
            any_flags |= flag
            all_flags &= flag
        sequences, counts, gap = self.sequences, self.counts, self.gap
        ends = [end + k * gap for k, end in enumerate(self.ends)] if gap else self.ends
        space = bytes(gap)
        return (
            self.producer_id,
            len(self.flags),
            b"".join([part for entry in self.parts for part in (space, entry)] if gap else self.parts),
            array("q", ends).tobytes(),
            array("q", sequences).tobytes(),
            array("q", self.highest).tobytes(),
            array("q", counts).tobytes(),
            array("q", self.deliver_at).tobytes() if any_flags & _HAS_DELIVER_AT else None,
            array("I", self.flags).tobytes(),
            any_flags,
            all_flags,
            sum(counts) if min(counts) >= 0 else sum(n for n in counts if n > 0),
            all(map(operator.lt, sequences, sequences[1:])),
            self.size,
            gap,
        )


class _Usual:
    """The bytes that later SEND commands share with this command: all but the low seven bits of the sequence id."""

    __slots__ = ("base", "count", "head", "high", "low_at", "size", "tail")

    def __init__(self, command: bytes, low_at: int, sequence_id: int, count: int) -> None:
        self.size = len(command)
        self.head, self.low_at, self.tail = command[:low_at], low_at, command[low_at + 1 :] + MAGIC_CHECKSUM
        self.high = command[low_at] & 0x80
        self.base = sequence_id & ~0x7F
        self.count = count

    @classmethod
    def of(cls, command: bytes, send: pb.CommandSend) -> _Usual | None:
        """Return None unless the command has the form of `_USUAL_SEND`: these fields, each once, and no others."""
        found = _USUAL_SEND.fullmatch(command)
        if found is None or command[3] != len(command) - 4:
            return None
        return cls(command, found.start(1), send.sequence_id, send.num_messages)


def cut(
    buffer: Any, start: int, end: int, max_frame_bytes: int, gap: int = 0, /
) -> tuple[int, list[tuple[Any, ...]], str | None]:
    items: list[tuple[Any, ...]] = []
    run: _Run | None = None
    data = buffer if isinstance(buffer, (bytes, bytearray)) else bytes(buffer)
    view = memoryview(data)
    at = start
    error: str | None = None
    while end - at >= 4:
        if run is not None and run.usual is not None:
            at = _usual_frames(data, view, at, end, max_frame_bytes, run, run.usual)
            run.usual = None
            if end - at < 4:
                break
        (total,) = _U32.unpack_from(view, at)
        if total + 4 > max_frame_bytes:
            error = f"frame of {total} bytes is larger than the limit"
            break
        if total < 4:
            error = f"frame of {total} bytes holds no command"
            break
        if end - at < 4 + total:
            break
        (size,) = _U32.unpack_from(view, at + 4)
        if size == 0 or size > total - 4:
            error = f"command of {size} bytes in a frame of {total}"
            break
        command = bytes(view[at + 8 : at + 8 + size])
        kind = command_type(command)
        if kind < 0:
            error = "command without a known type"
            break
        if kind == _SEND:
            send = parse_send(command)
            if send is None:
                error = "SEND does not parse"
                break
            if run is None or run.producer_id != send.producer_id:
                if run is not None:
                    items.append(run.done())
                run = _Run(send.producer_id, gap)
            entry = view[at + 8 + size : at + 4 + total]
            run.add(send, entry, *look_at(send, entry))
            run.usual = _Usual.of(command, send)
        else:
            if run is not None:
                items.append(run.done())
                run = None
            items.append((kind, command))
        at += 4 + total
    if run is not None:
        items.append(run.done())
    return at, items, error


def _usual_frames(
    data: bytes | bytearray, view: memoryview, at: int, end: int, max_frame_bytes: int, run: _Run, usual: _Usual
) -> int:
    """Add the frames from `at` on that are complete, have a right checksum and the form of `usual`; return the start of
    the first other frame.
    """
    size, head, high, tail, base = usual.size, usual.head, usual.high, usual.tail, usual.base
    low_at, entry_at, least = 8 + usual.low_at, 8 + size, size + 16
    parts, ends, sequences, flags = run.parts, run.ends, run.sequences, run.flags
    behind_name, known, pair, filled = _BEHIND_NAME.match, _rests, _PAIR.unpack_from, run.size
    before = len(flags)
    while end - at > least:
        total, command_size = pair(data, at)
        stop = at + 4 + total
        if stop > end or total + 4 > max_frame_bytes or command_size != size or total < least:
            break
        low = data[at + low_at]
        if (low & 0x80) != high or not data.startswith(head, at + 8) or not data.startswith(tail, at + low_at + 1):
            break
        entry = at + entry_at
        checksum, metadata_size = pair(data, entry + 2)
        metadata_end = entry + 10 + metadata_size
        if metadata_end > stop or data[entry + 10] != 0x0A:
            break
        name_bytes = data[entry + 11]
        rest = behind_name(data, entry + 12 + name_bytes, metadata_end)
        if rest is None or name_bytes > 0x7F or crc32c(view[entry + 6 : stop]) != checksum:
            break
        flag = known.get(rest[1])
        if flag is None:
            flag = _flags_of(bytes(view[entry + 10 : metadata_end]), rest[1])
            if flag < 0:
                break
        parts.append(view[entry:stop])
        filled += stop - entry
        ends.append(filled)
        sequences.append(base | low & 0x7F)
        flags.append(flag)
        at = stop
    run.size = filled
    added = len(flags) - before
    run.counts += [usual.count] * added
    run.highest += [0] * added
    run.deliver_at += [0] * added
    return at
