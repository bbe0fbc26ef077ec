"""Answers with the names of many topics, or with a large schema. Other clients decide how long they are, and a client
may request them without end.

The broker hashes and encodes long lists in slices. It encodes one list at a time, for a client that has read earlier
answers. A list beyond the memory of the connection is refused before it is encoded, and so is a large schema.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from magnetar.broker.handlers.client import Client
from magnetar.broker.handlers.request_turns import PATTERN_COMMANDS
from magnetar.broker.slices import sliced, sorted_in_slices
from magnetar.protocol.checksum import crc32c
from magnetar.protocol.topic_name import topics_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from magnetar.broker.topics.patterns import Room
    from magnetar.protocol.list_reply import ListReply

_NAMES_IN_ONE_TURN: Final = 2048
_LONG_BYTES: Final = 16 * 1024
_BYTES_OF_A_COMMAND: Final = 8 * 1024
"""Bytes of an answer that take as long as a command: a round of the event loop encodes some 8 MiB."""


class LongOutput(Protocol):
    """The part of a connection's output that long answers need."""

    def write_long(self, data: bytes) -> None: ...


class ListedClient(Client, Protocol):
    """A connection that gets long answers."""

    lists: asyncio.Lock
    """Held while the broker makes a long answer, whose length depends on other clients."""

    @property
    def output(self) -> LongOutput: ...
    def is_writable(self) -> bool: ...
    def when_writable(self, callback: Callable[[], None]) -> None: ...
    def require_output(self, size: int) -> None:
        """Raise TooManyRequestsError when the connection has no memory for an answer of that size."""
        ...


def room_in_round(conn: Client) -> Room:
    """Return a function that waits for room in a round of the event loop: four slices of names are matched in a round,
    whichever connections and watchers they are for.
    """

    async def room(part: float) -> None:
        turns, commands = conn.services.request_turns, int(PATTERN_COMMANDS * part)
        await turns.room(conn.loop, commands)
        turns.count(conn.loop, commands)

    return room


async def hash_in_slices(names: Sequence[str]) -> str:
    """Return `topics_hash` of any number of names."""
    if len(names) <= _NAMES_IN_ONE_TURN:
        return topics_hash(names)
    found, separator = 0, ""
    async for part in sliced(await sorted_in_slices(names), _NAMES_IN_ONE_TURN):
        found = crc32c((separator + ",".join(part)).encode(), found)
        separator = ","
    return found.to_bytes(4, "little").hex()


async def write_list(conn: ListedClient, reply: ListReply, names: Sequence[str]) -> None:
    """Write a reply with these names. Raises TooManyRequestsError when they are more than the connection may hold."""
    if len(names) <= _NAMES_IN_ONE_TURN:
        reply.add(names)
        conn.write(reply.frame())
        return
    conn.require_output(sum(map(len, names)))
    await _until_read(conn)
    async with conn.services.long_lists:
        if conn.closed:
            return
        async for part in sliced(names, _NAMES_IN_ONE_TURN):
            reply.add(part)
        conn.output.write_long(reply.frame())


async def write_answer(conn: ListedClient, size: int, frame: Callable[[], bytes]) -> None:
    """Write an answer of about so many bytes, a long answer when the client has read the answers before. Raises
    TooManyRequestsError when it is more than the connection may hold.
    """
    if size <= _LONG_BYTES:
        conn.write(frame())
        return
    async with conn.lists:
        await _until_read(conn)
        turns, commands = conn.services.request_turns, size // _BYTES_OF_A_COMMAND
        await turns.room(conn.loop, commands)
        turns.count(conn.loop, commands)
        if not conn.closed:
            conn.require_output(size)
            conn.output.write_long(frame())


async def _until_read(conn: ListedClient) -> None:
    """Return when the client has read the answers before, or is gone."""
    while not conn.closed and not conn.is_writable():
        ready = asyncio.Event()
        conn.when_writable(ready.set)
        await ready.wait()
