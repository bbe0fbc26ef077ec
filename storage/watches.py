"""Callbacks for changes of metadata nodes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from magnetar.storage.metadata_paths import is_at_or_below

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Watches"]


class Watches:
    """Listeners of changes at or below a prefix. They are few: each change searches them linearly."""

    def __init__(self) -> None:
        self._watches: list[tuple[str, Callable[[str], None]]] = []

    def add(self, prefix: str, callback: Callable[[str], None]) -> Callable[[], None]:
        """Returns the function that cancels the watch."""
        watch = (prefix, callback)
        self._watches.append(watch)

        def cancel() -> None:
            if watch in self._watches:
                self._watches.remove(watch)

        return cancel

    def changed(self, path: str) -> None:
        """Call the callbacks concerned, each in a turn of the loop of its own."""
        concerned = [callback for prefix, callback in self._watches if is_at_or_below(prefix, path)]
        if concerned:
            loop = asyncio.get_running_loop()
            for callback in concerned:
                loop.call_soon(callback, path)
