"""Patterns over topic names as clients send them: a regular expression over "tenant/namespace/topic" (reference B.15).

The scheme in a pattern is dropped and does not filter, the whole name must match, and names are compared without
scheme and
without partition suffix. Clients write Java (or RE2) expressions; Python's `re` reads what they commonly use.
"""

from __future__ import annotations

import re

_SCHEMES = frozenset({"persistent", "non-persistent"})
_SUFFIX = re.compile(r"-partition-\d+\Z")


class InvalidPatternError(ValueError):
    """The pattern is no regular expression."""


class TopicPattern:
    """A compiled pattern."""

    def __init__(self, text: str) -> None:
        scheme, separator, rest = text.partition("://")
        if separator and scheme not in _SCHEMES:
            raise InvalidPatternError(f"Invalid topics pattern {text!r}: unknown scheme {scheme!r}")
        try:
            self._regex = re.compile(_java_to_python(rest if separator else text))
        except re.error as e:
            raise InvalidPatternError(f"Invalid topics pattern {text!r}: {e}") from e

    def filter(self, names: list[str]) -> list[str]:
        """Those of the full names that match, in their order."""
        return [name for name in names if self._regex.fullmatch(_SUFFIX.sub("", name.partition("://")[2]))]


def _java_to_python(pattern: str) -> str:
    r"""Java's \Q..\E quoting, which clients use to quote a literal part, in Python's terms."""
    out: list[str] = []
    rest = pattern
    while (start := rest.find(r"\Q")) >= 0:
        end = rest.find(r"\E", start + 2)
        literal = rest[start + 2 :] if end < 0 else rest[start + 2 : end]
        out += [rest[:start], re.escape(literal)]
        rest = "" if end < 0 else rest[end + 2 :]
    return "".join(out) + rest
