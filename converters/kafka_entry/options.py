"""Settings of the Kafka converter (`kafka.<key>` in the configuration)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from magnetar.converters.errors import ConverterSettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping


class Mode(enum.StrEnum):
    """How a Kafka record becomes a Pulsar message."""

    FAITHFUL = "faithful"
    """The default: the converter keeps binary keys and headers, null headers and timestamps."""
    KOP = "kop"
    """The output of KoP's payload processor for Java consumers, losses included; for applications that depend on it."""


class KeyText(enum.StrEnum):
    """The form of partition_key in faithful mode; ordering_key always holds the raw key."""

    BASE64 = "base64"
    UTF8 = "utf8"
    """The key as text when it is valid UTF-8, base64 otherwise."""


class Compression(enum.StrEnum):
    """Whether a large output is compressed."""

    AUTO = "auto"
    """LZ4 when the stored batches were compressed and the output is larger than 64 KiB."""
    NONE = "none"


_Choice = TypeVar("_Choice", Mode, KeyText, Compression)


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """offset_property: add the stored record's offset as property `__kafka.offset`."""

    mode: Mode = Mode.FAITHFUL
    key: KeyText = KeyText.BASE64
    compression: Compression = Compression.AUTO
    offset_property: bool = False

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> KafkaOptions:
        """Raises: ConverterSettingsError that names the key, its value and the valid values."""
        unknown = sorted(set(values) - {"mode", "key", "compression", "offset"})
        if unknown:
            raise ConverterSettingsError(f"unknown kafka settings {unknown}: known are compression, key, mode, offset")
        offset = values.get("offset", "false").strip().lower()
        if offset not in ("true", "false"):
            raise ConverterSettingsError(f"kafka.offset must be true or false, not {offset!r}")
        return cls(
            mode=_choice(Mode, "mode", values.get("mode", Mode.FAITHFUL)),
            key=_choice(KeyText, "key", values.get("key", KeyText.BASE64)),
            compression=_choice(Compression, "compression", values.get("compression", Compression.AUTO)),
            offset_property=offset == "true",
        )


def _choice(kind: type[_Choice], name: str, value: str) -> _Choice:
    try:
        return kind(value.strip().lower())
    except ValueError:
        known = ", ".join(kind)
        raise ConverterSettingsError(f"kafka.{name} must be one of {known}, not {value!r}") from None
