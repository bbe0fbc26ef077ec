"""Runs a broker as a process: signals, the ready line, the exit code."""

from __future__ import annotations

import asyncio
import errno
import signal
import sys
from typing import TYPE_CHECKING

from magnetar.broker.broker import Broker
from magnetar.broker.collector import Collector
from magnetar.broker.compiled_helpers import warn_of_missing_helpers
from magnetar.broker.descriptors import raise_limit
from magnetar.broker.heap import Heap, use_one_arena
from magnetar.broker.memory_limit import usable_bytes, warn_of_little_memory
from magnetar.broker.shutdown import LONGEST_S, end_process_after, log_or_end
from magnetar.broker.start_up import spare_the_collector
from magnetar.broker.time_slices import take_short_slices

if TYPE_CHECKING:
    from magnetar.broker.settings import Settings


def take_signals(broker: Broker) -> None:
    """SIGTERM, SIGHUP and SIGINT stop the broker in order; a second SIGINT (Ctrl-C) ends it at once. A SIGHUP that was
    ignored before (`nohup`) stays so.

    Call when the broker has recovered. Until then a signal ends the process itself, because the broker has acknowledged
    nothing to a client and the next start can repeat the recovery (docs/durability.md).
    """
    loop = asyncio.get_running_loop()

    def interrupted() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        broker.request_stop()

    loop.add_signal_handler(signal.SIGTERM, broker.request_stop)
    loop.add_signal_handler(signal.SIGINT, interrupted)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, broker.request_stop)


def ready_line(broker: Broker) -> str:
    """The line printed when the broker takes clients."""
    return f"magnetar ready {broker.listeners.addresses.own.line}\n"


def memory_budgets(settings: Settings) -> dict[str, int]:
    """The settings that bound the memory of data on its way, in MiB."""
    return {
        "maxClientMemoryInMB": settings.max_client_memory_in_mb,
        "maxMessagePublishBufferSizeInMB": settings.max_message_publish_buffer_size_in_mb,
        "managedLedgerCacheSizeMB": settings.managed_ledger_cache_size_mb,
    }


async def run(settings: Settings, *, in_cluster: bool = False) -> int:
    """Run a broker until SIGTERM or SIGINT; returns the exit code of the process."""
    raise_limit()
    use_one_arena()
    take_short_slices()
    asyncio.get_running_loop().set_exception_handler(log_or_end)
    broker = Broker(settings, in_cluster=in_cluster)
    warn_of_missing_helpers()
    warn_of_little_memory(memory_budgets(settings), usable_bytes())

    def ready() -> None:
        try:
            sys.stdout.write(ready_line(broker))
            sys.stdout.flush()
        except OSError as e:  # the error alone names no file
            raise OSError(e.errno, f"standard output, for the line `magnetar ready`: {e.strerror}") from e

    try:
        await broker.start(lambda: take_signals(broker), ready)
    except (MemoryError, RuntimeError) as e:
        if isinstance(e, RuntimeError) and "start new thread" not in str(e):
            raise
        raise OSError(errno.ENOMEM, "the system refuses memory or threads") from e
    spare_the_collector()
    broker.process.loop_watch.start()
    heap, collector = Heap(), Collector()
    heap.start()
    collector.start()
    most_s = settings.broker_shutdown_timeout_ms / 1000 + LONGEST_S
    broker.stopping.on_begin = lambda: end_process_after(most_s, lambda: broker.stopping.exit_code)
    try:
        return await broker.wait_stopped()
    finally:
        collector.stop()
        heap.stop()
        broker.process.loop_watch.stop()
