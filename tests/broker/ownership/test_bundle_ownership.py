"""Brokers that share a metadata service: the owner of a bundle, and the effect of lost nodes and sessions."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random

import msgspec
import pytest

from magnetar.broker.errors import MetadataError, ServiceNotReadyError
from magnetar.broker.ownership.bundle_ownership import BundleOwnership
from magnetar.broker.ownership.cluster_nodes import LoadReport
from magnetar.broker.ownership.ownership import AskBroker, BrokerAddresses, EverythingHere, Here, ServedAt
from magnetar.broker.ownership.peers import Peers
from magnetar.broker.ownership.placement_strategies import PlacementRules
from magnetar.broker.ownership.register import BrokerRegister
from magnetar.broker.policies.records import even_bundles, hash_of
from magnetar.broker.tasks import TaskSet
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.errors import StorageUnavailableError
from tests.twins.memory_cluster import MemoryCluster
from tests.waiting import until

NAMESPACE = "t/n"
TOPIC = TopicName.parse(f"persistent://{NAMESPACE}/a")


class World:
    """A broker: its session and the bundles that it unloaded."""

    def __init__(self, cluster, number):
        self.session = cluster.connect()
        self.tasks = TaskSet()
        self.own = BrokerAddresses(f"pulsar://h:665{number}", None, f"http://h:808{number}", None)
        self.name = f"h:808{number}"
        self.rate = 0.0
        self.unloaded = []
        self.unload_waits = asyncio.Event()
        self.unload_waits.set()
        self.silent = set()
        self.allowed = None
        register = BrokerRegister(self.session, self.name, self.report, self.tasks, fresh_s=0)
        others = Peers(self.session, self.tasks, self.connects)
        self.ownership = BundleOwnership(self.session, self.own, register, self, self.tasks, random.Random(1), others)

    async def report(self):
        return LoadReport(
            web_service_url=self.own.web_url, pulsar_service_url=self.own.service_url, msg_rate_in=self.rate
        )

    async def connects(self, url):
        return url not in self.silent

    def default_bundles(self, namespace):
        return even_bundles(4) if namespace == NAMESPACE else None

    def eligible(self, _namespace, reports):
        return {name: report for name, report in reports.items() if name in (self.allowed or reports)}

    def placement(self):
        return PlacementRules()

    async def unload(self, namespace, low, high):
        await self.unload_waits.wait()
        self.unloaded.append((namespace, low, high))

    async def lookup(self, topic=TOPIC, *, authoritative=False):
        return await self.ownership.lookup(topic, authoritative=authoritative)


@pytest.fixture
async def cluster():
    return MemoryCluster()


@pytest.fixture
async def brokers(cluster):
    made = [World(cluster, number) for number in (1, 2, 3)]
    for each in made:
        await each.ownership.start()
    yield made
    for each in made:
        await each.tasks.close()


def node_of(topic=TOPIC):
    part = hash_of(str(topic)) >> 30
    return f"/namespace/{NAMESPACE}/0x{part << 30:08x}_0x{0xFFFFFFFF if part == 3 else part + 1 << 30:08x}"


async def test_a_broker_alone_serves_everything():
    alone = EverythingHere()
    assert alone.serves(TOPIC)
    assert await alone.lookup(TOPIC, authoritative=False) == Here()
    await alone.close()


async def test_an_authoritative_question_makes_the_owner(brokers, cluster):
    first, second, _ = brokers
    assert not first.ownership.serves(TOPIC)
    assert await first.lookup(authoritative=True) == Here()
    assert first.ownership.serves(TOPIC)
    assert cluster.nodes("/namespace") == [node_of()]
    for authoritative in (False, True):
        assert await second.lookup(authoritative=authoritative) == ServedAt(first.own)
    assert not second.ownership.serves(TOPIC)
    assert await first.lookup() == Here()
    assert first.ownership.owned() == [node_of().removeprefix("/namespace/")]


async def test_others_send_lookups_to_the_leader_and_the_leader_chooses_once(brokers):
    leader, second, third = brokers
    assert [each.ownership.register.is_leader for each in brokers] == [True, False, False]
    leader.rate, third.rate = 100.0, 50.0
    for each in brokers:
        await each.ownership.register._write()
    assert await second.lookup() == AskBroker(leader.own, authoritative=False)
    for _ in range(5):
        assert await leader.lookup() == AskBroker(second.own, authoritative=True)
    assert await second.lookup(authoritative=True) == Here()


async def test_the_leader_that_chooses_itself_takes_the_bundle(brokers):
    leader, *others = brokers
    for each in others:
        each.rate = 5.0
        await each.ownership.register._write()
    assert await leader.lookup() == Here()


async def test_a_leader_that_is_not_registered_does_not_count(brokers, cluster):
    leader, second, third = brokers
    await cluster.drop(f"/loadbalance/brokers/{leader.name}")
    leader.ownership.register._entered = False
    answer = await second.lookup()
    assert answer in (Here(), AskBroker(third.own, authoritative=True))


async def test_racing_brokers_have_one_owner(brokers):
    answers = await asyncio.gather(*(each.lookup(authoritative=True) for each in brokers))
    assert answers.count(Here()) == 1
    owner = brokers[answers.index(Here())]
    assert all(answer in (Here(), ServedAt(owner.own)) for answer in answers)


async def test_a_namespace_that_does_not_exist_has_no_bundles(brokers, cluster):
    with pytest.raises(MetadataError):
        await brokers[0].lookup(TopicName.parse("persistent://t/none/a"), authoritative=True)
    assert cluster.nodes("/admin/local-policies/t/none") == []


async def test_the_first_lookup_stores_the_bundles_and_the_stored_ones_count(brokers, cluster):
    await brokers[0].lookup(authoritative=True)
    stored = msgspec.json.decode((await cluster.store.get(f"/admin/local-policies/{NAMESPACE}"))[0])
    assert stored == {
        "bundles": {
            "boundaries": ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"],
            "numBundles": 4,
        },
        "migrated": False,
    }
    whole = b'{"bundles":{"boundaries":["0x00000000","0xffffffff"],"numBundles":1},"extra":1}'
    await cluster.store.put(f"/admin/local-policies/{NAMESPACE}", whole)
    await until(lambda: not brokers[0].ownership.owned())  # the old range is no bundle any more
    assert brokers[0].unloaded
    await brokers[1].lookup(authoritative=True)
    assert cluster.nodes("/namespace") == [f"/namespace/{NAMESPACE}/0x00000000_0xffffffff"]


async def test_release_closes_topics_before_others_may_have_them(brokers, cluster):
    first, second, _ = brokers
    await first.lookup(authoritative=True)
    first.unload_waits.clear()
    releasing = asyncio.create_task(first.ownership.release(node_of().removeprefix("/namespace/")))
    await asyncio.sleep(0)
    assert not first.ownership.serves(TOPIC)
    with pytest.raises(ServiceNotReadyError):
        await first.lookup()
    assert await second.lookup(authoritative=True) == ServedAt(first.own)
    first.unload_waits.set()
    assert await releasing
    assert not await first.ownership.release(node_of().removeprefix("/namespace/"))
    assert await second.lookup(authoritative=True) == Here()


async def test_a_broker_that_stops_leaves_the_register_first(brokers, cluster):
    first, second, _ = brokers
    await first.lookup(authoritative=True)
    first.unload_waits.clear()
    stopping = asyncio.create_task(first.ownership.close())
    await until(lambda: f"/loadbalance/brokers/{first.name}" not in cluster.nodes("/loadbalance/brokers"))
    assert cluster.nodes("/namespace") == [node_of()]
    first.unload_waits.set()
    await stopping
    assert cluster.nodes("/namespace") == []
    await until(lambda: any(each.ownership.register.is_leader for each in brokers[1:]))
    with pytest.raises(ServiceNotReadyError):
        await first.lookup(authoritative=True)
    assert await second.lookup(authoritative=True) == Here()


async def test_a_node_that_vanished_is_made_again(brokers, cluster):
    first, *_ = brokers
    await first.lookup(authoritative=True)
    for path in (node_of(), f"/loadbalance/brokers/{first.name}", "/loadbalance/leader"):
        await cluster.drop(path)
        await until(lambda: path in cluster.nodes("/"))  # noqa: B023 - awaited at once
    assert first.ownership.serves(TOPIC)
    assert not first.unloaded


async def test_a_stolen_bundle_is_given_up(brokers, cluster):
    first, second, _ = brokers
    await first.lookup(authoritative=True)
    await cluster.drop(node_of())
    assert await second.lookup(authoritative=True) == Here()
    await until(lambda: first.unloaded)
    assert not first.ownership.serves(TOPIC)
    assert await first.lookup() == ServedAt(second.own)


async def test_a_bundle_of_this_broker_from_before_its_restart_is_taken_over(brokers, cluster):
    first, *_ = brokers
    before = World(cluster, 1)
    await before.session.create_ephemeral(node_of(), before.ownership._node)
    assert await first.lookup() == Here()
    await before.session.expire()
    assert cluster.nodes("/namespace") == [node_of()]
    assert first.ownership.serves(TOPIC)


async def test_the_end_of_a_session_disconnects_clients_and_a_new_one_enters_again(brokers, cluster):
    first, second, _ = brokers
    await first.lookup(authoritative=True)
    await first.session.expire()
    first.session.lose()
    await until(lambda: first.unloaded)
    assert not first.ownership.serves(TOPIC)
    with pytest.raises(ServiceNotReadyError):
        await first.lookup(authoritative=True)
    assert await second.lookup(authoritative=True) == Here()
    first.session.reconnect()
    await until(lambda: f"/loadbalance/brokers/{first.name}" in cluster.nodes("/loadbalance/brokers"))
    assert await first.lookup() == ServedAt(second.own)


async def test_a_short_interruption_changes_nothing(brokers, cluster):
    first, *_ = brokers
    first.session.session_timeout_s = 3600.0
    await first.lookup(authoritative=True)
    first.session.suspend()
    assert first.ownership.serves(TOPIC)
    with pytest.raises(ServiceNotReadyError):
        await first.lookup(TopicName.parse(f"persistent://{NAMESPACE}/{'b' * 9}"), authoritative=True)
    first.session.reconnect()
    await asyncio.sleep(0)
    assert await first.lookup() == Here()
    assert not first.unloaded


async def test_an_interruption_as_long_as_the_session_lives_gives_everything_up(brokers, cluster):
    first, second, _ = brokers
    await first.lookup(authoritative=True)
    first.session.suspend()
    await until(lambda: first.unloaded)
    assert not first.ownership.serves(TOPIC)
    assert await second.lookup(authoritative=True) == ServedAt(first.own)
    first.session.reconnect()  # the session lives after all: its node is deleted, because no broker serves the bundle
    await until(lambda: cluster.nodes("/namespace") == [])
    assert await second.lookup(authoritative=True) == Here()


async def test_owners_that_cannot_be_read_are_an_error_of_the_lookup(brokers, cluster):
    for garbage in (b"", b"{}", b"x", b'{"nativeUrl":"\xff"}', b'{"unknown":' + b"[" * 100_000):
        await cluster.store.put(node_of(), garbage)
        await asyncio.sleep(0)  # the watch reports it
        with pytest.raises(MetadataError):
            await brokers[0].lookup(authoritative=True)
    await cluster.store.put(node_of(), b'{"nativeUrl":"pulsar://h:1","disabled":true}')
    await asyncio.sleep(0)
    with pytest.raises(ServiceNotReadyError):
        await brokers[0].lookup(authoritative=True)


async def test_a_broken_report_harms_no_lookup(brokers, cluster):
    await cluster.store.put("/loadbalance/brokers/h:1", b'{"cpu":null}')
    await cluster.store.put("/loadbalance/brokers/nowhere", b"{}")
    assert await brokers[0].lookup() is not None


async def test_a_lookup_waits_for_the_end_of_a_dead_owners_session(brokers, cluster):
    first, second, _ = brokers
    second.session.session_timeout_s = 3600.0
    assert await first.lookup(authoritative=True) == Here()
    second.silent.add(first.own.service_url)
    waiting = asyncio.create_task(second.lookup())
    for _turn in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    first.session.suspend()  # dead: it makes its nodes no more
    await first.session.expire()
    assert await waiting != ServedAt(first.own)


async def test_a_leader_that_does_not_answer_is_passed_over(brokers):
    leader, second, third = brokers
    leader.rate, third.rate = 0.0, 9.0
    for each in brokers:
        await each.ownership.register._write()
    for each in (second, third):
        each.session.session_timeout_s = 3600.0
        each.silent.add(leader.own.service_url)
    assert await third.lookup() == AskBroker(second.own, authoritative=True)
    assert await second.lookup() == Here()


@pytest.mark.parametrize("seed", range(30))
async def test_random_histories_have_one_serving_owner_and_no_bundle_without_a_node(seed):
    chance = random.Random(seed)
    cluster = MemoryCluster()
    worlds = [World(cluster, number) for number in (1, 2, 3)]
    topics = [TopicName.parse(f"persistent://{NAMESPACE}/{number}") for number in range(12)]
    for each in worlds:
        each.session.session_timeout_s = 3600.0
        await each.ownership.start()
    for _ in range(80):
        each = chance.choice(worlds)
        step = chance.choice(["lookup"] * 6 + ["release", "drop", "expire"])
        if step == "lookup":
            answer = await each.lookup(chance.choice(topics), authoritative=chance.random() < 0.5)
            assert isinstance(answer, Here | ServedAt | AskBroker)
        elif step == "release" and each.ownership.owned():
            await each.ownership.release(chance.choice(each.ownership.owned()))
        elif step == "drop" and cluster.nodes("/namespace"):
            await cluster.drop(chance.choice(cluster.nodes("/namespace")))
        elif step == "expire":
            await each.session.expire()
            each.session.lose()
            for _turn in range(5):
                await asyncio.sleep(0)
            each.session.reconnect()
        for _turn in range(30):
            await asyncio.sleep(0)
        for topic in topics:
            assert sum(world.ownership.serves(topic) for world in worlds) <= 1
        held = sorted(bundle for world in worlds for bundle in world.ownership.owned())
        assert [f"/namespace/{bundle}" for bundle in held] == cluster.nodes("/namespace")
    for each in worlds:
        await each.ownership.close()
        await each.tasks.close()
    assert cluster.nodes("/namespace") == cluster.nodes("/loadbalance/brokers") == []


# --- isolation, transfer ------------------------------------------------------------------------------------------


async def test_only_brokers_that_the_isolation_policies_allow_get_a_bundle(brokers):
    leader, second, third = brokers
    leader.allowed = {third.name}
    second.rate = third.rate = 100.0
    assert await leader.lookup() == AskBroker(third.own, authoritative=True)
    leader.allowed = {"elsewhere:1"}
    with pytest.raises(ServiceNotReadyError, match="isolation"):
        await leader.lookup(TopicName.parse(f"persistent://{NAMESPACE}/b"))


async def test_a_bundle_that_was_assigned_goes_to_that_broker(brokers):
    leader, second, third = brokers
    bundle = node_of().removeprefix("/namespace/")
    await second.lookup(authoritative=True)
    assert not await third.ownership.assign(bundle, third.name)
    assert await leader.ownership.assign(bundle, third.name)
    assert await second.ownership.release(bundle)
    assert await leader.lookup() == AskBroker(third.own, authoritative=True)
    leader.ownership.assignments.given.clear()
    second.rate = third.rate = 50.0
    for each in (second, third):
        await each.ownership.register._write()
    assert await leader.lookup() == Here()


async def test_a_bundle_is_looked_up_by_its_name(brokers):
    leader, second, _ = brokers
    bundle = node_of().removeprefix("/namespace/")
    assert await second.ownership.lookup_bundle(bundle, authoritative=True) == Here()
    assert await leader.ownership.lookup_bundle(bundle, authoritative=False) == ServedAt(second.own)
    with pytest.raises(MetadataError):
        await leader.ownership.lookup_bundle(f"{NAMESPACE}/0x00000000_0x00000001", authoritative=True)


# --- split --------------------------------------------------------------------------------------------------------


def middle_of(path):
    low, high = (int(each, 16) for each in path.rpartition("/")[2].split("_"))
    return (low + high) // 2


async def check_served_once(brokers, cluster):
    """Each hash lies in one bundle with at most one owner; owner nodes exist for existing bundles alone."""
    stored = msgspec.json.decode((await cluster.store.get(f"/admin/local-policies/{NAMESPACE}"))[0])["bundles"]
    ranges = {f"/namespace/{NAMESPACE}/{a}_{b}" for a, b in itertools.pairwise(stored["boundaries"])}
    await until(lambda: set(cluster.nodes("/namespace")) <= ranges)
    for each in brokers:
        await until(lambda each=each: {f"/namespace/{name}" for name in each.ownership.owned()} <= ranges)
    owned = [name for each in brokers for name in each.ownership.owned()]
    assert len(owned) == len(set(owned))


async def test_a_split_keeps_the_topics_where_they_are(brokers, cluster):
    owner, other, _ = brokers
    await owner.lookup(authoritative=True)
    path, given = node_of(), owner.ownership.assignments.given
    given.give(path.removeprefix("/namespace/"), owner.name)
    middle = middle_of(path)
    assert await owner.ownership.split(path.removeprefix("/namespace/"), [middle])
    await check_served_once(brokers, cluster)
    low, high = path.rpartition("/")[2].split("_")
    parts = [f"{NAMESPACE}/{low}_0x{middle:08x}", f"{NAMESPACE}/0x{middle:08x}_{high}"]
    assert owner.ownership.owned() == parts
    assert owner.unloaded == list(given) == []
    await until(lambda: owner.ownership.serves(TOPIC))
    assert await other.lookup() == ServedAt(owner.own)
    assert len(other.ownership.bundles(NAMESPACE).boundaries) == 6
    assert not await other.ownership.split(parts[0], [middle - 1])


async def test_a_split_keeps_the_other_content_of_the_node(brokers, cluster):
    owner, *_ = brokers
    await owner.lookup(authoritative=True)
    path = f"/admin/local-policies/{NAMESPACE}"
    node = msgspec.json.decode((await cluster.store.get(path))[0]) | {"namespaceAntiAffinityGroup": "g"}
    await cluster.store.put(path, msgspec.json.encode(node))
    await until(lambda: owner.ownership.bundles(NAMESPACE) is not None)
    await owner.ownership.split(node_of().removeprefix("/namespace/"), [middle_of(node_of())])
    assert msgspec.json.decode((await cluster.store.get(path))[0])["namespaceAntiAffinityGroup"] == "g"


@pytest.mark.parametrize("call", range(8))
@pytest.mark.parametrize("done", [False, True], ids=["not done", "done unnoticed"])
async def test_a_split_that_the_metadata_service_breaks_off_is_whole_or_nothing(
    brokers, cluster, monkeypatch, call, done
):
    """The `call`th request of the split fails, before or after it had its effect."""
    owner, *_ = brokers
    await owner.lookup(authoritative=True)
    calls = itertools.count()

    def failing(name):
        method = getattr(owner.session, name)

        async def run(*arguments, **keywords):
            if next(calls) != call:
                return await method(*arguments, **keywords)
            if done:
                await method(*arguments, **keywords)
            raise StorageUnavailableError("no answer")

        monkeypatch.setattr(owner.session, name, run)

    for name in ("get", "put", "create_ephemeral", "delete"):
        failing(name)
    with contextlib.suppress(StorageUnavailableError, MetadataError, ServiceNotReadyError):
        await owner.ownership.split(node_of().removeprefix("/namespace/"), [middle_of(node_of())])
    await until(lambda: owner.ownership.serves(TOPIC))
    await check_served_once(brokers, cluster)
    assert owner.unloaded == []
    assert owner.ownership.serves(TOPIC)


async def test_an_owner_that_dies_in_the_middle_of_a_split_leaves_bundles_that_others_take(brokers, cluster):
    owner, other, _ = brokers
    await owner.lookup(authoritative=True)
    path = node_of()
    middle = middle_of(path)
    low, high = path.rpartition("/")[2].split("_")
    for child in (f"{low}_0x{middle:08x}", f"0x{middle:08x}_{high}"):
        await owner.ownership._take(f"/namespace/{NAMESPACE}/{child}")
    await owner.session.expire()
    assert await other.lookup(authoritative=True) == Here()
    assert cluster.nodes("/namespace") == [path]


async def test_two_splits_at_once_are_both_made(brokers, cluster):
    owner, other, _ = brokers
    names = [TopicName.parse(f"persistent://{NAMESPACE}/{letter}") for letter in "abcdefghijkl"]
    second = next(name for name in names if node_of(name) != node_of())
    await owner.lookup(authoritative=True)
    await other.lookup(second, authoritative=True)
    await asyncio.gather(
        owner.ownership.split(node_of().removeprefix("/namespace/"), [middle_of(node_of())]),
        other.ownership.split(node_of(second).removeprefix("/namespace/"), [middle_of(node_of(second))]),
    )
    await check_served_once(brokers, cluster)
    stored = msgspec.json.decode((await cluster.store.get(f"/admin/local-policies/{NAMESPACE}"))[0])
    assert stored["bundles"]["numBundles"] == 6
    await until(lambda: owner.ownership.serves(TOPIC) and other.ownership.serves(second))
