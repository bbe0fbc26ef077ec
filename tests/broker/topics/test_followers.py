"""Loaded topics follow changes in slices."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.policies.namespace_store import PolicyChange
from magnetar.broker.tasks import TaskSet
from magnetar.broker.topics.followers import AT_ONCE, TopicFollowers
from magnetar.broker.topics.loaded_topics import LoadedTopics
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.errors import StorageError

TOPICS = 5 * AT_ONCE + 7


class Followed:
    """A topic that notes its calls, and the turn of the loop of each."""

    def __init__(self, name: str, turns: list[int]) -> None:
        self.name, self.turns = TopicName.parse(name), turns
        self.persistent = self.name.persistent
        self.configs: list[int] = []
        self.rights: list[int] = []
        self.stuck: asyncio.Event | None = None
        self.is_current = self.is_wide = False
        self.in_turns: list[int] = []

    async def config_changed(self) -> None:
        self.configs.append(self.turns[0])
        if self.stuck is not None:
            await self.stuck.wait()

    def recheck_rights(self) -> None:
        self.rights.append(self.turns[0])

    async def recheck_rights_in_turns(self) -> None:
        self.in_turns.append(self.turns[0])
        await asyncio.sleep(0)


class World:
    def __init__(self, names: list[str]) -> None:
        self.turns = [0]
        self.topics = [Followed(name, self.turns) for name in names]
        self.loaded = LoadedTopics()
        for topic in self.topics:
            self.loaded[str(topic.name)] = topic
        self.tasks = TaskSet()
        self.foreign: set[str] = set()
        self.failing: dict[str, list[Exception]] = {}
        """Errors of the next unloads of a topic."""
        self.loading: Followed | None = None
        topics = SimpleNamespace(loaded=self.loaded, unload=self.unload, settled=self.settled)
        self.followers = TopicFollowers(topics, self.tasks, self.foreign.__contains__)

    async def unload(self, name: TopicName) -> None:
        if errors := self.failing.get(str(name)):
            raise errors.pop(0)
        del self.loaded[str(name)]

    async def settled(self, _namespace: str) -> None:
        if self.loading is not None:
            self.loaded[str(self.loading.name)], self.loading = self.loading, None

    async def settle(self) -> None:
        """Count the turns of the loop until all tasks have ended."""
        while len(self.tasks):
            self.turns[0] += 1
            await asyncio.sleep(0)


def many(count: int = TOPICS) -> list[str]:
    return [f"persistent://t/n/{number}" for number in range(count)]


async def test_few_topics_follow_at_once():
    world = World(many(3))
    world.followers.follow_settings()
    assert [topic.rights for topic in world.topics] == [[0]] * 3
    await world.settle()
    assert [len(topic.configs) for topic in world.topics] == [1] * 3


@pytest.mark.parametrize("change", [None, PolicyChange("t", "t/n")], ids=["settings", "policies"])
async def test_many_topics_follow_a_slice_a_turn(change: PolicyChange | None):
    world = World(many())
    if change is None:
        world.followers.follow_settings()
    else:
        world.followers.follow_policies(change)
    await world.settle()
    assert all(len(topic.configs) == len(topic.rights) == 1 for topic in world.topics)
    for told in ([topic.rights[0] for topic in world.topics], [topic.configs[0] for topic in world.topics]):
        assert max(told.count(turn) for turn in told) <= AT_ONCE


async def test_topics_of_the_change_alone_follow():
    world = World(
        [
            "persistent://t/n/a",
            "persistent://t/n/a-partition-3",
            "non-persistent://t/n/a",
            "persistent://t/n/ab",
            "persistent://t/other/a",
        ]
    )
    world.followers.follow_policies(PolicyChange("t", "t/n", "persistent://t/n/a"))
    world.followers.follow_policies(PolicyChange("t", "t/n", "non-persistent://t/n/a"))
    world.followers.follow_policies(PolicyChange("t"))
    await world.settle()
    assert [len(topic.configs) for topic in world.topics] == [1, 1, 1, 0, 0]
    assert [len(topic.rights) for topic in world.topics] == [1, 1, 0, 0, 0]


@pytest.mark.parametrize("subject", [None, "persistent://t/own/a"], ids=["namespace", "topic"])
async def test_topics_of_the_change_follow_at_once_beside_many_others(subject: str | None):
    world = World([*many(), "persistent://t/own/a-partition-0"])
    world.followers.follow_policies(PolicyChange("t", "t/own", subject))
    assert world.topics[-1].rights == [0]
    await world.settle()
    assert sum(len(topic.configs) for topic in world.topics) == 1


async def test_a_topic_that_was_closed_meanwhile_follows_no_change():
    world = World(many())
    world.followers.follow_settings()
    gone = world.topics[0]
    del world.loaded[str(gone.name)]
    await world.settle()
    assert gone.configs == gone.rights == []


async def test_a_topic_that_waits_for_the_disk_holds_up_the_others_for_a_moment_only(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("magnetar.broker.topics.followers._SLICE_S", 0.01)
    world = World(many())
    stuck, last = world.topics[-1 - AT_ONCE], asyncio.Event()
    stuck.stuck = asyncio.Event()
    follow = world.topics[0].config_changed

    async def config_changed() -> None:
        last.set()
        await follow()

    monkeypatch.setattr(world.topics[0], "config_changed", config_changed)
    world.followers.follow_settings()
    await asyncio.wait_for(last.wait(), 60)
    stuck.stuck.set()
    await world.settle()


@pytest.mark.parametrize("change", [None, PolicyChange("t", "t/n")], ids=["settings", "policies"])
async def test_no_right_waits_for_topics_that_wait_for_the_disk(change: PolicyChange | None):
    world, released = World(many()), asyncio.Event()
    for topic in world.topics:
        topic.stuck = released
    if change is None:
        world.followers.follow_settings()
    else:
        world.followers.follow_policies(change)
    for _ in range(2 * len(world.topics) // AT_ONCE):
        world.turns[0] += 1
        await asyncio.sleep(0)
    assert [len(topic.rights) for topic in world.topics] == [1] * TOPICS
    waiting = sum(not topic.configs for topic in world.topics)
    assert waiting >= TOPICS - 2 * AT_ONCE, "their settings follow a slice at a time"
    released.set()
    await world.settle()
    assert [len(topic.configs) for topic in world.topics] == [1] * TOPICS


NAMESPACE = PolicyChange("t", "t/n")


async def test_a_hundred_grants_in_a_row_share_rounds():
    """The first round runs while further grants come; each topic follows in that round and in one more."""
    world = World(many())
    for _ in range(100):
        world.followers.follow_policies(NAMESPACE)
        world.turns[0] += 1
        await asyncio.sleep(0)
    await world.settle()
    last = [topic.rights[-1] for topic in world.topics]
    assert min(last) >= 100, "each topic has seen the newest grants"
    # A round takes one slice in each turn: 100 turns have time for so many rounds, and one more follows.
    rounds = 100 // (TOPICS // AT_ONCE) + 2
    assert max(len(topic.rights) for topic in world.topics) <= rounds
    assert max(len(topic.configs) for topic in world.topics) <= rounds


async def test_changes_of_one_turn_cost_two_rounds():
    world = World(many())
    for _ in range(100):
        world.followers.follow_policies(NAMESPACE)
    await world.settle()
    assert {len(topic.rights) for topic in world.topics} == {2}
    assert {len(topic.configs) for topic in world.topics} == {2}


async def test_a_change_during_a_round_reaches_the_topics_that_have_followed():
    world = World(many())
    world.followers.follow_policies(NAMESPACE)
    while not world.topics[2 * AT_ONCE].configs:
        world.turns[0] += 1
        await asyncio.sleep(0)
    changed = world.turns[0]
    world.followers.follow_policies(NAMESPACE)
    await world.settle()
    for topic in world.topics:
        assert topic.configs[-1] >= changed and topic.rights[-1] >= changed


async def test_a_revocation_does_not_wait_for_topics_that_wait_for_the_disk():
    world, released = World(many()), asyncio.Event()
    for topic in world.topics:
        topic.stuck = released
    turns = 2 * TOPICS // AT_ONCE
    for _ in range(3):
        world.followers.follow_policies(NAMESPACE)
        changed = world.turns[0]
        for _ in range(turns):
            world.turns[0] += 1
            await asyncio.sleep(0)
        assert min(topic.rights[-1] for topic in world.topics) >= changed
    released.set()
    await world.settle()


async def test_changes_of_different_subjects_have_rounds_of_their_own():
    world = World(many())
    world.followers.follow_policies(NAMESPACE)
    world.followers.follow_settings()
    await world.settle()
    assert {len(topic.rights) for topic in world.topics} == {2}


async def test_topics_that_are_current_start_no_task():
    world = World(many())
    for topic in world.topics:
        topic.is_current = True
    world.followers.follow_policies(NAMESPACE)
    await world.settle()
    assert not any(topic.configs for topic in world.topics)
    assert all(topic.rights for topic in world.topics)


@pytest.mark.parametrize("at", [0, -1], ids=["first slice", "last slice"])
async def test_a_topic_that_fails_costs_the_others_no_revocation(at: int):
    world = World(many())
    world.topics[at].recheck_rights = lambda: 1 / 0
    world.followers.follow_policies(NAMESPACE)
    world.followers.follow_policies(NAMESPACE)
    await world.settle()
    others = [topic for topic in world.topics if topic is not world.topics[at]]
    assert all(topic.rights for topic in others)
    assert all(topic.configs for topic in world.topics)


async def test_a_round_that_fails_lets_later_changes_begin_their_own(monkeypatch: pytest.MonkeyPatch):
    world = World(many())
    with monkeypatch.context() as broken:
        broken.setattr(world.followers, "_is_loaded", lambda _topic: 1 / 0)
        world.followers.follow_policies(NAMESPACE)
        await world.settle()
    world.followers.follow_policies(NAMESPACE)
    await world.settle()
    assert all(topic.rights for topic in world.topics)


async def test_topics_of_a_namespace_that_goes_to_another_cluster_are_unloaded():
    world = World(["persistent://t/n/a", "non-persistent://t/n/b", "persistent://t/other/a"])
    world.followers.follow_policies(NAMESPACE)
    await world.settle()
    assert len(world.loaded) == 3
    world.foreign.add("t/n")
    world.followers.follow_policies(PolicyChange("t", "t/n", "persistent://t/n/a"))
    await world.settle()
    assert len(world.loaded) == 3, "a policy of a topic has no clusters of the namespace"
    world.followers.follow_policies(NAMESPACE)
    await world.settle()
    assert list(world.loaded) == ["persistent://t/other/a"]


@pytest.mark.parametrize("subject", [None, "persistent://t/own/a"], ids=["namespace", "topic"])
async def test_a_change_looks_at_no_topic_of_another_namespace(subject: str | None):
    """A change of a policy compared the names of all loaded topics: 10 to 40 ms of the loop beside 70,000."""
    world = World([*many(), "persistent://t/own/a-partition-0"])
    for topic in world.topics[:-1]:
        topic.name = None
    world.followers.follow_policies(PolicyChange("t", "t/own", subject))
    await world.settle()
    assert world.topics[-1].rights == [0] and len(world.topics[-1].configs) == 1


@pytest.mark.parametrize("count", [3, TOPICS])
async def test_topics_with_many_clients_have_turns_of_their_own_behind_the_others(count: int):
    world = World([*many(count), "non-persistent://t/n/u"])
    for wide in (world.topics[0], world.topics[-1]):
        wide.is_wide = True
    for subject in (None, "persistent://t/n/0", "non-persistent://t/n/u"):
        world.followers.follow_policies(PolicyChange("t", "t/n", subject))
    await world.settle()
    usual = world.topics[1:-1]
    assert world.topics[0].rights == world.topics[-1].rights == []
    assert max(each.rights[0] for each in usual) <= max(world.topics[0].in_turns)
    assert (len(world.topics[0].in_turns), len(world.topics[-1].in_turns)) == (2, 1), "no policy of an unstored topic"
    assert all(len(each.rights) == 1 and each.configs for each in usual)


@pytest.mark.parametrize("error", [StorageError("no bookie"), ServiceNotReadyError("stopping")])
async def test_an_unload_that_fails_keeps_no_other_topic_loaded_and_is_repeated(error: Exception):
    world = World(["persistent://t/n/a", "persistent://t/n/b", "persistent://t/n/c"])
    world.foreign.add("t/n")
    world.failing["persistent://t/n/a"] = [error]
    world.failing["persistent://t/n/b"] = [error] * 100
    world.followers.follow_policies(NAMESPACE)
    await world.settle()
    assert list(world.loaded) == ["persistent://t/n/b"]


async def test_a_topic_that_is_loading_beside_the_unloads_is_unloaded_too():
    world = World(["persistent://t/n/a"])
    world.foreign.add("t/n")
    world.loading = Followed("persistent://t/n/late", world.turns)
    world.followers.follow_policies(NAMESPACE)
    await world.settle()
    assert not world.loaded


async def test_the_topics_of_a_namespace_that_comes_back_stay_loaded():
    world = World(many())
    world.foreign.add("t/n")
    world.followers.follow_policies(NAMESPACE)
    world.foreign.clear()
    await world.settle()
    assert len(world.loaded) == TOPICS
