"""The payloads of `client produce`: texts and files, encoded by a schema. No I/O except reading the files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from magnetar.cli.errors import CommandLineError, ConfigurationError, FileError
from magnetar.protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_MESSAGES: Final = 1000
"""The most messages that pulsar-client sends in one run."""


def texts_of(messages: Sequence[str], separator: str) -> list[str]:
    """Return the texts of --messages, split at the separator. An empty separator does not split."""
    return [part for text in messages for part in (text.split(separator) if separator else [text])]


def files_of(names: Sequence[str]) -> list[bytes]:
    """Return the bytes of each file in --files; commas separate the names. Raises: FileError."""
    found = []
    for name in (part for text in names for part in text.split(",")):
        try:
            found.append(Path(name).read_bytes())
        except OSError as error:
            raise FileError(f"cannot read {name}: {error.strerror}") from error
    return found


def properties_of(texts: Sequence[str]) -> dict[str, str]:
    """Return the properties of `k1=v1,k2=v2`, which may be repeated. Raises: CommandLineError."""
    found = {}
    for each in (part for text in texts for part in text.split(",")):
        key, separator, value = each.partition("=")
        if not separator or not key.strip():
            raise CommandLineError(f"{each!r} is no property: give KEY=VALUE, several with commas between")
        found[key.strip()] = value.strip()
    return found


class ValueSchema:
    """`bytes`, `string`, `json:DEFINITION` or `avro:DEFINITION`: the schema to send with, and payloads in it."""

    def __init__(self, text: str) -> None:
        """Raises: CommandLineError, ConfigurationError when Avro's library is missing."""
        kind, _, definition = text.partition(":")
        self.kind, self.definition = kind.upper(), definition.encode()
        self.schema: pb.Schema | None = None
        self.encode: Callable[[bytes], bytes] = lambda data: data
        if kind == "bytes":
            return
        if kind == "string":
            self.schema = pb.Schema(name="String", schema_data=b"", type=pb.Schema.String)
        elif kind in ("json", "avro") and definition:
            self._structured(kind, definition)
        else:
            raise CommandLineError(
                f"{text!r} is no value schema: give bytes, string, json:DEFINITION or avro:DEFINITION"
            )

    def _structured(self, kind: str, definition: str) -> None:
        try:
            parsed = json.loads(definition)
        except ValueError as error:
            raise CommandLineError(f"the definition of the {kind} schema is no JSON: {error}") from error
        number = pb.Schema.Json if kind == "json" else pb.Schema.Avro
        name = parsed.get("name") if isinstance(parsed, dict) else None
        self.schema = pb.Schema(
            name=name if isinstance(name, str) else "", schema_data=definition.encode(), type=number
        )
        self.encode = _json_checked if kind == "json" else _avro_encoder(parsed)


def _json_checked(data: bytes) -> bytes:
    try:
        json.loads(data)
    except ValueError as error:
        raise CommandLineError(f"{data[:80]!r} is no JSON: {error}") from error
    return data


def _avro_encoder(definition: Any) -> Callable[[bytes], bytes]:
    try:
        import fastavro  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError("avro schemas need fastavro: pip install '/path/to/magnetar[avro]'") from error
    try:
        schema = fastavro.parse_schema(definition)
    except Exception as error:  # of many classes, as the definition has it
        raise CommandLineError(f"the definition is no schema of Avro: {type(error).__name__}: {error}") from error

    def encode(data: bytes) -> bytes:
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, schema, json.loads(data))
        except Exception as error:  # the same
            raise CommandLineError(f"{data[:80]!r} is no value of the schema: {error}") from error
        return out.getvalue()

    return encode
