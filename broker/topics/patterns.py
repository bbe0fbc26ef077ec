r"""Patterns over topic names as clients send them: a regular expression over "tenant/namespace/topic".

The scheme in a pattern is dropped and does not filter, the text before it stays (`^persistent://...`). The whole name
must match, and names are compared without scheme and without partition suffix.

RE2 evaluates the patterns: for every pattern the time of a match is linear in the length of the name, where a
backtracking engine may need exponential time. Apache Pulsar uses RE2/J, whose syntax is the same, and falls back to the
engine of its platform for syntax that RE2 does not support (`(?!x)`, `a++`). Here the compilation of such a pattern
raises `BeyondRe2Error`, and the caller leaves the filtering to the client. The first pattern loads RE2, which takes
3 MB with its libraries.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from magnetar.broker.compat.java_patterns import in_re2_terms, is_of_java
from magnetar.broker.slices import sliced

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    import re2

    Room = Callable[[float], Awaitable[None]]

MAX_PROGRAM_BYTES: Final = 512 << 10
"""Memory of RE2 for a compiled pattern and its states; compiling a pattern of this size takes about 10 ms."""
_BUDGETS: Final = (32 << 10, 128 << 10, MAX_PROGRAM_BYTES)
"""Memory that RE2 gets for a pattern: the first of these budgets that is enough."""
_SMALL_BYTES: Final = 8 << 10
"""The assumed memory of a pattern within the first budget, which few patterns use up."""
_STEPS_OF_A_COMMAND: Final = 16
_TOO_LARGE_COST: Final = 1024
_SLICE_STEPS: Final = 500_000
"""Instructions times bytes that RE2 may need for one slice of names, at worst: some 5 ms."""
_NAME_BYTES: Final = 128
_SCHEME: Final = re.compile(r"(?:non-)?persistent\Z")
_SUFFIX: Final = re.compile(r"-partition-\d+\Z")


class InvalidPatternError(ValueError):
    """The pattern is no regular expression."""


class UnknownSchemeError(InvalidPatternError):
    """The text before "://" ends with no scheme of topic names."""


class BeyondRe2Error(InvalidPatternError):
    """Apache Pulsar takes the pattern and RE2 does not: it has lookaround, backreferences or possessive quantifiers, or
    is too large once compiled.
    """


class TopicPattern:
    """A compiled pattern; raises InvalidPatternError."""

    def __init__(self, text: str) -> None:
        import re2  # noqa: PLC0415 - not before the first pattern

        self.text = without_scheme(text)
        """The pattern without scheme: patterns of equal text match the same names."""
        try:
            self._regex, budget = _within_budget(in_re2_terms(self.text))
        except re2.error as e:
            reason = reason_of(e)
            beyond = reason.startswith("pattern too large") or is_of_java(self.text)
            kind = BeyondRe2Error if beyond else InvalidPatternError
            raise kind(f"Invalid topics pattern {text!r}: {reason}") from e
        steps = self._regex.programsize
        self.slice_names = max(1, min(1024, _SLICE_STEPS // (_NAME_BYTES * steps)))
        self.kept_bytes = _SMALL_BYTES if budget == _BUDGETS[0] else budget
        """The assumed memory of the compiled pattern and its states."""
        self.cost = steps // _STEPS_OF_A_COMMAND
        """How many commands take as long as the compilation."""

    def matches(self, name: str) -> bool:
        """Whether the full name of a topic matches."""
        plain = name.partition("://")[2]
        if plain[-1:].isdigit():
            plain = _SUFFIX.sub("", plain)
        return self._regex.fullmatch(plain.encode(errors="surrogatepass")) is not None

    def filter(self, names: Iterable[str]) -> list[str]:
        """The matching names of a few full names, in their order."""
        return [name for name in names if self.matches(name)]

    async def filter_in_slices(self, names: Sequence[str], room: Room | None = None) -> list[str]:
        """Return the matching names of any number of names, in slices; other tasks run between the slices.

        room: waits until the present round of the event loop has room for a part of the work of a slice.
        """
        found: list[str] = []
        async for part in sliced(names, self.slice_names):
            if room is not None:
                await room(len(part) / self.slice_names)
            found += self.filter(part)
        return found


def cost_of_refusal(error: InvalidPatternError) -> int:
    """How many commands take as long as a compilation that ended with this error."""
    return _TOO_LARGE_COST if isinstance(error, BeyondRe2Error) else 0


def _within_budget(pattern: str) -> tuple[Any, int]:
    """Return the compiled pattern and its memory budget; raises re2.error."""
    import re2  # noqa: PLC0415 - not before the first pattern

    for budget in _BUDGETS[:-1]:
        try:
            return compiled(pattern, budget), budget
        except re2.error as e:
            if not reason_of(e).startswith("pattern too large"):
                raise
    return compiled(pattern), MAX_PROGRAM_BYTES


def without_scheme(text: str) -> str:
    """The pattern without its scheme; raises UnknownSchemeError."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return text
    before = _SCHEME.sub("", scheme)
    if before == scheme:
        raise UnknownSchemeError(f"Invalid topics pattern {text!r}: unknown scheme {scheme!r}")
    return before + rest


def compiled(pattern: str, most_bytes: int = MAX_PROGRAM_BYTES) -> Any:
    """A regular expression in RE2's syntax, for matching UTF-8 without groups; raises re2.error."""
    import re2  # noqa: PLC0415 - not before the first pattern

    options = re2.Options()
    options.max_mem = most_bytes
    options.log_errors = False
    options.never_capture = True
    return re2.compile(pattern.encode(errors="surrogatepass"), options)


def reason_of(error: re2.error) -> str:
    """Return RE2's reason for refusing the pattern."""
    reason = error.args[0]
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
