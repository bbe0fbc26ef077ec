"""Takes the place of a connection in its parts when the connection has ended.

The parts refer to their connection, and the connection to its parts. Cut apart at the end, both are freed with their
last use, such as a request in progress, and do not wait for the garbage collector: full collections are rare, and a
collection counts objects, not the memory of their buffers.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["GONE"]


class _Gone:
    """The ended connection, as its parts see it. Each call is without effect."""

    closed: bool = True
    connected: bool = False
    is_reading: bool = False
    waits_for_memory: bool = False
    negotiated_version: int = 0
    producers: Mapping[int, Any] = MappingProxyType({})
    consumers: Mapping[int, Any] = MappingProxyType({})
    watchers: Mapping[int, Any] = MappingProxyType({})

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...

    def refuse(self, reason: str) -> None: ...

    def lost(self, reason: str) -> None: ...

    def refresh(self) -> None: ...

    def hold_reading(self, reason: str) -> None: ...

    def release_reading(self, reason: str) -> None: ...

    def peer_certificate(self) -> None: ...


GONE: Final = _Gone()
