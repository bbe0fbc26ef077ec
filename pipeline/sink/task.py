"""The sending of one task: rows to the producers of its topics, on a new event loop."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from magnetar.client.deduplication import Remedies, ensure_deduplication
from magnetar.client.errors import DeduplicationError, retrying
from magnetar.client.lookup import partitions
from magnetar.client.pool import ConnectionPool
from magnetar.pipeline.sink.columns import RowReader
from magnetar.pipeline.sink.routing import Router, partition_name
from magnetar.pipeline.sink.topic_producer import TopicProducer
from magnetar.pipeline.sink.values import value_encoder
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from magnetar.pipeline.sink.options import SinkOptions
    from magnetar.pipeline.sink.topic_producer import TopicReport

BATCH_SHIFT: Final = 32
"""A sequence id is the batch's number and, in its lower 32 bits, the row's place in the task."""
_OPTIONS = Remedies("option enableDeduplication", "option admin.url", "option checkDeduplication=false")


class Place(NamedTuple):
    """Which part of a write a task is. `producer`: name of its producers, None for names the broker chooses.
    `first_sequence_id`: that of the task's first row. `is_first`: no earlier attempt has sent any of these rows.
    """

    task: int
    producer: str | None
    first_sequence_id: int
    is_first: bool = False


class RepeatedSinkIdError(DeduplicationError):
    """A topic has rows of another stream under the producer's name and the batch's number, and would drop the rows."""


class PartitionCounts(Protocol):
    """The numbers of partitions that every attempt to send these rows goes by: deduplication knows the rows of one
    partition, so a row of a repetition must go to its former partition, even if the topic has got more of them.
    """

    def known(self, topic: str) -> int | None:
        """The number of partitions of an earlier attempt; None for a topic that had none, or was not sent to."""
        ...

    def keep(self, topic: str, count: int) -> None:
        """Returns when later attempts will know the number. Raises: OSError."""
        ...


def send_rows(
    batches: Iterable[pa.RecordBatch], options: SinkOptions, place: Place, counts: PartitionCounts | None = None
) -> list[TopicReport]:
    """Send all rows; everything is stored on return. Blocks. All batches have one schema.

    Raises: ClientError (the broker refuses, or is away for too long), ValueError for a row that cannot be sent, as
    `counts`.
    """
    task: SinkTask | None = None
    with asyncio.Runner() as runner:
        try:
            for batch in batches:
                if task is None:
                    task = SinkTask(batch.schema, options, place, counts)
                runner.run(task.send(batch))
            return [] if task is None else runner.run(task.finish())
        finally:
            if task is not None:
                runner.run(task.close())


class Target(NamedTuple):
    """A topic by its full name. `partitions`: rows are spread over so many, 0 when the topic has none; `named`: so many
    has the topic now, and a row may name each of them.
    """

    topic: str
    partitions: int
    named: int


class SinkTask:
    """The producers of one task. All methods belong to one loop."""

    def __init__(
        self, schema: pa.Schema, options: SinkOptions, place: Place, counts: PartitionCounts | None = None
    ) -> None:
        encoder = value_encoder(schema, options)
        self._counts = counts
        self._options, self._place, self._schema = options, place, encoder.schema
        self._reader = RowReader(schema, options, encoder)
        self._router = Router(options.routing, place.task, options.batch_messages)
        self._pool = ConnectionPool(options.connect.credentials)
        self._next_sequence_id = place.first_sequence_id
        self._targets: dict[str, Target] = {}
        self._producers: dict[str, TopicProducer] = {}

    async def send(self, batch: pa.RecordBatch) -> None:
        """Take the rows of a batch. Raises: as `send_rows`."""
        for row in self._reader.rows(batch):
            target = self._targets.get(row.topic) or await self._find_target(row.topic)
            name = partition_name(target.topic, self._router.partition(row, target.partitions, target.named))
            producer = self._producers.get(name)
            if producer is None:
                producer = self._producers[name] = self._producer(name)
            await producer.send(self._next_sequence_id, row.message)
            self._next_sequence_id += 1

    async def finish(self) -> list[TopicReport]:
        """Return when all rows are stored. Raises: ClientError."""
        return [await producer.finish() for producer in self._producers.values()]

    async def close(self) -> None:
        """End the connections; safe to call twice."""
        await self._pool.wait_closed()

    async def _find_target(self, text: str) -> Target:
        """Raises: ClientError, InvalidTopicNameError (a ValueError), as `PartitionCounts`."""
        topic = TopicName.parse(text)
        now = 0 if topic.is_partition else await self._ask_partitions(str(topic))
        target = self._targets[text] = Target(str(topic), await self._kept(str(topic), now), now)
        return target

    async def _kept(self, topic: str, now: int) -> int:
        """The number of partitions of the first attempt; `now` for a topic with fewer, which was made anew since."""
        if self._counts is None or not now:
            return now
        known = self._counts.known(topic)
        if known is not None and known <= now:
            return known
        await asyncio.to_thread(self._counts.keep, topic, now)
        return now

    async def _ask_partitions(self, topic: str) -> int:
        service = self._options.connect.service

        async def ask() -> int:
            return await partitions(await self._pool.get(service), topic, create=True)

        return await retrying(ask, self._options.timeout_s)

    def _producer(self, topic: str) -> TopicProducer:
        opened = partial(self._check_opened, topic)
        return TopicProducer(self._pool, self._options, topic, self._place.producer, self._schema, opened)

    async def _check_opened(self, topic: str, last_sequence_id: int) -> None:
        """Check that deduplication drops repeated rows, and no others. A last sequence id of the producer's name
        proves that the topic deduplicates; for a new name the admin API answers. Raises: DeduplicationError.
        """
        options = self._options
        if not options.exactly_once:
            return
        self._check_batch(topic, last_sequence_id)
        if not options.check_deduplication or last_sequence_id >= 0:
            return
        await asyncio.to_thread(
            ensure_deduplication,
            options.connect.admin(),
            TopicName.parse(topic),
            enable=options.enable_deduplication,
            say=lambda _: None,
            remedies=_OPTIONS,
        )

    def _check_batch(self, topic: str, last_sequence_id: int) -> None:
        """Raises: DeduplicationError when the topic has rows of a later batch: a stream repeats only its newest batch,
        so the rows of this batch are new, and the broker would drop them. RepeatedSinkIdError when it has rows of this
        batch, of which this stream has not sent any.
        """
        last, batch = last_sequence_id >> BATCH_SHIFT, self._place.first_sequence_id >> BATCH_SHIFT
        rows = f"{topic} has rows of batch {last} of producer {self._place.producer}, "
        remedy = "the broker would drop its rows as duplicates; give another sinkId"
        if last > batch:
            raise DeduplicationError(
                f"{rows}and this is batch {batch}: the stream has begun anew under its former option sinkId, with a "
                f"new checkpoint, and {remedy}"
            )
        if last == batch and self._place.is_first:
            raise RepeatedSinkIdError(
                f"{rows}which this stream has not sent: another stream has the same option sinkId, or this stream has "
                f"a new or an older checkpoint or stagingDirectory, and {remedy}"
            )
