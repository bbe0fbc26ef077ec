"""Paths of metadata nodes: ``/a/b/c``. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["check_path", "is_at_or_below", "names_below"]


def check_path(path: str) -> str:
    """The path itself; ValueError unless it is ``/`` or ``/name[/name...]`` with non-empty names."""
    if path != "/" and (not path.startswith("/") or path.endswith("/") or "//" in path):
        raise ValueError(f"not a metadata path: {path!r}")
    return path


def is_at_or_below(prefix: str, path: str) -> bool:
    """Whether ``path`` is ``prefix`` or one of its descendants."""
    return prefix in ("/", path) or path.startswith(prefix + "/")


def names_below(path: str, nodes: Iterable[str]) -> list[str]:
    """Names directly below ``path`` that the nodes imply, sorted, each once."""
    start = 1 if path == "/" else len(path) + 1
    return sorted({node[start:].split("/", 1)[0] for node in nodes if len(node) > start})
