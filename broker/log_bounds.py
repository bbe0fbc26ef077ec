"""Bounds every field of a log line, whatever its origin: a peer's 4 MB name takes a hundred characters of the log.

Control characters of terminals and ends of lines become escapes, so that no value can look like another line.
"""

import codecs
import re
from collections.abc import MutableMapping
from typing import Any, Final

MOST_CHARS: Final = 512
MOST_TRACEBACK_CHARS: Final = 16 * 1024
_OBEYED: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def bounded(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor. Numbers, booleans and None pass unchanged; any other value becomes a bounded text. It
    leaves exceptions to `bounded_traceback`.
    """
    for name, value in event.items():
        if value is not None and not isinstance(value, bool | int | float) and name != "exc_info":
            event[name] = _OBEYED.sub(_escaped, shortened(value))
    return event


def bounded_traceback(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor, placed behind the processor that formats exceptions."""
    if "exception" in event:
        event["exception"] = middle_out(str(event["exception"]), MOST_TRACEBACK_CHARS)
    return event


def shortened(value: object) -> str:
    """Return a value as a text of at most MOST_CHARS, and how much was left out."""
    if isinstance(value, bytes | bytearray | memoryview):
        text = repr(bytes(value[: MOST_CHARS + 1]))
        left_out = max(len(value) - MOST_CHARS - 1, 0)
    elif isinstance(value, list | tuple | set | frozenset | dict):
        text, left_out = _repr_of_items(value), 0
    else:
        text, left_out = str(value), 0
    if len(text) <= MOST_CHARS and not left_out:
        return text
    left_out += max(len(text) - MOST_CHARS, 0)
    return f"{text[:MOST_CHARS]}...({left_out} more)"


_MOST_ITEMS: Final = 32


def _repr_of_items(value: Any) -> str:
    """Return the repr of the first items; the bound of the result limits their sizes."""
    if len(value) <= _MOST_ITEMS:
        return repr(value)
    first = [item for item, _ in zip(value, range(_MOST_ITEMS), strict=False)]
    return f"{first!r} and {len(value) - _MOST_ITEMS} more"


def middle_out(text: str, most: int) -> str:
    """Shorten a long text to its beginning and its end."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\n...({len(text) - most} more)\n{text[-(most // 2) :]}"


def _escaped(found: re.Match[str]) -> str:
    escaped, _ = codecs.unicode_escape_encode(found[0], "backslashreplace")  # str.encode opens the codec's file
    return escaped.decode()
