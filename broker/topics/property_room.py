"""Bounds the properties of all subscriptions of a topic together: the subscriptions keep them in memory, and the
statistics of a persistent topic show all of them in one answer.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from magnetar.broker.errors import MetadataError
from magnetar.broker.limits import size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MOST_BYTES: Final = 4 << 20
FREE_BYTES: Final = 1024
"""Properties up to this size need no room: a subscription costs more than that without them."""


S = TypeVar("S")


class PropertyRoom(Generic[S]):
    """The room for the properties of these subscriptions, by name."""

    def __init__(self, subscriptions: Mapping[str, S], properties_of: Callable[[S], Mapping[str, str]]) -> None:
        self._subscriptions = subscriptions
        self._properties_of = properties_of
        self._pending_bytes = 0
        self._sizes: dict[str, tuple[Mapping[str, str], int]] = {}

    @contextlib.contextmanager
    def taken(self, name: str, properties: Mapping[str, str]) -> Iterator[None]:
        """Take room for new properties of a subscription until the caller has stored them. Raises MetadataError."""
        size = size_of(properties)
        if size > FREE_BYTES and self._pending_bytes + self._bytes_of_others(name) + size > MOST_BYTES:
            raise MetadataError(f"the properties of the topic's subscriptions have more than {MOST_BYTES} bytes")
        self._pending_bytes += size
        try:
            yield
        finally:
            self._pending_bytes -= size

    def _bytes_of_others(self, name: str) -> int:
        """Sum up the properties of all other subscriptions, of which the last sum knows most."""
        known, self._sizes = self._sizes, {}
        total = 0
        for other, subscription in self._subscriptions.items():
            properties = self._properties_of(subscription)
            if properties and other != name:
                before, size = known.get(other, (None, 0))
                if before is not properties:
                    size = size_of(properties)
                self._sizes[other] = properties, size
                total += size
        return total
