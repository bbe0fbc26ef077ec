"""The reading of a task: ranges in, record batches with the selected columns out.

Spark plans each query in a Python process of its own. Modules that only tasks need are imported in tasks, which saves
planning a quarter of a second of CPU time.
"""

from __future__ import annotations

import functools
import gc
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from magnetar.pipeline.columns import Column, arrow_schema, select_columns, topic_columns
from magnetar.pipeline.encryption_keys import open_decryption
from magnetar.pipeline.option_table import OptionError
from magnetar.pipeline.reading.settings import ReadSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

    from magnetar.client.encryption import Decrypting
    from magnetar.pipeline.decode.decoder import Decoder
    from magnetar.pipeline.options import SourceOptions
    from magnetar.pipeline.planning import ReadRange
    from magnetar.pipeline.reading.ranges import RangeReader
    from magnetar.pipeline.source.values import ValueChoice

log = logging.getLogger(__name__)

BATCH_BYTES: Final = 5 << 18
"""Batches of about 1 MiB take the least CPU time on the way to the JVM: smaller batches cost calls, larger batches
leave the cache. With this limit a read of 2 MiB makes two batches.
"""


@dataclass(frozen=True)
class RowSource:
    """How entries become rows, the same in every task of a query. Made on the driver, pickled to executors."""

    settings: ReadSettings
    value: ValueChoice
    style: str
    include_headers: bool
    columns: tuple[str, ...]
    """Names of the selected columns; empty: all."""
    include_markers: bool
    batch_bytes: int

    @classmethod
    def of(cls, options: SourceOptions, value: ValueChoice) -> RowSource:
        """Raises UnknownColumnError for a column that the topics do not have."""
        source = cls(
            settings=ReadSettings.of(options),
            value=value,
            style=options.column_style,
            include_headers=options.include_headers,
            columns=options.columns,
            include_markers=options.include_markers,
            batch_bytes=options.batch_bytes or BATCH_BYTES,
        )
        if options.metadata_only:
            names = {column.name for column in value.decoder().columns}
            kept = tuple(column.name for column in source.selected() if column.name not in names)
            source = replace(source, columns=kept)
        return source

    def selected(self) -> tuple[Column, ...]:
        """The columns of every record batch, in their order."""
        known = topic_columns(self.style, self.value.decoder().columns, include_headers=self.include_headers)
        return select_columns(known, self.columns) if self.columns else known

    def schema(self) -> pa.Schema:
        """The Arrow schema of every record batch."""
        return arrow_schema(self.selected())

    def fitted(self, schema: StructType) -> RowSource:
        """The source with the columns that Spark expects: those of the DataFrame when it was loaded, or of `schema()`.

        The schema of a topic may have got fields since, which are left out. Raises: OptionError for columns that the
        topics do not have, or have with another type or in another order, or may have nulls in.
        """
        own = self.selected()
        if schema.names == [column.name for column in own]:
            fitted = self
        else:
            types = {column.name: column.ddl for column in own}
            if missing := [name for name in schema.names if name not in types]:
                raise OptionError(
                    f"the topics have no column {', '.join(missing)}{_REMEDY}; they have {', '.join(types)}"
                )
            fitted = replace(self, columns=tuple(schema.names))
            order = [column.name for column in fitted.selected()]
            if schema.names != order:
                raise OptionError(f"the topics have these columns in another order{_REMEDY}: {', '.join(order)}")
        for column, field in zip(fitted.selected(), schema.fields, strict=True):
            expected = field.dataType.simpleString()
            if _plain(expected) != _plain(column.ddl):
                raise OptionError(f"column {column.name} is {column.ddl} in the topics, not {expected}{_REMEDY}")
            if not (field.nullable and _holds_nulls(field.dataType)):
                raise OptionError(
                    f"column {column.name} may be null in the topics, as may each part of it, but is NOT NULL in the"
                    f" schema given{_REMEDY}"
                )
        return fitted

    def batches(self, ranges: Sequence[ReadRange]) -> Iterator[pa.RecordBatch]:
        """The rows of these ranges, one range after the other. Runs on executors; errors as of `RangeReader`."""
        from magnetar.pipeline.reading.ranges import RangeReader  # noqa: PLC0415 - see the module's docstring

        reader = RangeReader(self.settings)
        decrypting = open_decryption(self.settings.decryption_keys)
        for piece in ranges:
            decoder = self._decoder(reader, piece, decrypting)
            spare_collections()
            first, end = (piece.start, piece.end) if isinstance(piece.start, int) else (None, None)
            assert first is None or isinstance(end, int)
            chunks = reader.chunks(piece)
            try:
                for chunk in chunks:
                    yield from decoder.decode(chunk, first, end)  # type: ignore[arg-type]
                yield from decoder.finish()
            finally:
                chunks.close()  # type: ignore[attr-defined]
            for each in decoder.quarantined:
                log.warning("pulsar source: left out %s", each)

    def _decoder(self, reader: RangeReader, piece: ReadRange, decrypting: Decrypting | None) -> Decoder:
        from magnetar.pipeline.decode.decoder import Decoder  # noqa: PLC0415 - see the module's docstring

        return Decoder(
            self.columns or None,
            style=self.style,
            include_headers=self.include_headers,
            value=self.value.decoder(piece.topic, functools.partial(reader.is_current, piece)),
            batch_bytes=self.batch_bytes,
            on_corrupt=self.settings.on_corrupt,
            decrypting=decrypting,
            on_encrypted=self.settings.on_encrypted,
            include_markers=self.include_markers,
            look_back=reader.look_back,
        )


_REMEDY: Final = (
    " (load the DataFrame again if the schema of its topics has changed; schema() may only leave out columns: rename "
    "and cast them behind the load)"
)


def _plain(type_text: str) -> str:
    """The name of a type without the marks in which DDL and Spark's short form differ."""
    return type_text.lower().replace(" ", "").replace("`", "")


def _holds_nulls(kind: DataType) -> bool:
    """Whether every part of a value of this type may be null, as in the types of `columns.py`."""
    from pyspark.sql.types import ArrayType, MapType, StructType  # noqa: PLC0415 - a task has no use for them

    if isinstance(kind, StructType):
        return all(field.nullable and _holds_nulls(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return kind.containsNull and _holds_nulls(kind.elementType)
    if isinstance(kind, MapType):
        return kind.valueContainsNull and _holds_nulls(kind.keyType) and _holds_nulls(kind.valueType)
    return True


@functools.cache
def spare_collections() -> None:
    """Exempt the present objects from garbage collection, once per process.

    Spark's worker collects garbage after every task, which takes 20 ms for the objects of imported modules.
    """
    gc.freeze()
