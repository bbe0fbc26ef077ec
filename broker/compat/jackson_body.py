"""JSON bodies read as leniently as Apache Pulsar reads them (Jackson's defaults, unknown properties ignored).

    wanted          also taken
    integer         a fraction (cut off), an integer in a text, a blank text or "null" as null
    truth value     a number (0 is false), "true" and "false" in three spellings, a blank text or "null" as null
    text            numbers and truth values as they are written
    fraction        a fraction in a text, a blank text or "null" as null
    one of a set    the number of its place, also in a text; any other text or number becomes null
    object          null for a member that cannot be null: 0 for a number, false for a truth value, the default for any
                    other member; instead of the object, the value of its first member, when the class declares the
                    type of that value as `alone`

Everything else that does not fit is refused, as is an integer of an object beyond 64 bits, or beyond 32 bits where its
type is `Int32`. Pure.
"""

import math
import re
import sys
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect

from magnetar.broker.compat.java_numbers import fits, parsed
from magnetar.broker.compat.java_texts import trimmed

T = TypeVar("T")
_BYTE_ORDER_MARK: Final = "\ufeff".encode()
_PLAIN_TYPES: Final = (inspect.IntType, inspect.BoolType, inspect.FloatType)
_TRUTHS: Final = dict.fromkeys(("true", "True", "TRUE"), True) | dict.fromkeys(("false", "False", "FALSE"), False)
_IN_PLACES: Final[dict[frozenset[Any], tuple[Any, ...]]] = {}
_NUMBER: Final = re.compile(rb"-?[0-9.]+[eE]\+?[0-9]+|-?[0-9.]+")
_PLACE: Final = re.compile("0|[1-9][0-9]{0,8}")

Int32 = Annotated[int, msgspec.Meta(extra={"bits": 32})]
"""A member of Java's type int. The range holds for bodies alone: the store reads larger values of earlier versions."""


def decode_body(raw: bytes, kind: type[T]) -> T | None:
    """The body as `kind`, None for null; raises msgspec.DecodeError (msgspec.ValidationError for JSON that misfits)."""
    try:
        return fitted(_decoded(raw.removeprefix(_BYTE_ORDER_MARK)), kind)
    except RecursionError:
        raise msgspec.DecodeError("nested too deep") from None
    except UnicodeDecodeError as e:
        raise msgspec.DecodeError(f"not UTF-8 at byte {e.start}") from e


def _decoded(raw: bytes) -> Any:
    """The plain JSON value; in place of a lone number beyond all doubles the largest double, which fits no type."""
    try:
        return msgspec.json.decode(raw)
    except msgspec.ValidationError:
        if _NUMBER.fullmatch(raw.strip()) is None:
            raise
        return math.copysign(sys.float_info.max, float(raw))


def fitted(value: object, kind: type[T]) -> T | None:
    """A plain JSON value as `kind`; null is None. Raises msgspec.ValidationError."""
    if value is None:
        return None
    return msgspec.convert(_fit(value, _type_of(cast("Hashable", kind))), kind)


@lru_cache(maxsize=256)
def _type_of(kind: Hashable) -> inspect.Type:
    _keep_places(kind)
    return inspect.type_info(kind)


def _keep_places(kind: object) -> None:
    """Keep the order of the choices of each set in the type, which msgspec sorts. A class may contain itself."""
    known: set[object] = set()
    further = [kind]
    while further:
        each = further.pop()
        args = get_args(each)
        if get_origin(each) is Literal:
            _IN_PLACES[frozenset(args)] = args
        elif isinstance(each, type) and issubclass(each, msgspec.Struct):
            further += () if each in known else get_type_hints(each).values()
            known.add(each)
        else:
            further += args


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
    if wanted.includes_none and is_textual_null(value) and any(map(_is_plain, wanted.types)):
        return None
    members = [each for each in wanted.types if not isinstance(each, inspect.NoneType)]
    objects = [each for each in members if isinstance(each, (inspect.StructType, inspect.DictType))]
    others = [each for each in members if each not in objects]
    fits = objects if isinstance(value, dict) else others
    return _fit(value, (fits or members)[0])


def _fit_object(value: Any, wanted: inspect.StructType) -> Any:
    alone = getattr(wanted.cls, "alone", None)
    if alone is bool and isinstance(value, str) and trimmed(value) not in ("true", "false"):
        return value
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


def _is_plain(wanted: inspect.Type) -> bool:
    """Whether the type is that of a number or a truth value."""
    return _is_plain(wanted.type) if isinstance(wanted, inspect.Metadata) else isinstance(wanted, _PLAIN_TYPES)


def _fit_plain(value: Any, wanted: inspect.Type) -> Any:
    if isinstance(wanted, inspect.LiteralType):
        return _as_choice(value, _IN_PLACES[frozenset(wanted.values)])
    if isinstance(wanted, _PLAIN_TYPES) and isinstance(value, str):
        return _zero(wanted) if is_textual_null(value) else _in_text(trimmed(value), wanted, value)
    if isinstance(wanted, inspect.BoolType) and isinstance(value, int):
        return value != 0
    if isinstance(wanted, inspect.IntType) and isinstance(value, float) and math.isfinite(value):
        return int(value)
    if isinstance(wanted, inspect.StrType) and isinstance(value, (bool, int, float)):
        return msgspec.json.encode(value).decode()
    return value


def is_textual_null(value: object) -> bool:
    """Whether the JSON value is a text that means null where a number or a truth value is wanted."""
    return isinstance(value, str) and trimmed(value) in ("", "null")


def _in_text(text: str, wanted: inspect.Type, otherwise: str) -> Any:
    """The number or truth value in a trimmed text; `otherwise` for any other text."""
    if isinstance(wanted, inspect.BoolType):
        return _TRUTHS.get(text, otherwise)
    try:
        return parsed(text) if isinstance(wanted, inspect.IntType) else float(text.replace("_", "?"))
    except ValueError:
        return otherwise


def _as_choice(value: Any, choices: Sequence[Any]) -> Any:
    """The choice that a text or a number means, None where there is no such choice; any other value as it is."""
    if isinstance(value, str):
        name = trimmed(value)
        if name in choices or not _PLACE.fullmatch(name):
            return name if name in choices else None
        value = int(name)
    if type(value) is not int:
        return value
    return choices[value] if 0 <= value < len(choices) else None


def choice_or(choices: object, otherwise: str | None) -> Callable[[str], str | None]:
    """A function that reads a member of an enumeration: a number selects the choice at that place, counted from 0; any
    other text that is not a choice becomes `otherwise`.
    """
    known: tuple[str, ...] = getattr(choices, "__args__", ())
    by_place = {str(place): choice for place, choice in enumerate(known)}
    found = {choice: choice for choice in known} | by_place
    return lambda value: found.get(trimmed(value), otherwise)


def is_no_choice(raw: bytes) -> bool:
    """Whether the JSON is a truth value or a fraction, which no enumeration accepts."""
    return raw in (b"true", b"false") or (raw[:1] in b"-0123456789" and not raw.lstrip(b"-").isdigit() and bool(raw))


def is_null_text(raw: bytes) -> bool:
    """Whether the JSON is a text that means null for a nullable number or truth value: a blank text, or "null"."""
    return raw[:1] == b'"' and is_textual_null(decode_body(raw, str))
