"""The common parts of the tables of options: a row, reading a value, and names that no table has.

Spark gives option names in lower case and compares them without case; so do these functions: `given` has lower-case
names.
"""

from __future__ import annotations

import difflib
import warnings
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FAMILIES: Final = ("pulsar.client.", "pulsar.admin.", "pulsar.reader.", "pulsar.producer.")
"""Options of the established connectors; an option without effect here gives a warning."""
_OF_SPARK: Final = ("path", "checkpointlocation")
_ENCRYPTION: Final = ("encryption", "crypto")
_OF_KAFKA: Final = {
    "kafka.bootstrap.servers": "service.url and admin.url",
    "kafka.group.id": "predefinedSubscription",
    "subscribe": "topic or topics",
    "subscribepattern": "topicsPattern",
    "assign": "topics with names of partitions",
}
"""Options of Spark's Kafka source and sink that have other names here."""


class OptionError(ValueError):
    """An option has a value that cannot be used. The text names the option and its valid values."""


class Option(NamedTuple):
    """One row of a table of options: the name as documented, the default as text, its effect."""

    name: str
    default: str
    doc: str


def flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    """The value of a boolean option. Raises: OptionError."""
    text = given.get(name.lower(), str(default)).strip().lower()
    if text not in {"true", "false"}:
        raise OptionError(f"option {name} is true or false, not {text!r}")
    return text == "true"


def whole_number(given: Mapping[str, str], name: str, default: int, *, minimum: int = 1) -> int:
    """The value of an option that is a number. Raises: OptionError."""
    text = given.get(name.lower(), str(default)).strip()
    if not text.isdecimal() or int(text) < minimum:
        raise OptionError(f"option {name} is a whole number of at least {minimum}, not {text!r}")
    return int(text)


def word(given: Mapping[str, str], name: str, values: Sequence[str], default: str | None = None) -> str:
    """The value of an option with few values, in lower case; the default is `default`, else the first of these values.

    Raises: OptionError.
    """
    text = given.get(name.lower(), "").strip().lower() or (values[0] if default is None else default)
    if text not in values:
        raise OptionError(f"option {name} is {', '.join(values[:-1])} or {values[-1]}, not {text!r}")
    return text


def check_names(given: Mapping[str, str], table: Sequence[Option], page: str) -> None:
    """Check that each given name is in the table or belongs to another connector. page: the list of all options.

    Raises: OptionError, with the nearest name that the table has.
    """
    known = {option.name.lower(): option.name for option in table}
    for name in given:
        if name in known or name in _OF_SPARK:
            continue
        if any(part in name for part in _ENCRYPTION):
            raise OptionError(
                f"option {name} means nothing here: the sink encrypts with encryptionKeys=NAME=FILE, the source "
                "decrypts with decryptionKeys=NAME=FILE and onEncrypted"
            )
        if name.startswith(FAMILIES):
            warnings.warn(f"option {name} means nothing here", stacklevel=3)
            continue
        raise OptionError(f"unknown option {name}; {_hint(name, known, page)}")


def _hint(name: str, known: Mapping[str, str], page: str) -> str:
    if name in _OF_KAFKA:
        return f"Spark's Kafka source has that name, this format has {_OF_KAFKA[name]} (docs/pipeline/migrating.md)"
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean {known[near[0]]}?" if near else f"{page} lists all"
