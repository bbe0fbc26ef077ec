"""The offsets that earlier imports have stored, read out of the topic itself.

A broker forgets the sequence ids of a producer that was away for long (brokerDeduplicationProducerInactivityTimeout-
Minutes, six hours by default). The entries still exist, with the name and the ids in their metadata. So an import whose
name the broker does not know reads the topic once before it stores entries. Entries come unconverted
(`entry.format.raw`), and nothing is acknowledged.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from magnetar.client import connection as wire
from magnetar.client.errors import RefusedError, RetryError
from magnetar.converters.entry import ENTRY_FORMAT_RAW, Entry
from magnetar.converters.errors import EntryError
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests
from magnetar.protocol.message_id import signed

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.importing.topic_session import TopicSession
    from magnetar.protocol.answers import Answer

_PERMITS = 5_000
_CONSUMER_ID = 1
_NAME_PREFIX = b"kafka-import-"
_NAME_WITHIN = 64  # the producer name is the first field of the metadata


async def read_stored_sequence_ids(session: TopicSession, on_entries: Callable[[int], None]) -> dict[str, int]:
    """Highest sequence id stored under each name of an import; reads the topic from its first entry to its last.

    Args:    on_entries: called now and then with the number of entries read so far.
    Raises:  RefusedError when the client may not read, RetryError.
    """
    connection = session.connection
    subscription = f"kafka-import-{os.urandom(5).hex()}"
    metadata = {ENTRY_FORMAT_RAW: "true"}
    await connection.ask(lambda n: requests.reader(n, _CONSUMER_ID, session.topic, subscription, metadata))
    answer = await connection.ask(lambda n: requests.get_last_message_id(n, _CONSUMER_ID))
    last = answer.getLastMessageIdResponse.last_message_id
    scan = _Scan(connection, (signed(last.ledgerId), signed(last.entryId)), on_entries)
    if scan.end[1] >= 0:
        await scan.wait_end()
    await connection.ask(lambda n: requests.close_consumer(n, _CONSUMER_ID))
    return scan.highest


class _Scan:
    """Collects the highest sequence ids of pushed entries until the entry at `end`, or a later entry, has come."""

    def __init__(
        self, connection: wire.BrokerConnection, end: tuple[int, int], on_entries: Callable[[int], None]
    ) -> None:
        self.highest: dict[str, int] = {}
        self.end = end
        self._entries = 0
        self._messages = 0
        self._on_entries = on_entries
        self._connection = connection
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connection.subscribers[pb.BaseCommand.MESSAGE] = self._on_message
        connection.subscribers[pb.BaseCommand.CLOSE_CONSUMER] = lambda _: self._fail("the broker closed the reader")
        connection.on_lost = lambda reason: self._fail(str(reason))

    async def wait_end(self) -> None:
        self._connection.write(requests.flow(_CONSUMER_ID, _PERMITS))
        seen = -1
        while not self._finished.done():
            # The last entry may be a marker, which the broker does not deliver: silence means the end of the topic.
            await asyncio.wait([self._finished], timeout=wire.TIMEOUT_S)
            if not self._finished.done() and self._entries == seen:
                raise RetryError(
                    f"the topic gave no entry for {wire.TIMEOUT_S:.0f} s while it was read for earlier imports "
                    "(--first-import does without)"
                )
            seen = self._entries
        self._finished.result()

    def _on_message(self, answer: Answer) -> None:
        message_id = answer.command.message.message_id
        self._entries += 1
        self._messages += self._noted(answer.entry)
        if self._messages >= _PERMITS // 2:
            self._connection.write(requests.flow(_CONSUMER_ID, self._messages))
            self._messages = 0
            self._on_entries(self._entries)
        if (message_id.ledgerId, message_id.entryId) >= self.end and not self._finished.done():
            self._finished.set_result(None)

    def _noted(self, data: bytes) -> int:
        """Note the sequence id of one entry; return the number of permits that the entry used."""
        try:
            entry = Entry(data)
            metadata = entry.metadata
        except EntryError:
            return 1
        if data.find(_NAME_PREFIX, 0, _NAME_WITHIN) >= 0:
            high = max(metadata.sequence_id, metadata.highest_sequence_id)
            self.highest[metadata.producer_name] = max(high, self.highest.get(metadata.producer_name, -1))
        return max(int(metadata.num_messages_in_batch), 1)

    def _fail(self, reason: str) -> None:
        if not self._finished.done():
            self._finished.set_exception(RetryError(reason))
            self._finished.exception()


def no_right_to_read(error: RefusedError) -> RefusedError:
    """The same error with a remedy."""
    return RefusedError(
        f"the topic cannot be searched for entries of an earlier run ({error}): grant the role `consume`, or use "
        "--first-import if the file was never imported into this topic"
    )
