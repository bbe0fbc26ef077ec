"""Shortens the start: imports modules beside the loop, when they are needed, and keeps their objects from the garbage
collector.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import importlib.util
import sys
from typing import Any, Final

__all__ = ["import_later", "require", "spare_later_modules", "spare_the_collector"]

_GIVE_WAY_S: Final = 0.0001


_intervals: list[float] = []
"""The switch interval of the process before the first of the imports under way, for each of them."""

_imported: set[str] = set()
"""The modules of imports that have ended; a module is in `sys.modules` before its import ends."""


async def import_later(name: str) -> Any:
    """Import a module in a thread, for modules that the first clients do not need. The broker serves clients meanwhile:
    the importing thread yields the interpreter to the loop after 0.1 ms instead of the default of 5 ms.
    """
    if name in _imported:
        return sys.modules[name]
    _intervals.append(_intervals[0] if _intervals else sys.getswitchinterval())
    sys.setswitchinterval(_GIVE_WAY_S)
    try:
        found = await asyncio.to_thread(importlib.import_module, name)
    finally:
        interval_s = _intervals.pop()
        if not _intervals:
            sys.setswitchinterval(interval_s)
    _imported.add(name)
    return found


def require(*names: str) -> None:
    """Raise ModuleNotFoundError unless these packages are installed: for packages that are imported long after the
    start.
    """
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def spare_the_collector() -> None:
    """Keep full collections short: a collection over all objects of the modules would delay every client by tens of ms.

    Present objects live as long as the process, so the collector ignores them (``Collector`` has the thresholds).
    """
    gc.freeze()
    gc.enable()


def spare_later_modules() -> None:
    """The same for modules that were imported after the start. Call while there are few topics and connections: none of
    the present objects is ever searched for cycles again. Without effect in a process without ``spare_the_collector``.
    """
    if gc.get_freeze_count():
        gc.freeze()
