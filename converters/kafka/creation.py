"""Creates a record set from messages, with an offset assigner, a codec and a timestamp type.

create_record_set([NewMessage(b"k", b"v")], OffsetAssigner.sequential(100), codec=Codec.LZ4)
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch
from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.errors import InvalidRecordError, MixedMagicError, UnsupportedMagicError
from magnetar.converters.kafka.message_builder import build_message_set
from magnetar.converters.kafka.records import NO_TIMESTAMP, Header, Record, TimestampType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class NewMessage(NamedTuple):
    """A message without an offset. All messages of one set must have the same magic."""

    key: bytes | None
    value: bytes | None
    timestamp: int = NO_TIMESTAMP
    headers: tuple[Header, ...] = ()
    magic: int = 2


class OffsetAssigner:
    """Gives the messages of a new set their absolute offsets, in order."""

    def __init__(self, offsets: Iterable[int]) -> None:
        self._offsets: Iterator[int] = iter(offsets)

    @classmethod
    def sequential(cls, first: int = 0) -> OffsetAssigner:
        """Return an assigner of the offsets first, first + 1, first + 2, ..."""
        return cls(count(first))

    def next_offset(self) -> int:
        """Raises: InvalidRecordError when there are more messages than offsets."""
        for offset in self._offsets:
            return offset
        raise InvalidRecordError("the offset assigner has no offset left")


def create_record_set(
    messages: Sequence[NewMessage],
    assigner: OffsetAssigner,
    *,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    append_time: int | None = None,
) -> bytes:
    """Write `messages` as one record batch (magic 2) or one message set (magic 0, 1); no messages give no bytes.

    Args:    append_time: in ms; required with LOG_APPEND_TIME, not allowed without it.
    Raises:  MixedMagicError; UnsupportedForMessageFormatError and UnsupportedCompressionError for values that the
    magic cannot carry; InvalidRecordError for offsets that do not ascend.
    """
    if (timestamp_type is TimestampType.LOG_APPEND_TIME) != (append_time is not None):
        raise InvalidRecordError("append_time goes with LOG_APPEND_TIME, and only with it")
    if not messages:
        return b""
    magics = {message.magic for message in messages}
    if len(magics) > 1:
        raise MixedMagicError(f"messages of magics {sorted(magics)} cannot form one set")
    magic = magics.pop()
    records = [Record(assigner.next_offset(), m.timestamp, m.key, m.value, m.headers) for m in messages]
    if magic == 2:
        return build_record_batch(records, BatchOptions(codec=codec, append_time=append_time))
    if magic not in (0, 1):
        raise UnsupportedMagicError(magic)
    return build_message_set(records, magic, codec=codec, append_time=append_time)
