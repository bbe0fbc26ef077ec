"""A topic's log with compaction on the in-memory stores, and messages for it."""

from __future__ import annotations

import asyncio
import inspect

from magnetar.broker.compaction.topic_compaction import CompactionSettings, TopicCompaction
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import encode_batch, encode_entry, walk_batch
from magnetar.protocol.compression import compress, decompress
from magnetar.protocol.metadata import split_entry
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.position import EARLIEST
from tests.storage.managed_for_tests import KEEP, Ground, append

TOPIC = TopicName.parse("persistent://public/default/t")


def single(key=None, value=b"v", codec=pb.NONE, **fields):
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, **fields)
    if key is not None:
        metadata.partition_key = key
    if codec != pb.NONE:
        metadata.compression, metadata.uncompressed_size = codec, len(value)
    return encode_entry(metadata, compress(codec, value))


def batch(*pairs, codec=pb.NONE, **fields):
    messages = []
    for key, value in pairs:
        one = pb.SingleMessageMetadata()
        if key is not None:
            one.partition_key = key
        messages.append((one, value))
    plain = encode_batch(messages)
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=len(pairs), **fields
    )
    if codec != pb.NONE:
        metadata.compression, metadata.uncompressed_size = codec, len(plain)
    return encode_entry(metadata, compress(codec, plain))


def messages_of(body):
    """(batch index or -1, key or None, value) of each message that a client takes out of an entry."""
    metadata, payload = split_entry(body)
    if metadata.HasField("num_messages_in_batch") and not metadata.encryption_keys:
        return [
            (m.batch_index, _key(m.metadata), bytes(m.payload))
            for m in walk_batch(metadata, payload)
            if not m.metadata.compacted_out
        ]
    value = decompress(metadata.compression, payload, metadata.uncompressed_size)
    return [(-1, _key(metadata), value)]


def _key(metadata):
    return metadata.partition_key if metadata.HasField("partition_key") else None


def entries_of(spans):
    """(position, entry) of spans."""
    return [(span.slab.position(span.start + k), bytes(span.body(k))) for span in spans for k in range(span.entries)]


async def read_on(reader, max_entries=7):
    """All entries of a reader."""
    found = []
    while True:
        spans = reader.read(max_entries, 1 << 20)
        if inspect.isawaitable(spans):
            spans = await spans
        if not spans:
            return found
        found += entries_of(spans)


class Bench:
    """One topic's log and its compaction."""

    def __init__(self, ground=None, *, keys_in_memory=1000, directory=None, config=KEEP):
        self.ground = ground or Ground()
        self.config = config
        self.settings = CompactionSettings(
            slots=asyncio.Semaphore(2),
            now_ms=self.ground.clock.now_ms,
            keys_in_memory=keys_in_memory,
            directory=directory,
        )

    async def open(self):
        self.log = await self.ground.open(self.config)
        self.compaction = TopicCompaction(TOPIC, self.log, self.ground.ledgers, self.settings)
        await self.compaction.open()
        return self

    async def publish(self, *bodies):
        return await append(self.log, bodies)

    async def compact(self):
        assert self.compaction.start()
        await self.compaction.wait()
        status = self.compaction.status()
        assert status.status == "SUCCESS", status

    async def restart(self):
        await self.compaction.close()
        self.ground = await self.ground.restart()
        return await self.open()

    async def crash(self):
        """Continue with the state that a new process finds."""
        await self.compaction.close()
        self.ground = self.ground.after_crash()
        return await self.open()

    async def drop_consumed(self):
        """Trim everything that no cursor needs."""
        from dataclasses import replace

        self.log.set_config(replace(self.config, retention_time_ms=0, retention_size_bytes=0))
        await self.log.roll()
        await self.log.trim(self.ground.clock.now_ms() + 10_000)
        self.log.set_config(self.config)

    def reader(self, start=EARLIEST):
        """A non-durable reader, as TableView uses."""
        cursor = self.log.new_read_cursor(start)
        reader = self.compaction.new_reader(cursor)
        reader.begin(start)
        return reader

    async def subscription(self, name="sub"):
        """Reader and cursor of a durable read_compacted subscription, a new subscription begins at the earliest
        message.
        """
        known = name in self.log.cursors
        cursor = await self.log.open_cursor(name, "earliest")
        reader = self.compaction.new_reader(cursor)
        if not known:
            reader.begin(EARLIEST)
        reader.rewind()
        return reader, cursor

    async def values(self, start=EARLIEST):
        """(position, batch index, key, value) of everything a new compacted reader sees."""
        reader = self.reader(start)
        try:
            found = await read_on(reader)
        finally:
            reader._cursor.close()
        return [(position, *message) for position, body in found for message in messages_of(body[len_prefix(body) :])]


def len_prefix(body):
    from magnetar.protocol.speed import after_prefix

    return after_prefix(body)
