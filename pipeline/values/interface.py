"""Decoders of payloads into the value's columns, and the simplest of them: bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from magnetar.pipeline.columns import VALUE, Column

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ValueBatch:
    """Payloads of the rows of a record batch, with further inputs of their decoding.

    payload: binary; null for tombstones. key: binary, decoded from base64. schema_version: binary, null without.
    encrypted: bool of numpy, one a row: such payloads are ciphertext.
    """

    payload: pa.Array
    key: pa.Array
    schema_version: pa.Array
    encrypted: Any


@dataclass(slots=True)
class DecodedValues:
    """One array per value column, each as long as the batch; failures: row -> why it has no value (the cells of such a
    row are undefined).
    """

    arrays: list[pa.Array]
    failures: dict[int, str] = field(default_factory=dict)


class ValueDecoder(Protocol):
    """Decodes payloads by the schema of a topic. Pure; one instance serves one thread."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that `decode` gives arrays for, in this order."""

    def decode(self, batch: ValueBatch) -> DecodedValues:
        """Decode the payloads. Bad content of a payload never raises: it is a failure of its row."""


class BytesValues:
    """Payloads as they are: the single column `value`. Encrypted payloads are handed over as ciphertext."""

    columns: tuple[Column, ...] = (VALUE,)

    def decode(self, batch: ValueBatch) -> DecodedValues:
        return DecodedValues([batch.payload])
