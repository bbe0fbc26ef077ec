"""Admits producers to a topic: names, access modes, topic epochs, the queue for exclusive access.

The rules are those of Apache Pulsar's AbstractTopic: a Shared producer is refused while an exclusive producer is
connected or queued; Exclusive requires that no other producer is connected or queued; WaitForExclusive waits in a queue
and gets a notice; ExclusiveWithFencing removes all other producers. An exclusive grant carries a topic epoch, which
only grows and is durable before the client gets it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from magnetar.broker.compat import wire_refusals
from magnetar.broker.compat.java_order import java_order
from magnetar.broker.errors import ProducerFencedError, ServiceNotReadyError, TopicTerminatedError
from magnetar.broker.tasks import uninterrupted
from magnetar.broker.topics.exclusive_queue import ExclusiveQueue, epoch_after
from magnetar.broker.topics.wide_topics import CLOSE_STEPS, in_turns_of_all
from magnetar.protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine

    from magnetar.broker.dispatchers.turns import DispatchTurns
    from magnetar.broker.topics.producer import Producer
    from magnetar.protocol.topic_name import TopicName


NO_NAME = "null"
"""In place of the exclusive producer's name while producers only wait for exclusive access."""


class TopicProducers:
    """The producers of one topic, connected and waiting."""

    def __init__(self, load_epoch: int | None, save_epoch: Callable[[int], Coroutine[Any, Any, None]]) -> None:
        self.by_name: dict[str, Producer] = {}
        self.epoch = load_epoch
        self.exclusive: Producer | None = None
        self.have_sent_chunks = False
        """Whether a producer had sent a chunk when a stats period ended."""
        self._of_host: Counter[str] | None = None
        """The number of producers by host; None until a limit of producers from an address is checked."""
        self._waiting = ExclusiveQueue()
        self._save_epoch = save_epoch

    def close(self) -> None:
        """Save no epoch any more: a closed topic leaves no cycle to the garbage collector."""
        self._save_epoch = _refuse

    def __len__(self) -> int:
        return len(self.by_name)

    def __iter__(self):  # type: ignore[no-untyped-def]  # noqa: ANN204 - an iterator over a copy: producers leave while they are walked
        return iter(list(self.by_name.values()))

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def check_same_address(self, producer: Producer, limit: int) -> None:
        """Raise ProducerBusyError when the limit of producers from the producer's address is reached (0: no limit)."""
        if limit <= 0:
            return
        if self._of_host is None:
            self._of_host = Counter(map(_host_of, self.by_name.values()))
        if self._of_host[_host_of(producer)] >= limit:
            raise wire_refusals.TOO_MANY_PRODUCERS_OF_ADDRESS.error(topic=producer.topic.name)

    def check_limit(self, topic: TopicName, max_producers: int) -> None:
        """Raise ProducerBusyError at the limit of attached producers (0: no limit); waiting producers do not count. A
        producer whose connection has ended gives up its place before its turn to leave.
        """
        if 0 < max_producers <= len(self.by_name):
            lost = next((each for each in self.by_name.values() if each.connection.closed), None)
            if lost is not None:
                lost.connection_lost()
        if 0 < max_producers <= len(self.by_name):
            raise wire_refusals.TOO_MANY_PRODUCERS.error(topic=topic)

    async def admit(self, producer: Producer, on_queued: Callable[[], None], check: Callable[[], None]) -> None:
        """Attach the producer or raise.

        Returns when the producer is attached. A WaitForExclusive producer may wait without limit; `on_queued` is called
        when its wait begins. `check` raises any further refusal; it is called when access is granted and again when the
        name is free, because the topic may end meanwhile.
        Raises: ProducerBusyError, ProducerFencedError; TopicTerminatedError or ServiceNotReadyError when the topic ends
        meanwhile.
        """
        mode = producer.access_mode
        if mode == pb.Shared:
            self._check_shared()
        else:
            await self._claim_exclusive(producer, on_queued)
        try:
            check()
            await self._claim_name(producer)
            check()
            if mode == pb.Shared:
                # a claim for exclusive access may have come while the old holder of the name was probed
                self._check_shared()
        except TopicTerminatedError:
            raise  # Apache Pulsar 4.2.4 keeps the claim when only the end of the topic refuses it
        except BaseException:
            if self.exclusive is producer:
                self._release_exclusive(producer)
            raise
        producer.topic_epoch = self.epoch
        self.by_name[producer.name] = producer
        if self._of_host is not None:
            self._of_host[_host_of(producer)] += 1

    def _detach(self, producer: Producer) -> None:
        del self.by_name[producer.name]
        if self._of_host is not None:
            host = _host_of(producer)
            self._of_host[host] -= 1
            if not self._of_host[host]:
                del self._of_host[host]

    def _check_shared(self) -> None:
        if self.exclusive is not None and self.exclusive.connection.closed:
            self.exclusive.connection_lost()
        if self.exclusive is not None:
            raise wire_refusals.EXCLUSIVE_PRODUCER_CONNECTED.error(producer=self.exclusive.name)
        if self._waiting:
            raise wire_refusals.EXCLUSIVE_PRODUCER_CONNECTED.error(producer=NO_NAME)

    async def _claim_exclusive(self, producer: Producer, on_queued: Callable[[], None]) -> None:
        wanted = producer.requested_topic_epoch
        self._detach_lost()
        occupied = self.exclusive is not None or bool(self.by_name)
        waits = occupied and producer.access_mode == pb.WaitForExclusive
        if producer.access_mode == pb.ExclusiveWithFencing:
            await self._fence_others(producer)
        if producer.access_mode == pb.Exclusive:
            self._check_free()
        if not waits and wanted is not None and self.epoch is not None and wanted < self.epoch:
            self._release_exclusive(producer)
            raise wire_refusals.FENCED_BY_TOPIC_EPOCH.error(current=self.epoch, wanted=wanted)
        if waits:
            on_queued()
            await self._wait_turn(producer)  # after the wait the producer keeps its requested epoch
        self.exclusive = producer
        epoch = epoch_after(self.epoch, wanted)
        if epoch != self.epoch:
            try:
                await uninterrupted(self._save_epoch(epoch))
            except asyncio.CancelledError:  # the connection is lost: the epoch counts as used, as in Pulsar
                self.epoch = epoch
                self._release_exclusive(producer)
                raise
            except BaseException:
                self._release_exclusive(producer)
                raise
            self.epoch = epoch
        if self.exclusive is not producer:
            raise ProducerFencedError("Fenced while exclusive access was granted")

    def _check_free(self) -> None:
        """Raise ProducerFencedError unless the topic has no producer, connected or waiting."""
        if self.exclusive is not None:
            raise wire_refusals.FENCED_BY_EXCLUSIVE_PRODUCER.error(producer=self.exclusive.name)
        if self._waiting:
            raise wire_refusals.FENCED_BY_EXCLUSIVE_PRODUCER.error(producer=NO_NAME)
        if self.by_name:
            raise wire_refusals.FENCED_BY_SHARED_PRODUCERS.error()

    def _detach_lost(self) -> None:
        """Detach producers whose connections have ended, up to the first other producer. They leave in turns, and a
        client that comes back takes a refusal of exclusive access for final.
        """
        for producer in self:
            if not producer.connection.closed:
                return
            producer.connection_lost()

    async def _fence_others(self, producer: Producer) -> None:
        """Disconnect all other producers, even for a producer that the later check of its epoch refuses."""
        self._displace_all()
        self.exclusive = producer
        try:
            await asyncio.sleep(0)  # waiting producers get their notice before this answer
        except BaseException:
            self._release_exclusive(producer)
            raise
        if self.exclusive is not producer:
            raise ProducerFencedError("Fenced while exclusive access was granted")

    async def _wait_turn(self, producer: Producer) -> None:
        turn: asyncio.Future[None] = producer.connection.loop.create_future()
        place = self._waiting.append(producer, turn)
        try:
            await turn
        except BaseException:
            self._waiting.give_up(place)
            if self.exclusive is producer:
                self._release_exclusive(producer)
            raise  # a producer that gives up keeps its place in the queue; its turn uses up an epoch, as in Pulsar

    def _displace_all(self) -> None:
        self.fail_waiting(wire_refusals.FENCED_OUT.error())
        previous, self.exclusive = self.exclusive, None
        if previous is not None:
            previous.displace()
        for producer in list(self.by_name.values()):
            producer.displace()
        self.by_name.clear()
        self._of_host = None

    async def _claim_name(self, producer: Producer) -> None:
        while (old := self.by_name.get(producer.name)) is not None:
            if producer.is_successor_of(old):
                old.closed = True
                self._detach(old)
                return
            same_connection = old.connection is producer.connection
            if same_connection or await old.connection.check_alive():
                raise wire_refusals.PRODUCER_NAME_TAKEN.error(producer=producer.name, topic=producer.topic.name)
            if self.by_name.get(producer.name) is old:
                old.connection_lost()

    def remove(self, producer: Producer) -> None:
        """Detach a producer; when access becomes free, the first producer that waits for exclusive access gets it."""
        if self.by_name.get(producer.name) is producer:
            self._detach(producer)
        if self.exclusive is producer:
            self._release_exclusive(producer)
        elif self.exclusive is None and not self.by_name:
            self._promote()

    def _release_exclusive(self, producer: Producer) -> None:
        if self.exclusive is producer:
            self.exclusive = None
            self._promote()

    def _promote(self) -> None:
        while (place := self._waiting.pop()) is not None:
            if place.turn.done():
                self.epoch = place.epoch_behind(self.epoch)
                continue
            self.exclusive = place.producer
            place.turn.set_result(None)
            return

    def fail_waiting(self, error: Exception) -> None:
        """Fail every producer that waits for exclusive access."""
        for turn in self._waiting.clear():
            turn.set_exception(error)

    async def terminated(self, turns: DispatchTurns) -> None:
        """Close the connected producers, because the topic ended. The first waiting producer gets its turn and then
        TopicTerminatedError; it keeps its claim and the other producers keep waiting, as in Apache Pulsar 4.2.4.
        """
        await self.disconnect_in_turns(turns)

    def close_unencrypted(self) -> None:
        """Close the producers that do not encrypt, because the topic requires encryption from now on."""
        self._close_those({name for name, producer in self.by_name.items() if not producer.encrypted})

    def recheck_rights(self, name: TopicName) -> None:
        """Close the producers whose role may no longer produce to the topic."""
        produce = pb.BaseCommand.PRODUCER
        self._close_those({own for own, producer in self.by_name.items() if not producer.connection.may(produce, name)})

    async def recheck_rights_in_turns(self, name: TopicName, turns: DispatchTurns) -> None:
        """Do the same for thousands of producers, which are closed in the order of their coming."""

        def close(producer: Producer) -> int:
            if producer.closed or producer.connection.may(pb.BaseCommand.PRODUCER, name):
                return 1
            producer.close_from_broker()
            return CLOSE_STEPS

        await in_turns_of_all(turns, self, close)

    def roll_rates(self, seconds: float) -> None:
        """End a stats period."""
        for producer in self:
            producer.rate_in.roll(seconds)
            producer.chunk_rate.roll(seconds)
            self.have_sent_chunks |= producer.chunk_rate.last_messages > 0

    async def disconnect_in_turns(self, turns: DispatchTurns) -> None:
        """Close every producer from the broker's side, in the order in which Apache Pulsar does: thousands in turns."""

        def close(producer: Producer) -> int:
            producer.close_from_broker()
            return CLOSE_STEPS

        order = java_order(self.by_name, concurrent=True)
        await in_turns_of_all(turns, [self.by_name[name] for name in order], close)

    def _close_those(self, names: Collection[str]) -> None:
        """Close these producers from the broker's side, in the order in which Apache Pulsar does."""
        if names:
            closing = [self.by_name[name] for name in java_order(self.by_name, concurrent=True) if name in names]
            for producer in closing:
                producer.close_from_broker()


async def _refuse(_epoch: int) -> None:
    """Raise ServiceNotReadyError: the topic is closed."""
    raise ServiceNotReadyError("Topic is closed")


def _host_of(producer: Producer) -> str:
    return producer.connection.address.rpartition(":")[0]
