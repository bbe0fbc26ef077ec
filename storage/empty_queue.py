"""A queue without items that all owners of an empty queue share: an empty deque takes 760 bytes, and a topic has ten.

An owner replaces the shared queue by one of its own before it adds the first item, and takes the shared queue back when
its own is empty::

    if queue is NO_ITEMS:
        queue = deque()
    queue.append(item)
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NoReturn

__all__ = ["NO_ITEMS"]


class _NoItems(deque[Any]):
    """A queue that stays empty: an item in it would belong to every owner."""

    def append(self, _item: object) -> NoReturn:
        raise AssertionError("the shared empty queue takes no items")

    appendleft = extend = extendleft = append


NO_ITEMS: Final[deque[Any]] = _NoItems()
