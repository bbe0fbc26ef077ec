"""Schemas of a topic as its broker keeps them, and the versions that messages name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from magnetar.pipeline.errors import SchemaError

_KV_TYPES = ("key.schema.type", "value.schema.type")


@dataclass(frozen=True, slots=True)
class TopicSchema:
    """One version of a schema.

    type: as the admin API names it (AVRO, JSON, KEY_VALUE, INT32, ...). data: the definition; empty for primitives.
    """

    type: str
    data: bytes = b""
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_admin(cls, answer: Mapping[str, Any]) -> TopicSchema:
        """Read the schema from an answer of ``GET /admin/v2/schemas/.../schema``."""
        return cls(str(answer["type"]), str(answer.get("data") or "").encode(), dict(answer.get("properties") or {}))

    @property
    def definition(self) -> Any:
        """The parsed JSON of `data`. Raises SchemaError."""
        try:
            return json.loads(self.data)
        except ValueError as e:
            raise SchemaError(f"the definition of the {self.type} schema is no JSON: {e}") from e

    def key_and_value(self) -> tuple[TopicSchema, TopicSchema]:
        """The parts of a KEY_VALUE schema: ``i32 size | key | i32 size | value`` as in the protocol, or JSON
        ``{"key": ..., "value": ...}`` as the admin API gives it. Raises SchemaError.
        """
        if self.data[:1] == b"{":
            found = self.definition
            parts = [_part_text(found.get(name)) for name in ("key", "value")]
        else:
            key, rest = _sized(self.data)
            parts = [key, _sized(rest)[0]]
        kinds = [self.properties.get(name, "BYTES") for name in _KV_TYPES]
        return TopicSchema(kinds[0], parts[0]), TopicSchema(kinds[1], parts[1])

    @property
    def is_separated(self) -> bool:
        """Whether a KEY_VALUE's key travels as the message's key and not in its payload."""
        return self.properties.get("kv.encoding.type", "INLINE").upper() == "SEPARATED"


SchemaVersions = Callable[[int], TopicSchema | None]
"""Version -> schema; None for a version that the topic does not have. Called once per version."""


def version_number(version: bytes) -> int | None:
    """The number in a message's schema version, which is 8 bytes big-endian; None for other forms."""
    return int.from_bytes(version, "big") if len(version) == 8 else None


def _part_text(part: Any) -> bytes:
    if part is None or part == "":
        return b""
    return part.encode() if isinstance(part, str) else json.dumps(part).encode()


def _sized(data: bytes) -> tuple[bytes, bytes]:
    size = int.from_bytes(data[:4], "big", signed=True)
    if len(data) < 4 or size > len(data) - 4:
        raise SchemaError("the KEY_VALUE schema is cut off")
    end = 4 + max(size, 0)
    return data[4:end], data[end:]
