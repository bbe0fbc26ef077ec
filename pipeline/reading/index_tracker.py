"""The broker index of entries as they come from the broker.

A broker tells it in broker entry metadata (`exposingBrokerEntryMetadataToClientEnabled`). One that does not is asked
for the index of the first entry; from there on messages are counted, since indexes have no gaps. Wherever an entry does
not directly follow the one before, the broker is asked again, so a message that was not delivered cannot shift the
count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.metadata import parse_entry_metadata, parse_metadata

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.pipeline.reading.pushed import PushedEntry

_MAGIC_ENTRY_METADATA = b"\x0e\x02"


class Indexed(NamedTuple):
    """An entry, the index of its last message (None: it has none), and how many messages it holds."""

    body: bytes
    last_index: int | None
    messages: int


class IndexTracker:
    """Feed it entries in order. `ask(position)` gives first and last index of an entry, None when it has none."""

    def __init__(self, ask: Callable[[PushedEntry], tuple[int, int] | None]) -> None:
        self._ask = ask
        self._before: PushedEntry | None = None
        self._index: int | None = None
        self.asked = 0
        """How often the broker was asked."""

    def restart(self) -> None:
        """What comes next need not follow what came before."""
        self._before = self._index = None

    def track(self, entry: PushedEntry) -> Indexed:
        """The entry with its index, with broker entry metadata put before it where the broker left that out."""
        before, self._before = self._before, entry
        follows = (
            before is not None
            and before.ledger_id == entry.ledger_id
            and before.entry_id + 1 == entry.entry_id
            and self._index is not None
        )
        stored = parse_entry_metadata(entry.body)
        if stored is not None and stored.HasField("index"):
            last = self._index
            self._index = stored.index
            if follows and last is not None:
                return Indexed(entry.body, stored.index, stored.index - last)
            return Indexed(entry.body, stored.index, messages_of(entry.body))
        messages = messages_of(entry.body)
        if follows and self._index is not None:
            self._index += messages
        else:
            self.asked += 1
            bounds = self._ask(entry)
            self._index = None if bounds is None else bounds[1]
        if self._index is None:
            return Indexed(entry.body, None, messages)
        return Indexed(with_index(entry.body, self._index, stored), self._index, messages)


def with_index(body: bytes, index: int, stored: pb.BrokerEntryMetadata | None = None) -> bytes:
    """The entry with broker entry metadata that holds this index before it."""
    metadata = pb.BrokerEntryMetadata(index=index)
    if stored is not None:
        metadata.MergeFrom(stored)
        body = body[6 + int.from_bytes(body[2:6], "big") :]
    raw = metadata.SerializeToString()
    return b"".join((_MAGIC_ENTRY_METADATA, len(raw).to_bytes(4, "big"), raw, body))


def messages_of(body: bytes) -> int:
    """How many messages an entry holds, by its metadata; 1 when that cannot be read."""
    metadata = parse_metadata(body)
    return 1 if metadata is None else max(metadata.num_messages_in_batch, 1)
