"""Patterns over topic names as clients send them: a regular expression over "tenant/namespace/topic".

The scheme in a pattern is dropped and does not filter, what is before it stays (`^persistent://...`). The whole name
must match, and names are compared without scheme and without partition suffix. Clients write RE2 or Java expressions,
whose classes of word characters and the like know ASCII only; Python's `re` reads what they commonly use.
"""

from __future__ import annotations

import re

_SCHEME = re.compile(r"(?:non-)?persistent\Z")
_NAMED_GROUP = re.compile(r"(?<!\\)\(\?<(?![=!])")
_NAMED_CLASS = re.compile(r"\[:(?P<posix>\w+):\]|\\(?P<not>[pP])\{(?:Is|java)?(?P<name>\w+)\}")
_FLAGS = re.compile(r"\(\?([ims]+)\)")
_CLASSES = {
    "lower": "a-z",
    "lowercase": "a-z",
    "upper": "A-Z",
    "uppercase": "A-Z",
    "alpha": "a-zA-Z",
    "alphabetic": "a-zA-Z",
    "digit": "0-9",
    "n": "0-9",
    "nd": "0-9",
    "alnum": "a-zA-Z0-9",
    "word": "a-zA-Z0-9_",
    "xdigit": "0-9a-fA-F",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\s",
    "blank": r" \t",
    "ascii": r"\x00-\x7f",
}
"""What RE2 and Java call classes, as the inside of one."""
_SUFFIX = re.compile(r"-partition-\d+\Z")


class InvalidPatternError(ValueError):
    """The pattern is no regular expression."""


class TopicPattern:
    """A compiled pattern."""

    def __init__(self, text: str) -> None:
        scheme, separator, rest = text.partition("://")
        before = _SCHEME.sub("", scheme)
        if separator and before == scheme:
            raise InvalidPatternError(f"Invalid topics pattern {text!r}: unknown scheme {scheme!r}")
        try:
            self._regex = re.compile(_java_to_python(before + rest if separator else text), re.ASCII)
        except re.error as e:
            raise InvalidPatternError(f"Invalid topics pattern {text!r}: {e}") from e

    def filter(self, names: list[str]) -> list[str]:
        """Those of the full names that match, in their order."""
        return [name for name in names if self._regex.fullmatch(_SUFFIX.sub("", name.partition("://")[2]))]


def _java_to_python(pattern: str) -> str:
    r"""In Python's terms what Java or RE2 write otherwise: \Q..\E, classes by name, named groups, flags on the way."""
    out: list[str] = []
    rest = pattern
    while (start := rest.find(r"\Q")) >= 0:
        end = rest.find(r"\E", start + 2)
        literal = rest[start + 2 :] if end < 0 else rest[start + 2 : end]
        out += [_plain(rest[:start]), re.escape(literal)]
        rest = "" if end < 0 else rest[end + 2 :]
    whole = "".join(out) + _plain(rest)
    flags = _FLAGS.match(whole)
    return whole if flags else _flags_on_the_way(whole)


def _plain(pattern: str) -> str:
    pattern = _NAMED_GROUP.sub("(?P<", pattern)
    return _NAMED_CLASS.sub(_named_class, pattern)


def _named_class(found: re.Match[str]) -> str:
    inside_a_class = found.group("posix") is not None
    characters = _CLASSES.get((found.group("posix") or found.group("name")).lower())
    if characters is None:
        raise re.error(f"unknown class {found.group()}")
    if inside_a_class:
        return characters
    return f"[{'^' if found.group('not') == 'P' else ''}{characters}]"


def _flags_on_the_way(pattern: str) -> str:
    """Flags given in the middle hold to the end; Python wants them around what they hold for."""
    found = _FLAGS.search(pattern)
    if found is None:
        return pattern
    return f"{pattern[: found.start()]}(?{found.group(1)}:{_flags_on_the_way(pattern[found.end() :])})"
