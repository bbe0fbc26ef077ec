"""Assigns offsets, and on request log append time, to a validated record set.

| entry                                    | change                                                   |
|------------------------------------------|----------------------------------------------------------|
| magic 2, any codec                       | base offset (and leader epoch) patched                   |
| magic 0, 1 uncompressed                  | each message's offset patched                            |
| magic 1 compressed, inner offsets 0..n-1 | the wrapper's offset patched                             |
| magic 0 compressed, other inner offsets  | decompressed, inner offsets rewritten, compressed again  |

Patching leaves checksums valid, because none covers an offset. LogAppendTime additionally sets type and timestamp of
every batch, wrapper and plain message, and its checksum; inner messages keep their bytes. A max timestamp that does not
match the records is corrected in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from magnetar.converters.kafka.batch_builder import patch_batch, stamp_batch
from magnetar.converters.kafka.errors import UnsupportedForMessageFormatError
from magnetar.converters.kafka.message import Message, inner_messages
from magnetar.converters.kafka.message_builder import build_message_set, patch_message, stamp_message
from magnetar.converters.kafka.records import Record

if TYPE_CHECKING:
    from magnetar.converters.kafka.validation import ValidatedEntry, ValidatedSet


@dataclass(frozen=True, slots=True)
class Assignment:
    """A record set ready to be stored. `rebuilt`: some of it was decompressed and compressed again."""

    buffer: bytearray
    first_offset: int
    last_offset: int
    max_timestamp: int
    rebuilt: bool


def assign_offsets(
    validated: ValidatedSet, first_offset: int, *, append_time: int | None = None, leader_epoch: int | None = None
) -> Assignment:
    """Give the messages of `validated` consecutive offsets from `first_offset` on.

    Works in place when `validated.in_place` holds and its buffer is a bytearray; otherwise in a copy.
    Raises: UnsupportedForMessageFormatError for LogAppendTime with magic 0.
    """
    if append_time is not None and any(entry.magic == 0 for entry in validated.entries):
        raise UnsupportedForMessageFormatError("magic 0 has no timestamps")
    buffer, entries = _rebuilt(validated, first_offset) if not validated.in_place else (validated.buffer, None)
    out = buffer if isinstance(buffer, bytearray) else bytearray(buffer)
    offset = first_offset
    for entry in entries or validated.entries:
        last = offset + entry.message_count - 1
        stamp = entry.max_timestamp if append_time is None else append_time
        restamp = entry.restamp or append_time is not None
        if entry.magic == 2:
            patch_batch(out, entry.start, offset, leader_epoch)
            if restamp:
                stamp_batch(out, entry.start, entry.end, stamp, log_append=append_time is not None)
        else:
            patch_message(out, entry.start, last)
            if restamp and entry.magic == 1:
                stamp_message(out, entry.start, entry.end, stamp, log_append=append_time is not None)
        offset = last + 1
    newest = validated.max_timestamp if append_time is None else append_time
    return Assignment(out, first_offset, offset - 1, newest, not validated.in_place)


def _rebuilt(validated: ValidatedSet, first_offset: int) -> tuple[bytearray, list[ValidatedEntry]]:
    """Return a copy of the set with entries marked `rebuild` written anew, and the entries with their new places."""
    view = memoryview(validated.buffer)
    out = bytearray()
    moved: list[ValidatedEntry] = []
    offset = first_offset
    for entry in validated.entries:
        part = view[entry.start : entry.end]
        data = _rewrite(Message(part), offset) if entry.rebuild else bytes(part)
        end = len(out) + len(data)
        moved.append(replace(entry, start=len(out), end=end, restamp=entry.restamp and not entry.rebuild))
        out += data
        offset += entry.message_count
    return out, moved


def _rewrite(wrapper: Message, first_offset: int) -> bytes:
    records = [
        Record(offset, inner.max_timestamp, *inner.key_and_value())
        for offset, inner in enumerate(inner_messages(wrapper.inner_set()), first_offset)
    ]
    return build_message_set(records, wrapper.magic, codec=wrapper.codec)
