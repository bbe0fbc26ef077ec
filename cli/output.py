"""The output of commands: tables for people, JSON for programs, colour on terminals only."""

from __future__ import annotations

import json
import sys
import unicodedata
from typing import TYPE_CHECKING, Any, Final, TextIO

from magnetar.terminal import shows_colours

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_JOINERS: Final = "\u200c\u200d"


class Output:
    """Standard output of one command. `as_json`: one JSON value instead of tables and sentences."""

    def __init__(self, *, as_json: bool, stream: TextIO | None = None) -> None:
        self.as_json = as_json
        self._stream = stream or sys.stdout

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "") -> None:
        """Print each row on its own line. Without rows, print `empty` to standard error; pipes stay clean."""
        found = [tuple(row) for row in rows]
        if self.as_json:
            self.value(as_objects(columns, found))
        elif found:
            self._stream.write(as_table(columns, found, colour=shows_colours(self._stream)))
        elif empty:
            sys.stderr.write(f"{empty}\n")

    def value(self, value: Any) -> None:
        """Print one JSON value, indented on a terminal."""
        self._stream.write(json.dumps(value, indent=1 if self._stream.isatty() else None, default=str) + "\n")

    def line(self, value: Any) -> None:
        """Print one JSON value on one line, for streams of messages."""
        self._stream.write(for_stream(json.dumps(value, ensure_ascii=False, default=str) + "\n", self._stream))
        self._stream.flush()

    def text(self, text: str, *, head: str = "") -> None:
        """Print a line of plain text behind `head`, whose escape sequences are those of the command."""
        self._stream.write(head + for_stream(f"{text}\n", self._stream))
        self._stream.flush()

    def done(self, sentence: str, **facts: Any) -> None:
        """Report a change: a sentence, or its facts as JSON."""
        if self.as_json:
            self.value(facts)
        else:
            self.text(sentence)

    def fields(self, facts: dict[str, Any]) -> None:
        """Print names and values, one pair per line."""
        if self.as_json:
            self.value(facts)
            return
        width = max((len(name) for name in facts), default=0)
        for name, value in facts.items():
            self.text(f"{name:<{width}}  {shown(value)}")


def as_objects(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the rows for JSON: each column is a field, `MSG/S IN` for example `msg_per_s_in`."""
    names = [each.lower().replace(" ", "_").replace("/", "_per_") for each in columns]
    return [dict(zip(names, row, strict=True)) for row in rows]


def as_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, colour: bool) -> str:
    """Return a table: columns as wide as their widest cell, numbers aligned to the right; `colour`: a bold head."""
    cells = [[shown(each) for each in row] for row in rows]
    widths = [max(len(columns[at]), *(len(row[at]) for row in cells)) for at in range(len(columns))]
    right = [all(isinstance(row[at], (int, float)) or row[at] is None for row in rows) for at in range(len(columns))]

    def line(texts: Sequence[str]) -> str:
        padded = (text.rjust(widths[at]) if right[at] else text.ljust(widths[at]) for at, text in enumerate(texts))
        return "  ".join(padded).rstrip()

    head = line(columns)
    return "\n".join([f"\x1b[1m{head}\x1b[0m" if colour else head, *(line(row) for row in cells)]) + "\n"


def shown(value: Any) -> str:
    """Return the text of a cell: whole numbers as they are, rates with one decimal digit, a dash for no value."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_printable(str(each)) for each in value) or "-"
    return _printable(str(value))


def _printable(text: str) -> str:
    """Return the text without characters that would move the cursor of a terminal: peers choose names and payloads."""
    return "".join(each if _is_harmless(each) else _escaped(each) for each in text)


def _is_harmless(letter: str) -> bool:
    """Whether the letter moves no cursor and turns no text around: spaces and joiners of all scripts are harmless."""
    return letter.isprintable() or letter in _JOINERS or unicodedata.category(letter) == "Zs"


def _escaped(letter: str) -> str:
    return f"\\x{ord(letter):02x}" if letter <= "\xff" else f"\\u{ord(letter):04x}"


def for_stream(text: str, stream: TextIO) -> str:
    """Return the text, on a terminal without control characters but ends of lines and tabs; other streams get the text
    as it is.
    """
    return _without_controls(text) if stream.isatty() else text


def _without_controls(text: str) -> str:
    return "".join(each if each in "\n\t" or _is_harmless(each) else _escaped(each) for each in text)


def safe_text(data: bytes) -> str:
    """Return a payload for a terminal: text without control characters, other bytes as hex."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return _without_controls(text)


def size_text(size: float) -> str:
    """`1.5 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
