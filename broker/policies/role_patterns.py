"""Grants to patterns of roles, ``prefix*`` and ``*suffix``: a namespace may have tens of thousands."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["RolePatterns"]


class RolePatterns:
    """The patterns among grants. A search costs as much as the patterns have different lengths."""

    def __init__(self, grants: Mapping[str, Sequence[str | None]]) -> None:
        self._beginnings: dict[str, set[str | None]] = {}
        self._endings: dict[str, set[str | None]] = {}
        for pattern, actions in grants.items():  # a star at both ends is read as either, never as both
            if pattern.endswith("*"):
                self._beginnings.setdefault(pattern[:-1], set()).update(actions)
            if pattern.startswith("*"):
                self._endings.setdefault(pattern[1:], set()).update(actions)
        self._lengths = sorted(set(map(len, self._beginnings)) | set(map(len, self._endings)))

    def actions(self, role: str) -> set[str | None]:
        """Return the actions of all patterns that stand for the role."""
        found: set[str | None] = set()
        for length in self._lengths:
            if length > len(role):
                break
            found |= self._beginnings.get(role[:length], found)
            found |= self._endings.get(role[len(role) - length :], found)
        return found
