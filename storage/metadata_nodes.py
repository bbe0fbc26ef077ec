"""Paths of metadata nodes, ``/a/b/c``, and callbacks for their changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


__all__ = ["Watches", "check_path", "is_at_or_below", "names_below"]


class Watches:
    """Listeners of changes at or below a prefix. Each change searches them linearly, because they are few."""

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
        """Call the callbacks whose prefix covers the path, each in a separate turn of the loop."""
        concerned = [callback for prefix, callback in self._watches if is_at_or_below(prefix, path)]
        if concerned:
            loop = asyncio.get_running_loop()
            for callback in concerned:
                loop.call_soon(callback, path)


def check_path(path: str) -> str:
    """Return the path. Raises ValueError unless it is ``/`` or ``/name[/name...]`` with non-empty names."""
    if path != "/" and (not path.startswith("/") or path.endswith("/") or "//" in path):
        raise ValueError(f"not a metadata path: {path!r}")
    return path


def is_at_or_below(prefix: str, path: str) -> bool:
    """Whether ``path`` is ``prefix`` or lies below ``prefix``."""
    return prefix in ("/", path) or path.startswith(prefix + "/")


def names_below(path: str, nodes: Iterable[str]) -> list[str]:
    """Return the names directly below ``path`` in the paths of the nodes, sorted, without duplicates."""
    start = 1 if path == "/" else len(path) + 1
    return sorted({node[start:].split("/", 1)[0] for node in nodes if len(node) > start})
