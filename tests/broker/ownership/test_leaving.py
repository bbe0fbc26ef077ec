"""Bundles change hands: a broker leaves its cluster, a transfer breaks off."""

from __future__ import annotations

import asyncio
import errno

import pytest

from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.ownership.ownership import AskBroker, Here, ServedAt
from magnetar.broker.ownership.register import BrokerRegister
from magnetar.broker.ownership.report_changes import ReportRules
from magnetar.broker.policies.records import even_bundles
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.errors import StorageUnavailableError
from tests.broker.ownership.test_bundle_ownership import NAMESPACE, TOPIC, World
from tests.twins.memory_cluster import MemoryCluster
from tests.waiting import until


async def test_a_broker_that_stops_serves_bundles_until_their_turn():
    cluster = MemoryCluster()
    broker = World(cluster, 1)
    await broker.ownership.start()
    topics = [TopicName.parse(f"persistent://{NAMESPACE}{letter}/a") for letter in "abcdefghij"]
    broker.default_bundles = lambda _namespace: even_bundles(1)
    broker.ownership._bundles._defaults = broker.default_bundles
    for topic in topics:
        await broker.lookup(topic, authoritative=True)
    broker.unload_waits.clear()
    stopping = asyncio.ensure_future(broker.ownership.close())
    states = broker.ownership._owned.values
    await until(lambda: sum(each.state.value == "serving" for each in states()) == 6)
    broker.unload_waits.set()
    await stopping
    assert len(broker.unloaded) == len(topics)
    assert cluster.nodes("/namespace") == []
    await broker.tasks.close()


# --- a transfer that breaks off -------------------------------------------------------------------------------------


async def found_by_all(brokers):
    """The broker that serves the topic, when lookups at all brokers end there, else None; like clients, repeats
    lookups.
    """

    async def follow(first):
        broker, authoritative = first, False
        for _ in range(10):
            try:
                answer = await broker.lookup(authoritative=authoritative)
            except ServiceNotReadyError:
                await asyncio.sleep(0.01)
                continue
            if isinstance(answer, Here):
                return broker
            target = answer.owner if isinstance(answer, ServedAt) else answer.broker
            found = next((each for each in brokers if each.own == target), None)
            if found is None:
                await asyncio.sleep(0.01)
                continue
            broker, authoritative = found, isinstance(answer, AskBroker) and answer.authoritative
        return None

    owners = [await follow(each) for each in brokers]
    return owners[0] if all(each is owners[0] for each in owners) else None


@pytest.mark.parametrize("broken", ["before", "closing", "given", "taken", "target", "leader"])
async def test_a_transfer_that_breaks_off_leaves_the_bundle_with_one_broker(broken):
    """One broker ends. The owner ends before it closes the topics, while it closes them, after it has given the bundle
    away, or after the target has the bundle; or the target ends before it has the bundle; or the leader ends.
    """
    cluster = MemoryCluster()
    leader, owner, target = brokers = [World(cluster, number) for number in (1, 2, 3)]
    for each in brokers:
        await each.ownership.start()
    assert await owner.lookup(authoritative=True) == Here()
    bundle = owner.ownership.owned()[0]
    assert await leader.ownership.assign(bundle, target.name)
    if broken == "closing":
        owner.unload_waits.clear()
        closing = asyncio.ensure_future(owner.ownership.release(bundle))
        await until(lambda: not owner.ownership.serves(TOPIC))
    elif broken != "before":
        assert await owner.ownership.release(bundle)
    if broken == "taken":
        assert await target.lookup(authoritative=True) == Here()
    ended = {"target": target, "leader": leader}.get(broken, owner)
    ended.silent.update(each.own.service_url for each in brokers)
    if broken == "closing":
        closing.cancel()
    await ended.tasks.close()
    ended.ownership.register._entered = False
    for path in list(ended.ownership._owned):  # a process that has ended follows no changes
        ended.ownership._forget(path)
    await ended.session.expire()
    left = [each for each in brokers if each is not ended]
    for each in left:
        each.silent.add(ended.own.service_url)
    served = []

    async def served_by_one():
        served[:] = [await found_by_all(left)]
        return served[0] is not None

    for _ in range(600):
        if await served_by_one():
            break
        await asyncio.sleep(0.05)
    assert served[0] is not None
    assert [each.ownership.serves(TOPIC) for each in left].count(True) == 1
    if broken in ("before", "closing", "given", "taken"):
        assert served[0] is target, "the leader has noted it"
    assert len(cluster.nodes("/namespace")) == 1
    for each in brokers:
        await each.tasks.close()


# --- a session that ends while the broker leaves --------------------------------------------------------------------


async def leaving_with_a_bundle(cluster):
    """A broker that is closing the topics of its bundle, and waits."""
    broker = World(cluster, 1)
    await broker.ownership.start()
    await broker.lookup(authoritative=True)
    broker.unload_waits.clear()
    return broker


@pytest.mark.parametrize("leaves", ["one bundle", "all"])
async def test_a_bundle_whose_session_ends_during_its_release_is_released(leaves):
    cluster = MemoryCluster()
    broker = await leaving_with_a_bundle(cluster)
    ownership = broker.ownership
    work = ownership.close() if leaves == "all" else ownership.release(ownership.owned()[0])
    leaving = asyncio.ensure_future(work)
    await until(lambda: not ownership.serves(TOPIC))
    await broker.session.expire()
    broker.session.lose()
    await until(lambda: ownership.owned() == [])
    broker.session.reconnect()
    broker.unload_waits.set()
    await leaving
    assert ownership.owned() == []
    assert cluster.nodes("/namespace") == []
    await broker.tasks.close()


@pytest.mark.parametrize("write", ["report", "election"])
async def test_a_write_under_way_does_not_register_a_broker_that_has_left(write):
    cluster = MemoryCluster()
    broker = World(cluster, 1)
    register = broker.ownership.register
    await broker.ownership.start()
    await cluster.drop("/loadbalance/leader")
    register.is_leader = False
    name = "put_ephemeral" if write == "report" else "create_ephemeral"
    store, may_write, writes = getattr(broker.session, name), asyncio.Event(), asyncio.Event()

    async def slow_write(path, value):
        writes.set()
        await may_write.wait()
        return await store(path, value)

    setattr(broker.session, name, slow_write)
    writing = asyncio.ensure_future(register._write() if write == "report" else register._elect())
    await writes.wait()
    await register.leave()
    may_write.set()
    await writing
    assert cluster.nodes("/loadbalance") == []
    assert not register.is_leader
    await broker.tasks.close()


async def test_a_leader_whose_report_fails_after_a_lost_connection_leads_on():
    cluster = MemoryCluster()
    broker = World(cluster, 1)
    register, write = broker.ownership.register, broker.session.put_ephemeral
    await broker.ownership.start()
    for _ in range(20):
        await asyncio.sleep(0)  # the reports of the watches that the start has set
    assert register.is_leader
    failed = []

    async def write_at_the_second_attempt(path, value):
        if not failed:
            failed.append(path)
            raise StorageUnavailableError("no answer")
        return await write(path, value)

    broker.session.put_ephemeral = write_at_the_second_attempt
    broker.session.suspend()
    broker.session.reconnect()
    await until(lambda: failed)
    await until(lambda: register.is_leader, 5)
    await broker.tasks.close()


async def test_a_broker_without_a_descriptor_for_its_report_registers_again_and_reports_on():
    broker = World(MemoryCluster(), 1)
    failures, reported = [], []

    async def report():
        if failures:
            raise failures.pop()
        reported.append(await broker.report())
        return reported[-1]

    rules = ReportRules(look_s=0.001, longest_s=0.0)
    register = BrokerRegister(broker.session, broker.name, report, broker.tasks, report_rules=lambda: rules)
    await register.enter()
    failures += [OSError(errno.EMFILE, "too many open files")] * 3
    await until(lambda: not failures)
    seen = len(reported)
    await until(lambda: len(reported) > seen + 2)
    failures += [OSError(errno.EMFILE, "too many open files")] * 3
    await register.enter_again()
    assert register.is_leader
    await broker.tasks.close()
