"""Frames of the bookie protocol, version 2: requests to bytes, bytes to answers. Big-endian.

Every frame is a u32 length (of the following bytes) and a u32 header ``version << 24 | opcode << 16 | flags``.

==================  ===================================================================================
frame               behind the header
==================  ===================================================================================
add request         master key (20), entry (``entries``)
add answer          u32 code, ledger id, entry id
read request        ledger id, entry id, [master key when DO_FENCING]
read answer         u32 code, ledger id, entry id (both as in the request), entry
batch read request  ledger id, first entry id, request id, u32 most entries, most bytes, [master key]
batch read answer   u32 code, ledger id, entry id, request id, then u32 length and entry, repeated
auth                AuthMessage (protobuf), both ways
==================  ===================================================================================

A V2 connection has no transaction ids: an answer belongs to the oldest request with its opcode, ledger and entry.
"""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple

from magnetar.bookkeeper.errors import WireError
from magnetar.bookkeeper.wire.packed_answers import join_added

__all__ = [
    "ABSENT",
    "ADD",
    "AUTH",
    "BATCH_READ",
    "DEFAULT_MAX_FRAME_BYTES",
    "DO_FENCING",
    "HIGH_PRIORITY",
    "LAST_ENTRY",
    "READ",
    "RECOVERY_ADD",
    "AddFailed",
    "Added",
    "Answer",
    "AnswerDecoder",
    "AuthAnswer",
    "BatchAnswer",
    "Code",
    "ReadAnswer",
    "batch_read_request",
    "code_name",
    "read_request",
]


class Code(enum.IntEnum):
    """The codes of an answer in V2 (BookkeeperProtocol.proto numbers those of V3 differently)."""

    OK = 0
    NO_LEDGER = 1
    NO_ENTRY = 2
    BAD_REQUEST = 100
    IO_ERROR = 101
    UNAUTHORIZED = 102
    """The master key belongs to another password than the ledger's."""
    BAD_VERSION = 103
    FENCED = 104
    READ_ONLY = 105
    TOO_MANY_REQUESTS = 106
    UNKNOWN_LEDGER_STATE = 107
    """The bookie cannot tell whether it has the entry; never treat this code as "no such entry"."""


_CODES = frozenset(Code)
ABSENT = frozenset({Code.NO_LEDGER, Code.NO_ENTRY})
"""The bookie does not hold the entry."""


def code_name(code: int) -> str:
    """Return the text of a code for errors and logs; unknown codes have a text too."""
    try:
        return Code(code).name
    except ValueError:
        return f"code {code}"


VERSION = 2
ADD, READ, AUTH, BATCH_READ = 1, 2, 3, 7
DO_FENCING, RECOVERY_ADD, HIGH_PRIORITY = 1, 2, 4
LAST_ENTRY = -1
"""Entry id in a read request: the bookie answers with its entry of the greatest id in the ledger."""
DEFAULT_MAX_FRAME_BYTES = 5 * 1024 * 1024 + 10 * 1024
"""Pulsar's ``nettyMaxFrameSizeBytes``, compared with the frame and its length field."""

_READ = struct.Struct(">IIqq")
_BATCH = struct.Struct(">IIqqqIq")
_U32 = struct.Struct(">I")
_ANSWER = struct.Struct(">IIqq")
_REQUEST_ID = struct.Struct(">q")
_ADD_ANSWER = VERSION << 24 | ADD << 16
_AUTH_ANSWER = VERSION << 24 | AUTH << 16
_HEAD_BYTES = {
    _ADD_ANSWER: _ANSWER.size,
    VERSION << 24 | READ << 16: _ANSWER.size,
    VERSION << 24 | BATCH_READ << 16: _ANSWER.size + _REQUEST_ID.size,
}
"""Header of an answer -> bytes of the answer in front of its entries. A bookie answers without flags."""
_BEGIN_BYTES = 12
"""Length, header and code of an answer."""


class Added(NamedTuple):
    """Entries ``first .. last`` are on this bookie's disk; joined from the answers to consecutive entries."""

    ledger_id: int
    first: int
    last: int


class AddFailed(NamedTuple):
    ledger_id: int
    entry_id: int
    code: int


class ReadAnswer(NamedTuple):
    ledger_id: int
    entry_id: int
    """The entry id of the request: LAST_ENTRY in an answer to LAST_ENTRY."""
    code: int
    entry: bytes


class BatchAnswer(NamedTuple):
    ledger_id: int
    entry_id: int
    code: int
    request_id: int
    packed: bytes
    """``{u32 length, entry}`` repeated, as the bookie sent it (see ``packed_batches``)."""

    @property
    def entries(self) -> list[bytes]:
        """The entries, unverified. Raises WireError when the bytes do not have this form."""
        return _entries(self.packed, 0)


class AuthAnswer(NamedTuple):
    message: bytes


Answer = Added | AddFailed | ReadAnswer | BatchAnswer | AuthAnswer


def read_request(ledger_id: int, entry_id: int, flags: int = 0, key: bytes = b"") -> bytes:
    """Return a read request. `key`: the master key with DO_FENCING, else empty."""
    assert bool(flags & DO_FENCING) == bool(key)
    return _READ.pack(20 + len(key), VERSION << 24 | READ << 16 | flags, ledger_id, entry_id) + key


def batch_read_request(ledger_id: int, first: int, request_id: int, most_entries: int, most_bytes: int) -> bytes:
    """Return a request for the entries from ``first`` on. `most_bytes` bounds the whole answer, except that the first
    entry comes in any case.
    """
    assert first >= 0, "a bookie answers -1 with nonsense"
    return _BATCH.pack(
        40, VERSION << 24 | BATCH_READ << 16, ledger_id, first, request_id, most_entries, max(most_bytes, 1)
    )


class AnswerDecoder:
    """Cuts the byte stream of one bookie into answers.

    For any bytes, ``feed`` returns the complete answers or raises WireError. It refuses an answer that is larger than
    the limit, or begins as no answer does, before it buffers the answer: behind a damaged length or header nothing else
    on the connection has a meaning.
    """

    def __init__(self, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self._max_bytes = max_frame_bytes
        self._buffer = bytearray()
        self._need = 0

    @property
    def buffered_bytes(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Answer]:
        """Return the answers that these bytes complete; acknowledgements of consecutive adds are joined. Raises
        WireError.
        """
        if not self._buffer:
            answers, used, self._need = self._cut(data)
            if used < len(data):
                self._buffer += data[used:] if used else data
            return answers
        self._buffer += data
        if len(self._buffer) < self._need:
            return []
        answers, used, self._need = self._cut(bytes(self._buffer))
        del self._buffer[:used]
        return answers

    def _cut(self, data: bytes) -> tuple[list[Answer], int, int]:
        """Return (answers, bytes used, bytes needed for the next answer)."""
        answers: list[Answer] = []
        at, end = 0, len(data)
        need = 4
        while end - at >= 4:
            added = join_added(data, at)
            if added is not None:
                ledger_id, first, last, at = added
                answers.append(Added(ledger_id, first, last))
                continue
            (size,) = _U32.unpack_from(data, at)
            if size < 4 or size + 4 > self._max_bytes:
                raise WireError(f"a bookie sent a frame of {size} bytes, at most {self._max_bytes} are taken")
            need = min(size + 4, _BEGIN_BYTES)
            if end - at < need:
                break
            _check_begin(data, at, size)
            need = size + 4
            if end - at < need:
                break
            answers.append(_answer(data[at + 4 : at + need]))
            at, need = at + need, 4
        return answers, at, need


def _check_begin(data: bytes, at: int, size: int) -> None:
    """Raise WireError when the first bytes at `at` begin no answer of `size` bytes."""
    (header,) = _U32.unpack_from(data, at + 4)
    if header == _AUTH_ANSWER:
        return
    head_bytes = _HEAD_BYTES.get(header)
    if head_bytes is None or size < head_bytes:
        raise WireError(f"an answer of {size} bytes with header {header:#010x}")
    (code,) = _U32.unpack_from(data, at + 8)
    if code not in _CODES or (size > head_bytes and (header == _ADD_ANSWER or code != Code.OK)):
        raise WireError(f"an answer of {size} bytes with header {header:#010x} and {code_name(code)}")


def _answer(body: bytes) -> Answer:
    (header,) = _U32.unpack_from(body, 0)
    opcode = header >> 16 & 0xFF
    if opcode == AUTH:
        return AuthAnswer(body[4:])
    _, code, ledger_id, entry_id = _ANSWER.unpack_from(body, 0)
    if opcode == READ:
        return ReadAnswer(ledger_id, entry_id, code, body[_ANSWER.size :])
    if opcode == BATCH_READ:
        (request_id,) = _REQUEST_ID.unpack_from(body, _ANSWER.size)
        return BatchAnswer(ledger_id, entry_id, code, request_id, body[_ANSWER.size + _REQUEST_ID.size :])
    if code != Code.OK:
        return AddFailed(ledger_id, entry_id, code)
    if ledger_id < 0 or entry_id < 0:
        raise WireError(f"a bookie acknowledged entry {ledger_id}:{entry_id}")
    return Added(ledger_id, entry_id, entry_id)


def _entries(body: bytes, at: int) -> list[bytes]:
    found = []
    while at < len(body):
        if at + 4 > len(body):
            raise WireError("a batch of entries ends inside a length")
        (size,) = _U32.unpack_from(body, at)
        at += 4
        if at + size > len(body):
            raise WireError("a batch of entries ends inside an entry")
        found.append(body[at : at + size])
        at += size
    return found
