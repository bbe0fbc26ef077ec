"""The leader's choice: former assignments, local policies of the namespace, and moves that make sense."""

from __future__ import annotations

import json
import random

import pytest

from magnetar.broker.errors import MetadataError
from magnetar.broker.ownership.assignments import Assignments
from magnetar.broker.ownership.bundle_map import BundleMap
from magnetar.broker.ownership.cluster_nodes import BundleUsage, LoadReport
from magnetar.broker.ownership.load_averages import LoadAverages
from magnetar.broker.ownership.placement_strategies import PlacementRules
from magnetar.broker.policies.records import even_bundles
from magnetar.broker.policies.values import BookieAffinity
from tests.twins.memory_cluster import MemoryCluster

LOW, HIGH = "0x00000000_0x80000000", "0x80000000_0xffffffff"


class World:
    """Namespaces below ``t``, and the rules that a member of a cluster has."""

    def __init__(self):
        self.metadata = MemoryCluster().connect()
        self.allowed = None
        self.rules = PlacementRules()
        self.changed = []
        self.bundles = BundleMap(self.metadata, self.default_bundles, self.changed.append)
        self.averages = LoadAverages()
        self.assignments = Assignments(self, self.bundles, self.averages, random.Random(1))

    def default_bundles(self, namespace):
        return even_bundles(2) if namespace.startswith("t/") else None

    def eligible(self, _namespace, reports):
        return {name: each for name, each in reports.items() if name in (self.allowed or reports)}

    def placement(self):
        return self.rules

    async def group(self, namespace, name):
        await self.bundles.change(namespace, {"namespaceAntiAffinityGroup": name})


@pytest.fixture
async def world():
    return World()


def reports(**bundles):
    return {name: LoadReport(last_stats={each: BundleUsage() for each in of}) for name, of in bundles.items()}


async def test_a_bundle_goes_where_it_was_given_while_that_broker_is_there(world):
    brokers = reports(a=[], b=[], c=[])
    chosen = await world.assignments.choose(f"t/1/{LOW}", brokers, otherwise="own")
    for _ in range(5):
        assert await world.assignments.choose(f"t/1/{LOW}", brokers, otherwise="own") == chosen
    del brokers[chosen]
    assert await world.assignments.choose(f"t/1/{LOW}", brokers, otherwise="own") in brokers
    assert await world.assignments.choose(f"t/1/{LOW}", {}, otherwise="own") == "own"


async def test_namespaces_of_a_group_go_to_different_brokers(world):
    for number, name in ((1, "g"), (2, "G"), (3, "g"), (4, "h")):
        await world.group(f"t/{number}", name)
    brokers = reports(a=[], b=[], c=[])
    chosen = [await world.assignments.choose(f"t/{number}/{LOW}", brokers, otherwise="") for number in (1, 2, 3)]
    assert sorted(chosen) == ["a", "b", "c"]
    busy = reports(a=[f"t/1/{LOW}"], b=[f"t/2/{HIGH}"], c=[f"t/4/{LOW}", "no/such/namespace"])
    world.assignments.given.clear()
    assert await world.assignments.choose(f"t/3/{LOW}", busy, otherwise="") == "c"


async def test_a_bundle_leaves_for_a_broker_that_is_better(world):
    brokers = reports(a=[f"t/1/{LOW}", f"t/1/{HIGH}"], b=[])
    assert await world.assignments.destination(f"t/1/{LOW}", "a", brokers) == "b"
    world.allowed = {"a"}
    assert await world.assignments.destination(f"t/1/{LOW}", "a", brokers) is None, "no other broker may have it"
    world.allowed = None
    busy = brokers | {"b": LoadReport(msg_rate_in=5.0, bundles=[f"t/1/{part}" for part in ("x", "y")])}
    assert await world.assignments.destination(f"t/1/{LOW}", "a", busy) is None, "the other broker is no better"


async def test_a_namespace_of_a_group_stays_where_all_brokers_have_as_many(world):
    for number in (1, 2):
        await world.group(f"t/{number}", "g")
    brokers = reports(a=[f"t/1/{LOW}", f"t/1/{HIGH}"], b=[f"t/2/{LOW}"])
    assert not await world.assignments.may_leave(f"t/1/{LOW}", "a", brokers)
    assert await world.assignments.may_leave(f"t/1/{LOW}", "a", brokers | reports(c=[]))
    assert await world.assignments.destination(f"t/1/{LOW}", "a", brokers | reports(c=[])) == "c"


async def test_members_of_local_policies_are_changed_one_by_one(world):
    await world.bundles.bundles("t/1")
    await world.group("t/1", "g")
    await world.bundles.change("t/1", {"bookieAffinityGroup": BookieAffinity(bookkeeper_affinity_group_primary="p")})
    node = json.loads((await world.metadata.get("/admin/local-policies/t/1"))[0])
    assert node["namespaceAntiAffinityGroup"] == "g"
    assert node["bookieAffinityGroup"]["bookkeeperAffinityGroupPrimary"] == "p"
    assert (node["bundles"]["numBundles"], node["migrated"]) == (2, False)
    await world.bundles.cut("t/1", [5])
    await world.group("t/1", None)
    policies = await world.bundles.policies("t/1")
    assert (policies.bundles.num_bundles, policies.anti_affinity_group) == (3, None)
    assert policies.bookie_affinity.bookkeeper_affinity_group_primary == "p"
    with pytest.raises(MetadataError):
        await world.group("none/n", "g")


async def test_the_load_over_long_time_decides_not_that_of_now(world):
    world.rules = PlacementRules(evenly=False)
    busy, calm = BundleUsage(msg_rate_in=900.0), BundleUsage(msg_rate_in=10.0)
    before = {"a": LoadReport(last_stats={"t/2/x": busy}), "b": LoadReport(last_stats={"t/2/y": calm})}
    for _ in range(100):
        world.averages.sample(before, {})
    now = {
        "a": LoadReport(msg_rate_in=1.0, last_stats={"t/2/x": BundleUsage(msg_rate_in=1.0)}),
        "b": LoadReport(msg_rate_in=100.0, last_stats={"t/2/y": BundleUsage(msg_rate_in=100.0)}),
    }
    assert await world.assignments.choose(f"t/1/{LOW}", now, otherwise="own") == "b"


async def test_a_bundle_on_its_way_counts_as_a_hundred_messages(world):
    world.rules = PlacementRules(evenly=False)
    brokers = {"a": LoadReport(), "b": LoadReport(msg_rate_in=50.0), "c": LoadReport(msg_rate_in=150.0)}
    chosen = [await world.assignments.choose(f"t/{number}/{LOW}", brokers, otherwise="own") for number in range(3)]
    assert chosen == ["a", "b", "a"]  # 0, 50, 150; 100, 50, 150; 100, 150, 150
    later = {"a": LoadReport(last_update=1), "b": LoadReport(last_update=1, msg_rate_in=50.0)}
    assert await world.assignments.choose(f"t/4/{LOW}", later, otherwise="own") == "a", "the reports have that load"


async def test_a_placement_looks_at_no_bundles_of_other_namespaces(world):
    looks = [0]

    class Counted(dict):
        def __iter__(self):
            looks[0] += 1
            return super().__iter__()

        def items(self):
            looks[0] += 1
            return super().items()

        def __getitem__(self, key):
            looks[0] += 1
            return super().__getitem__(key)

    stats = {f"t/{number}/{LOW}": BundleUsage(msg_rate_in=1.0) for number in range(50)}
    brokers = {name: LoadReport(last_stats=Counted(stats), bundles=list(stats)) for name in ("a", "b")}
    await world.assignments.choose(f"t/100/{LOW}", brokers, otherwise="own")
    looks[0] = 0
    for number in range(101, 131):
        await world.assignments.choose(f"t/{number}/{LOW}", brokers, otherwise="own")
    assert looks == [0]
    assert sorted(map(world.assignments.given.count, brokers)) == [15, 16]
