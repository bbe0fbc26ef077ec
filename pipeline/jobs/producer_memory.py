"""The highest sequence id of each import's producer in a topic, read out of its entries: brokers forget producers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from magnetar.pipeline.catalog import Catalog
from magnetar.pipeline.decode.headers import Headers
from magnetar.pipeline.planning import ReadRange
from magnetar.pipeline.reading.ranges import RangeReader
from magnetar.pipeline.reading.settings import ReadSettings
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.entry_columns import EntryColumn, EntryStatus

if TYPE_CHECKING:
    from magnetar.pipeline.connect_options import ConnectOptions
    from magnetar.pipeline.entry_chunk import EntryChunk

_PREFIX: Final = "kafka-import-"


def highest_sequence_ids(connect: ConnectOptions, topic: str) -> dict[str, int]:
    """Producer of an import -> highest sequence id stored. Reads the whole topic once. Raises: PipelineError."""
    log = Catalog(connect.admin()).range(topic, ledgers=True)
    if log is None or not log.entries:
        return {}
    reader = RangeReader(ReadSettings(connect, on_corrupt="quarantine", fail_on_data_loss=False))
    found: dict[str, int] = {}
    for chunk in reader.chunks(ReadRange(topic, log.partition, log.first, log.end)):
        _note(chunk, found)
    return found


def _note(chunk: EntryChunk, found: dict[str, int]) -> None:
    headers = Headers(chunk, verify=False)
    data = memoryview(chunk.data)
    starts, ends = headers[EntryColumn.METADATA_START], headers[EntryColumn.METADATA_END]
    for row in np.flatnonzero(headers[EntryColumn.STATUS] == EntryStatus.FINE).tolist():
        metadata = pb.MessageMetadata.FromString(bytes(data[int(starts[row]) : int(ends[row])]))
        if metadata.producer_name.startswith(_PREFIX):
            high = max(metadata.sequence_id, metadata.highest_sequence_id)
            found[metadata.producer_name] = max(high, found.get(metadata.producer_name, -1))
