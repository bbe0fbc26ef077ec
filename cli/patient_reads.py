"""Items of a slow source, for example lines that a user types, which hold up no interrupt."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

_T = TypeVar("_T")


async def next_of(source: Iterator[_T]) -> _T | None:
    """Return the next item, None at the end. The source blocks a thread that nothing waits for: ``asyncio.to_thread``
    would hold up the end of the event loop, and of the process, until the source has another item.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[_T | None] = loop.create_future()

    def read() -> None:
        item, error = None, None
        try:
            item = next(source, None)
        except Exception as e:  # noqa: BLE001 - raised again where the item is awaited
            error = e
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(arrived, item, error)

    def arrived(item: _T | None, error: Exception | None) -> None:
        if found.done():
            return
        if error is None:
            found.set_result(item)
        else:
            found.set_exception(error)

    threading.Thread(target=read, daemon=True).start()
    return await found
