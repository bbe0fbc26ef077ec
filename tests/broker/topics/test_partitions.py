"""Limits and slices of partitioned topics, and the schemas that topics of two domains share."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from magnetar.broker.schemas.compatibility import Strategy
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.topic_name import TopicName

NAME = TopicName.parse("persistent://public/default/t")
SCHEMA = (pb.Schema.String, b"", {}, Strategy.FULL)


async def limit_topics(broker, most):
    await broker.stored.namespaces.update_namespace(
        "public/default", lambda old: msgspec.structs.replace(old, max_topics_per_namespace=most)
    )


async def test_partitions_of_a_growth_pass_the_limit_of_topics_as_in_apache_pulsar(broker):
    await broker.lifecycle.create_partitioned(NAME, 2, {})
    await limit_topics(broker, 2)
    await broker.lifecycle.grow(NAME, 4)
    await broker.lifecycle.delete(NAME.partition_name(1))
    await broker.lifecycle.create_missed_partitions(NAME)
    assert broker.topics.catalog.count_with_new("public/default") == 4
    assert not broker.topics.has_room(TopicName.parse("persistent://public/default/other"), 1)


@pytest.mark.parametrize("partitioned", [False, True])
async def test_an_inactive_non_persistent_topic_leaves_the_schemas_of_the_persistent_topic_of_its_name(
    broker, partitioned
):
    """A role that may use the non-persistent topic alone created the topic, left, and deleted the schemas of both."""
    unstored = NAME.in_domain("non-persistent")
    if partitioned:
        await broker.lifecycle.create_partitioned(NAME, 2, {})
    else:
        await broker.lifecycle.create(NAME, {})
    await broker.stored.schemas.put(NAME, *SCHEMA)
    await broker.lifecycle.create(unstored, {})
    await broker.lifecycle.delete_inactive(unstored)
    assert not broker.topics.known(unstored)
    assert len(await broker.stored.schemas.live(NAME)) == 1
    if partitioned:
        await broker.lifecycle.create_partitioned(unstored, 2, {})
        await broker.lifecycle.delete_partitioned(unstored)
        assert len(await broker.stored.schemas.live(NAME)) == 1
        await broker.lifecycle.delete_partitioned(NAME)
    else:
        await broker.lifecycle.delete(NAME)
    assert await broker.stored.schemas.live(NAME) == []


async def test_the_schemas_of_a_non_persistent_topic_without_a_persistent_topic_go_with_it(broker):
    unstored = NAME.in_domain("non-persistent")
    await broker.lifecycle.create(unstored, {})
    await broker.stored.schemas.put(unstored, *SCHEMA)
    await broker.lifecycle.delete_inactive(unstored)
    assert await broker.stored.schemas.live(unstored) == []


@pytest.mark.parametrize("work", ["create_missed_partitions", "unload"])
async def test_the_partitions_of_a_large_topic_are_looked_for_in_turns(broker, work):
    await broker.lifecycle.create_partitioned(NAME, 2000, {})
    turns, task = 0, asyncio.ensure_future(getattr(broker.lifecycle, work)(NAME))
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 2000 // 512


async def test_a_topic_that_is_created_during_a_growth_finds_the_partitions_counted(broker):
    other = TopicName.parse("persistent://public/default/other")
    await broker.lifecycle.create_partitioned(NAME, 2, {})
    await limit_topics(broker, 4)
    with broker.topics.catalog.reserved(NAME, 2):
        assert not broker.topics.has_room(other, 1)
    assert broker.topics.has_room(other, 2)


async def test_a_growth_beside_a_growth_of_its_topic_counts_each_partition_once(broker):
    """A growth beside another counted no partition, or a partition twice."""
    await broker.lifecycle.create_partitioned(NAME, 2, {})
    await limit_topics(broker, 4)
    twice = await asyncio.gather(*(broker.lifecycle.grow(NAME, 4) for _ in range(2)), return_exceptions=True)
    assert twice == [None, None]
    with broker.topics.catalog.reserved(NAME, 0):
        await broker.lifecycle.grow(NAME, 5)
    assert broker.topics.catalog.count_with_new("public/default") == 5
