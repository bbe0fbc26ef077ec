"""A connection, a session or a subscription that has ended does not wait for the garbage collector."""

import asyncio
import gc
import weakref

import pytest

from magnetar.broker.consumers.consumer import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED
from magnetar.broker.handlers.request_turns import FEW_REQUESTS
from magnetar.broker.heap import free_bytes
from magnetar.broker.network.connection import Connection
from magnetar.broker.network.early_read import EarlyRead
from magnetar.broker.websocket.web_socket_service import WebSocketService
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.errors import StorageFailedError
from tests.broker.network.test_connection import TOPIC, Client
from tests.broker.websocket.test_web_socket import HEAD
from tests.cycles import cycles, no_collections, thaw
from tests.twins.fake_connection import FakeTransport


@pytest.fixture(autouse=True, scope="module")
def thawed():
    yield
    thaw()


@pytest.fixture
def client():
    made = Client()
    yield made
    made.world.close()


def in_type_and_the_next(client, sub_type):
    client.publish(3)
    client.consume(sub_type)
    client.send(close_consumer=pb.CommandCloseConsumer(consumer_id=1, request_id=client.world.next_id()))
    client.consume(SHARED if sub_type != SHARED else EXCLUSIVE)
    client.send(close_consumer=pb.CommandCloseConsumer(consumer_id=1, request_id=client.world.next_id()))
    client.consume(sub_type)


def unsubscribe(client):
    client.consume(SHARED)
    client.send(unsubscribe=pb.CommandUnsubscribe(consumer_id=1, request_id=client.world.next_id()))


def read(client, *, compacted):
    client.publish(3)
    subscribe = pb.CommandSubscribe(
        topic=TOPIC,
        subscription="reader",
        subType=EXCLUSIVE,
        consumer_id=1,
        request_id=client.world.next_id(),
        durable=False,
        read_compacted=compacted,
        start_message_id=pb.MessageIdData(ledgerId=0, entryId=0),
    )
    client.send(subscribe=subscribe)
    client.send(flow=pb.CommandFlow(consumer_id=1, messagePermits=1000))


def read_and_seek(client):
    read(client, compacted=False)
    start = pb.MessageIdData(ledgerId=0, entryId=0)
    client.send(seek=pb.CommandSeek(consumer_id=1, request_id=client.world.next_id(), message_id=start))


def share_with_many(client):
    """Subscribe more consumers than leave in one round of the event loop."""
    client.publish(3)
    for consumer_id in range(3 * FEW_REQUESTS):
        subscribe = pb.CommandSubscribe(
            topic=TOPIC,
            subscription="s",
            subType=SHARED,
            consumer_id=consumer_id,
            request_id=client.world.next_id(),
        )
        client.send(subscribe=subscribe)
        client.send(flow=pb.CommandFlow(consumer_id=consumer_id, messagePermits=1000))


def refuse_a_producer(client):
    for producer_id in (5, 6):
        client.send(
            producer=pb.CommandProducer(
                topic=TOPIC,
                producer_id=producer_id,
                request_id=client.world.next_id(),
                producer_name="taken",
                user_provided_producer_name=True,
            )
        )


def load_in_vain(client):
    async def failed(name):
        raise StorageFailedError("the log does not open")

    topics, topic = client.world.broker.topics, "persistent://public/default/damaged"
    topics._load = failed
    client.send(producer=pb.CommandProducer(topic=topic, producer_id=5, request_id=client.world.next_id()))
    del topics._load


STEPS = {
    "nothing": lambda _client: None,
    "producer": lambda client: client.publish(3),
    "refused producer": refuse_a_producer,
    "damaged topic": load_in_vain,
    "exclusive": lambda client: in_type_and_the_next(client, EXCLUSIVE),
    "shared": lambda client: in_type_and_the_next(client, SHARED),
    "failover": lambda client: in_type_and_the_next(client, FAILOVER),
    "many": share_with_many,
    "key_shared": lambda client: in_type_and_the_next(client, KEY_SHARED),
    "unsubscribe": unsubscribe,
    "reader": lambda client: read(client, compacted=False),
    "reader and seek": read_and_seek,
    "compacted": lambda client: read(client, compacted=True),
}


def begin(client):
    client.reconnect()
    client.send(producer=pb.CommandProducer(topic=TOPIC, producer_id=1, request_id=client.world.next_id()))


def end(client):
    async def closed():
        client.peer.close()

    connection = weakref.ref(client.peer.connection)
    client.world.run(closed())
    del client.peer.connection
    client.world.run(asyncio.sleep(2))
    return connection


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_connection_that_ended_leaves_no_cycles(client, step):
    step(client)
    end(client)
    with no_collections():
        begin(client)
        step(client)
        connection = end(client)
        found = cycles()
        assert connection() is None, found
        assert not found


def test_a_connection_with_early_reads_leaves_no_cycles(client):
    """The transport of the simulated peer has no socket, so the test gives the connection its early read."""
    with no_collections():
        begin(client)
        reading = client.peer.connection
        reading.early_read = EarlyRead(reading, reading._buffer, reading._transport, lambda room, wait_s: 0).function
        del reading
        assert end(client)() is None


SESSIONS = {
    "producer": ("producer/persistent/public/default/t", ""),
    "consumer": ("consumer/persistent/public/default/t/s", ""),
    "dead letters": ("consumer/persistent/public/default/t/s", "subscriptionType=Shared&maxRedeliverCount=1"),
}


REFUSED = {
    "path": ("producer/persistent/public/default", ""),
    "parameter": ("consumer/persistent/public/default/t/s", "subscriptionType=Every"),
    "name in use": ("producer/persistent/public/default/t", "producerName=taken"),
    "namespace": ("reader/persistent/public/missing/t", ""),
}


@pytest.mark.parametrize(("path", "query"), REFUSED.values(), ids=REFUSED)
def test_nor_does_a_refused_session(client, path, query):
    """Neither the session nor the connection inside the broker waited in a cycle with the frames of its refusal."""
    world = client.world
    client.send(
        producer=pb.CommandProducer(
            topic=TOPIC, producer_id=2, request_id=99, producer_name="taken", user_provided_producer_name=True
        )
    )
    service = WebSocketService(world.broker.resources, world.broker.services)

    async def refused():
        transport, gone = FakeTransport(), []
        socket = service.serve(transport, HEAD, f"/ws/v2/{path}", query, {}, None, lambda: gone.append(1))
        await asyncio.sleep(1)
        assert not transport.written.startswith(b"HTTP/1.1 101")
        socket.connection_lost(None)
        await asyncio.sleep(1)
        assert gone

    world.run(refused(), 3)
    with no_collections():
        world.run(refused(), 3)
        assert not cycles()


def test_nor_does_a_session_that_ends_while_it_opens(client):
    world = client.world
    service = WebSocketService(world.broker.resources, world.broker.services)

    async def opening():
        transport = FakeTransport()
        path = "/ws/v2/producer/persistent/public/default/t"
        socket = service.serve(transport, HEAD, path, "", {}, None, lambda: None)
        for _ in range(100):
            if socket.link is not None and socket.link._waiting:
                break
            await asyncio.sleep(0)
        socket.connection_lost(None)
        await asyncio.sleep(1)

    world.run(opening(), 3)
    with no_collections():
        world.run(opening(), 3)
        assert not cycles()


@pytest.mark.parametrize(("path", "query"), SESSIONS.values(), ids=SESSIONS)
def test_nor_does_a_session(client, path, query):
    world = client.world
    resources, services = world.broker.resources, world.broker.services
    service = WebSocketService(resources, services)

    async def session():
        transport, gone = FakeTransport(), []
        socket = service.serve(transport, HEAD, f"/ws/v2/{path}", query, {}, None, lambda: gone.append(1))
        await asyncio.sleep(1)
        assert transport.written.startswith(b"HTTP/1.1 101")
        link = weakref.ref(socket.link)
        socket.connection_lost(None)
        await asyncio.sleep(1)
        assert gone
        return link

    world.run(session(), 3)
    with no_collections():
        link = world.run(session(), 3)
        found = cycles()
        assert link() is None, found
        assert not found


@pytest.mark.parametrize("made", [True, False], ids=["made", "never made"])
def test_nor_does_a_connection_whose_transport_keeps_it(client, made):
    """As the TLS transport does; a connection whose handshake fails is never made."""
    broker = client.world.broker

    async def lived():
        connection = Connection(broker.resources, broker.services)
        transport = FakeTransport()
        transport.protocol = connection
        if made:
            connection.connection_made(transport)
            await asyncio.sleep(0)
            connection.connection_lost(None)

    client.world.run(lived())
    with no_collections():
        client.world.run(lived())
        assert not cycles()


def test_nor_does_a_deleted_topic(client):
    world = client.world

    def used():
        begin(client)
        client.consume(SHARED)
        end(client)
        world.run(world.broker.topics.delete(TopicName.parse(TOPIC)))
        world.run(asyncio.sleep(1))

    used()
    with no_collections():
        used()
        assert not cycles()


def test_a_look_at_the_heap_makes_no_types():
    free_bytes()
    gc.collect()
    free_bytes()
    assert gc.collect() == 0
