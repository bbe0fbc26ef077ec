"""Lists of many names: their hash, and the order in which the broker makes them."""

import asyncio
from collections import Counter
from functools import partial
from types import SimpleNamespace

import pytest

from magnetar.broker import slices
from magnetar.broker.errors import TooManyRequestsError
from magnetar.broker.handlers import long_lists, lookup
from magnetar.broker.handlers.client import LookupCounters
from magnetar.broker.handlers.long_lists import hash_in_slices, room_in_round, write_answer, write_list
from magnetar.broker.handlers.request_turns import RequestTurns
from magnetar.broker.settings import Settings
from magnetar.broker.tasks import TaskSet
from magnetar.broker.topics.catalog import TopicCatalog
from magnetar.broker.topics.list_watchers import TopicListWatchers
from magnetar.broker.topics.news import News
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import replies
from magnetar.protocol.topic_name import TopicName, topics_hash
from tests.twins.fake_connection import FakeConnection

NAMES = [f"persistent://public/default/t{number:05}" for number in range(5000)]


class Listed(FakeConnection):
    """A connection that gets lists; `room` is the memory that it may use."""

    def __init__(self, services, room=1 << 20):
        super().__init__()
        self.services, self.room = services, room
        self.loop = asyncio.get_running_loop()
        self.lists, self.matching = asyncio.Lock(), asyncio.Lock()
        self.watchers = {}

    def authorize_namespace(self, _command_type, _namespace):
        pass

    def require_memory(self, _kept_bytes):
        pass

    def require_output(self, size):
        if size > self.room:
            raise TooManyRequestsError("no room")


@pytest.fixture
def services():
    return SimpleNamespace(long_lists=asyncio.Lock(), request_turns=RequestTurns())


def reply():
    return replies.topics_of_namespace(1, topics_hash="0", filtered=False, changed=True)


async def written(conn, names):
    await write_list(conn, reply(), names)


def lists(conn):
    return [list(each.topics) for each in conn.take("GET_TOPICS_OF_NAMESPACE_RESPONSE")]


@pytest.mark.parametrize("names", [[], NAMES[:1], NAMES[:2048], NAMES[:2049], NAMES, NAMES[::-1]])
async def test_the_hash_of_any_number_of_names(services, names):
    assert await hash_in_slices(names, Listed(services)) == topics_hash(names)


async def test_a_round_hashes_few_long_names(services, monkeypatch):
    """Sixty lists of 27,000 long names were hashed in the same rounds, each of which took 0.1 s."""
    hashed = Counter()

    def crc32c(data, found):
        hashed[services.request_turns.round] += len(data)
        return found

    monkeypatch.setattr(long_lists, "crc32c", crc32c)
    names = [name + "x" * 900 for name in NAMES]
    await asyncio.gather(*(hash_in_slices(names, Listed(services)) for _ in range(20)))
    assert sum(hashed.values()) > 20 * 900 * len(names)
    assert max(hashed.values()) < 12 << 20


async def test_a_round_sorts_few_long_lists(services, monkeypatch):
    sorts, real = Counter(), slices.sliced

    async def sliced(*arguments):
        async for part in real(*arguments):
            yield part
            sorts[services.request_turns.round] += len(part)  # behind the work on the part

    monkeypatch.setattr(slices, "sliced", sliced)
    names = [f"{number:05}" for number in range(32 * 1024)]
    await asyncio.gather(*(hash_in_slices(names, Listed(services)) for _ in range(20)))
    assert sum(sorts.values()) == 20 * len(names)
    assert max(sorts.values()) <= 40 * 1024


async def test_a_short_list_is_written_at_once(services):
    conn = Listed(services, room=0)
    async with services.long_lists:
        await written(conn, NAMES[:100])
    assert lists(conn) == [NAMES[:100]]


async def test_a_list_of_few_long_names_is_long(services):
    """A list was long by its names alone: each of 64 in a round hashed and encoded 2 MB."""
    conn, names = Listed(services), [name + "x" * 900 for name in NAMES[:500]]
    conn.writable = False
    waiting = asyncio.create_task(written(conn, names))
    await settled()
    assert not conn.writes
    conn.become_writable()
    await waiting
    assert lists(conn) == [names]
    before = services.request_turns._done
    assert await hash_in_slices(names, conn) == topics_hash(names)
    assert services.request_turns._done - before > sum(map(len, names)) // 8192


async def test_one_long_list_is_encoded_at_a_time(services):
    conns = [Listed(services) for _ in range(3)]
    tasks = [asyncio.create_task(written(conn, NAMES)) for conn in conns]
    done = []
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        done.append(sum(conn.writes for conn in conns))
    assert [lists(conn) for conn in conns] == [[NAMES]] * 3
    assert all(done.count(count) >= len(NAMES) // 2048 for count in (0, 1, 2)), "a round encoded several lists"


async def test_a_list_beyond_the_memory_of_the_connection_is_refused(services):
    conn = Listed(services, room=1000)
    with pytest.raises(TooManyRequestsError):
        await written(conn, NAMES)
    assert not conn.frames


async def test_lists_that_wait_are_refused_when_the_lists_before_them_have_taken_the_memory(services):
    """Each of 60 lists of 24 MB found room when it was requested: clients that read none of them cost 1.6 GB."""
    size = sum(map(len, NAMES))
    room = [2 * size + 1]

    class Sharing(Listed):
        def require_output(self, wanted):
            if wanted > room[0]:
                raise TooManyRequestsError("no room")

        def write_long(self, data):
            super().write_long(data)
            room[0] -= size

    conns = [Sharing(services) for _ in range(5)]
    found = await asyncio.gather(*(written(conn, NAMES) for conn in conns), return_exceptions=True)
    assert [type(each) for each in found] == [type(None)] * 2 + [TooManyRequestsError] * 3
    assert [len(lists(conn)) for conn in conns] == [1, 1, 0, 0, 0]


async def test_a_long_list_waits_until_the_client_reads_and_delays_no_other_client(services):
    slow, other = Listed(services), Listed(services)
    slow.writable = False
    waiting = asyncio.create_task(written(slow, NAMES))
    await written(other, NAMES)
    assert lists(other) == [NAMES]
    assert not slow.frames
    slow.become_writable()
    await waiting
    assert lists(slow) == [NAMES]


async def test_a_client_that_leaves_meanwhile_gets_no_list(services):
    conn = Listed(services)
    conn.writable = False
    waiting = asyncio.create_task(written(conn, NAMES))
    await asyncio.sleep(0)
    conn.closed = True
    conn.become_writable()
    await waiting
    assert not conn.writes


async def test_four_slices_of_names_are_matched_in_a_round(services):
    rounds = []

    async def match():
        await room_in_round(Listed(services))(1.0)
        rounds.append(services.request_turns.round)

    await asyncio.gather(*(match() for _ in range(12)))
    assert [rounds.count(each) for each in sorted(set(rounds))] == [4, 4, 4]


@pytest.fixture
async def topics(services):
    """The services of a broker with 5000 topics."""
    catalog, tasks = TopicCatalog(None, None), TaskSet()
    for name in NAMES:
        catalog.created(TopicName.parse(name))
    services.settings, services.lookups = Settings(), LookupCounters()
    services.topic_watchers = TopicListWatchers(catalog, tasks)
    services.topics, services.news = SimpleNamespace(catalog=catalog), News(None, None, None, None)
    yield services
    await tasks.close()


WATCH = pb.CommandWatchTopicList(namespace="public/default", topics_pattern=".*", request_id=1, watcher_id=1)


def watched(conn):
    return [list(each.topic) for each in conn.take("WATCH_TOPIC_LIST_SUCCESS")]


async def test_a_client_that_does_not_read_its_list_delays_no_other_watcher_of_the_same_pattern(topics):
    """The names of a pattern are matched once, for the first of its watchers."""
    slow, other = Listed(topics), Listed(topics)
    slow.writable = False
    request = pb.CommandGetTopicsOfNamespace(namespace="public/default", request_id=1, mode=0)
    waiting = [
        asyncio.create_task(lookup.on_get_topics_of_namespace(slow, request)),
        asyncio.create_task(lookup.on_watch_topic_list(slow, WATCH)),
    ]
    while not slow.watchers:  # noqa: ASYNC110 - a task's progress
        await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await lookup.on_watch_topic_list(other, WATCH)
    assert watched(other) == [NAMES]
    slow.become_writable()
    await asyncio.gather(*waiting)
    assert watched(slow) == [NAMES]


async def test_a_watcher_whose_list_is_refused_does_not_stay(topics):
    conn = Listed(topics, room=1000)
    with pytest.raises(TooManyRequestsError):
        await lookup.on_watch_topic_list(conn, WATCH)
    assert not conn.watchers
    topics.topics.catalog.created(TopicName.parse("persistent://public/default/u"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not conn.frames
    conn.room = 1 << 20
    await lookup.on_watch_topic_list(conn, WATCH)
    assert watched(conn) == [[*NAMES, "persistent://public/default/u"]]


def long_answer(number=1):
    return replies.success(number)


async def settled():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_client_that_reads_no_long_answer_gets_no_further(services):
    """A hundred connections, each with 16 requests for a schema of 1 MiB, cost 1.6 GB in some rounds."""
    conn = Listed(services)
    conn.writable = False
    waiting = [asyncio.ensure_future(write_answer(conn, 1 << 20, partial(long_answer, n))) for n in range(3)]
    await settled()
    assert not conn.writes
    await write_answer(conn, 100, long_answer)
    assert conn.writes == 1, "a short answer follows at once"
    for number in range(1, 4):
        conn.write_long = partial(fill, conn)
        conn.become_writable()
        await settled()
        assert conn.writes == 1 + number
    await asyncio.gather(*waiting)


def fill(conn, data):
    conn.write(data)
    conn.writable = False


async def test_a_round_of_the_event_loop_encodes_few_long_answers(services):
    conns = [Listed(services) for _ in range(100)]
    rounds, encoded = [], services.request_turns
    work = [write_answer(each, 1 << 20, lambda: rounds.append(encoded.round) or long_answer()) for each in conns]
    await asyncio.gather(*work)
    assert len(rounds) == 100
    assert max(Counter(rounds).values()) <= 9


async def test_a_long_answer_beyond_the_memory_of_the_connection_is_refused(services):
    conn = Listed(services, room=1 << 19)
    with pytest.raises(TooManyRequestsError):
        await write_answer(conn, 1 << 20, long_answer)
    assert not conn.writes and not conn.lists.locked()


async def test_a_client_that_is_gone_gets_no_long_answer(services):
    conn = Listed(services)
    conn.writable = False
    waiting = asyncio.ensure_future(write_answer(conn, 1 << 20, long_answer))
    await settled()
    conn.closed = True
    conn.become_writable()
    await waiting
    assert not conn.writes
