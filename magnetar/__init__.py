"""Magnetar: a light-weight, durable message broker that speaks the Apache Pulsar binary protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pathlib

    from magnetar.process import AsyncBroker, BrokerProcess

__all__ = ["__version__", "start", "start_async"]

__version__ = "0.2.0"


def start(data_dir: pathlib.Path | str | None = None, *, faults: bool = False, **settings: Any) -> BrokerProcess:
    """Start a broker in a process of its own; it takes clients on return.

        with magnetar.start() as broker:
            client = pulsar.Client(broker.url)

    Args:    data_dir: directory of all its data; None for a temporary directory, removed at the end of the block.
             faults: with `broker.faults`, which lets tests cause faults (docs/fault-kit.md).
             settings: by Pulsar's key names, in Python's types; free ports are chosen unless given.
    Raises:  magnetar.process.BrokerStartError with the broker's log.
    """
    from magnetar.process import BrokerProcess  # noqa: PLC0415 - the broker itself starts without it

    return BrokerProcess(data_dir, settings, faults=faults)


def start_async(data_dir: pathlib.Path | str | None = None, *, faults: bool = False, **settings: Any) -> AsyncBroker:
    """The same for asyncio: `async with magnetar.start_async() as broker`. Nothing waits on the loop."""
    from magnetar.process import AsyncBroker  # noqa: PLC0415 - as above

    return AsyncBroker(data_dir, settings, faults=faults)
