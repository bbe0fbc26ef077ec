"""The order of commands that arrive in one read, where a command is handled in slices; reads of producers in turns."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from magnetar.broker.handlers.consume import ACKS_IN_ONE_TURN, FEW_WORDS
from magnetar.broker.handlers.request_turns import FEW_REQUESTS
from magnetar.broker.network.connection import _SMALL_READ_BYTES, ITEMS_A_TURN
from magnetar.broker.network.read_buffer import SHARED_BYTES
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import encode_entry
from magnetar.protocol.frames import encode_command
from magnetar.storage.errors import StorageFullError
from magnetar.storage.read_turns import ReadTurns
from tests.model.simulated_broker import Peer, Simulation

TOPIC = "persistent://public/default/t"
Command = pb.BaseCommand
MANY = 20_000
_TYPES = {
    "redeliverUnacknowledgedMessages": "REDELIVER_UNACKNOWLEDGED_MESSAGES",
    "watchTopicList": "WATCH_TOPIC_LIST",
}


class Client:
    """One connection with a producer, and the frames that the broker sent."""

    def __init__(self) -> None:
        self.world = Simulation()
        self.world.start()
        self.reconnect()
        self.send(producer=pb.CommandProducer(topic=TOPIC, producer_id=1, request_id=self.world.next_id()))

    def reconnect(self) -> None:
        self.peer = self.world.run(self._connected())
        self.take()

    async def _connected(self) -> Peer:
        return Peer(self.world.broker, self.world.network)

    def take(self) -> list[pb.BaseCommand]:
        return [each.command for each in self.world.network.take()]

    def send_bytes(self, data: bytes) -> list[pb.BaseCommand]:
        async def sent() -> None:
            self.peer.send_bytes(data)

        self.world.run(sent())
        return self.take()

    def send(self, payload: bytes = b"", **field: object) -> list[pb.BaseCommand]:
        return self.send_bytes(encoded(payload, **field))

    def send_of(self, number: int, body: bytes = b"x") -> bytes:
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=number, publish_time=1)
        return encoded(encode_entry(metadata, body), send=pb.CommandSend(producer_id=1, sequence_id=number))

    def publish(self, count: int) -> list[pb.MessageIdData]:
        found = []
        for number in range(count):
            found += self.send_bytes(self.send_of(number))
        return [each.send_receipt.message_id for each in found if each.type == Command.SEND_RECEIPT]

    def consume(self, sub_type: int) -> list[int]:
        """Subscribe with 1,000 permits; return the entry ids of the messages that the broker sends."""
        subscribe = pb.CommandSubscribe(
            topic=TOPIC,
            subscription="s",
            subType=sub_type,  # type: ignore[arg-type]
            consumer_id=1,
            request_id=self.world.next_id(),
            initialPosition=pb.CommandSubscribe.Earliest,
        )
        self.send(subscribe=subscribe)
        return messages(self.send(flow=pb.CommandFlow(consumer_id=1, messagePermits=1000)))


def encoded(payload: bytes = b"", **field: object) -> bytes:
    (name,) = field
    kind = Command.DESCRIPTOR.fields_by_name[name]
    number = Command.Type.Value(_TYPES.get(kind.name, kind.name.upper()))
    return encode_command(Command(type=number, **field), payload)  # type: ignore[arg-type]


def messages(found: list[pb.BaseCommand]) -> list[int]:
    return [each.message.message_id.entryId for each in found if each.type == Command.MESSAGE]


def many(ids: list[pb.MessageIdData]) -> list[pb.MessageIdData]:
    """Many ids of missing entries, followed by ``ids``."""
    return [pb.MessageIdData(ledgerId=1 << 40, entryId=k) for k in range(MANY)] + ids


@pytest.fixture
def client():
    made = Client()
    yield made
    made.world.close()


def test_acknowledgements_in_slices_end_before_a_seek_behind_them(client):
    ids = client.publish(3)
    shared = pb.CommandSubscribe.Shared
    assert client.consume(shared) == [0, 1, 2]
    ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=many(ids))
    seek = pb.CommandSeek(consumer_id=1, request_id=7, message_id=ids[0])
    client.send_bytes(encoded(ack=ack) + encoded(seek=seek))
    assert client.consume(shared) == [0, 1, 2]


def test_acknowledgements_in_slices_end_before_the_consumer_behind_them_closes(client):
    ids = client.publish(3)
    shared = pb.CommandSubscribe.Shared
    assert client.consume(shared) == [0, 1, 2]
    ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=many(ids[:2]))
    close = pb.CommandCloseConsumer(consumer_id=1, request_id=7)
    client.send_bytes(encoded(ack=ack) + encoded(close_consumer=close) + encoded(ping=pb.CommandPing()))
    assert client.consume(shared) == [2]


def test_a_broken_frame_behind_acknowledgements_in_slices_closes_the_connection_after_them(client):
    ids = client.publish(3)
    shared = pb.CommandSubscribe.Shared
    assert client.consume(shared) == [0, 1, 2]
    ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=many(ids[:2]))
    client.send_bytes(encoded(ack=ack) + encoded(ping=pb.CommandPing()) + b"\xff" * 8)
    assert not client.peer.alive
    client.reconnect()
    assert client.consume(shared) == [2]


def test_an_exclusive_consumer_that_names_many_messages_is_sent_them_once(client):
    ids = client.publish(3)
    assert client.consume(pb.CommandSubscribe.Exclusive) == [0, 1, 2]
    again = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1, message_ids=many(ids))
    assert messages(client.send(redeliverUnacknowledgedMessages=again)) == [0, 1, 2]


def test_a_shared_consumer_that_names_many_messages_is_sent_them_once(client):
    ids = client.publish(3)
    assert client.consume(pb.CommandSubscribe.Shared) == [0, 1, 2]
    again = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1, message_ids=many(ids))
    ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=ids[:1])
    found = client.send_bytes(encoded(redeliverUnacknowledgedMessages=again) + encoded(ack=ack))
    assert sorted(messages(found))[-2:] == [1, 2]
    assert len(messages(found)) <= 3


def test_a_read_of_large_commands_takes_several_rounds_and_keeps_their_order(client):
    """A read of thirty acknowledgements of thousands of messages each held the loop as a whole."""
    ids = client.publish(3)
    shared = pb.CommandSubscribe.Shared
    assert client.consume(shared) == [0, 1, 2]
    handled = []
    consumer = client.peer.connection.consumers[1]
    on_ack = consumer.subscription.on_ack

    def counted(consumer, command):
        handled.append(command.message_id[-1].entryId)
        return on_ack(consumer, command)

    consumer.subscription.on_ack = counted
    missing = many([])[: ACKS_IN_ONE_TURN - 1]
    acks = [
        pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=missing[: len(missing) - number])
        for number in range(30)
    ]
    last = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=ids[:2])

    async def go() -> None:
        client.peer.send_bytes(b"".join(encoded(ack=ack) for ack in (*acks, last)))
        for _ in range(3):
            some = len(handled)
            assert not client.peer.connection.is_reading
            await asyncio.sleep(0)
            assert len(handled) - some < 10
        await asyncio.sleep(1)

    client.world.run(go())
    assert handled == [ack.message_id[-1].entryId for ack in (*acks, last)]
    assert client.peer.connection.is_reading
    assert client.consume(shared) == []


def test_a_read_behind_connections_that_wait_is_small(client):
    """The commands of a read that wait for their turn take ten times its bytes."""
    first = client.peer
    client.reconnect()

    async def go() -> None:
        assert len(client.peer.connection.get_buffer(-1)) == SHARED_BYTES
        first.send_bytes(encoded(pong=pb.CommandPong()) * (ITEMS_A_TURN + 1))
        assert len(client.peer.connection.get_buffer(-1)) == _SMALL_READ_BYTES

    client.world.run(go())
    assert len(client.peer.connection.get_buffer(-1)) == SHARED_BYTES


def test_a_read_behind_connections_that_wait_takes_the_rest_of_a_large_frame(client):
    """Messages of 1 MB came in 64 reads: beside a flood of commands they were a fifth as fast as in whole reads."""
    first, frame = client.peer, encoded(pong=pb.CommandPong()) * 2
    client.reconnect()
    large = (300_000).to_bytes(4, "big") + bytes(50_000)

    async def go() -> None:
        client.peer.send_bytes(large)
        first.send_bytes(frame * (ITEMS_A_TURN + 1))
        room, buffer = 0, client.peer.connection.get_buffer(-1)
        while len(buffer) > _SMALL_READ_BYTES:
            room += len(buffer)
            buffer[:] = bytes(len(buffer))
            client.peer.connection.buffer_updated(len(buffer))
            buffer = client.peer.connection.get_buffer(-1)
        assert 300_004 - len(large) - _SMALL_READ_BYTES <= room <= 300_004 - len(large), "no command behind the frame"

    client.world.run(go())


class HeldTurns(ReadTurns):
    """Turns of a log whose next frame is always later."""

    is_held = property(lambda _self: True, lambda _self, _held: None)  # type: ignore[assignment]


@pytest.fixture
def turns(client):
    client.peer.connection._turns = held = HeldTurns()
    return held


def test_a_producer_whose_append_waits_reads_on_at_the_next_turn(client, turns):
    async def go() -> list[bool]:
        client.peer.send_bytes(client.send_of(0))
        found = [client.peer.connection.is_reading]
        client.peer.send_bytes(client.send_of(1))
        turns.begin()
        found.append(client.peer.connection.is_reading)
        return found

    assert client.world.run(go()) == [False, True]
    receipts = [each.send_receipt.sequence_id for each in client.take() if each.type == Command.SEND_RECEIPT]
    assert receipts == [0, 1]


def test_a_large_read_and_a_read_without_a_publish_do_not_wait(client, turns):
    async def go(data: bytes) -> bool:
        client.peer.send_bytes(data)
        is_reading = client.peer.connection.is_reading
        turns.begin()
        return is_reading

    assert client.world.run(go(encoded(ping=pb.CommandPing())))
    assert client.world.run(go(client.send_of(0, b"b" * 20_000)))
    assert not client.world.run(go(client.send_of(1)))


def test_a_connection_that_ends_while_it_waits_harms_no_turn(client, turns):
    async def go() -> None:
        client.peer.send_bytes(client.send_of(0))
        client.peer.close()
        turns.begin()

    client.world.run(go())
    client.reconnect()


def test_a_window_behind_a_window_is_read_in_halves_and_keeps_its_order(client):
    """The log has no work before each window. The second half comes after the turn in which the first frame begins."""
    connection, windows = client.peer.connection, [_window(client, first) for first in (0, 200, 400)]
    reads = []

    async def go(window: bytes) -> None:
        connection._turns.is_idle = True
        rest = memoryview(window)
        while rest:
            room = connection.get_buffer(-1)
            size = min(len(room), len(rest))
            room[:size] = rest[:size]
            connection.buffer_updated(size)
            rest = rest[size:]
            reads.append(size)
            if not connection.is_reading:
                connection._turns.is_idle = False
                await asyncio.sleep(0)
                assert connection.is_reading

    for window in windows:
        client.world.run(go(window))
    half = len(windows[1]) // 2
    assert reads == [len(windows[0]), len(windows[1]), half, len(windows[2]) - half]
    receipts = [each.send_receipt.sequence_id for each in client.take() if each.type == Command.SEND_RECEIPT]
    assert receipts == list(range(600))


def _window(client, first: int) -> bytes:
    return b"".join(client.send_of(first + number, b"b" * 1000) for number in range(200))


def test_a_connection_that_does_not_go_on_leaves_the_place_of_its_large_command_to_others(client):
    """A peer that did not read its output kept the place for as long."""
    ids = client.publish(2)
    shared = pb.CommandSubscribe.Shared
    assert client.consume(shared) == [0, 1]
    connection = client.peer.connection
    ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=many(ids[:1]))

    async def go() -> None:
        everything = connection._share.place(1 << 40, lambda: None)
        client.peer.send_bytes(encoded(ack=ack))
        connection.hold_reading("output")
        everything.leave()
        for _ in range(5):
            await asyncio.sleep(0)
        other = connection._share.place(1 << 40, lambda: None)
        assert other.is_taken
        connection.release_reading("output")
        for _ in range(5):
            await asyncio.sleep(0)
        assert not connection.is_reading
        other.leave()

    client.world.run(go())
    client.send(ping=pb.CommandPing())
    assert connection.is_reading
    client.send(close_consumer=pb.CommandCloseConsumer(consumer_id=1, request_id=7))
    assert client.consume(shared) == [1]


def test_a_connection_that_ends_before_its_watcher_begins_leaves_no_watcher(client):
    """The request begins in a turn behind the end of the connection, which closes the watchers that exist then."""
    watch = pb.CommandWatchTopicList(request_id=7, watcher_id=1, namespace="public/default", topics_pattern=".*")

    async def go() -> None:
        client.peer.send_bytes(encoded(watchTopicList=watch) + encoded(ping=pb.CommandPing()) * ITEMS_A_TURN)
        client.peer.close()

    client.world.run(go())
    assert not client.peer.connection.watchers


def test_a_consumer_whose_unsubscription_fails_is_closed_behind_the_error(client, monkeypatch):
    """The subscription has no consumer any more: without CLOSE_CONSUMER the client would wait for messages for ever."""
    client.publish(1)
    shared = pb.CommandSubscribe.Shared
    assert client.consume(shared) == [0]

    async def full(_log, _name):
        raise StorageFullError("the disk is full")

    monkeypatch.setattr("magnetar.storage.managed.managed_ledger.ManagedLedger.delete_cursor", full)
    found = client.send(unsubscribe=pb.CommandUnsubscribe(consumer_id=1, request_id=7))
    assert [each.type for each in found] == [Command.ERROR, Command.CLOSE_CONSUMER]
    assert client.consume(shared) == [0]


def test_the_texts_of_producers_that_left_keep_no_connection_waiting_for_memory(client):
    """The texts counted until the end of the keep-alive interval, and an honest client waited as long."""
    connection, share = client.peer.connection, client.peer.connection._share
    frame = client.send_of(0, b"y" * 50_000)

    async def go() -> None:
        connection._clients._kept, connection._clients._in_sum = 200_000, 5  # four producers have left since
        connection._clients._weigh()
        share.set("other", share._account.limits.per_connection - 100_000)
        client.peer.send_bytes(frame[:45_000])
        assert connection.is_reading

    client.world.run(go())
    client.take()
    assert [each.type for each in client.send_bytes(frame[45_000:])] == [Command.SEND_RECEIPT]


MANY_CLIENTS = 20 * FEW_REQUESTS
"""Clients of a connection whose end takes many rounds of the event loop."""


def _end_then(client, ending: Peer, data: bytes) -> list[pb.BaseCommand]:
    """End a connection; in the same round the client sends the bytes on its present connection."""

    async def go() -> None:
        ending.lost()
        client.peer.send_bytes(data)

    client.world.run(go())
    return client.take()


def test_an_exclusive_producer_comes_back_while_the_producers_of_its_lost_connection_leave(client):
    """The client takes ProducerFenced for final."""
    for number in range(2, MANY_CLIENTS):
        client.send(producer=pb.CommandProducer(topic=TOPIC, producer_id=number, request_id=number))
    exclusive = pb.CommandProducer(
        topic=TOPIC + "-2", producer_id=MANY_CLIENTS, request_id=1, producer_access_mode=pb.Exclusive, producer_name="e"
    )
    (granted,) = client.send(producer=exclusive)
    exclusive.topic_epoch = granted.producer_success.topic_epoch
    ending = client.peer
    client.reconnect()
    found = _end_then(client, ending, encoded(producer=exclusive))
    assert [each.type for each in found] == [Command.PRODUCER_SUCCESS]


@pytest.mark.parametrize("most", [0, 1])
def test_a_shared_producer_comes_while_the_only_producer_of_its_topic_leaves(client, most):
    """The topic was behind an exclusive producer, or at its limit of producers, until the former client had its turn."""
    for number in range(2, MANY_CLIENTS):
        client.send(producer=pb.CommandProducer(topic=TOPIC, producer_id=number, request_id=number))
    mode = pb.Shared if most else pb.Exclusive
    former = pb.CommandProducer(
        topic=TOPIC + "-2", producer_id=MANY_CLIENTS, request_id=1, producer_name="e", producer_access_mode=mode
    )
    assert [each.type for each in client.send(producer=former)] == [Command.PRODUCER_SUCCESS]
    loaded = client.world.broker.topics.loaded[TOPIC + "-2"]
    loaded.config = dataclasses.replace(loaded.config, max_producers=most)
    ending = client.peer
    client.reconnect()
    found = _end_then(
        client, ending, encoded(producer=pb.CommandProducer(topic=TOPIC + "-2", producer_id=1, request_id=1))
    )
    assert [each.type for each in found] == [Command.PRODUCER_SUCCESS]


def test_consumers_of_a_lost_connection_get_no_message_until_they_leave(client):
    """A message of a non-persistent topic would be lost, though another consumer waits for it."""
    topic = TOPIC.replace("persistent", "non-persistent")
    subscribe = pb.CommandSubscribe(
        topic=topic, subscription="s", subType=pb.CommandSubscribe.Shared, consumer_id=0, request_id=1
    )
    for subscribe.consumer_id in range(MANY_CLIENTS):
        client.send(subscribe=subscribe)
        client.send(flow=pb.CommandFlow(consumer_id=subscribe.consumer_id, messagePermits=9))
    ending = client.peer
    client.reconnect()
    client.send(subscribe=subscribe)
    client.send(flow=pb.CommandFlow(consumer_id=subscribe.consumer_id, messagePermits=100))
    client.send(producer=pb.CommandProducer(topic=topic, producer_id=1, request_id=2))
    found = _end_then(client, ending, b"".join(client.send_of(number) for number in range(50)))
    assert len(messages(found)) == 50


def test_a_round_of_the_event_loop_has_a_bounded_number_of_commands_however_many_connections_send_them(client):
    world, pongs = client.world, []

    async def flood() -> None:
        peers = [Peer(world.broker, world.network) for _ in range(10)]
        world.network.take()
        for peer in peers:
            peer.send_bytes(encoded(ping=pb.CommandPing()) * ITEMS_A_TURN)
        pongs.append(_pongs(world.network.take()))

    world.run(flood())
    assert 2 * ITEMS_A_TURN < pongs[0] <= 5 * ITEMS_A_TURN
    assert pongs[0] + _pongs(world.network.take()) == 10 * ITEMS_A_TURN


def _pongs(frames) -> int:
    return sum(each.command.type == Command.PONG for each in frames)


def test_a_late_part_of_an_ack_leaves_the_place_of_a_seek_of_another_connection(client):
    ids = client.publish(3)
    shared = pb.CommandSubscribe.Shared
    assert client.consume(shared) == [0, 1, 2]
    first = client.peer
    client.reconnect()
    client.consume(shared)
    wide = pb.MessageIdData(ledgerId=1 << 40, entryId=0, ack_set=[1] * (FEW_WORDS + 1))
    ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=[*ids, wide], request_id=8)
    seek = pb.CommandSeek(consumer_id=1, request_id=7, message_id=ids[0])

    async def sent():
        first.send_bytes(encoded(ack=ack))
        client.peer.send_bytes(encoded(seek=seek))

    client.world.run(sent())
    answers = client.take()
    assert not [each for each in answers if each.type == Command.ACK_RESPONSE]
    assert [each.success.request_id for each in answers if each.type == Command.SUCCESS] == [7]
    assert client.consume(shared) == [0, 1, 2]


def test_a_consumer_that_subscribes_behind_seek_and_close_in_one_read_gets_messages(client):
    ids = client.publish(3)
    shared = pb.CommandSubscribe.Shared
    assert client.consume(shared) == [0, 1, 2]
    seek = encoded(seek=pb.CommandSeek(consumer_id=1, request_id=7, message_id=ids[0]))
    close = encoded(close_consumer=pb.CommandCloseConsumer(consumer_id=1, request_id=8))
    subscribe = pb.CommandSubscribe(topic=TOPIC, subscription="s", subType=shared, consumer_id=1, request_id=9)
    client.send_bytes(seek + close + encoded(subscribe=subscribe))
    assert messages(client.send(flow=pb.CommandFlow(consumer_id=1, messagePermits=1000))) == [0, 1, 2]
