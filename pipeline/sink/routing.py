"""Which partition of a topic gets a message. The same rows give the same partitions, whenever they are sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.pipeline.sink.options import Routing
from magnetar.pipeline.sink.packing import key_text
from magnetar.protocol.key_hash import java_string_hash

if TYPE_CHECKING:
    from magnetar.pipeline.sink.message import Row


class RoutingError(ValueError):
    """A row that names a partition which the topic does not have."""


class Router:
    """Chooses partitions for one task. `run`: how many successive messages without a key share a partition."""

    def __init__(self, routing: Routing, task: int, run: int) -> None:
        self._routing, self._run = routing, max(run, 1)
        self._keyless = task * self._run

    def partition(self, row: Row, partitions: int, named: int) -> int:
        """The partition of a row, or -1 for a topic that is not partitioned. Rows are spread over `partitions`, and may
        name one of `named`, which are more where the topic has grown. Raises: RoutingError.
        """
        if partitions == 0:
            return -1
        if self._routing is Routing.PARTITION and row.partition >= 0:
            if row.partition >= named:
                raise RoutingError(f"a row wants partition {row.partition} of {row.topic}, which has {named}")
            return row.partition
        if row.message.key is not None:
            return java_string_hash(key_text(row.message.key)[0]) % partitions
        chosen = self._keyless // self._run % partitions
        self._keyless += 1
        return chosen


def partition_name(topic: str, partition: int) -> str:
    """The topic's name in the protocol: with ``-partition-N`` for a partition."""
    return topic if partition < 0 else f"{topic}-partition-{partition}"
