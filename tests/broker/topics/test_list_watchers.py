import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.errors import TooManyRequestsError
from magnetar.broker.tasks import TaskSet
from magnetar.broker.topics import list_watcher, list_watchers
from magnetar.broker.topics.catalog import TopicCatalog
from magnetar.broker.topics.list_watcher import TopicListWatcher, WatchedNames
from magnetar.broker.topics.list_watchers import TopicListWatchers
from magnetar.broker.topics.patterns import TopicPattern
from magnetar.protocol.topic_name import TopicName, topics_hash
from tests.twins.fake_connection import FakeConnection

NAMESPACE = "public/default"


def topic(name):
    return TopicName.parse(name)


class Client(FakeConnection):
    """A watching client."""

    def __init__(self):
        super().__init__()
        self.digests = []

    def heard(self):
        """(watcher id, new names, deleted names) of each update since the last call."""
        updates = self.take("WATCH_TOPIC_UPDATE")
        self.digests += [update.topics_hash for update in updates]
        return [
            (
                update.watcher_id,
                *([n.rpartition("/")[2] for n in x] for x in (update.new_topics, update.deleted_topics)),
            )
            for update in updates
        ]


class World:
    def __init__(self):
        self.catalog = TopicCatalog(None, None)
        self.tasks = TaskSet()
        self.watchers = TopicListWatchers(self.catalog, self.tasks)
        self.client = Client()

    async def watch(self, pattern=".*", watcher_id=1, client=None):
        watcher = self.watchers.open(client or self.client, watcher_id, NAMESPACE, TopicPattern(pattern))
        return watcher, *await self.watchers.first_list(watcher, NAMESPACE)

    def create(self, *names):
        for name in names:
            self.catalog.created(topic(name))

    def delete(self, *names):
        for name in names:
            self.catalog.deleted(topic(name))


@pytest.fixture
async def world():
    made = World()
    yield made
    await made.tasks.close()


async def test_updates_wait_until_the_list_is_written(world):
    """The broker encodes a long list in slices, and topics come and go meanwhile."""
    world.create("a1", "a2")
    watcher = world.watchers.open(world.client, 1, NAMESPACE, TopicPattern(".*"))
    with watcher.listing():
        names, _ = await world.watchers.first_list(watcher, NAMESPACE)
        world.create("a3")
        world.delete("a1")
        await world.tasks.settle()
        assert names == [str(topic("a1")), str(topic("a2"))]
        assert world.client.heard() == []
    await world.tasks.settle()
    assert world.client.heard() == [(1, ["a3"], ["a1"])]


async def test_the_first_list_and_then_its_changes(world):
    world.create("a1", "b1")
    _, names, digest = await world.watch(".*/a.*")
    assert names == [str(topic("a1"))]
    assert digest == topics_hash(names)
    world.create("a2", "b2")
    await world.tasks.settle()
    assert world.client.heard() == [(1, ["a2"], [])]
    assert world.client.digests == [topics_hash([str(topic("a1")), str(topic("a2"))])]
    world.delete("a1", "b1")
    await world.tasks.settle()
    assert world.client.heard() == [(1, [], ["a1"])]


async def test_a_stopped_watcher_hears_nothing_and_leaves_nothing(world):
    watcher, *_ = await world.watch()
    watcher.stop()
    watcher.stop()
    world.create("a")
    await world.tasks.settle()
    assert world.client.heard() == []
    assert not world.watchers._namespaces


async def test_updates_stop_while_the_role_may_not_list_the_namespace(world):
    await world.watch()
    world.client.allowed = False
    world.create("a", "b", "passing")
    await world.tasks.settle()
    world.delete("passing")
    await world.tasks.settle()
    assert world.client.heard() == []
    world.client.allowed = True
    world.watchers.recheck("public", NAMESPACE)
    await world.tasks.settle()
    assert world.client.heard() == [(1, ["a", "b"], [])]


async def test_a_client_that_does_not_read_gets_the_net_change_when_it_does(world):
    world.create("old")
    await world.watch()
    world.client.writable = False
    for _ in range(3):
        world.create("a")
        world.delete("old")
        await world.tasks.settle()
        world.delete("a")
        world.create("old")
        await world.tasks.settle()
    world.create("b")
    await world.tasks.settle()
    assert world.client.heard() == []
    assert len(world.client.waiting) == 1
    world.client.writable = True
    world.client.waiting.pop()()
    await world.tasks.settle()
    assert world.client.heard() == [(1, ["b"], [])]


async def test_a_long_update_comes_in_parts(world, monkeypatch):
    monkeypatch.setattr(list_watcher, "MAX_UPDATE_NAMES", 10)
    await world.watch()
    world.create(*(f"t{i:02}" for i in range(25)))
    await world.tasks.settle()
    assert [len(new) for _, new, _ in world.client.heard()] == [10, 10, 5]


async def test_watchers_of_one_pattern_share_its_names(world):
    for watcher_id in range(1000):
        await world.watch(".*/a.*", watcher_id)
    (watched,) = world.watchers._namespaces[NAMESPACE].watched.values()
    world.create("a")
    await world.tasks.settle()
    assert len(world.client.heard()) == 1000
    assert watched.names == [str(topic("a"))]


async def test_a_topic_is_created_at_the_same_cost_with_and_without_watchers(world):
    """Updates of watchers take turns of their own, with other work between them."""
    for watcher_id in range(3000):
        await world.watch(f".*/a{watcher_id}|.*/b", watcher_id)
    world.create("b")
    assert not world.client.frames
    turns = 0
    while len(world.client.frames) < 3000:
        await asyncio.sleep(0)
        turns += 1
    assert turns > 1000


async def test_names_held_for_watchers_have_a_limit(world, monkeypatch):
    monkeypatch.setattr(list_watchers, "MAX_WATCHED_NAMES", 5)
    world.create("a", "b", "c")
    await world.watch("(.*)")
    with pytest.raises(TooManyRequestsError):
        await world.watch(".*", 2)
    assert len(world.watchers._namespaces[NAMESPACE].watched) == 1


async def test_the_watchers_of_a_client_match_one_after_the_other_until_they_end(world):
    """A client with hundreds of watchers delayed the lists of others, and each watcher held the names meanwhile."""
    world.create("a1", "b1")
    lists, rounds = asyncio.Lock(), []

    async def room(_part):
        assert lists.locked()
        rounds.append(None)

    async with lists:
        watchers = [
            world.watchers.open(world.client, n, NAMESPACE, TopicPattern(f".*/a{n}"), room, lists) for n in range(3)
        ]
        await asyncio.sleep(0)
        watchers[2].stop()
    found = [await world.watchers.first_list(each, NAMESPACE) for each in watchers[:2]]
    await world.tasks.settle()
    assert [names for names, _ in found] == [[], [str(topic("a1"))]]
    assert len(rounds) == 2


async def test_topics_of_the_broker_itself_are_not_told(world):
    await world.watch()
    world.create("__change_events")
    await world.tasks.settle()
    assert world.client.heard() == []


@given(st.lists(st.tuples(st.sampled_from(["a1", "a2", "b1", "b2"]), st.booleans())), st.integers(0, 20))
def test_watched_names_are_those_of_the_catalogue_whenever_they_are_loaded(changes, cut):
    async def run():
        watched = WatchedNames(TopicPattern(".*/a.*"))
        names = set()
        for name, exists in changes[:cut]:
            (names.add if exists else names.discard)(name)
        watched.watchers[TopicListWatcher(Client(), 1, NAMESPACE, watched, lambda: None)] = None
        loading = asyncio.ensure_future(watched.load(lambda: sorted(str(topic(n)) for n in names)))
        for name, exists in changes[cut:]:
            (names.add if exists else names.discard)(name)
            watched.apply([(str(topic(name)), exists)])
            await asyncio.sleep(0)
        await loading
        assert watched.names == sorted(str(topic(n)) for n in names if n.startswith("a"))
        assert watched.digest == topics_hash(watched.names)

    asyncio.run(run())
