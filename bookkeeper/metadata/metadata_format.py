"""Ledger metadata as BookKeeper stores them (``LedgerMetadataSerDe``): versions 1, 2 and 3. Pure.

All versions begin with the line ``BookieMetadataFormatVersion TAB version``. Version 3 continues with a varint length
and the message ``LedgerMetadataFormat``, version 2 with the same message as protobuf text, version 1 with its own text
lines. New ledgers get version 3; an update keeps the stored version.
"""

from __future__ import annotations

import itertools
from typing import Any, cast

from google.protobuf import text_format
from google.protobuf.message import DecodeError, EncodeError

from magnetar.bookkeeper.errors import LedgerMetadataError
from magnetar.bookkeeper.metadata.bookkeeper_formats_pb2 import LedgerMetadataFormat
from magnetar.bookkeeper.metadata.ledger_metadata import LedgerMetadata, LedgerState, Segment
from magnetar.bookkeeper.wire.digests import DigestType
from magnetar.protocol.varints import varint

__all__ = ["decode_metadata", "encode_metadata"]

_MAGIC = b"BookieMetadataFormatVersion\t"
_V1_IN_RECOVERY = -102
_V1_CLOSED = "CLOSED"


def encode_metadata(metadata: LedgerMetadata) -> bytes:
    """Return the bytes to store, in the version ``metadata.format_version``."""
    head = _MAGIC + b"%d\n" % metadata.format_version
    if metadata.format_version == 1:
        return head + _version_1(metadata).encode()
    message = _message(metadata)
    if metadata.format_version == 2:
        message.ClearField("cToken")
        return head + text_format.MessageToString(message).encode()
    body = message.SerializeToString()
    return head + varint(len(body)) + body


def decode_metadata(ledger_id: int, data: bytes) -> LedgerMetadata:
    """Parse stored bytes. Raises LedgerMetadataError, and no other error, for bytes that are no metadata."""
    head, _, body = data.partition(b"\n")
    if not head.startswith(_MAGIC):
        raise LedgerMetadataError(ledger_id, "it does not begin like ledger metadata")
    version = head[len(_MAGIC) :].strip()
    try:
        if version == b"1":
            found = _from_version_1(body.decode())
        elif version == b"2":
            found = _from_message(text_format.Parse(body.decode(), LedgerMetadataFormat()), 2)
        elif version == b"3":
            found = _from_message(LedgerMetadataFormat.FromString(_delimited(body)), 3)
        else:
            raise LedgerMetadataError(ledger_id, f"format version {version[:20]!r}, known are 1, 2 and 3")
        _check(found)
    except (ValueError, IndexError, DecodeError, EncodeError, text_format.ParseError) as error:
        raise LedgerMetadataError(ledger_id, str(error)[:200]) from error
    return found


def _check(found: LedgerMetadata) -> None:
    if not found.ensemble_size >= found.write_quorum >= found.ack_quorum >= 1:
        raise ValueError(f"quorums {found.ensemble_size}, {found.write_quorum}, {found.ack_quorum}")
    starts = [segment.first for segment in found.segments]
    if not starts or starts[0] != 0 or any(a >= b for a, b in itertools.pairwise(starts)):
        raise ValueError("segments do not begin with entry 0 and increase")
    if any(len(segment.bookies) != found.ensemble_size for segment in found.segments):
        raise ValueError("a segment does not have as many bookies as the ensemble")
    texts = itertools.chain(found.custom, *(segment.bookies for segment in found.segments))
    if not all(isinstance(text, str) for text in texts):  # the parser returns other bytes for such texts
        raise ValueError("the name of a bookie or of a property is no text in UTF-8")
    if found.is_closed and (found.last_entry_id < -1 or found.length < 0):
        raise ValueError(f"closed at entry {found.last_entry_id} with {found.length} bytes")


def _message(metadata: LedgerMetadata) -> LedgerMetadataFormat:
    message = LedgerMetadataFormat(
        quorumSize=metadata.write_quorum,
        ensembleSize=metadata.ensemble_size,
        length=metadata.length if metadata.is_closed else 0,
        lastEntryId=metadata.last_entry_id if metadata.is_closed else -1,
        state=cast("Any", int(metadata.state)),
        ackQuorumSize=metadata.ack_quorum,
    )
    for first, bookies in metadata.segments:
        message.segment.add(ensembleMember=bookies, firstEntryId=first)
    if metadata.digest_type is not None:
        message.digestType = cast("Any", int(metadata.digest_type))
    if metadata.password is not None:
        message.password = metadata.password
    if metadata.created_ms is not None:
        message.ctime = metadata.created_ms
    for key, value in metadata.custom.items():
        message.customMetadata.add(key=key, value=value)
    if metadata.token is not None:
        message.cToken = metadata.token
    return message


def _from_message(message: LedgerMetadataFormat, version: int) -> LedgerMetadata:
    state = LedgerState(message.state)
    closed = state is LedgerState.CLOSED
    return LedgerMetadata(
        ensemble_size=message.ensembleSize,
        write_quorum=message.quorumSize,
        ack_quorum=message.ackQuorumSize if message.HasField("ackQuorumSize") else message.quorumSize,
        segments=tuple(Segment(part.firstEntryId, tuple(part.ensembleMember)) for part in message.segment),
        state=state,
        last_entry_id=message.lastEntryId if closed else -1,
        length=message.length if closed else 0,
        digest_type=DigestType(message.digestType) if message.HasField("digestType") else None,
        password=message.password if message.HasField("password") else None,
        custom={part.key: part.value for part in message.customMetadata},
        created_ms=_optional(message, "ctime"),
        token=_optional(message, "cToken"),
        format_version=version,
    )


def _optional(message: LedgerMetadataFormat, name: str) -> Any:
    return getattr(message, name) if message.HasField(name) else None


def _delimited(body: bytes) -> bytes:
    size = shift = at = 0
    while True:
        byte = body[at]
        size |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            break
        if shift > 28:
            raise ValueError("the length of the message is no varint")
    if at + size != len(body):
        raise ValueError(f"{size} bytes announced, {len(body) - at} found")
    return body[at:]


def _version_1(metadata: LedgerMetadata) -> str:
    lines = [str(metadata.write_quorum), str(metadata.ensemble_size)]
    lines.append(str(metadata.length if metadata.is_closed else 0))
    lines += ["\t".join([str(first), *bookies]) for first, bookies in metadata.segments]
    if metadata.is_closed:
        lines.append(f"{metadata.last_entry_id}\t{_V1_CLOSED}")
    elif metadata.state is LedgerState.IN_RECOVERY:
        lines.append(f"{_V1_IN_RECOVERY}\t{_V1_CLOSED}")
    return "\n".join(lines)


def _from_version_1(text: str) -> LedgerMetadata:
    quorum, size, length, *lines = text.rstrip("\n").split("\n")
    segments, state, last = [], LedgerState.OPEN, -1
    for line in lines:
        number, *words = line.split("\t")
        if words == [_V1_CLOSED]:
            last = int(number)
            state = LedgerState.IN_RECOVERY if last == _V1_IN_RECOVERY else LedgerState.CLOSED
        else:
            segments.append(Segment(int(number), tuple(words)))
    closed = state is LedgerState.CLOSED
    return LedgerMetadata(
        ensemble_size=int(size),
        write_quorum=int(quorum),
        ack_quorum=int(quorum),
        segments=tuple(segments),
        state=state,
        last_entry_id=last if closed else -1,
        length=int(length) if closed else 0,
        format_version=1,
    )
