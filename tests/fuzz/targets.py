"""The readers of foreign or damaged bytes: one function per reader, and inputs to begin with.

A target takes any bytes: it returns, or raises an error that its reader documents, which the target swallows. Any other
exception is a finding, and so is more than ``CPU_SECONDS`` for one input. ``guided.py`` drives them by coverage,
``test_fuzz_targets.py`` takes a quick sample.

Readers of files check sums first; with ``without_checksums`` all sums are 0, so that damaged bytes reach the code
behind the check.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import struct
import sys
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from pyroaring import BitMap

from magnetar.broker.admin.http_connection import HttpConnection
from magnetar.broker.admin.produce_body import produce_body
from magnetar.broker.errors import RestError
from magnetar.broker.network.seats import Seats
from magnetar.broker.schemas.compatibility import Definition, Strategy, check_compatible
from magnetar.cli.backup.images import parse_manifest
from magnetar.cli.backup.moments import time_text
from magnetar.converters.kafka.errors import KafkaFormatError
from magnetar.converters.kafka.record_set import RecordSet
from magnetar.delayed import catalogue, snapshot_format
from magnetar.protocol import _pure, batches, checksum, requests
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.errors import ProtocolError
from magnetar.protocol.metadata import parse_entry_metadata, split_entry
from magnetar.storage import records
from magnetar.storage.embedded import checkpoint_file, ledger_format, ledger_head, store_version
from magnetar.storage.embedded.file_header import FileHeader
from magnetar.storage.embedded.journal import format as journal_format
from magnetar.storage.embedded.journal.salvage import salvage
from magnetar.storage.embedded.journal.scan import scan_segment
from magnetar.storage.embedded.metadata import log_format
from magnetar.storage.embedded.metadata import snapshot_format as metadata_snapshot
from magnetar.storage.embedded.metadata.log_scan import scan_log
from magnetar.storage.errors import StorageError
from magnetar.storage.managed.cursors import state as cursor_state
from magnetar.storage.position import Position
from tests.model.virtual_loop import VirtualLoop
from tests.twins.fake_connection import FakeTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CPU_SECONDS = 5
MOST_BYTES = 1 << 20


class Target(NamedTuple):
    """One reader."""

    run: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]
    of_files: bool = False
    """With checksums of 0."""


@contextlib.contextmanager
def without_checksums() -> Iterator[None]:
    """Every written and expected checksum is 0."""
    real = checksum.crc32c

    def zero(*_: object, **__: object) -> int:
        return 0

    with contextlib.ExitStack() as stack:
        for module in list(sys.modules.values()):
            if getattr(module, "crc32c", None) is real:
                stack.enter_context(mock.patch.object(module, "crc32c", zero))
        yield


class OutOfTimeError(BaseException):
    """An input takes too much processor time; no reader catches this error."""


def limited(run: Callable[[bytes], object], cpu_s: float = CPU_SECONDS) -> Callable[[bytes], None]:
    """The same reader, which raises OutOfTimeError after so much processor time. Main thread only."""

    def end(*_: object) -> None:
        raise OutOfTimeError(f"an input takes more than {cpu_s} s of processor time")

    def run_limited(data: bytes) -> None:
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        try:
            run(data)
        except BaseException:
            # The interpreter ends before libFuzzer writes the input, and takes down the handler of its alarm first.
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    signal.signal(signal.SIGPROF, end)
    return run_limited


# --- peers -----------------------------------------------------------------------------------------------------------


def frames(data: bytes) -> None:
    consumed, _, error = _pure.cut(data, 0, len(data), MOST_BYTES)
    assert 0 <= consumed <= len(data)
    assert error is None or isinstance(error, str)


def _frame_seeds() -> list[bytes]:
    body = _entry_seeds()[0]
    return [
        requests.connect("fuzz", entry_metadata=True) + requests.producer(1, 1, "t", "p"),
        requests.send(1, 0, 0, 1, body) * 2,
    ]


def entries(data: bytes) -> None:
    parse_entry_metadata(data)
    metadata, payload = split_entry(data)
    if metadata is not None:
        with contextlib.suppress(ProtocolError):
            for message in batches.walk_batch(metadata, payload):
                len(message.payload)
        with contextlib.suppress(ProtocolError):
            batches.keep_messages(data, {0, 2})


def _entry_seeds() -> list[bytes]:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=2)
    single = batches.encode_entry(metadata, b"payload")
    metadata.num_messages_in_batch = 2
    message = pb.SingleMessageMetadata(partition_key="k", payload_size=7)
    return [single, batches.encode_entry(metadata, batches.encode_batch([(message, b"payload")] * 2))]


async def _application(_scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def http(data: bytes) -> None:
    """The first byte is the number of pieces into which the rest is cut."""
    import uvicorn
    from uvicorn.server import ServerState

    loop = VirtualLoop()

    async def talk() -> None:
        config = uvicorn.Config(_application, ws="none", lifespan="off", loop="none", log_config=None)
        config.load()
        config.timeout_keep_alive = 30
        connection, wire = HttpConnection(config, ServerState(), {}, Seats(2).take()), FakeTransport()
        connection.connection_made(wire)
        size = max(1, len(data) // (1 + data[0] % 5)) if data else 1
        for at in range(1, len(data), size):
            if wire.closing:
                break
            connection.data_received(data[at : at + size])
            await asyncio.sleep(0)
        await asyncio.sleep(100)
        connection.connection_lost(None)
        assert wire.closing, "a connection without a whole request ends"

    try:
        loop.run_until_complete(talk())
        assert not loop.problems, loop.problems
    finally:
        loop.close()


def _http_seeds() -> list[bytes]:
    return [
        b"\0GET /status HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        b"\2POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: t\r\n\r\n",
        b"\1PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcrest",
    ]


def schemas(data: bytes) -> None:
    """Two definitions, separated by a zero byte."""
    from magnetar.broker.errors import IncompatibleSchemaError, InvalidSchemaError
    from magnetar.broker.schemas.work import SchemaWorkError

    one, _, other = data.partition(b"\0")
    for kind in (pb.Schema.Avro, pb.Schema.Json, pb.Schema.Protobuf, pb.Schema.ProtobufNative):
        with contextlib.suppress(IncompatibleSchemaError, InvalidSchemaError, SchemaWorkError):
            check_compatible(Definition(kind, one), [Definition(kind, other)], Strategy.FULL)


def _schema_seeds() -> list[bytes]:
    record = b'{"type":"record","name":"R","fields":[{"name":"a","type":%s}]}'
    return [record % b'"int"' + b"\0" + record % b'["null","long"]', record % b'{"type":"map","values":"R"}' + b"\0"]


def rest_body(data: bytes) -> None:
    async def read() -> None:
        found = await produce_body(data)
        if found is not None:
            async for messages in found.slices():
                assert all(message.payload is not None for message in messages)

    loop = VirtualLoop()
    try:
        loop.run_until_complete(read())
    except RestError as error:
        if error.status not in (400, 413, 500):
            raise
    finally:
        loop.close()


def _body_seeds() -> list[bytes]:
    return [b'{"producerName":"p","messages":[{"payload":"1","properties":{"a":"b"},"eventTime":5}]}', b"null"]


def kafka(data: bytes) -> None:
    for options in ({"check_inner_crcs": True}, {"check_crcs": False}):
        with contextlib.suppress(KafkaFormatError):
            for record in RecordSet(data, max_decompressed_bytes=MOST_BYTES, **options):
                assert record is not None


def _kafka_seeds() -> list[bytes]:
    from tests.converters.kafka.test_fuzz import SEEDS

    return list(SEEDS)


# --- files -----------------------------------------------------------------------------------------------------------


def no_proof(_ledger_id: int) -> int:
    """The form of a ledger of an earlier version."""
    return 0


def journal(data: bytes) -> None:
    with contextlib.suppress(StorageError):
        scan = scan_segment("p", 1, data, 0, {1, 2})
        for frame in scan.frames:
            assert 0 <= frame.offset <= frame.offset + frame.payload_bytes <= len(data)
            for found in salvage(data[frame.offset : frame.offset + frame.payload_bytes], {0, 1, 7}, no_proof):
                assert found.start >= 0


def _record(ledger_id: int, entry_id: int, body: bytes) -> bytes:
    return struct.pack("<IIQQq", len(body), 0, ledger_id, entry_id, -1) + body


def _journal_seeds() -> list[bytes]:
    payload = _record(7, 0, b"one") + _record(7, 1, b"two")
    header = FileHeader(b"MGNTRJNL", b"s" * 16, 1, 2, 5).pack().ljust(journal_format.PAGE_BYTES, b"\0")
    return [header + b"".join(journal_format.encode_frame(2, 5, 9, [payload], 1))]


def ledger_file(data: bytes) -> None:
    with contextlib.suppress(StorageError):
        ledger_head.parse_ledger_head("p", data)
    ledger_head.find_data_offset(data)
    for part in records.walk(data, 0, len(data), 7, 0):
        assert 0 <= part.start <= part.end <= len(data)
    footer = ledger_format.parse_footer(data[-ledger_format.FOOTER_BYTES :])
    if footer is not None and footer.index_bytes <= MOST_BYTES:
        ledger_format.parse_index(footer, data[: footer.index_bytes])


def _ledger_seeds() -> list[bytes]:
    body = _record(7, 0, b"one") + _record(7, 1, b"two" * 9)
    head = ledger_head.encode_ledger_head(FileHeader(ledger_head.LEDGER_MAGIC, b"s" * 16, 7), {"a": "b"})
    return [body, head + body]


def metadata_log(data: bytes) -> None:
    with contextlib.suppress(StorageError):
        scan_log("p", data, 1)


def _log_seeds() -> list[bytes]:
    header = log_format.LogHeader(b"s" * 16, 1, 1, 5, 32 << 10, 0)
    frame = b"".join(log_format.encode_frame(header, 1, log_format.CHANGES, b"", 0))
    return [
        (log_format.encode_log_header(header).ljust(log_format.FIRST_FRAME_AT, b"\0") + frame).ljust(32 << 10, b"\0")
    ]


def metadata_files(data: bytes) -> None:
    for read in (
        lambda: metadata_snapshot.decode_snapshot("p", data),
        lambda: list(metadata_snapshot.intact_changes(data, 1)),
        lambda: checkpoint_file.decode_checkpoint("p", data),
        lambda: store_version.parse_version("p", data),
    ):
        with contextlib.suppress(StorageError):
            read()


def _metadata_seeds() -> list[bytes]:
    checkpoint = checkpoint_file.Checkpoint(1, 2, 3, {7: (1, 35)})
    return [checkpoint_file.encode_checkpoint(b"s" * 16, checkpoint, 0), b"magnetar-store 2 00 00000000\n"]


def cursors(data: bytes) -> None:
    with contextlib.suppress(StorageError):
        cursor_state.decode_state(cursor_state.parse_entry(data).payload)


def _cursor_seeds() -> list[bytes]:
    found = cursor_state.CursorState(Position(3, 4), {3: BitMap([6, 8])}, {Position(3, 9): 5}, {"a": 1})
    return cursor_state.encode_entries(cursor_state.encode_state(found), 0, 1 << 20)


def buckets(data: bytes) -> None:
    with contextlib.suppress(catalogue.CatalogueError):
        catalogue.decode(data)
    with contextlib.suppress(snapshot_format.SnapshotError):
        directory = snapshot_format.decode_header(data)
        list(snapshot_format.decode_bitmaps(data, directory))
        snapshot_format.decode_segment(data, directory, 0)


def _bucket_seeds() -> list[bytes]:
    return [catalogue.encode(catalogue.CatalogueRecord()), b"\0" * 40]


def backups(data: bytes) -> None:
    """The manifest of an image; other targets read its data directory."""
    found = parse_manifest(data)
    assert found is None or (time_text(found["moment_ms"]) and isinstance(found["new_bytes"], int))


def _backup_seeds() -> list[bytes]:
    return [b'{"format":1,"moment_ms":5,"source":"/data","ledgers":{"000000000001.ledger":[1,2,3,4]}}']


TARGETS = {
    "frames": Target(frames, _frame_seeds),
    "entries": Target(entries, _entry_seeds),
    "http": Target(http, _http_seeds),
    "schemas": Target(schemas, _schema_seeds),
    "rest_body": Target(rest_body, _body_seeds),
    "kafka": Target(kafka, _kafka_seeds),
    "journal": Target(journal, _journal_seeds, of_files=True),
    "ledger_file": Target(ledger_file, _ledger_seeds, of_files=True),
    "metadata_log": Target(metadata_log, _log_seeds, of_files=True),
    "metadata_files": Target(metadata_files, _metadata_seeds, of_files=True),
    "cursors": Target(cursors, _cursor_seeds),
    "buckets": Target(buckets, _bucket_seeds, of_files=True),
    "backups": Target(backups, _backup_seeds),
}
