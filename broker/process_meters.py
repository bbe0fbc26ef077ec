"""Bounds and measurements of the whole process: descriptors, memory, processor, event loop, cache, lookups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magnetar.broker.descriptors import DescriptorShares, process_limit
from magnetar.broker.handlers.client import LookupCounters
from magnetar.broker.loop_watch import LoopWatch
from magnetar.broker.memory_account import MemoryAccount, MemoryLimits
from magnetar.broker.meters.distributions import CacheMeter
from magnetar.broker.process_load import ProcessLoad

if TYPE_CHECKING:
    from magnetar.broker.settings import Settings

__all__ = ["ProcessMeters"]


@dataclass(frozen=True, slots=True)
class ProcessMeters:
    """See the module. `memory`: the account of the data that the broker holds for clients."""

    descriptors: DescriptorShares
    memory: MemoryAccount
    load: ProcessLoad = field(default_factory=ProcessLoad)
    loop_watch: LoopWatch = field(default_factory=LoopWatch)
    cache: CacheMeter = field(default_factory=CacheMeter)
    lookups: LookupCounters = field(default_factory=LookupCounters)

    @classmethod
    def of(cls, settings: Settings, max_frame_bytes: int) -> ProcessMeters:
        """The meters of this process, with the bounds of the settings."""
        return cls(
            DescriptorShares.of_limit(
                process_limit(), settings.max_http_server_connections, settings.broker_max_connections
            ),
            MemoryAccount(MemoryLimits.of_total(settings.max_client_memory_in_mb << 20, max_frame_bytes)),
        )
