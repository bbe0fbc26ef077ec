"""The leader, and no other broker, requests moves and splits of bundles."""

from __future__ import annotations

import dataclasses

import pytest

from magnetar.broker.clustering.balancing import (
    Balancing,
    BalancingFigures,
    make_shedder,
    placement_rules,
    resource_weights,
    shedding_rules,
)
from magnetar.broker.clustering.eligible_brokers import eligible_brokers
from magnetar.broker.errors import RestError
from magnetar.broker.ownership.cluster_nodes import BundleUsage, LoadReport, Usage
from magnetar.broker.ownership.load_averages import LoadAverages
from magnetar.broker.ownership.placement_strategies import PlacementRules
from magnetar.broker.ownership.resource_weights import ResourceWeights
from magnetar.broker.policies.records import even_bundles
from magnetar.broker.settings import Settings

LARGE = "t/n/0x00000000_0x80000000"


class World:
    """The ownership, its register, and the brokers that are called."""

    def __init__(self):
        self.register = self.assignments = self
        self.averages = LoadAverages()
        self.is_leader = True
        self.called = []
        self.target, self.may_go = "b:1", True
        self.refuses = False
        usage = BundleUsage(topics=2000, msg_throughput_in=100.0 * 2**20)
        busy = LoadReport(
            cpu=Usage(95.0, 100.0),
            msg_throughput_in=200.0 * 2**20,
            last_stats={LARGE: usage, "t/n/0x80000000_0xffffffff": BundleUsage(msg_throughput_in=100.0 * 2**20)},
        )
        self.reports = {"a:1": busy, "b:1": LoadReport()}

    async def candidates(self, *, persistent):
        assert persistent
        return self.reports

    async def destination(self, _bundle, source, _reports):
        assert source == "a:1"
        return self.target

    async def may_leave(self, bundle, source, _reports):
        assert (bundle, source) == (LARGE, "a:1")
        return self.may_go

    def bundles(self, _namespace):
        return None

    async def call(self, method, path, body=None):
        self.called.append((method, path, body))
        if self.refuses:
            raise RestError(409, "no")


@pytest.fixture
def world():
    return World()


@pytest.fixture
def balancing(world):
    return Balancing(Settings(), world, world, lambda _namespace: even_bundles(2), lambda: 0.0)


async def test_a_bundle_of_an_overloaded_broker_is_unloaded_and_placed_anew(world, balancing):
    await balancing.shed()
    assert world.called == [("PUT", f"/admin/v2/namespaces/{LARGE}/unload?destinationBroker=b:1", None)]
    assert balancing.figures == BalancingFigures(unloaded_brokers=1, unloaded_bundles=1)


async def test_a_bundle_without_a_better_place_stays(world, balancing):
    world.target = None
    await balancing.shed()
    assert world.called == []
    world.target = "b:1"
    await balancing.shed()
    assert balancing.figures.unloaded_bundles == 1, "what stayed may go later"


async def test_a_large_bundle_is_split(world, balancing):
    await balancing.split()
    assert world.called == [("PUT", f"/admin/v2/namespaces/{LARGE}/split?unload=true", None)]
    assert balancing.figures == BalancingFigures(splits=1)


async def test_the_parts_of_a_bundle_that_no_other_broker_may_have_stay(world, balancing):
    world.may_go = False
    await balancing.split()
    assert world.called == [("PUT", f"/admin/v2/namespaces/{LARGE}/split?unload=false", None)]


async def test_a_broker_alone_splits_nothing(world, balancing):
    del world.reports["b:1"]
    await balancing.split()
    assert world.called == []


@pytest.mark.parametrize("name", ["ThresholdShedder", "OverloadShedder", "UniformLoadShedder", "AvgShedder"])
def test_the_strategy_is_chosen_by_its_class_in_apache_pulsar(name):
    full = f"org.apache.pulsar.broker.loadbalance.impl.{name}"
    settings = dataclasses.replace(Settings(), load_balancer_load_shedding_strategy=full)
    assert type(make_shedder(settings)).__name__ == name


def test_a_weight_of_traffic_has_a_former_name_as_in_apache_pulsar():
    weights = dataclasses.replace(
        Settings(),
        load_balancer_cpu_resource_weight=0.5,
        load_balancer_direct_memory_resource_weight=0.25,
        load_balancer_bandwith_in_resource_weight=0.2,
        load_balancer_bandwith_out_resource_weight=0.3,
        load_balancer_bandwidth_out_resource_weight=0.4,
    )
    assert resource_weights(Settings()) == ResourceWeights()
    expected = ResourceWeights(cpu=0.5, direct_memory=0.25, bandwidth_in=0.2, bandwidth_out=0.4)
    assert resource_weights(weights) == expected
    assert shedding_rules(weights).weights == expected


def test_the_rules_of_placement_are_those_of_the_settings():
    assert placement_rules(Settings(), {}, {}) == PlacementRules()
    changed = dataclasses.replace(
        Settings(),
        load_balancer_load_placement_strategy="a.b.LeastResourceUsageWithWeight",
        load_balancer_broker_overloaded_threshold_percentage=70,
        load_balancer_broker_max_topics=5,
        load_balancer_distribute_bundles_evenly_enabled=False,
        load_balancer_cpu_resource_weight=0.5,
        load_balancer_average_resource_usage_difference_threshold_percentage=20,
        load_balancer_history_resource_percentage=0.5,
        load_balancer_shedding_excluded_namespaces=("t/n",),
    )
    assert placement_rules(changed, {"a:1": "east"}, {"t/n/x": "a:1"}) == PlacementRules(
        strategy="LeastResourceUsageWithWeight",
        overloaded_share=0.7,
        most_topics=5,
        evenly=False,
        domains={"a:1": "east"},
        weights=ResourceWeights(cpu=0.5),
        usage_difference=0.2,
        history_share=0.5,
        expected={"t/n/x": "a:1"},
        excluded_namespaces=("t/n",),
    )


def test_a_strategy_without_a_name_here_starts_where_balancing_is_off():
    full = "org.apache.pulsar.broker.loadbalance.extensions.scheduler.TransferShedder"
    settings = dataclasses.replace(
        Settings(), load_balancer_enabled=False, load_balancer_load_shedding_strategy=full
    )  # the start permits any name then
    assert type(make_shedder(settings)).__name__ == "ThresholdShedder"


async def test_a_refusal_is_not_counted(world, balancing):
    world.refuses = True
    await balancing.shed()
    await balancing.split()
    assert balancing.figures == BalancingFigures()


async def test_others_than_the_leader_do_nothing(world, balancing):
    world.is_leader = False
    await balancing.shed()
    await balancing.split()
    assert world.called == []


# --- isolation ----------------------------------------------------------------------------------------------------

BROKERS = {f"{host}:8080": LoadReport(cpu=Usage(50.0, 100.0)) for host in ("east-1", "east-2", "west-1")}


def policy(**more):
    parameters = {"min_limit": "1", "usage_threshold": "80"} | more
    failover = {"policy_type": "min_available", "parameters": parameters}
    return {
        "namespaces": ["t/secret.*"],
        "primary": ["east-.*"],
        "secondary": ["west-1:8080"],
        "auto_failover_policy": failover,
    }


def hosts(policies, namespace, reports=None):
    return sorted(name.partition(":")[0] for name in eligible_brokers(policies, namespace, reports or BROKERS))


def test_without_policies_every_broker_may():
    assert hosts({}, "t/n") == ["east-1", "east-2", "west-1"]


def test_a_namespace_of_a_policy_has_its_primary_brokers_and_the_others_have_the_rest():
    assert hosts({"p": policy()}, "t/secret-1") == ["east-1", "east-2"]
    assert hosts({"p": policy()}, "t/n") == ["west-1"]


def test_the_secondary_brokers_step_in_for_missing_and_for_busy_ones():
    assert hosts({"p": policy(min_limit="3")}, "t/secret") == ["east-1", "east-2", "west-1"]
    busy = {name: LoadReport(cpu=Usage(90.0, 100.0)) for name in BROKERS}
    assert hosts({"p": policy()}, "t/secret", busy) == ["east-1", "east-2", "west-1"]
    assert hosts({"p": policy()}, "t/secret", {"west-1:8080": LoadReport()}) == ["west-1"]
    assert hosts({"p": policy() | {"secondary": []}}, "t/secret", {"west-1:8080": LoadReport()}) == []


def test_a_pattern_that_cannot_be_read_names_nothing():
    assert hosts({"p": policy() | {"primary": ["("], "secondary": [7]}}, "t/secret") == []
    assert hosts({"p": {"namespaces": None}}, "t/n") == ["east-1", "east-2", "west-1"]


@pytest.mark.parametrize("failover", [None, "x", [1], {"parameters": "x"}, {"parameters": {"min_limit": [1]}}])
def test_a_policy_whose_failover_cannot_be_read_has_the_defaults(failover):
    wanted = ["east-1", "east-2"]
    assert hosts({"p": policy() | {"auto_failover_policy": failover}}, "t/secret") == wanted
