"""Which schema each row of a batch was written under."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from magnetar.pipeline.errors import SchemaError
from magnetar.pipeline.values.topic_schema import version_number

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from magnetar.pipeline.values.topic_schema import SchemaVersions, TopicSchema

Writer = TypeVar("Writer")


class WrittenVersions(Generic[Writer]):
    """Schemas by version, each fetched and prepared once; rows without a version count as written under the reader's
    schema.
    """

    def __init__(self, versions: SchemaVersions, prepare: Callable[[TopicSchema], Writer]) -> None:
        self._versions = versions
        self._prepare = prepare
        self._known: dict[bytes, Writer | str] = {}

    def groups(self, schema_version: pa.Array, own: Writer, failures: dict[int, str]) -> list[tuple[Writer, list[int]]]:
        """Rows by their writer's schema; rows of a version that is unknown or unreadable are failures."""
        codes = schema_version.dictionary_encode()
        numbers = codes.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        if not len(codes.dictionary):
            return [(own, list(range(len(numbers))))]
        found: list[tuple[Writer, list[int]]] = []
        for code in np.unique(numbers).tolist():
            rows = np.flatnonzero(numbers == code).tolist()
            writer = own if code < 0 else self._writer(codes.dictionary[code].as_py())
            if isinstance(writer, str):
                for row in rows:
                    failures.setdefault(row, writer)
            else:
                found.append((writer, rows))
        return found

    def _writer(self, version: bytes) -> Writer | str:
        if version not in self._known:
            self._known[version] = self._fetched(version)
        return self._known[version]

    def _fetched(self, version: bytes) -> Writer | str:
        number = version_number(version)
        schema = None if number is None else self._versions(number)
        if schema is None:
            return f"schema version {version.hex() if number is None else number} is not known"
        try:
            return self._prepare(schema)
        except SchemaError as e:
            return f"schema version {number}: {e}"
