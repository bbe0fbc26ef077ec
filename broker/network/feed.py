"""Gives a connection bytes that no socket has received."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.broker.network.connection import Connection


def feed(connection: Connection, frame: bytes) -> None:
    """Give an open connection the bytes of a frame, as a socket does. Not from inside a call of the connection."""
    view = memoryview(frame)
    while view and not connection.closed:
        room = connection.get_buffer(-1)
        size = min(len(room), len(view))
        room[:size] = view[:size]
        connection.buffer_updated(size)
        view = view[size:]
