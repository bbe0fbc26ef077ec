r"""Regular expressions of java.util.regex beside RE2: named classes (`\p{Lower}`) translated, other syntax recognized.

Pure.
"""

from __future__ import annotations

import re
import warnings
from typing import Final

_NAMED_GROUP: Final = re.compile(r"\(\?<(?![=!])")
_TOKEN: Final = re.compile(
    r"""
      \\Q.*?(?:\\E|\Z)                                # literal text
    | \\(?P<not>[pP])\{(?:Is|java)?(?P<name>\w+)\}    # a class by name
    | \\.                                             # any other escape
    | (?P<open>\[\^?\]?)                              # a bracket that stands first in a class is a character of it
    | \[:\^?\w+:\]
    | (?P<close>\])
    """,
    re.VERBOSE | re.DOTALL,
)
_LETTER: Final = re.compile(r"(?P<far>[^\x00-\x7f]|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}|\\N\{[^}]*\})|\\.", re.DOTALL)
"""A character beyond ASCII, written or escaped, or any other escape."""
_NEAR: Final = "~"
"""The place of a character beyond ASCII: behind the letters, so that ranges up to the character stay ranges."""
_POSIX: Final = {
    "lower": "lower",
    "lowercase": "lower",
    "upper": "upper",
    "uppercase": "upper",
    "alpha": "alpha",
    "alphabetic": "alpha",
    "digit": "digit",
    "alnum": "alnum",
    "word": "word",
    "xdigit": "xdigit",
    "punct": "punct",
    "space": "space",
    "blank": "blank",
    "ascii": "ascii",
    "cntrl": "cntrl",
    "graph": "graph",
    "print": "print",
}
"""Java's names of ASCII classes in lower case, with the names in RE2; RE2 accepts all other names (`L`, `Greek`)."""


def in_re2_terms(pattern: str) -> str:
    r"""Replace Java's classes by name, `\p{Lower}`, by those of RE2, `[[:lower:]]`."""
    in_class = False

    def translated(token: re.Match[str]) -> str:
        nonlocal in_class
        if token["name"] is not None:
            posix = _POSIX.get(token["name"].lower())
            if posix is None:
                return token[0]
            inner = f"[:{'^' if token['not'] == 'P' else ''}{posix}:]"
            return inner if in_class else f"[{inner}]"
        if not in_class and token["open"] is not None:
            in_class = True
        elif in_class and token["close"] is not None:
            in_class = False
        return token[0]

    return _TOKEN.sub(translated, pattern)


def is_of_java(pattern: str) -> bool:
    """Whether Java is likely to accept a pattern that RE2 refuses: whether Python's backtracking engine accepts it.

    Characters beyond ASCII count as one of ASCII: Python's compiler walks through each range of characters, so that a
    pattern of 1,000 characters would take a second.
    """
    near = _LETTER.sub(lambda token: _NEAR if token["far"] else token[0], pattern)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(_NAMED_GROUP.sub("(?P<", near))
    except (re.error, RecursionError, OverflowError):
        return False
    return True
