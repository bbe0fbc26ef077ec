"""The resources that all connections share: limits, memory, buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.broker.memory_account import MemoryAccount
    from magnetar.broker.network.connections import Connections
    from magnetar.broker.network.publish_gate import PublishBudget
    from magnetar.broker.network.read_buffer import SharedReadBuffer
    from magnetar.broker.settings import Settings
    from magnetar.broker.tasks import TaskSet
    from magnetar.storage.read_turns import ReadTurns


@dataclass(frozen=True, slots=True)
class ConnectionResources:
    """The resources of all connections. `tasks`: the tasks that may run longer than a connection."""

    settings: Settings
    max_frame_bytes: int
    connections: Connections
    memory: MemoryAccount
    publish_budget: PublishBudget
    shared_buffer: SharedReadBuffer
    tasks: TaskSet
    turns: ReadTurns
