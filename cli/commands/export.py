"""`export`: the messages that a topic holds now, into a file of JSON lines or Parquet, without Spark.

For large or repeated exports, tables and exactly-once use `magnetar pipeline export`.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from magnetar.cli.commands.messages import shown_message
from magnetar.cli.commands.resources import admin_path
from magnetar.cli.errors import CommandLineError, ConfigurationError, FileError, NotFoundError, UnreachableError
from magnetar.cli.progress import Progress
from magnetar.cli.pulsar_admin.verb import topic_of
from magnetar.cli.pulsar_client.printing import message_id
from magnetar.cli.session import HELP, NamedPath, Session, with_broker
from magnetar.client.consumers import TopicConsumer, Wanted

if TYPE_CHECKING:
    from magnetar.client.messages import ReceivedMessage

_SILENCE_S: Final = 30.0
"""Longest wait for the next message; after it, the export fails."""
_LOOK_S: Final = 1.0
"""The wait after which the export looks for partitions whose last entry came without a message."""
_PARQUET_ROWS: Final = 4096
_PARQUET_BYTES: Final = 32 * 1024 * 1024


class Sink(Protocol):
    """A file that receives the exported messages."""

    def add(self, message: ReceivedMessage) -> None: ...

    def close(self) -> None:
        """Write all messages to the file and sync it."""
        ...


class JsonLines:
    """One JSON object per line; payloads as text or in Base64."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")

    def add(self, message: ReceivedMessage) -> None:
        import json  # noqa: PLC0415 - only here

        self._file.write(json.dumps(shown_message(message), ensure_ascii=False) + "\n")

    def close(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


class Parquet:
    """One row per message; payloads and keys are binary, times in milliseconds UTC."""

    def __init__(self, path: Path) -> None:
        """Raises: ConfigurationError without pyarrow."""
        try:
            import pyarrow as pa  # noqa: PLC0415 - an extra
            import pyarrow.parquet as pq  # noqa: PLC0415 - the same
        except ImportError as error:
            raise ConfigurationError("Parquet needs pyarrow: pip install pyarrow, or export to .jsonl") from error
        stamp = pa.timestamp("ms", tz="UTC")
        self._pa = pa
        self._schema = pa.schema(
            [
                ("topic", pa.string()),
                ("message_id", pa.string()),
                ("publish_time", stamp),
                ("event_time", stamp),
                ("producer", pa.string()),
                ("sequence_id", pa.int64()),
                ("key", pa.binary()),
                ("properties", pa.map_(pa.string(), pa.string())),
                ("payload", pa.binary()),
            ]
        )
        self._path = path
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0

    def add(self, message: ReceivedMessage) -> None:
        self._rows.append(
            {
                "topic": message.topic,
                "message_id": message_id(message),
                "publish_time": message.publish_time_ms,
                "event_time": message.event_time_ms or None,
                "producer": message.producer_name,
                "sequence_id": message.sequence_id,
                "key": message.key,
                "properties": list(message.properties.items()),
                "payload": None if message.null_value else message.payload,
            }
        )
        self._bytes += len(message.payload)
        if len(self._rows) >= _PARQUET_ROWS or self._bytes >= _PARQUET_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(self._pa.Table.from_pylist(self._rows, self._schema))
            self._rows, self._bytes = [], 0

    def close(self) -> None:
        self._flush()
        self._writer.close()
        with self._path.open("rb") as file:
            os.fsync(file.fileno())


_SINKS: Final[dict[str, type[JsonLines | Parquet]]] = {"jsonl": JsonLines, "parquet": Parquet}
_SUFFIXES: Final = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}


@click.command("export", context_settings=HELP)
@click.argument("topic")
@click.argument("file", type=NamedPath())
@click.option("--format", "kind", type=click.Choice(list(_SINKS)), help="default: by the name of FILE")
@click.option("--force", is_flag=True, help="replace FILE")
@with_broker
def export(session: Session, topic: str, file: str, kind: str | None, force: bool) -> None:
    """Write every message that TOPIC holds now to FILE, JSON lines (.jsonl) or Parquet (.parquet).

    FILE appears when it is complete. The export creates no subscription and takes no message from consumers.
    """
    path = Path(file)
    chosen = kind or _SUFFIXES.get(path.suffix.lower())
    if chosen is None:
        raise CommandLineError(f"{file}: give --format jsonl or --format parquet, or a name that ends so")
    if path.exists() and not force:
        raise CommandLineError(f"{file} exists: give --force to replace it")
    ends = end_of_parts(session, topic)
    partial = path.with_name(path.name + ".part")
    try:
        sink = _SINKS[chosen](partial)
        try:
            total = session.run(_copy(session, topic, ends, sink))
        finally:
            sink.close()
        partial.replace(path)
    except OSError as error:
        raise FileError(f"cannot write {file}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
    session.out.done(
        f"{total} message{'' if total == 1 else 's'} in {file}", topic=str(topic_of(topic)), messages=total, file=file
    )


def end_of_parts(session: Session, topic: str) -> dict[str, tuple[int, int]]:
    """Return ledger and entry of the last message of the topic or of each partition.

    Partitions without messages, and those that the broker has deleted as inactive, are left out.
    """
    base = admin_path(topic)
    count = int((session.web.get(f"{base}/partitions") or {}).get("partitions", 0))
    name = topic_of(topic)
    parts = [str(name.partition_name(index)) for index in range(count)] or [str(name)]
    ends = {}
    for part in parts:
        try:
            last = session.web.get(f"{admin_path(part)}/lastMessageId") or {}
        except NotFoundError:
            if not count:
                raise
            continue
        if last.get("entryId", -1) >= 0:
            ends[part] = (int(last["ledgerId"]), int(last["entryId"]))
    return ends


async def _copy(session: Session, topic: str, ends: dict[str, tuple[int, int]], sink: Sink) -> int:
    """Read each partition up to its end; return the number of messages.

    Raises: UnreachableError when no message comes for _SILENCE_S.
    """
    name = f"magnetar-export-{os.urandom(5).hex()}"
    wanted = Wanted(str(topic_of(topic)), name, durable=False, earliest=True, creates_topic=False, parts=tuple(ends))
    open_ends, total, silent_s = dict(ends), 0, 0.0
    if not open_ends:
        return 0
    target = session.target
    async with TopicConsumer(target.address(), target.credentials, wanted) as consumer:
        with Progress(f"exporting {topic}", None, "messages") as progress:
            while open_ends:
                try:
                    message = await asyncio.wait_for(consumer.receive(), _LOOK_S)
                except TimeoutError:
                    # The last entry may begin a chunked message, or hold messages that were compacted away.
                    open_ends = {part: end for part, end in open_ends.items() if consumer.arrived(part) < end}
                    silent_s += _LOOK_S
                    _require_some(open_ends, silent_s)
                    continue
                silent_s = 0.0
                end = ends.get(message.topic)
                here = (message.ledger_id, message.entry_id)
                if end is None or here > end:
                    open_ends.pop(message.topic, None)
                    continue  # published since the export began
                sink.add(message)
                total += 1
                progress.add(1)
                if here == end and message.batch_index in (-1, message.batch_size - 1):
                    open_ends.pop(message.topic, None)
    return total


def _require_some(open_ends: dict[str, tuple[int, int]], silent_s: float) -> None:
    """Raise UnreachableError when parts are missing after a silence of _SILENCE_S."""
    if open_ends and silent_s >= _SILENCE_S:
        left = ", ".join(f"{part} up to {place[0]}:{place[1]}" for part, place in open_ends.items())
        raise UnreachableError(f"nothing came for {_SILENCE_S:.0f} s; missing: {left}")
