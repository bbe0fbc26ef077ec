"""Fields of a JSON object as Jackson reads them into the fields of a class.

Unknown names and bytes behind the object are ignored. A text field accepts a number or truth value, a number field a
text.
Pure.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Collection

_DECODER: Final = json.JSONDecoder()
_MOST_I64: Final = 1 << 63
_TEXT_OR_NULL: Final = {str, type(None)}
_NUMBER_OR_TEXT: Final = {int, float, str}
_SIMPLE: Final = {int, float, str, bool, type(None)}


class FieldError(ValueError):
    """The text is not a JSON object, or the value of a field does not fit."""


class Fields:
    """The fields of an object."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    @classmethod
    def of(cls, text: str) -> Fields | None:
        """The object that the text begins with; None for null. Raises FieldError."""
        try:
            found, _ = _DECODER.raw_decode(text.lstrip(" \t\r\n"))
        except (ValueError, RecursionError) as e:
            raise FieldError(f"the message is no JSON object: {e}"[:200]) from e
        if found is None:
            return None
        if not isinstance(found, dict):
            raise FieldError("the message is no JSON object")
        return cls(found)

    def value(self, name: str) -> object:
        """The decoded JSON value of the field; None when absent."""
        return self._values.get(name)

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        return None if value is None else _as_text(value, name)

    def texts(self, name: str) -> list[str]:
        value = self._values.get(name) or []
        if not isinstance(value, list):
            raise FieldError(f"{name} is no list")
        found = _simple_texts(value)
        if found is None or None in found:
            raise FieldError(f"{name} is no text")
        texts = cast("list[str]", found)
        return texts if _is_whole("".join(texts)) else list(map(_whole, texts))

    def map_of_texts(self, name: str) -> dict[str, str | None]:
        """The field as a mapping of texts to texts; the value of a key may be null."""
        value = self._values.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise FieldError(f"{name} is no object")
        texts = _simple_texts(value.values())
        if texts is None:
            raise FieldError(f"{next(key for key, each in value.items() if isinstance(each, (dict, list)))} is no text")
        if _is_whole("".join((*value, *filter(None, texts)))):
            return dict(zip(value, texts, strict=True))  # a text of a MiB has 100,000 keys
        return {_whole(key): each and _whole(each) for key, each in zip(value, texts, strict=True)}

    def number(self, name: str) -> int:
        """The field as a signed 64-bit number; 0 when absent or null."""
        value = self._values.get(name, 0)
        try:
            number = 0 if value is None else int(value)
        except (ValueError, TypeError, OverflowError) as e:
            raise FieldError(f"{name} is no number") from e
        if not -_MOST_I64 <= number < _MOST_I64:
            raise FieldError(f"{name} is out of range")
        return number


def _simple_texts(values: Collection[Any]) -> list[str | None] | None:
    """Return ``_as_text`` of each value by few calls for all of them, None of a null; None where a value is an object
    or a list. The texts may have lone surrogates.
    """
    kinds = set(map(type, values))
    if kinds <= _TEXT_OR_NULL:
        return list(values)
    if kinds <= _NUMBER_OR_TEXT:
        return list(map(str, values))
    if kinds <= _SIMPLE:
        return [
            None if each is None else str(each).lower() if each is True or each is False else str(each)
            for each in values
        ]
    return None


def _is_whole(text: str) -> bool:
    """Whether the text has no lone surrogates."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _whole(text: str) -> str:
    """Return the text without lone surrogates, which JSON allows and UTF-8 does not."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _as_text(value: object, name: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    if not isinstance(value, str):
        raise FieldError(f"{name} is no text")
    return _whole(value)
