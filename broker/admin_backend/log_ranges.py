"""Begin and end of a topic's log, in broker indexes."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from magnetar.broker.admin_backend.scan import messages_of
from magnetar.protocol.metadata import parse_entry_metadata
from magnetar.storage.errors import StorageError

if TYPE_CHECKING:
    from magnetar.broker.topics.topic import Topic
    from magnetar.storage.position import Position

_REMEMBERED = 65536


class LogRanges:
    """Keeps the index of each log's first entry, so that a further request reads no entry."""

    def __init__(self) -> None:
        self._first: OrderedDict[str, tuple[Position, int]] = OrderedDict()

    async def of(self, topic: Topic, *, ledgers: bool) -> dict[str, object]:
        """See `TopicsApi.log_range`."""
        log = topic.ledger
        first = await self._first_index(topic) if log.entries else None
        # No await from here on: all figures belong to the same moment.
        end = log.confirmed_index + 1 if log.config.entry_index else None
        if not log.entries:
            first = end
        last = log.last_confirmed
        answer: dict[str, object] = {
            "firstIndex": first,
            "endIndex": end,
            "entries": log.entries,
            "bytes": log.size_bytes,
            "lastConfirmedEntry": f"{last.ledger_id}:{last.entry_id}",
            "firstLedger": slots[0].ledger_id if (slots := log.ledgers) else None,
        }
        if ledgers:
            answer["ledgers"] = [[slot.ledger_id, slot.entries, bool(slot.closed_at_ms)] for slot in slots]
        return answer

    async def _first_index(self, topic: Topic) -> int | None:
        """Index of the first message of the first entry; None when the entry has no index or cannot be read."""
        position = topic.ledger.position_at(0)
        name = str(topic.name)
        known = self._first.get(name)
        if known is not None and known[0] == position:
            self._first.move_to_end(name)
            return known[1]
        try:
            span = await topic.ledger.read_entry(position)
        except StorageError:
            return None
        stored = parse_entry_metadata(span.body(0))
        if stored is None or not stored.HasField("index"):
            return None
        index = stored.index - max(messages_of(span.slab, span.start)[0], 1) + 1
        self._first[name] = (position, index)
        if len(self._first) > _REMEMBERED:
            self._first.popitem(last=False)
        return index
