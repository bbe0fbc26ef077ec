"""ACK: from message ids to the cursor and the books of the dispatcher.

The ids of one command form one group: whole entries go to the cursor in one call. Ids of entries that do not exist
change nothing and are not an error. The cursor ANDs partial acks (ack sets).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import structlog

from magnetar.broker.consumers.consumer import EXCLUSIVE, FAILOVER
from magnetar.broker.dispatchers.ports import AckCursor
from magnetar.broker.limits import MAX_ACK_SET_WORDS, check_ack_set
from magnetar.protocol import message_id
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.acks import MAX_ENTRY_ID, MAX_LEDGER_ID, whole_entries
from magnetar.protocol.message_id import signed
from magnetar.storage.position import Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from magnetar.broker.consumers.consumer import Consumer
    from magnetar.broker.dispatchers.held_entries import HeldEntries
    from magnetar.broker.dispatchers.ports import DispatchContext

log = structlog.get_logger(__name__)

_MANY = 8
"""From this number of ids on, one call for all ids is faster than a call for each id."""


def entries_by_ledger(message_ids: Iterable[pb.MessageIdData]) -> dict[int, list[int]]:
    """The entries of the ids by ledger, without those that no ledger can have."""
    found: dict[int, list[int]] = {}
    for ident in message_ids:
        if (entry_id := ident.entryId) <= MAX_ENTRY_ID:
            found.setdefault(ident.ledgerId, []).append(entry_id)
    return found


class AckedCursor(AckCursor, Protocol):
    """The cursor of dispatch, with further methods for acknowledgements."""

    @property
    def last_confirmed(self) -> Position: ...
    def ack_entries(self, ledger_id: int, entry_ids: Sequence[int]) -> int: ...
    def ack_cumulative(self, position: Position, ack_set: Sequence[int] | None = None) -> bool: ...


class Acknowledger:
    """Applies acks; `books` are those of a Shared or Key_Shared dispatcher, None for single-active types.

    `pinned`: acks change nothing, because only the broker moves the cursor.
    """

    def __init__(self, context: DispatchContext, cursor: AckedCursor, *, pinned: bool = False) -> None:
        self._context = context
        self._cursor = cursor
        self._pinned = pinned
        self.books: HeldEntries | None = None
        self.last_mark_delete_advanced_ms = 0

    def on_ack(self, consumer: Consumer, command: pb.CommandAck) -> None:
        """Apply one CommandAck in memory; it becomes durable later, at the latest when the cursor is flushed.

        Raises NotAllowedError for an ack set that is too long; the other ids of the command are still acknowledged.
        """
        ids = command.message_id
        consumer.last_acked_ms = self._context.now_ms()
        if command.HasField("validation_error"):
            self._log_validation_error(consumer, command)
        if self._pinned:
            return
        before = self._cursor.mark_delete
        if command.ack_type == pb.CommandAck.Cumulative:
            if len(ids) == 1 and consumer.sub_type in (EXCLUSIVE, FAILOVER):
                self._cumulative(consumer, ids[0])
        else:
            self._individual(consumer, command)
        if self._cursor.mark_delete != before:
            self.mark_delete_advanced()

    def _cumulative(self, consumer: Consumer, ident: pb.MessageIdData) -> None:
        # Signed (protocol/message_id.py): clients use entry -1 for "before the first entry of this ledger".
        position = Position(signed(ident.ledgerId), signed(ident.entryId))
        if position > self._cursor.last_confirmed:
            return  # no such entry
        check_ack_set(len(ident.ack_set))
        ack_set = list(ident.ack_set) or None
        if ack_set is not None and not self._context.settings.batch_index_acks:
            position, ack_set = position.previous(), None
        elif ack_set is not None and message_id.is_empty(ack_set):
            position, ack_set = position.previous(), None  # no client sends this; Apache Pulsar 4.2.4 keeps the entry
        self._cursor.ack_cumulative(position, ack_set)
        consumer.acks.add(1, 0)

    def _individual(self, consumer: Consumer, command: pb.CommandAck) -> None:
        ids = command.message_id
        messages = longest = 0
        whole = whole_entries(command) if len(ids) >= _MANY else None
        if whole is None:
            whole = {}
            parts: dict[int, dict[int, int]] = {}
            for ident in ids:
                ledger_id, entry_id = ident.ledgerId, ident.entryId
                if entry_id > MAX_ENTRY_ID or ledger_id > MAX_LEDGER_ID:
                    continue
                ack_set = ident.ack_set
                if ack_set and (words := len(ack_set)) > MAX_ACK_SET_WORDS:
                    longest = max(longest, words)
                    continue
                if ack_set and not message_id.is_empty(ack_set):
                    if not self._context.settings.batch_index_acks:
                        continue
                    left = self._part(Position(ledger_id, entry_id), list(ack_set))
                    if self.books is None:
                        messages += 1
                        continue
                    if left:
                        parts.setdefault(ledger_id, {})[entry_id] = left
                    if left != 0:
                        continue
                entries = whole.get(ledger_id)
                if entries is None:
                    whole[ledger_id] = [entry_id]
                else:
                    entries.append(entry_id)
            for ledger_id, of_ledger in parts.items():
                assert self.books is not None
                messages += self.books.acked_parts(consumer, ledger_id, of_ledger)
        for ledger_id, entry_ids in whole.items():
            self._cursor.ack_entries(ledger_id, entry_ids)
            if self.books is None:
                messages += len(entry_ids)
            else:
                messages += self.books.acked(consumer, ledger_id, entry_ids)
        consumer.acks.add(messages, 0)
        if longest:
            check_ack_set(longest)

    def _part(self, position: Position, ack_set: list[int]) -> int | None:
        """Acknowledge some messages of a batch. Return the number of its messages that remain to be acknowledged; None
        when there is no such entry.
        """
        cursor = self._cursor
        cursor.ack(position, ack_set)
        left = cursor.ack_set(position)
        if left is not None:
            return message_id.remaining(left)
        return 0 if cursor.is_deleted(position) else None

    def mark_delete_advanced(self) -> None:
        """Note the time when an acknowledgement or an expiry moves the mark-delete position; skips do not count."""
        self.last_mark_delete_advanced_ms = self._context.now_ms()

    def _log_validation_error(self, consumer: Consumer, command: pb.CommandAck) -> None:
        """Log a message that the client could not read; the message counts as acknowledged."""
        log.warning(
            "message.invalid",
            topic=self._context.topic_name,
            subscription=self._context.subscription_name,
            consumer=consumer.name,
            reason=pb.CommandAck.ValidationError.Name(command.validation_error),
        )
