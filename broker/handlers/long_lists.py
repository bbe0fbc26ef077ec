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
"""Bytes of an answer, or of names, that take as long as a command: a round of the event loop has some 8 MiB."""

_BYTES_OF_A_SORTED_NAME: Final = 256
"""To sort a name takes about as long as to hash or encode so many bytes."""


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


async def hash_in_slices(names: Sequence[str], conn: Client) -> str:
    """Return `topics_hash` of any number of names. A round of the event loop hashes some 8 MiB, for all connections."""
    if len(names) <= _NAMES_IN_ONE_TURN and sum(map(len, names)) <= _LONG_BYTES:
        return topics_hash(names)

    async def room_to_sort(count: int) -> None:
        await _room_for(conn, count * _BYTES_OF_A_SORTED_NAME)

    found, separator = 0, ""
    async for part in sliced(await sorted_in_slices(names, room_to_sort), _NAMES_IN_ONE_TURN):
        await _room_for(conn, sum(map(len, part)))
        found = crc32c((separator + ",".join(part)).encode(), found)
        separator = ","
    return found.to_bytes(4, "little").hex()


async def _room_for(conn: Client, size: int) -> None:
    """Return in a round of the event loop that has room for so many bytes, and count them."""
    turns, commands = conn.services.request_turns, size // _BYTES_OF_A_COMMAND
    await turns.room(conn.loop, commands)
    turns.count(conn.loop, commands)


async def write_list(conn: ListedClient, reply: ListReply, names: Sequence[str]) -> None:
    """Write a reply with these names. Raises TooManyRequestsError when they are more than the connection may hold."""
    size = sum(map(len, names))
    if size <= _LONG_BYTES:
        reply.add(names)
        conn.write(reply.frame())
        return
    conn.require_output(size)
    await _until_read(conn)
    async with conn.services.long_lists:
        if conn.closed:
            return
        conn.require_output(size)  # lists before it may have taken the memory
        async for part in sliced(names, _NAMES_IN_ONE_TURN):
            await _room_for(conn, sum(map(len, part)))
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
        await _room_for(conn, size)
        if not conn.closed:
            conn.require_output(size)
            conn.output.write_long(frame())


async def _until_read(conn: ListedClient) -> None:
    """Return when the client has read the answers before, or is gone."""
    while not conn.closed and not conn.is_writable():
        ready = asyncio.Event()
        conn.when_writable(ready.set)
        await ready.wait()
