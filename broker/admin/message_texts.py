"""Payloads and keys given as texts, in the bytes of their schema (produce over REST).

    schema                                text                                      bytes
    STRING, BYTES, NONE                   any                                       UTF-8
    BOOLEAN                               true in any case, else false              1
    INT8, 16, 32, 64                      decimal                                   big endian
    FLOAT, DOUBLE                         decimal, NaN, Infinity                    IEEE 754, big endian
    TIME, TIMESTAMP                       milliseconds                              i64
    DATE                                  Jan 5, 2020 (midnight, UTC)               i64 milliseconds since 1970
    INSTANT                               2020-01-05T10:15:30.5Z                    i64 seconds | i32 nanoseconds
    LOCAL_DATE                            2020-01-05                                i64 days since 1970
    LOCAL_TIME                            10:15[:30[.5]]                            i64 nanoseconds of the day
    LOCAL_DATE_TIME                       both, with a T between                    i64 days | i64 nanoseconds
    JSON                                  JSON                                      JSON without spaces
    AVRO                                  Avro's JSON                               Avro's binary form

Pure.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Final

from magnetar.broker.admin.avro_texts import AvroTexts
from magnetar.broker.admin.schema_texts import name_of
from magnetar.broker.compat import java_numbers, java_times
from magnetar.broker.schemas.avro_schema import SchemaTextError, parse_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.schemas.work import SchemaWork

_INTEGERS: Final = {"INT8": ">b", "INT16": ">h", "INT32": ">i", "INT64": ">q", "TIME": ">q", "TIMESTAMP": ">q"}
_FRACTIONS: Final = {"FLOAT": ">f", "DOUBLE": ">d"}
_TEXTS: Final = frozenset({"STRING", "BYTES", "NONE"})


class PayloadTextError(ValueError):
    """The text is not a value of the schema."""


def encoder(schema_type: int, data: bytes, work: SchemaWork | None = None) -> Callable[[str], bytes]:
    """The function that turns texts into values of the schema; raises PayloadTextError. `work` bounds the analysis."""
    kind = name_of(schema_type)
    if kind == "AVRO":
        try:
            texts = AvroTexts(parse_schema(data, work))
        except SchemaTextError as e:
            raise PayloadTextError(str(e)) from e
        return _guarded(kind, lambda text: texts.encode(json.loads(text)))
    return _guarded(kind, lambda text: _encoded(kind, text))


def _guarded(kind: str, encode: Callable[[str], bytes]) -> Callable[[str], bytes]:
    def guarded(text: str) -> bytes:
        try:
            return encode(text)
        except (ValueError, OverflowError, struct.error, RecursionError) as e:
            raise PayloadTextError(f"no {kind}: {e}") from e

    return guarded


def _encoded(kind: str, text: str) -> bytes:
    if kind in _TEXTS:
        return text.encode()
    if kind == "BOOLEAN":
        return b"\x01" if text.lower() == "true" else b"\x00"
    if kind in _INTEGERS:
        return struct.pack(_INTEGERS[kind], java_numbers.parsed(text))
    if kind in _FRACTIONS:
        return struct.pack(_FRACTIONS[kind], float(text))
    if kind == "JSON":
        return json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False).encode()
    return _moment(kind, text)


def _moment(kind: str, text: str) -> bytes:
    if kind == "DATE":
        return struct.pack(">q", java_times.parsed_medium_date(text))
    if kind == "LOCAL_DATE":
        return struct.pack(">q", java_times.parsed_local_date(text))
    if kind == "LOCAL_TIME":
        return struct.pack(">q", java_times.parsed_local_time(text))
    day_text, separator, time_text = text.partition("T")
    if not separator:
        raise ValueError(f"no date and time: {text!r}")
    if kind == "LOCAL_DATE_TIME":
        return struct.pack(">qq", java_times.parsed_local_date(day_text), java_times.parsed_local_time(time_text))
    if kind == "INSTANT" and time_text.endswith("Z"):
        seconds, nanos = divmod(java_times.parsed_local_time(time_text[:-1]), 10**9)
        return struct.pack(">qi", java_times.parsed_local_date(day_text) * 86_400 + seconds, nanos)
    raise ValueError(f"no value of this schema can be given as a text: {text!r}")


def parts_of(data: bytes) -> tuple[bytes, bytes]:
    """Key and value schema of a stored KEY_VALUE definition; raises ValueError."""
    found: list[bytes] = []
    for _ in range(2):
        if len(data) < 4:
            raise ValueError("the definition of the KEY_VALUE schema is cut off")
        end = 4 + max(0, int.from_bytes(data[:4], "big", signed=True))
        found.append(data[4:end])
        data = data[end:]
    return found[0], found[1]


def compact(value: Any) -> str:
    """Properties of a schema within a property of another."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
