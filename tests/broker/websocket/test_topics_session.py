"""Sessions of several topics: parts that come and go, and acknowledgements by ledger."""

import asyncio
import base64
import json

import pytest

from magnetar.broker.memory_account import MemoryAccount, MemoryLimits
from magnetar.broker.tasks import TaskSet
from magnetar.broker.websocket import due_entries, topics_session
from magnetar.broker.websocket.consumer_part import EARLIEST, LATEST
from magnetar.broker.websocket.consumer_session import ConsumerSession
from magnetar.broker.websocket.errors import BadMessageError, RequestFailedError, SessionRefusedError
from magnetar.broker.websocket.parameters import ConsumerParameters, ReaderParameters
from magnetar.broker.websocket.reader_session import ReaderSession
from magnetar.broker.websocket.session import SessionPath
from magnetar.broker.websocket.topics_path import parse_topics_path
from magnetar.broker.websocket.topics_session import TopicsSession
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.answers import Answer
from magnetar.protocol.batches import encode_entry
from magnetar.protocol.topic_name import TopicName
from tests.broker.websocket.session_link import ScriptedLink, place
from tests.waiting import until

BASE = "persistent://public/default/"
_T = pb.BaseCommand


class World:
    """A session over a link whose broker has these topics."""

    def __init__(self, found=(), kind=TopicsSession, **query):
        self.link = ScriptedLink(self.answer)
        self.found, self.partitions, self.before_success = list(found), {}, lambda subscribe: None
        self.tasks = TaskSet()
        if kind is TopicsSession:
            path = parse_topics_path("/ws/v3/consumer/sub", query or {"topicsPattern": "public/default/x.*"})
        else:
            path = SessionPath("consumer", TopicName.parse(found[0]), "sub")
        self.memory = MemoryAccount(MemoryLimits(1 << 20, 1 << 20, 1 << 20))
        self.place = place(self.link, path, self.tasks, self.memory.share("here"))
        self.session = kind(self.place, ConsumerParameters.of({"subscriptionType": "Shared"} | query))

    def answer(self, command):
        if command.type == _T.WATCH_TOPIC_LIST:
            return pb.CommandWatchTopicListSuccess(request_id=1, watcher_id=1, topics_hash="", topic=self.found)
        if command.type == _T.PARTITIONED_METADATA:
            count = self.partitions.get(command.partitionMetadata.topic, 0)
            return pb.CommandPartitionedTopicMetadataResponse(request_id=1, partitions=count)
        if command.type == _T.SUBSCRIBE:
            self.before_success(command.subscribe)
        return pb.CommandSuccess(request_id=1)

    async def opened(self):
        await self.session.open()
        self.session.start()
        return self

    def change(self, new=(), deleted=()):
        update = _T(type=_T.WATCH_TOPIC_UPDATE)
        update.watchTopicUpdate.watcher_id, update.watchTopicUpdate.topics_hash = 1, ""
        update.watchTopicUpdate.new_topics.extend(new)
        update.watchTopicUpdate.deleted_topics.extend(deleted)
        self.link.tell(update)

    def close_consumer(self, consumer_id):
        command = _T(type=_T.CLOSE_CONSUMER)
        command.close_consumer.consumer_id = command.close_consumer.request_id = consumer_id
        self.link.tell(command)

    def message(self, consumer_id, ledger, entry=0):
        command = _T(type=_T.MESSAGE)
        command.message.consumer_id = consumer_id
        command.message.message_id.ledgerId, command.message.message_id.entryId = ledger, entry
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
        self.link.subscribers[_T.MESSAGE](Answer(command, encode_entry(metadata, b"x")))
        return json.loads(self.place.peer.texts[-1])["messageId"]

    def say(self, **command):
        self.session.on_text(json.dumps(command))

    def subscribed(self):
        return [(c.subscribe.consumer_id, c.subscribe.topic.removeprefix(BASE)) for c in self.link.of(_T.SUBSCRIBE)]

    def acknowledged(self):
        acks = [c.ack for c in self.link.of(_T.ACK)]
        return [(ack.consumer_id, ack.message_id[0].ledgerId) for ack in acks]


async def test_a_pattern_is_compiled_in_a_round_with_room_and_its_cost_counts():
    usual, large = World(), World(topicsPattern=r"public/default/(?:\pL|\pN|\pS){20}")
    for world in (usual, large):
        await world.opened()
    (first, cost), (second, more) = usual.link.patterns, large.link.patterns
    assert (first, second) == (None, None)
    assert cost < 8
    assert more > 1000


async def test_each_topic_and_partition_is_a_part():
    world = World(topics=f"{BASE}a,{BASE}b")
    world.partitions[BASE + "b"] = 2
    await world.opened()
    assert world.subscribed() == [(0, "a"), (1, "b-partition-0"), (2, "b-partition-1")]
    assert all(command.subscribe.force_topic_creation for command in world.link.of(_T.SUBSCRIBE))


async def test_an_acknowledgement_goes_to_the_topic_of_the_ledger():
    world = await World(topics=f"{BASE}a,{BASE}b").opened()
    first, second = world.message(0, ledger=7), world.message(1, ledger=9)
    world.say(messageId=second)
    world.say(messageId=first)
    assert world.acknowledged() == [(1, 9), (0, 7)]


async def test_a_message_of_another_topic_is_not_acknowledged():
    world = await World(topics=f"{BASE}a,{BASE}b").opened()
    world.message(0, ledger=7)
    foreign = base64.b64encode(pb.MessageIdData(ledgerId=8, entryId=0).SerializeToString()).decode()
    world.say(messageId=foreign)
    assert world.acknowledged() == []
    with pytest.raises(BadMessageError):
        world.say(type="negativeAcknowledge", messageId=foreign)


async def test_a_created_topic_is_consumed_and_a_deleted_topic_makes_room_for_another():
    world = await World([BASE + "x1", BASE + "x2"]).opened()
    old = world.message(0, ledger=7)
    world.close_consumer(0)
    world.change(deleted=[BASE + "x1"])
    world.change(new=[BASE + "x3"])
    await until(lambda: (0, "x3") in world.subscribed())
    world.say(messageId=old)
    assert world.acknowledged() == []
    new = world.message(0, ledger=8)
    world.say(messageId=new)
    assert world.acknowledged() == [(0, 8)]
    assert not any(command.subscribe.force_topic_creation for command in world.link.of(_T.SUBSCRIBE))
    assert len(world.session.parts) == 2


async def test_a_deleted_topic_is_not_opened_again():
    world = await World([BASE + "x1"]).opened()
    world.close_consumer(0)
    world.change(deleted=[BASE + "x1"])
    await world.session._again(world.session.parts[0])
    assert world.subscribed() == [(0, "x1")]


async def test_changes_before_the_start_are_not_lost():
    world = World([BASE + "x1"])
    await world.session.open()
    world.change(new=[BASE + "x2"])
    assert world.subscribed() == [(0, "x1")]
    world.session.start()
    await until(lambda: (1, "x2") in world.subscribed())


async def test_topics_behind_too_many_partitions_are_not_looked_up():
    """A session of a thousand topics with 10,000 partitions each made ten million names before its refusal."""
    world = World(topics=",".join(f"{BASE}x{number}" for number in range(10)))
    world.partitions = {f"{BASE}x{number}": 900 for number in range(10)}
    with pytest.raises(SessionRefusedError) as refused:
        await world.session.open()
    assert refused.value.status == 429
    assert [command.type for command in world.link.commands] == [_T.PARTITIONED_METADATA] * 3


async def test_the_number_of_parts_has_a_bound(monkeypatch):
    monkeypatch.setattr(topics_session, "MOST_PARTS", 2)
    with pytest.raises(SessionRefusedError) as refused:
        await World([f"{BASE}x{i}" for i in range(3)]).session.open()
    assert refused.value.status == 429
    world = await World([BASE + "x1"]).opened()
    world.change(new=[f"{BASE}x{i}" for i in range(2, 5)])
    assert len(world.session.parts) == 2


async def test_the_ledgers_that_a_session_remembers_have_a_bound(monkeypatch):
    monkeypatch.setattr(topics_session, "_MOST_LEDGERS", 2)
    world = await World(topics=BASE + "a").opened()
    ids = [world.message(0, ledger) for ledger in (1, 2, 3)]
    for each in ids:
        world.say(messageId=each)
    assert world.acknowledged() == [(0, 2), (0, 3)]


@pytest.mark.parametrize("kind", [TopicsSession, ConsumerSession])
async def test_a_topic_that_is_unloaded_behind_the_answer_is_opened_again(kind):
    """The answer to SUBSCRIBE and CLOSE_CONSUMER may come in one turn of the loop: the consumer exists no more."""
    world = World([BASE + "x1"], kind)
    unloads = iter([True, True])

    def unload(subscribe):
        if next(unloads, False):
            world.close_consumer(subscribe.consumer_id)

    world.before_success = unload
    await world.opened()
    assert not world.session.parts[0].is_open
    await until(lambda: len(world.subscribed()) == 3)
    await until(lambda: world.session.parts[0].is_open)


async def test_a_topic_that_cannot_be_opened_ends_no_session_of_a_pattern():
    world = await World([BASE + "x1"]).opened()
    world.session.part_given_up(world.session.parts[0], "no right")
    assert world.place.peer.ended is None
    world = await World(topics=BASE + "a").opened()
    world.session.part_given_up(world.session.parts[0], "no right")
    assert world.place.peer.ended == (1011, "no right")


async def test_a_matching_topic_that_cannot_be_opened_is_tried_again(monkeypatch):
    monkeypatch.setattr(topics_session, "_TRY_AGAIN_S", 0.001)
    world = await World([BASE + "x1"]).opened()

    def refuse(_subscribe):
        world.before_success = lambda _subscribe: None
        raise RequestFailedError(pb.AuthorizationError, "no right")

    world.before_success = refuse
    world.change(new=[BASE + "x2"])
    await until(lambda: world.subscribed() == [(0, "x1"), (1, "x2"), (1, "x2")])
    await until(lambda: world.session.parts[1].is_open)


async def test_an_unsubscribed_session_joins_no_created_topic():
    world = await World([BASE + "x1"]).opened()
    world.say(type="unsubscribe")
    await until(lambda: not world.session.parts[0].is_open)
    world.change(new=[BASE + "x2"])
    assert len(world.session.parts) == 1
    world.close_consumer(0)
    await world.session._again(world.session.parts[0])
    assert world.subscribed() == [(0, "x1")]


async def test_a_session_whose_unsubscription_fails_joins_created_topics():
    world = await World([BASE + "x1"]).opened()
    at_once = world.link.on

    def refuse(command):
        if command.type == _T.UNSUBSCRIBE:
            raise RequestFailedError(pb.MetadataError, "other consumers are connected")
        return at_once(command)

    world.link.on = refuse
    world.say(type="unsubscribe")
    await until(lambda: world.link.of(_T.UNSUBSCRIBE))
    world.change(new=[BASE + "x2"])
    await until(lambda: (1, "x2") in world.subscribed())


async def test_a_topic_that_is_unloaded_during_a_failing_unsubscription_is_opened_again(monkeypatch):
    """The attempts to open it ended as if it had been unsubscribed; then the session got no message for ever."""
    monkeypatch.setattr("magnetar.broker.websocket.session._FIRST_PAUSE_S", 0.001)
    world, answered = await World([BASE + "x1"]).opened(), asyncio.Event()
    at_once = world.link.ask

    async def refuse(build):
        if pb.BaseCommand.FromString(build(1)[8:]).type != _T.UNSUBSCRIBE:
            return await at_once(build)
        await answered.wait()
        raise RequestFailedError(pb.MetadataError, "the consumer is closed")

    world.link.ask = refuse
    world.say(type="unsubscribe")
    await asyncio.sleep(0)
    world.close_consumer(0)
    world.session.join(BASE + "x2")
    await asyncio.sleep(0.05)
    answered.set()
    await until(lambda: all(part.is_open for part in world.session.parts))
    await asyncio.sleep(0.02)
    assert world.subscribed() == [(0, "x1"), (0, "x1"), (1, "x2")]


async def test_a_repeated_unsubscription_creates_no_subscription_again(monkeypatch):
    """The second request fails, because the consumer is gone; its failure had the session subscribe again."""
    monkeypatch.setattr("magnetar.broker.websocket.session._FIRST_PAUSE_S", 0.001)
    world = await World([BASE + "x1", BASE + "x2"]).opened()
    at_once, refused, done = world.link.on, {1}, set()

    def unsubscribe(command):
        consumer = command.unsubscribe.consumer_id
        if command.type == _T.UNSUBSCRIBE:
            if consumer in refused | done:
                raise RequestFailedError(pb.MetadataError, "the consumer is not found, or others are connected")
            done.add(consumer)
        return at_once(command)

    world.link.on = unsubscribe
    for _ in range(2):  # of the second topic other consumers are connected
        world.say(type="unsubscribe")
        await asyncio.sleep(0.01)
    refused.clear()
    for _ in range(2):
        world.say(type="unsubscribe")
    await asyncio.sleep(0.01)
    world.say(type="unsubscribe")
    await until(lambda: done == {0, 1})
    await asyncio.sleep(0.01)
    assert world.subscribed() == [(0, "x1"), (1, "x2")]


async def test_no_queue_is_no_session():
    with pytest.raises(SessionRefusedError) as refused:
        await World(topics=BASE + "a", receiverQueueSize="0").session.open()
    assert refused.value.status == 500


async def test_a_topic_without_storage_gets_its_permits_back_although_all_such_topics_share_a_ledger():
    base = "non-persistent://public/default/"
    world = await World(topics=f"{base}a,{base}b", receiverQueueSize="2").opened()
    await until(lambda: len(world.link.of(_T.FLOW)) == 2)
    ids = [world.message(0, ledger=0), world.message(1, ledger=0)]
    for each in ids:
        world.say(messageId=each)
    await until(lambda: len(world.link.of(_T.FLOW)) == 4)
    assert sorted(c.flow.consumer_id for c in world.link.of(_T.FLOW)[2:]) == [0, 1]
    assert world.session.room == 2
    world.say(type="negativeAcknowledge", messageId=ids[0])


async def test_a_part_that_is_opened_again_before_the_start_gets_its_permits_at_the_start():
    """The session writes no message before the start: the client has no answer to its handshake yet."""
    world = World([BASE + "x1"], receiverQueueSize="2", topicsPattern="public/default/x.*")
    await world.session.open()
    world.close_consumer(0)
    await world.session._again(world.session.parts[0])
    await asyncio.sleep(0)
    assert world.link.of(_T.FLOW) == []
    world.session.start()
    await until(lambda: world.link.of(_T.FLOW))
    assert [c.flow.messagePermits for c in world.link.of(_T.FLOW)] == [2]


async def test_a_deleted_topic_leaves_no_redelivery_to_the_topic_with_its_index():
    query = {"topicsPattern": "public/default/x.*", "ackTimeoutMillis": "60000", "receiverQueueSize": "2"}
    world = await World([BASE + "x1", BASE + "x2"], **query).opened()
    world.say(type="negativeAcknowledge", messageId=world.message(0, ledger=7))
    world.message(0, ledger=7, entry=1)
    world.message(1, ledger=8)
    session = world.session
    assert (len(session._due.nacks), len(session._due.timeouts)) == (1, 2)
    world.change(deleted=[BASE + "x1"])
    assert (len(session._due.nacks), len(session._due.timeouts)) == (0, 1)


@pytest.mark.parametrize("kind", [TopicsSession, ConsumerSession])
async def test_added_partitions_are_consumed_from_their_first_message(kind, monkeypatch):
    monkeypatch.setattr("magnetar.broker.websocket.session.PARTITIONS_EVERY_S", 0.001)
    world = World([BASE + "t"], kind, topics=f"{BASE}t")
    world.partitions[BASE + "t"] = 1
    await world.opened()
    assert not world.session.has_one_part
    world.partitions[BASE + "t"] = 3
    await until(lambda: len(world.subscribed()) == 3)
    assert world.subscribed()[1:] == [(1, "t-partition-1"), (2, "t-partition-2")]
    first, *added = [each.subscribe.initialPosition for each in world.link.of(_T.SUBSCRIBE)]
    assert (first, set(added)) == (pb.CommandSubscribe.Latest, {pb.CommandSubscribe.Earliest})
    await until(lambda: all(part.is_open for part in world.session.parts))


async def test_a_reader_of_the_latest_messages_reads_added_partitions_from_their_first_message(monkeypatch):
    monkeypatch.setattr("magnetar.broker.websocket.session.PARTITIONS_EVERY_S", 0.001)
    world = World([BASE + "t"], ConsumerSession)
    world.session = ReaderSession(world.place, ReaderParameters.of({}))
    world.partitions[BASE + "t"] = 1
    await world.opened()
    world.partitions[BASE + "t"] = 2
    await until(lambda: len(world.subscribed()) == 2)
    starts = [each.subscribe.start_message_id for each in world.link.of(_T.SUBSCRIBE)]
    assert starts == [LATEST, EARLIEST]


async def test_a_reader_whose_role_has_half_of_a_surrogate_pair_subscribes():
    """The session ended with a traceback: no command can have such a text."""
    world = World([BASE + "t"], ConsumerSession)
    world.link.connection.role = "a\ud800\u00e4"
    world.session = ReaderSession(world.place, ReaderParameters.of({}))
    await world.opened()
    (subscribed,) = world.link.of(_T.SUBSCRIBE)
    assert subscribed.subscribe.subscription.startswith("a?\u00e4-reader-")


async def test_an_added_partition_begins_at_its_first_message_once(monkeypatch):
    """Behind an unload, a session without durable subscription goes on as on its first partitions."""
    monkeypatch.setattr("magnetar.broker.websocket.session.PARTITIONS_EVERY_S", 0.001)
    monkeypatch.setattr("magnetar.broker.websocket.session._FIRST_PAUSE_S", 0.001)
    world = World([BASE + "t"], ConsumerSession, subscriptionMode="NonDurable")
    world.partitions[BASE + "t"] = 1
    await world.opened()
    world.partitions[BASE + "t"] = 2
    await until(lambda: len(world.session.parts) == 2 and world.session.parts[1].is_open)
    world.close_consumer(1)
    await until(lambda: len(world.subscribed()) == 3 and world.session.parts[1].is_open)
    starts = [each.subscribe.start_message_id for each in world.link.of(_T.SUBSCRIBE)]
    assert starts == [LATEST, EARLIEST, LATEST]


async def test_a_topic_without_partitions_and_a_named_partition_are_not_looked_at_again():
    for topic in ("t", "t-partition-0"):
        world = World([BASE + topic], ConsumerSession)
        await world.opened()
        assert not len(world.session.tasks)
        assert world.session.has_one_part


async def test_due_redeliveries_go_in_turns_one_command_for_each_topic(monkeypatch):
    monkeypatch.setattr(due_entries, "_DUE_IN_A_TURN", 4)
    world = await World(topics=f"{BASE}a,{BASE}b", negativeAckRedeliveryDelay="0").opened()
    ids = [world.message(number % 2, ledger=7 + number % 2, entry=number) for number in range(6)]
    for each in ids:
        world.say(type="negativeAcknowledge", messageId=each)
    kind = _T.REDELIVER_UNACKNOWLEDGED_MESSAGES
    await until(lambda: len(world.link.of(kind)) == 4)
    found = [each.redeliverUnacknowledgedMessages for each in world.link.of(kind)]
    assert [(one.consumer_id, [each.entryId for each in one.message_ids]) for one in found] == [
        (0, [0, 2]),
        (1, [1, 3]),
        (0, [4]),
        (1, [5]),
    ]


async def test_a_redelivery_of_an_exclusive_consumer_returns_the_permits_of_each_topic():
    query = {"subscriptionType": "Exclusive", "receiverQueueSize": "2", "negativeAckRedeliveryDelay": "0"}
    world = await World(topics=f"{BASE}a,{BASE}b,{BASE}c", **query).opened()
    await until(lambda: len(world.link.of(_T.FLOW)) == 3)
    world.message(0, ledger=7)
    world.message(1, ledger=8)
    world.message(2, ledger=9)  # the window is full: this message and the next wait in the session
    world.message(0, ledger=7, entry=1)
    assert len(world.place.peer.texts) == 2
    world.session._due.nacks.add((0, 7, 0), 0.0)
    world.session._due.nacks.add((1, 8, 0), 0.0)
    world.session._due._ring()
    redelivered = [each.redeliverUnacknowledgedMessages for each in world.link.of(_T.REDELIVER_UNACKNOWLEDGED_MESSAGES)]
    assert [(one.consumer_id, list(one.message_ids)) for one in redelivered] == [(0, []), (1, [])]
    await until(lambda: len(world.link.of(_T.FLOW)) == 5)
    permits = {each.flow.consumer_id: each.flow.messagePermits for each in world.link.of(_T.FLOW)[3:]}
    assert permits == {0: 2, 1: 1}


async def test_remembered_entries_are_in_the_account_of_memory():
    """A client may name entries that it never got, and a delay of many days."""
    world = await World([BASE + "t"], ConsumerSession, negativeAckRedeliveryDelay="2000000000").opened()
    waits = []
    world.place.peer.wait_for_memory = lambda: waits.append(world.memory.used_bytes)
    for entry in range(4096):
        ident = base64.b64encode(pb.MessageIdData(ledgerId=1, entryId=entry).SerializeToString()).decode()
        world.say(type="negativeAcknowledge", messageId=ident)
    assert world.memory.used_bytes == 4096 * 384
    assert waits == [3072 * 384, 4096 * 384], "the share is used up"
    world.session.forget(world.session.parts[0], owed=False)
    assert world.memory.used_bytes == 0


async def test_deliveries_over_the_share_leave_the_socket_read():
    """The session reads the acknowledgements, which alone make its memory free."""
    world = await World([BASE + "t"], ConsumerSession, pullMode="true").opened()
    waits = []
    world.place.peer.wait_for_memory = lambda: waits.append(world.memory.used_bytes)
    world.say(type="permit", permitMessages=3072)
    ids = [world.message(0, ledger=7, entry=entry) for entry in range(3072)]
    assert world.session.share.is_over
    assert waits == []
    for each in ids:
        world.say(messageId=each)
    assert world.memory.used_bytes == 0
