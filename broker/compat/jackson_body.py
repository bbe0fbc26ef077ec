"""JSON bodies read as leniently as Apache Pulsar reads them (Jackson's defaults, unknown properties ignored).

    wanted          also taken
    integer         a fraction (cut off), an integer in a text
    truth value     a number (0 is false), "true" and "false"
    text            numbers and truth values as they are written
    fraction        a fraction in a text
    one of a set    any other text becomes null
    object          null for a member that cannot be null: 0 for a number, false for a truth value, the default for any
                    other member; instead of the object, the value of its first member, when the class declares the
                    type of that value as `alone`

Everything else that does not fit is refused, as is an integer of an object beyond 64 bits, or beyond 32 bits where its
type is `Int32`. Pure.
"""

import math
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Annotated, Any, TypeVar, cast

import msgspec
from msgspec import inspect

from magnetar.broker.compat.java_numbers import fits

T = TypeVar("T")

Int32 = Annotated[int, msgspec.Meta(extra={"bits": 32})]
"""A member of Java's type int. The range holds for bodies alone: the store reads larger values of earlier versions."""


def decode_body(raw: bytes, kind: type[T]) -> T | None:
    """The body as `kind`, None for null; raises msgspec.DecodeError (msgspec.ValidationError for JSON that misfits)."""
    try:
        return fitted(msgspec.json.decode(raw), kind)
    except RecursionError:
        raise msgspec.DecodeError("nested too deep") from None
    except UnicodeDecodeError as e:
        raise msgspec.DecodeError(f"not UTF-8 at byte {e.start}") from e


def fitted(value: object, kind: type[T]) -> T | None:
    """A plain JSON value as `kind`; null is None. Raises msgspec.ValidationError."""
    if value is None:
        return None
    return msgspec.convert(_fit(value, _type_of(cast("Hashable", kind))), kind)


@lru_cache(maxsize=256)
def _type_of(kind: Hashable) -> inspect.Type:
    return inspect.type_info(kind)


def _fit(value: Any, wanted: inspect.Type) -> Any:
    if isinstance(wanted, inspect.Metadata):
        return _fit(value, wanted.type)
    if isinstance(wanted, inspect.UnionType):
        return _fit_one_of(value, wanted)
    if isinstance(wanted, inspect.StructType):
        return _fit_object(value, wanted)
    if isinstance(wanted, inspect.ListType):
        return [_fit(item, wanted.item_type) for item in value] if isinstance(value, list) else value
    if isinstance(wanted, inspect.DictType):
        if not isinstance(value, dict):
            return value
        return {key: _fit(item, wanted.value_type) for key, item in value.items()}
    return _fit_plain(value, wanted)


def _fit_one_of(value: Any, wanted: inspect.UnionType) -> Any:
    """Fit the value to the union: a JSON object to its first object type, other JSON to its first other type."""
    if value is None and wanted.includes_none:
        return None
    members = [each for each in wanted.types if not isinstance(each, inspect.NoneType)]
    objects = [each for each in members if isinstance(each, (inspect.StructType, inspect.DictType))]
    others = [each for each in members if each not in objects]
    fits = objects if isinstance(value, dict) else others
    return _fit(value, (fits or members)[0])


def _fit_object(value: Any, wanted: inspect.StructType) -> Any:
    alone = getattr(wanted.cls, "alone", None)
    if alone is not None and type(value) in (alone, str):
        value = {wanted.fields[0].encode_name: value}
    if not isinstance(value, dict):
        return value
    fields = {each.encode_name: each.type for each in wanted.fields}
    fit = {key: _within(_fit(item, fields[key]), fields[key]) for key, item in value.items() if key in fields}
    without_null = {key: _zero(fields[key]) if item is None else item for key, item in fit.items()}
    return {key: item for key, item in without_null.items() if item is not None or _may_be_null(fields[key])}


def _zero(wanted: inspect.Type) -> Any:
    """The value that null means for a number or a truth value; None for every other type."""
    if isinstance(wanted, inspect.Metadata):
        return _zero(wanted.type)
    if isinstance(wanted, inspect.BoolType):
        return False
    return 0 if isinstance(wanted, (inspect.IntType, inspect.FloatType)) else None


def _within(value: Any, wanted: inspect.Type) -> Any:
    """The value; raises msgspec.ValidationError for an integer that does not fit into the bits of its type."""
    if type(value) is int and (bits := _bits(wanted)) and not fits(value, bits):
        raise msgspec.ValidationError(f"{value} is out of range of {bits} bits")
    return value


def _bits(wanted: inspect.Type) -> int:
    """The bits of an integer type; 0 for every other type."""
    if isinstance(wanted, inspect.UnionType):
        return max(map(_bits, wanted.types))
    if isinstance(wanted, inspect.Metadata):
        return int((wanted.extra or {}).get("bits", 0)) or _bits(wanted.type)
    return 64 if isinstance(wanted, inspect.IntType) else 0


def _may_be_null(wanted: inspect.Type) -> bool:
    return isinstance(wanted, inspect.NoneType) or (isinstance(wanted, inspect.UnionType) and wanted.includes_none)


def _fit_plain(value: Any, wanted: inspect.Type) -> Any:
    if isinstance(wanted, inspect.LiteralType):
        return value if value in wanted.values or not isinstance(value, str) else None
    if isinstance(wanted, inspect.BoolType):
        return _as_truth(value)
    if isinstance(wanted, inspect.IntType):
        return _as_integer(value)
    if isinstance(wanted, inspect.FloatType):
        return _as_fraction(value)
    if isinstance(wanted, inspect.StrType) and isinstance(value, (bool, int, float)):
        return msgspec.json.encode(value).decode()
    return value


def _as_truth(value: Any) -> Any:
    if isinstance(value, int):
        return value != 0
    if isinstance(value, str):
        return {"true": True, "false": False, "": False}.get(value.strip().lower(), value)
    return value


def _as_integer(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if math.isfinite(value) else value
    if isinstance(value, str):
        try:
            return int(value.strip() or 0)
        except ValueError:
            return value
    return value


def _as_fraction(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def choice_or(choices: object, otherwise: str | None) -> Callable[[str], str | None]:
    """A function that reads a member of an enumeration: a number selects the choice at that place, counted from 0; any
    other text that is not a choice becomes `otherwise`.
    """
    known: tuple[str, ...] = getattr(choices, "__args__", ())
    by_place = {str(place): choice for place, choice in enumerate(known)}
    found = {choice: choice for choice in known} | by_place
    return lambda value: found.get(value, otherwise)


def is_no_choice(raw: bytes) -> bool:
    """Whether the JSON is a truth value or a fraction, which no enumeration accepts."""
    return raw in (b"true", b"false") or (raw[:1] in b"-0123456789" and not raw.lstrip(b"-").isdigit() and bool(raw))


def is_empty_text(raw: bytes) -> bool:
    """Whether the JSON is an empty text, which means null for a nullable number or truth value."""
    return raw == b'""'
