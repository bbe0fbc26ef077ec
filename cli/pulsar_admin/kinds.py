"""How the text of a flag becomes a value, as pulsar-admin reads it: sizes, durations, lists, properties, positions.

size       512, 10K, 3m, 1G, 2T (powers of 1024)            bytes
seconds    30, 30s, 10m, 5h, 3d, 2w, 1y                      seconds
millis     the same, in milliseconds; a bare number counts seconds
list       a,b,c        map   k=v, repeatable or with commas
actions    produce,consume                                   the list, if each action exists
position   LEDGER:ENTRY, latest, earliest                    MessageIdImpl's JSON
instant    2026-01-02T03:04:05Z, with an offset or a zone    milliseconds since 1970
json_file  a file's JSON
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from magnetar.cli.errors import CommandLineError, FileError

if TYPE_CHECKING:
    from collections.abc import Callable

LATEST: Final = {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1, "partitionIndex": -1}
EARLIEST: Final = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
_SIZE: Final = re.compile(r"(-?\d+)([kmgt]?)b?\Z", re.IGNORECASE)
_DURATION: Final = re.compile(r"(-?\d+)\s*([a-z]*)\Z", re.IGNORECASE)
_SIZE_UNITS: Final = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "y": 365 * 86_400}
_LONGEST_YEARS: Final = 100
ACTIONS: Final = ("produce", "consume", "functions", "sources", "sinks", "packages")
"""The actions that a role may get."""


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise CommandLineError(f"{text!r} is no whole number") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise CommandLineError(f"{text!r} is no number") from None


def size(text: str) -> int:
    """Return the bytes of a size like `10M`. Raises: CommandLineError."""
    found = _SIZE.match(text.strip())
    if found is None:
        raise CommandLineError(f"{text!r} is no size: give bytes, or a number with K, M, G or T")
    return int(found[1]) * _SIZE_UNITS[found[2].lower()]


def seconds(text: str) -> int:
    """Return the seconds of a duration like `2h`. Raises: CommandLineError."""
    found = _DURATION.match(text.strip())
    if found is None or found[2].lower() not in _SECONDS:
        raise CommandLineError(f"{text!r} is no duration: give seconds, or a number with s, m, h, d, w or y")
    return int(found[1]) * _SECONDS[found[2].lower()]


def duration(text: str) -> int:
    """Return the seconds of a duration that is neither negative nor longer than a clock counts. Raises:
    CommandLineError.
    """
    found = seconds(text)
    if not 0 <= found <= _LONGEST_YEARS * _SECONDS["y"]:
        raise CommandLineError(f"{text!r}: a duration lies between 0 and {_LONGEST_YEARS}y")
    return found


def _millis(text: str) -> int:
    return seconds(text) * 1000


def position(text: str) -> dict[str, int]:
    """`3:4`, `3:4:0` with a partition, latest or earliest. Raises: CommandLineError."""
    if text in ("latest", "earliest"):
        return dict(LATEST if text == "latest" else EARLIEST)
    try:
        ledger, entry, *partition = (int(part) for part in text.rsplit(":", text.count(":")))
        (index,) = partition or (-1,)
    except ValueError:
        raise CommandLineError(f"{text!r} is no position: give LEDGER:ENTRY, latest or earliest") from None
    return {"ledgerId": ledger, "entryId": entry, "partitionIndex": index}


def _instant(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CommandLineError(f"{text!r} is no time: give one as 2026-01-02T03:04:05Z") from None
    if moment.tzinfo is None:
        raise CommandLineError(f"{text!r} has no time zone: add Z or an offset such as +02:00")
    return int(moment.timestamp() * 1000)


def _pieces(text: str) -> list[str]:
    return [each.strip() for each in text.split(",")]


def actions(text: str) -> list[str]:
    """Return the actions of a text like `produce,consume`. Raises: CommandLineError."""
    found = _pieces(text)
    for each in found:
        if each not in ACTIONS:
            raise CommandLineError(f"{each!r} is no action: give {', '.join(ACTIONS[:-1])} or {ACTIONS[-1]}")
    return found


def _property(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise CommandLineError(f"{text!r} is no property: give KEY=VALUE")
    return key, value


def _json_file(text: str) -> Any:
    try:
        return json.loads(Path(text).read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"cannot read {text}: {error.strerror}") from error
    except ValueError as error:
        raise CommandLineError(f"{text} holds no JSON: {error}") from error


KINDS: Final[dict[str, Callable[[str], Any]]] = {
    "text": str,
    "integer": _integer,
    "number": _number,
    "truth": lambda text: text.lower() == "true",
    "size": size,
    "seconds": seconds,
    "millis": _millis,
    "list": _pieces,
    "actions": actions,
    "map": _property,
    "position": position,
    "instant": _instant,
    "json_file": _json_file,
}
"""Converters by kind. The further kind `flag` has no converter: a flag is present or absent."""
LABELS: Final = {
    "text": "TEXT",
    "integer": "NUMBER",
    "number": "NUMBER",
    "truth": "true|false",
    "size": "SIZE",
    "seconds": "DURATION",
    "millis": "DURATION",
    "list": "A,B",
    "actions": "A,B",
    "map": "KEY=VALUE",
    "position": "LEDGER:ENTRY",
    "instant": "TIME",
    "json_file": "FILE",
    "flag": "",
}


def converted(kind: str, given: list[str]) -> Any:
    """Return the value of a flag that was given at least once: the last value; lists and maps collect all values.

    Raises: CommandLineError.
    """
    if kind == "flag":
        return True
    values = [KINDS[kind](text) for text in given]
    if kind == "map":
        return dict(values)
    if kind in ("list", "actions"):
        return [each for value in values for each in value]
    return values[-1]
