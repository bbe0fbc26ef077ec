"""Cuts the frames of a broker for a reader of many entries: pushed entries stay where they are, in columns.

The cutter treats all other frames as any client does.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from magnetar.pipeline.entry_chunk import EntryChunk
from magnetar.protocol.answers import Answer, AnswerCutter, frame_end
from magnetar.protocol.deliveries import DeliveryColumn, deliveries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


class Block(NamedTuple):
    """Pushed entries in the bytes of one read of the socket. columns: int64, a row for each DeliveryColumn."""

    data: bytes
    columns: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.columns.shape[1])


class DeliveryCutter:
    """`feed` takes bytes as they come, passes pushed entries of the consumer to `on_block`, returns other commands."""

    def __init__(self, consumer_id: int, on_block: Callable[[Block], None], before: AnswerCutter) -> None:
        self._consumer_id, self._on_block = consumer_id, on_block
        self._parts: list[bytes] = []
        self._have, self._need = 0, 0
        self._max_frame_bytes = before.max_frame_bytes
        self._keep(before.rest())

    def feed(self, data: bytes) -> list[Answer]:
        """Raises: MalformedAnswerError; nothing can be cut after that."""
        if self._parts:
            self._parts.append(data)
            self._have += len(data)
            if self._have < self._need:
                return []
            data = b"".join(self._parts)
            self._parts = []
        answers: list[Answer] = []
        at = 0
        while True:
            table, at = deliveries(data, at, self._consumer_id)
            if table:
                self._on_block(Block(data, np.frombuffer(table, np.int64).reshape(len(DeliveryColumn), -1)))
            end = frame_end(data, at, self._max_frame_bytes)
            if end is None or end > len(data):
                break
            answers += AnswerCutter(self._max_frame_bytes).feed(data[at:end])
            at = end
        self._keep(data[at:])
        return answers

    def _keep(self, rest: bytes) -> None:
        """Keep an incomplete frame; `feed` joins its parts once, when the last part has arrived."""
        self._parts = [rest] if rest else []
        self._have = len(rest)
        self._need = frame_end(rest, 0, self._max_frame_bytes) or 0


def as_chunks(topic: str, partition: int, blocks: Sequence[Block]) -> list[EntryChunk]:
    """The entries of the blocks, one chunk for each ledger; several blocks are copied into one buffer."""
    if not blocks:
        return []
    data = blocks[0].data if len(blocks) == 1 else b"".join(block.data for block in blocks)
    moved, shift = [], 0
    for block in blocks:
        columns = block.columns.copy()
        columns[DeliveryColumn.START :] += shift
        moved.append(columns)
        shift += len(block.data)
    columns = np.concatenate(moved, axis=1)
    ledgers = columns[DeliveryColumn.LEDGER]
    bounds = [0, *(np.flatnonzero(np.diff(ledgers)) + 1).tolist(), len(ledgers)]
    return [
        EntryChunk(
            topic,
            partition,
            int(ledgers[i]),
            data,
            columns[DeliveryColumn.START, i:j],
            columns[DeliveryColumn.END, i:j],
            columns[DeliveryColumn.ENTRY, i:j],
        )
        for i, j in pairwise(bounds)
    ]
