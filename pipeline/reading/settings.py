"""The settings with which a task reads ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.pipeline.connect_options import ConnectOptions
    from magnetar.pipeline.options import SourceOptions


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """May be pickled to executors.

    storage_path: data directory of the broker; empty: read everything through the broker.
    fall_back: whether the messages of a missing ledger file are read through the broker; if not, it is an error.
    """

    connect: ConnectOptions
    storage_path: str = ""
    fall_back: bool = True
    fail_on_data_loss: bool = True
    read_compacted: bool = False
    on_corrupt: str = "fail"
    on_encrypted: str = "deliver"
    decryption_keys: tuple[tuple[str, str], ...] = ()
    poll_timeout_s: float = 120.0
    receiver_queue: int = 5000

    @classmethod
    def of(cls, options: SourceOptions) -> ReadSettings:
        """The part of the source's options that reading needs."""
        return cls(
            connect=options.connect,
            storage_path="" if options.read_mode == "broker" else options.storage_path,
            fall_back=options.read_mode != "segment",
            fail_on_data_loss=options.fail_on_data_loss,
            read_compacted=options.read_compacted,
            on_corrupt=options.on_corrupt,
            on_encrypted=options.on_encrypted,
            decryption_keys=options.decryption_keys,
            poll_timeout_s=options.poll_timeout_s,
            receiver_queue=options.receiver_queue,
        )
