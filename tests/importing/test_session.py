"""Connection, lookup and producer against a scripted broker."""

import asyncio
from functools import partial

import pytest

from magnetar.client import connection as connection_module
from magnetar.client import send_window
from magnetar.client.address import Address, Credentials
from magnetar.client.connection import open_connection
from magnetar.client.errors import DeduplicationError, InputError, RefusedError, RetryError
from magnetar.converters.kafka_entry.import_plan import ImportStep
from magnetar.converters.kafka_entry.planning import PlannedEntry
from magnetar.importing import import_producer
from magnetar.importing.topic_session import Target, open_session
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests
from magnetar.protocol.topic_name import TopicName
from tests.importing.scripted_broker import KIND, ScriptedBroker, answer, connected, error, receipt

TOPIC = TopicName.parse("t")
NOBODY = Credentials()


def target(broker, topic=TOPIC, credentials=NOBODY):
    return Target(broker.address, credentials, topic)


def step(sequence_id, highest=None, *, confirms=False, size=10):
    entry = PlannedEntry(bytes(size), 1, "name", sequence_id, sequence_id if highest is None else highest)
    return ImportStep(entry, 0, 1, confirms)


async def test_the_handshake():
    def challenge(broker, command):
        assert (command.connect.auth_method_name, command.connect.auth_data) == ("token", b"t")
        ping = answer(KIND.PING, ping=pb.CommandPing())
        return ping + answer(KIND.AUTH_CHALLENGE, authChallenge=pb.CommandAuthChallenge())

    def authenticated(broker, command):
        assert command.authResponse.response.auth_data == b"t"
        return connected(max_message_size=1234)

    async with ScriptedBroker(CONNECT=challenge, AUTH_RESPONSE=authenticated) as broker:
        connection = await open_connection(broker.address, Credentials(token="t"))
        assert connection.max_message_bytes == 1234
        assert broker.seen == [KIND.CONNECT, KIND.PONG, KIND.AUTH_RESPONSE]
        connection.close()


async def test_no_address_answers():
    async with ScriptedBroker() as broker:
        pass
    with pytest.raises(RetryError):
        await open_connection(broker.address, NOBODY)


@pytest.mark.parametrize(
    ("reply", "reason", "text"),
    [
        (lambda *_: error(0, pb.AuthenticationError, "bad token"), RefusedError, "AuthenticationError: bad token"),
        (lambda *_: error(0, pb.ServiceNotReady), RetryError, "ServiceNotReady"),
        (lambda *_: b"HTTP/1.1 400 Bad Request\r\n\r\n", RefusedError, "does not speak"),
        (lambda *_: None, RetryError, "lost"),
    ],
)
async def test_connections_that_come_to_nothing(reply, reason, text):
    async with ScriptedBroker(CONNECT=reply) as broker:
        with pytest.raises(reason, match=text):
            await open_connection(broker.address, NOBODY)


async def test_silence_is_not_waited_for_for_ever(monkeypatch):
    handshake = connection_module.BrokerConnection.handshake

    async def shake_hands_shortly(connection):  # the connect before may take its time on a busy machine
        monkeypatch.setattr(connection_module, "TIMEOUT_S", 0.01)
        await handshake(connection)

    with monkeypatch.context() as patch:
        patch.setattr(connection_module.BrokerConnection, "handshake", shake_hands_shortly)
        async with ScriptedBroker(CONNECT=lambda *_: b"") as broker:
            with pytest.raises(RetryError, match="no answer to CONNECT"):
                await open_connection(broker.address, NOBODY)
    async with ScriptedBroker(LOOKUP=lambda *_: b"") as broker:
        monkeypatch.setattr(connection_module, "TIMEOUT_S", 30.0)
        connection = await open_connection(broker.address, NOBODY)
        monkeypatch.setattr(connection_module, "TIMEOUT_S", 0.01)
        with pytest.raises(RetryError, match="no answer"):
            await connection.ask(lambda n: requests.lookup(n, "t"))
        connection.close()


async def test_lookups_are_followed_to_the_owner():
    async with ScriptedBroker() as owner:
        moves = []

        def redirect(broker, command):
            moves.append(command.lookupTopic.authoritative)
            kind = pb.CommandLookupTopicResponse
            return broker.lookup(command, owner.url, kind.Redirect, authoritative=True)

        async with ScriptedBroker(LOOKUP=redirect) as first:
            session = await open_session(target(first))
            assert (await session.open_producer("name")).last_sequence_id == -1
            session.close()
    assert (moves, owner.seen[:2]) == ([False], [KIND.CONNECT, KIND.LOOKUP])
    assert KIND.PRODUCER not in first.seen


async def test_a_proxy_is_spoken_to_instead_of_the_owner():
    def through(broker, command):
        return broker.lookup(command, "pulsar://owner:1", proxy_through_service_url=True)

    async with ScriptedBroker(LOOKUP=through) as broker:
        session = await open_session(target(broker))
        await session.open_producer("name")
        session.close()


async def test_lookups_that_lead_nowhere():
    failed = pb.CommandLookupTopicResponse.Failed

    def gone(broker, command):
        return broker.lookup(command, "", failed, error=pb.TopicNotFound, message="gone")

    def circle(broker, command):
        return broker.lookup(command, broker.url, pb.CommandLookupTopicResponse.Redirect)

    async with ScriptedBroker(LOOKUP=gone) as broker:
        with pytest.raises(RefusedError, match="TopicNotFound: gone"):
            await open_session(target(broker))
    async with ScriptedBroker(LOOKUP=circle) as broker:
        with pytest.raises(RetryError, match="circles"):
            await open_session(target(broker))


async def test_a_missing_namespace_has_a_remedy():
    """Both brokers answer with these words."""

    def gone(broker, command):
        failed = pb.CommandLookupTopicResponse.Failed
        return broker.lookup(command, "", failed, error=pb.TopicNotFound, message="Namespace not found")

    async with ScriptedBroker(LOOKUP=gone) as broker:
        with pytest.raises(RefusedError, match=f"magnetar namespaces create {TOPIC.namespace}"):
            await open_session(target(broker))


async def test_partitioned_topics():
    async with ScriptedBroker(PARTITIONED_METADATA=lambda broker, command: broker.partitions(command, 4)) as broker:
        with pytest.raises(InputError, match=r"from 0 to 3"):
            await open_session(target(broker))
        (await open_session(target(broker, TOPIC.partition_name(3)))).close()


class Opened:
    """A producer on a scripted broker, and its answers."""

    def __init__(self, **script):
        self.broker = ScriptedBroker(**script)
        self.stored = []

    async def __aenter__(self):
        await self.broker.__aenter__()
        self.session = await open_session(target(self.broker))
        self.producer = await self.session.open_producer("name")
        self.producer.on_stored = lambda step, new: self.stored.append((step.entry.sequence_id, new))
        return self

    async def __aexit__(self, *_):
        self.session.close()
        await self.broker.__aexit__()


async def test_entries_and_their_receipts():
    async with Opened() as opened:
        for each in (step(0, 4), step(5), step(3), step(6, 9)):
            await opened.producer.send(each)
        await opened.producer.wait_receipts()
        assert opened.stored == [(0, True), (5, True), (3, False), (6, True)]
        await opened.producer.close()
        assert (await opened.session.open_producer("name")).last_sequence_id == 9


async def test_only_so_much_is_under_way(monkeypatch):
    monkeypatch.setattr(import_producer, "SendWindow", partial(send_window.SendWindow, max_entries=3))
    held = []

    def hold(broker, command):
        held.append(broker.send(command.send, b""))
        return b"" if len(held) < 3 else b"".join(held.pop(0) for _ in range(3))

    async with Opened(SEND=hold) as opened:
        async with asyncio.timeout(10):
            for number in range(9):
                assert number - len(opened.stored) <= 3
                await opened.producer.send(step(number))
            await opened.producer.wait_receipts()


async def test_a_confirmed_entry_must_be_a_duplicate():
    async with Opened() as opened:
        opened.broker.highest["name"] = 7
        await opened.producer.send(step(7, confirms=True))
        await opened.producer.wait_receipts()
        assert opened.stored == [(7, False)]
        await opened.producer.send(step(8, confirms=True))
        with pytest.raises(DeduplicationError, match="second time"):
            await opened.producer.wait_receipts()


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (lambda c: receipt(c.producer_id, c.sequence_id + 1, 0, entry_id=1), RetryError),
        (lambda c: None, RetryError),
        (
            lambda c: answer(
                KIND.SEND_ERROR,
                send_error=pb.CommandSendError(
                    producer_id=c.producer_id, sequence_id=0, error=pb.PersistenceError, message="disk"
                ),
            ),
            RetryError,
        ),
        (
            lambda c: answer(
                KIND.SEND_ERROR,
                send_error=pb.CommandSendError(
                    producer_id=c.producer_id, sequence_id=0, error=pb.TopicTerminatedError, message="end"
                ),
            ),
            RefusedError,
        ),
        (
            lambda c: answer(
                KIND.CLOSE_PRODUCER,
                close_producer=pb.CommandCloseProducer(producer_id=c.producer_id, request_id=2**64 - 1),
            ),
            RetryError,
        ),
    ],
    ids=["a wrong receipt", "connection lost", "passing error", "lasting error", "closed by the broker"],
)
async def test_errors_that_end_a_producer(reply, reason):
    async with Opened(SEND=lambda _, command: reply(command.send)) as opened:
        await opened.producer.send(step(0))
        with pytest.raises(reason):
            await opened.producer.wait_receipts()
        with pytest.raises(reason):
            await opened.producer.send(step(1))
        assert opened.stored == []


async def test_the_name_must_be_ours():
    def other(broker, command):
        command.producer.producer_name = "another"
        return broker.producer(command)

    async with ScriptedBroker(PRODUCER=other) as broker:
        session = await open_session(target(broker))
        with pytest.raises(RefusedError, match="the name"):
            await session.open_producer("name")
        session.close()


async def test_an_address_of_nowhere_is_worth_a_retry():
    with pytest.raises(RetryError):
        await open_connection(Address("127.0.0.1", 1, tls=False), NOBODY)
