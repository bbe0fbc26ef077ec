"""A session that ends in the middle of a split or a release: at any time one broker at most owns a hash, and in the end
one broker serves the topic.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest

from magnetar.broker.errors import BrokerError, MetadataError, ServiceNotReadyError
from magnetar.broker.ownership.ownership import Here, ServedAt
from magnetar.storage.errors import StorageUnavailableError
from tests.broker.ownership.test_bundle_ownership import (  # noqa: F401 - fixtures
    TOPIC,
    brokers,
    check_served_once,
    cluster,
    middle_of,
    node_of,
)
from tests.waiting import until

REQUESTS = ("get", "put", "create_ephemeral", "delete", "is_mine")


def expiring(owner, monkeypatch, call, when):
    """End the owner's session at its request number ``call``; return a function that ends this, and says whether the
    session has ended.
    """
    calls, ended = itertools.count(), []

    def over():
        while next(calls) <= call:
            pass
        return bool(ended)

    async def end():
        ended.append(True)
        await owner.session.expire()
        owner.session.lose()

    def hooked(name):
        method = getattr(owner.session, name)

        async def run(*arguments, **keywords):
            if next(calls) != call:
                return await method(*arguments, **keywords)
            if when == "before":
                await end()
                return await method(*arguments, **keywords)
            answer = await method(*arguments, **keywords)
            await end()
            if when == "without an answer":
                raise StorageUnavailableError("no answer")
            return answer

        monkeypatch.setattr(owner.session, name, run)

    for name in REQUESTS:
        hooked(name)
    return over


@pytest.mark.parametrize("work", ["split", "release", "lookup"])
@pytest.mark.parametrize("call", range(9))
@pytest.mark.parametrize("when", ["before", "behind", "without an answer"])
@pytest.mark.parametrize("taken", [False, True], ids=["the owner comes back", "another broker takes the topic"])
async def test_a_session_ends(brokers, cluster, monkeypatch, work, call, when, taken):  # noqa: F811 - fixtures
    owner, other, _ = brokers
    if work != "lookup":
        await owner.lookup(authoritative=True)
    over = expiring(owner, monkeypatch, call, when)
    bundle = node_of().removeprefix("/namespace/")
    with contextlib.suppress(StorageUnavailableError, MetadataError, ServiceNotReadyError):
        if work == "split":
            await owner.ownership.split(bundle, [middle_of(node_of())])
        elif work == "release":
            await owner.ownership.release(bundle)
        else:
            await owner.lookup(authoritative=True)
    for _ in range(5):
        await asyncio.sleep(0)
    has_ended = over()
    if taken:
        await other.lookup(authoritative=True)
    if has_ended:
        for _ in range(5):
            await asyncio.sleep(0)
        assert not owner.ownership.serves(TOPIC), "a broker without a session"
        owner.session.reconnect()
    await until(lambda: f"/loadbalance/brokers/{owner.name}" in cluster.nodes("/loadbalance/brokers"))

    async def found(each):
        with contextlib.suppress(BrokerError):
            return await each.lookup(authoritative=True)

    answers = [await found(each) for each in (other, owner)]
    assert answers[0] is not None
    assert sum(answer == Here() for answer in answers) <= 1
    assert answers[1] is not None
    assert {type(each) for each in answers} <= {Here, ServedAt}
    assert sum(each.ownership.serves(TOPIC) for each in brokers) <= 1
    await check_served_once(brokers, cluster)
