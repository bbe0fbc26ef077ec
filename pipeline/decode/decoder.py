"""Decoder: chunks of stored entries to Arrow record batches. No Spark, no I/O.

    EntryChunk -> encrypted entries opened -> Headers (one table for all entries) -> blocks of bounded size
    -> Rows (`block_rows.py`: batches are cut, payloads decompressed, chunks joined, Kafka entries converted)
    -> record batches of bounded size -> values by schema

docs/pipeline/handling.md describes the rows of every case; `reference.py` is the same in plain Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from magnetar.pipeline.columns import arrow_schema, select_columns, topic_columns
from magnetar.pipeline.damage import Quarantined, Reason
from magnetar.pipeline.decode.block_rows import BlockRows, Limits
from magnetar.pipeline.decode.decryption import opened
from magnetar.pipeline.decode.record_batches import BUILDERS, KAFKA_BUILDERS, BatchSource, cut_rows
from magnetar.pipeline.quarantine import Quarantine
from magnetar.pipeline.values.interface import BytesValues, ValueBatch
from magnetar.protocol.compression import MAX_UNCOMPRESSED_BYTES
from magnetar.protocol.entry_columns import ColumnFlag

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from magnetar.client.encryption import Decrypting
    from magnetar.pipeline.decode.look_back import LookBack
    from magnetar.pipeline.decode.rows import RowColumns
    from magnetar.pipeline.entry_chunk import EntryChunk
    from magnetar.pipeline.values.interface import ValueDecoder

BATCH_BYTES: Final = 4 << 20
BATCH_ROWS: Final = 4096


class Decoder:
    """Decodes the chunks of one topic partition, given in the order of the log. State: unfinished chunked messages.

    Args:
        columns: names to select, in any order (`columns.select_columns`); None: all columns of the style.
        style: `pulsar` or `kafka`.   include_headers: the column `headers` of the style kafka.
        value: decodes payloads; the style kafka always has bytes.
        batch_bytes, batch_rows: bounds of a record batch; a single larger message makes a batch of its own.
        on_corrupt: `fail` raises CorruptEntryError at the first unreadable entry or message; `quarantine` counts it in
            `quarantine` and continues.
        decrypting: opens encrypted payloads; None: all of them stay encrypted.
        on_encrypted: `deliver` hands payloads that stay encrypted over as they are, one row per entry; `fail` and
            `quarantine` as above.
        include_markers: also entries that the broker wrote for itself (transactions, replicated subscriptions).
        verify: compute the CRC32C of every entry with a checksum, unless the reader has verified the chunk.
        max_message_bytes: a payload that declares more when decompressed, or is joined to more, is corrupt.
        look_back: gives earlier entries when a chunked message began before the range (`look_back.LookBack`).
    """

    def __init__(
        self,
        columns: Sequence[str] | None = None,
        *,
        style: str = "pulsar",
        include_headers: bool = False,
        value: ValueDecoder | None = None,
        batch_bytes: int = BATCH_BYTES,
        batch_rows: int = BATCH_ROWS,
        on_corrupt: str = "fail",
        decrypting: Decrypting | None = None,
        on_encrypted: str = "deliver",
        include_markers: bool = False,
        verify: bool = True,
        max_message_bytes: int = MAX_UNCOMPRESSED_BYTES,
        look_back: LookBack | None = None,
    ) -> None:
        self._value: ValueDecoder = value if value is not None else BytesValues()
        known = topic_columns(style, self._value.columns, include_headers=include_headers)
        self.columns = known if columns is None else select_columns(known, columns)
        self.schema = arrow_schema(self.columns)
        self._builders = KAFKA_BUILDERS if style == "kafka" else BUILDERS
        self._value_columns = {} if style == "kafka" else {c.name: i for i, c in enumerate(self._value.columns)}
        self._wants_value = any(column.name in self._value_columns for column in self.columns)
        self._wants_key = any(column.name in {"__key", "key"} for column in self.columns)
        self._batch_bytes = batch_bytes
        self._batch_rows = batch_rows
        self._verify = verify
        self._decrypting = decrypting
        self.quarantine = Quarantine(on_corrupt)
        limits = Limits(max_message_bytes, include_markers, on_encrypted)
        self._rows = BlockRows(limits, self.quarantine, look_back, decrypting)

    @property
    def quarantined(self) -> list[Quarantined]:
        """The first positions that could not be read; `quarantine` counts all."""
        return self.quarantine.entries

    def decode(
        self, chunk: EntryChunk, first_index: int | None = None, end_index: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The messages of `chunk` with ``first_index <= __index < end_index``; those without an index all pass.

        The decoder reads entries before the range for chunks of messages that end within it, and makes batches on
        demand. Raises: CorruptEntryError.
        """
        found = opened(chunk, self._decrypting, verify=self._verify, first_index=first_index, end_index=end_index)
        for rows, buffers in self._rows.of_chunk(found, first_index, end_index):
            for run in cut_rows(rows, self._batch_bytes, self._batch_rows):
                batch = self._batch(BatchSource(run, found.headers, buffers, found.chunk))
                if batch.num_rows:
                    yield batch

    def finish(self) -> Iterator[pa.RecordBatch]:
        """End the range and drop chunked messages without their last chunk: they belong to a later range, so they are
        no loss. `unfinished` lists them before this call. Yields no rows.
        """
        self._rows.forget_unfinished()
        return iter(())

    def unfinished(self) -> list[tuple[int, int, str]]:
        """Each chunked message without its last chunk: ledger and entry of its first chunk, and a text with the chunks
        that were seen.
        """
        return [(found.ledger_id, found.entry_id, found.detail) for found in self._rows.unfinished()]

    def _batch(self, source: BatchSource) -> pa.RecordBatch:
        failures: dict[int, tuple[Reason, str]] = {}
        if self._wants_key or self._wants_value:
            failures = dict.fromkeys(source.wrong_keys, (Reason.KEY, "the key is flagged as base64 and is not"))
        arrays = self._value_arrays(source, failures) if self._wants_value else []
        columns = [
            arrays[self._value_columns[column.name]]
            if column.name in self._value_columns
            else self._builders[column.name](source)
            for column in self.columns
        ]
        batch = (
            pa.RecordBatch.from_arrays(columns, schema=self.schema)
            if columns
            else pa.RecordBatch.from_struct_array(pa.array([{}] * len(source), pa.struct([])))
        )
        return self._without_failures(batch, source, failures) if failures else batch

    def _value_arrays(self, source: BatchSource, failures: dict[int, tuple[Reason, str]]) -> list[pa.Array]:
        encrypted = source.entry_flag(ColumnFlag.ENCRYPTED)
        decoded = self._value.decode(ValueBatch(source.payloads, source.keys, source.schema_versions, encrypted))
        for row, why in decoded.failures.items():
            failures.setdefault(row, (Reason.ENCRYPTED if encrypted[row] else Reason.VALUE, why))
        return decoded.arrays

    def _without_failures(
        self, batch: pa.RecordBatch, source: BatchSource, failures: dict[int, tuple[Reason, str]]
    ) -> pa.RecordBatch:
        kept = np.ones(len(source), np.bool_)
        for row, (reason, why) in sorted(failures.items()):
            kept[row] = False
            self.quarantine.add(_position(source.chunk, source.rows, row, reason, why))
        return batch.filter(pa.array(kept))


def _position(chunk: EntryChunk, rows: RowColumns, row: int, reason: Reason, why: str) -> Quarantined:
    index, batch_index = int(rows["index"][row]), int(rows["batch_index"][row])
    return Quarantined(
        chunk.topic,
        chunk.ledger_id,
        int(chunk.entry_ids[int(rows["entry"][row])]),
        reason,
        why,
        batch_index if batch_index >= 0 else None,
        index if index >= 0 else None,
    )
