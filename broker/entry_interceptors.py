"""Interceptors of broker entry metadata (PIP-70): they create the metadata before every entry.

``brokerEntryMetadataInterceptors`` names them. Two names are Apache Pulsar's classes: the broker's timestamp and the
index. Any other name is the path of a user's Python class (``package.module.Class``); the broker instantiates the class
once, without arguments, at its start. See docs/features/entry-metadata.md.
"""

from __future__ import annotations

import importlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import structlog

from magnetar.protocol.pulsar_api_pb2 import BrokerEntryMetadata
from magnetar.protocol.topic_name import TopicName
from magnetar.protocol.varints import varint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from magnetar.protocol.runs import EntryRun
    from magnetar.storage.managed.entry_interception import Stamping

__all__ = ["EntryMetadataInterceptor", "EntryMetadataInterceptors", "EntryStamp", "LoadedInterceptors", "load"]

log = structlog.get_logger(__name__)

TIMESTAMP: Final = "AppendBrokerTimestampMetadataInterceptor"
INDEX: Final = "AppendIndexMetadataInterceptor"
_PULSAR: Final = "org.apache.pulsar."
_KEY: Final = "brokerEntryMetadataInterceptors"

FIRST_FIELD: Final = 1000
"""The smallest field number for interceptors; smaller numbers belong to Apache Pulsar's protocol."""
MAX_EXTRA_BYTES: Final = 4096
"""The limit of the encoded metadata that all interceptors together add to one entry."""
_LAST_FIELD: Final = (1 << 29) - 1
_RESERVED: Final = range(19_000, 20_000)  # by protobuf itself
_MAX_VARINT: Final = (1 << 64) - 1
_HEADER_BYTES: Final = 6
_OWN_BYTES: Final = 64
_MAGIC: Final = b"\x0e\x02"
_COMPLAIN_EVERY_S: Final = 60.0


class EntryStamp:
    """An entry that the broker is about to store, and its metadata."""

    __slots__ = ("_fields", "broker_timestamp", "headers_and_payload", "num_messages")

    def __init__(self, headers_and_payload: memoryview, num_messages: int, broker_timestamp: int | None) -> None:
        self.headers_and_payload = headers_and_payload
        """The bytes as the client sent them, valid during the call only."""
        self.num_messages = num_messages
        """The number of messages in the batch; 1 for a single message."""
        self.broker_timestamp = broker_timestamp
        """Milliseconds since 1970; None without Apache Pulsar's interceptor. An interceptor may replace it. Seek by
        time, TTL and quotas by age use this time, so it should not decrease from entry to entry."""
        self._fields = b""

    def add(self, field: int, value: int | bytes | str) -> None:
        """Add a field of the interceptor to the entry's metadata.

        ``field``: 1000 or more; a whole number of 0 to 2^64-1 is stored as a varint, bytes and text with their length,
        as protobuf does. Raises ValueError, TypeError.
        """
        if not FIRST_FIELD <= field <= _LAST_FIELD or field in _RESERVED:
            raise ValueError(f"field {field}: {FIRST_FIELD} to {_LAST_FIELD}, but {_RESERVED} is protobuf's own")
        if isinstance(value, str):
            value = value.encode()
        if isinstance(value, bytes):
            encoded = varint(field << 3 | 2) + varint(len(value)) + value
        elif isinstance(value, int) and not isinstance(value, bool):
            if not 0 <= value <= _MAX_VARINT:
                raise ValueError(f"field {field}: {value} is no unsigned 64-bit number")
            encoded = varint(field << 3) + varint(value)
        else:
            raise TypeError(f"field {field}: int, bytes or str expected, not {type(value).__name__}")
        if len(self._fields) + len(encoded) > MAX_EXTRA_BYTES:
            raise ValueError(f"more than {MAX_EXTRA_BYTES} bytes of metadata for one entry")
        self._fields += encoded

    def state(self) -> tuple[int | None, bytes]:
        """The fields that an interceptor may change."""
        return self.broker_timestamp, self._fields

    def restore(self, state: tuple[int | None, bytes]) -> None:
        self.broker_timestamp, self._fields = state

    def prefix(self, index: int) -> bytes:
        """Encode magic, size and metadata; empty bytes without metadata. ``index``: -1 for no index."""
        metadata = BrokerEntryMetadata()
        if self.broker_timestamp is not None:
            metadata.broker_timestamp = self.broker_timestamp
        if index >= 0:
            metadata.index = index
        encoded = metadata.SerializeToString() + self._fields
        return _MAGIC + len(encoded).to_bytes(4, "big") + encoded if encoded else b""


@runtime_checkable
class EntryMetadataInterceptor(Protocol):
    """The interface of an interceptor. One object serves all topics; it runs on the event loop and must not wait."""

    def intercept(self, topic: str, entries: Sequence[EntryStamp]) -> None:
        """The broker calls this for each burst of consecutive entries of one producer, in the order of their storage.

        If the call raises an error, the broker discards the changes of this call, still stores the entries, and logs
        the failure.
        """
        ...


class EntryMetadataInterceptors:
    """The user's interceptors in their order: an ``EntryMetadataSource`` of the storage room."""

    max_bytes: Final = MAX_EXTRA_BYTES + _HEADER_BYTES + _OWN_BYTES

    def __init__(
        self,
        interceptors: Iterable[tuple[str, EntryMetadataInterceptor]],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interceptors = tuple(interceptors)
        self._monotonic = monotonic
        self.failures = dict.fromkeys((name for name, _ in self._interceptors), 0)
        """The number of calls that raised, by class path."""
        self._complained_s: dict[str, float] = {}

    def prefixes(self, managed_ledger: str, run: EntryRun, start: int, end: int, stamping: Stamping) -> list[bytes]:
        """See ``EntryMetadataSource``. Entries without a positive message count get no metadata, as in Apache
        Pulsar.
        """
        counts = memoryview(run.num_messages).cast("q")[start:end]
        timestamp = stamping.timestamp_ms if stamping.timestamp_ms >= 0 else None
        stamps = [
            EntryStamp(run.entry(k), count, timestamp) for k, count in zip(range(start, end), counts, strict=True)
        ]
        wanted = tuple(stamp for stamp in stamps if stamp.num_messages > 0)
        if wanted:
            topic = TopicName.from_persistence_name(managed_ledger)
            for name, interceptor in self._interceptors:
                self._call(name, interceptor, managed_ledger if topic is None else str(topic), wanted)
        index, found = stamping.index_before, []
        for stamp in stamps:
            if stamp.num_messages <= 0:
                found.append(b"")
                continue
            if stamping.index_before >= -1:
                index += stamp.num_messages
            found.append(stamp.prefix(index))
        return found

    def _call(
        self, name: str, interceptor: EntryMetadataInterceptor, topic: str, stamps: tuple[EntryStamp, ...]
    ) -> None:
        before = [stamp.state() for stamp in stamps]
        try:
            interceptor.intercept(topic, stamps)
            for stamp in stamps:
                stamp.prefix(-1)  # an unusable timestamp is an error of this interceptor
        except Exception as error:  # noqa: BLE001 - the messages are stored after any error of a user's code
            for stamp, state in zip(stamps, before, strict=True):
                stamp.restore(state)
            self._complain(name, topic, error)

    def _complain(self, name: str, topic: str, error: Exception) -> None:
        """Log the failure, once a minute at most."""
        self.failures[name] += 1
        now_s = self._monotonic()
        if now_s - self._complained_s.get(name, -_COMPLAIN_EVERY_S) >= _COMPLAIN_EVERY_S:
            self._complained_s[name] = now_s
            log.error(
                "interceptor.failed", interceptor=name, topic=topic, error=repr(error), failures=self.failures[name]
            )


@dataclass(frozen=True, slots=True)
class LoadedInterceptors:
    """The interceptors that the setting names."""

    timestamp: bool
    index: bool
    users: EntryMetadataInterceptors | None


def load(names: Iterable[str]) -> LoadedInterceptors:
    """Load the named interceptors. Raises ValueError with key, name and reason for an unusable interceptor."""
    timestamp = index = False
    users: list[tuple[str, EntryMetadataInterceptor]] = []
    for name in names:
        if name.startswith(_PULSAR) or "." not in name:
            simple = name.rpartition(".")[2]
            if simple not in (TIMESTAMP, INDEX):
                raise ValueError(
                    f"{_KEY}: {name}: Apache Pulsar's {TIMESTAMP} and {INDEX} are known, or a Python class"
                )
            timestamp, index = timestamp or simple == TIMESTAMP, index or simple == INDEX
        else:
            users.append((name, _made(name)))
    return LoadedInterceptors(timestamp, index, EntryMetadataInterceptors(users) if users else None)


def _made(name: str) -> EntryMetadataInterceptor:
    """Import the user's class and return an object of it."""
    module, _, attribute = name.replace(":", ".").rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute)()
    except Exception as error:
        raise ValueError(f"{_KEY}: {name} cannot be used: {error!r}") from error
    if not isinstance(found, EntryMetadataInterceptor) or not callable(found.intercept):
        raise ValueError(f"{_KEY}: {name} has no method intercept(topic, entries)")  # noqa: TRY004 - it is the setting's value that is wrong
    return found
