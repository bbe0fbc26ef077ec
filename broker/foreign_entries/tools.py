"""The tools of conversion, shared by all topics: the chain, the worker processes, the cache."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from magnetar.broker.foreign_entries.candidates import Candidates
from magnetar.broker.foreign_entries.flights import Flights
from magnetar.broker.foreign_entries.loading import hello
from magnetar.broker.foreign_entries.worker_pool import WorkerPool
from magnetar.broker.foreign_entries.worker_process import WorkerProcess
from magnetar.converters.cache import ConversionCache
from magnetar.converters.chain import ConverterChain

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.foreign_entries.config import ConvertingConfig
    from magnetar.broker.foreign_entries.dead_letters import DeadLetters


class ConvertingTools:
    """`chain` is empty until `use` sets it. Precondition of a dispatch: the service has set `dead_letters`."""

    dead_letters: DeadLetters

    def __init__(self, config: ConvertingConfig, now_ms: Callable[[], int], clock: Callable[[], float]) -> None:
        self.config = config
        self.now_ms = now_ms
        self.clock = clock
        self.cache = ConversionCache(config.cache_bytes)
        self.flights = Flights(clock)
        self._hello = hello(config, sys.path)
        self.pool = WorkerPool(config.workers, config.timeout_s, self.new_worker)
        self.use(ConverterChain())

    def new_worker(self) -> WorkerProcess:
        """A worker process with this configuration, not yet started."""
        return WorkerProcess(self._hello)

    def use(self, chain: ConverterChain) -> None:
        """Convert with this chain from now on."""
        self.chain = chain
        self.candidates = Candidates(chain)
