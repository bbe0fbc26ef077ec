"""The limit of requests about topics in progress at a time."""

from types import SimpleNamespace

import pytest

from magnetar.broker.errors import InvalidTopicNameError, TooManyRequestsError
from magnetar.broker.handlers import lookup
from magnetar.broker.handlers.client import LookupCounters
from magnetar.broker.settings import Settings
from magnetar.broker.settings_loader import load_settings
from magnetar.protocol import pulsar_api_pb2 as pb

TOPIC, NAMESPACE = "persistent://public/default/t", "public/default"
REQUESTS = (
    (lookup.on_lookup, pb.CommandLookupTopic(topic=TOPIC)),
    (lookup.on_partitioned_metadata, pb.CommandPartitionedTopicMetadata(topic=TOPIC)),
    (lookup.on_get_topics_of_namespace, pb.CommandGetTopicsOfNamespace(namespace=NAMESPACE)),
    (lookup.on_watch_topic_list, pb.CommandWatchTopicList(namespace=NAMESPACE, topics_pattern=".*")),
)


@pytest.fixture
def conn():
    """A connection of a broker whose limit is 0; it has no rights to check and no topics."""
    settings = Settings(max_concurrent_lookup_request=0)
    return SimpleNamespace(services=SimpleNamespace(lookups=LookupCounters(), settings=settings), closed=False)


@pytest.mark.parametrize(("handler", "command"), REQUESTS, ids=[handler.__name__ for handler, _ in REQUESTS])
async def test_a_limit_of_0_refuses_each_request_before_its_rights(conn, handler, command):
    with pytest.raises(TooManyRequestsError, match="too many pending lookup requests"):
        await handler(conn, command)


async def test_an_invalid_name_is_refused_before_the_limit(conn):
    with pytest.raises(InvalidTopicNameError, match=r"^Invalid topic name: Invalid topic name bad://x$"):
        await lookup.on_lookup(conn, pb.CommandLookupTopic(topic="bad://x"))


def test_the_limit_may_be_0():
    assert load_settings(None, {}, ["maxConcurrentLookupRequest=0"], lambda _: None).max_concurrent_lookup_request == 0
