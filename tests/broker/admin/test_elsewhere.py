"""Requests about a partitioned topic of which other brokers serve partitions."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.broker.admin.wide_answers import AT_ONCE_OF_ADDRESS
from magnetar.broker.errors import RestError
from magnetar.broker.ownership.ownership import Here, ServedAt
from magnetar.protocol.topic_name import TopicName
from tests.broker.admin.test_admin_security import as_role, call, secured  # noqa: F401 - the fixture
from tests.broker.admin.test_bundles_in_cluster import Cluster
from tests.broker.admin_fakes import open_client

BASE = "/admin/v2/persistent/public/default/parts"
TOPIC = "persistent://public/default/parts"
REMOTE = f"{BASE}-partition-1"


SUBSCRIPTION = {"type": "Shared", "consumers": [], "earliestMsgPublishTimeInBacklog": 0}


class Partitions(Cluster):
    """Another broker serves partition 1. ``there`` maps a call to its answer or refusal; other calls return None."""

    def __init__(self):
        super().__init__()
        self.elsewhere.add(f"{TOPIC}-partition-1")
        self.there = {}
        self.bodies = []

    async def owner_of(self, name, *, authoritative):
        return Here() if self.serves(name) else ServedAt(REMOTE)

    async def call(self, method, path, body=None):
        self.calls.append((method, path))
        self.bodies.append(body)
        answer = self.there.get((method, path))
        if isinstance(answer, Exception):
            raise answer
        return answer


async def opened(client):
    """Three partitions; the partitions 0 and 2, which this broker serves, have the subscription `s`."""
    client.broker.ownership.current = client.broker.peers = cluster = Partitions()
    await client.topics.create_partitioned(TOPIC_NAME, 3, {})
    for number in (0, 2):
        client.topics.plain[f"{TOPIC}-partition-{number}"]["subscriptions"]["s"] = {"properties": {"k": "v"}}
    return cluster


class TopicNameOf:
    def __str__(self):
        return TOPIC

    def partition_name(self, index):
        return f"{TOPIC}-partition-{index}"


TOPIC_NAME = TopicNameOf()


@pytest.fixture
async def client():
    return await open_client()


@pytest.fixture
async def cluster(client):
    return await opened(client)


def here(client, key):
    parts = (client.topics.plain[f"{TOPIC}-partition-{number}"]["subscriptions"]["s"] for number in (0, 2))
    return [each.get(key) for each in parts]


async def test_a_list_has_the_subscriptions_of_all_partitions(client, cluster):
    cluster.there["GET", f"{REMOTE}/subscriptions"] = ["s", "there"]
    assert sorted((await client("GET", f"{BASE}/subscriptions")).json) == ["s", "there"]


async def test_statistics_leave_out_the_same_parts_at_other_brokers(client, cluster):
    """The other broker refused publishers of more than 32 MiB that the request leaves out."""
    there = "stats?getEarliestTimeInBacklog=false&excludePublishers=true&excludeConsumers=true"
    part = {**(await client("GET", f"{BASE}-partition-0/stats")).json, "subscriptions": {"there": SUBSCRIPTION}}
    cluster.there["GET", f"{REMOTE}/{there}"] = part
    cluster.calls.clear()
    cluster.lookup = cluster.owner_of
    asked = await client("GET", f"{BASE}/partitioned-stats?excludePublishers=true&excludeConsumers=true")
    assert sorted(asked.json["subscriptions"]) == ["s", "there"], asked.raw
    assert cluster.calls == [("GET", f"{REMOTE}/{there}")]


async def test_brokers_of_a_machine_answer_each_other_while_their_requests_hold_all_places(
    client, cluster, monkeypatch
):
    """Each broker held the two places of the address and waited for the other broker, until the calls timed out. A
    request that waited for a place had no answer while its client stayed.
    """
    asked, all_asked = 0, asyncio.Event()

    async def ask(method, path, _body=None):
        nonlocal asked
        asked += 1
        if asked == AT_ONCE_OF_ADDRESS:
            all_asked.set()
        await all_asked.wait()
        return (await client(method, path.replace("-1", "-0"))).json

    async def internal_info(_name):
        return {"version": 0}

    monkeypatch.setattr(cluster, "call", ask)
    monkeypatch.setattr(client.topics, "internal_info", internal_info, raising=False)
    requests = [client("GET", f"{BASE}/internal-info") for _ in range(AT_ONCE_OF_ADDRESS + 1)]
    async with asyncio.timeout(10):
        answers = await asyncio.gather(*requests)
    assert [len(each.json["partitions"]) for each in answers] == [3] * (AT_ONCE_OF_ADDRESS + 1)
    assert asked == AT_ONCE_OF_ADDRESS + 1


@pytest.mark.parametrize(
    ("method", "operation", "body"),
    [
        ("POST", "subscription/s/skip_all", None),
        ("POST", "subscription/s/resetcursor/5", None),
        ("POST", "subscription/s/expireMessages/5", None),
        ("PUT", "subscription/s/properties", {"k": "w"}),
        ("DELETE", "subscription/s?force=true", None),
        ("DELETE", "truncate", None),
        ("PUT", "compaction", None),
    ],
)
async def test_the_request_goes_to_the_broker_of_each_partition(client, cluster, method, operation, body):
    answer = await client(method, f"{BASE}/{operation}", body)
    assert answer.status == 204, answer.raw
    assert cluster.calls == [(method, f"{REMOTE}/{operation}")]
    assert cluster.bodies == [body]


@pytest.mark.parametrize("raw", [b"{", b"[" * 100_000, b'"\xff"'], ids=["unfinished", "deep", "no text"])
async def test_a_body_that_is_no_json_is_not_sent_on(client, cluster, raw):
    answer = await client("DELETE", f"{BASE}/subscription/s", raw=raw)
    assert answer.status == 400, answer.raw
    assert cluster.calls == []


async def test_a_subscription_missing_elsewhere_is_not_found(client, cluster):
    path = "subscription/s/skip_all"
    cluster.there["POST", f"{REMOTE}/{path}"] = RestError(404, "Subscription not found")
    assert (await client("POST", f"{BASE}/{path}")).status == 404
    assert here(client, "skipped") == [None, None]  # the local partitions were skipped: `None` means all messages
    assert [each for each in client.topics.calls if each[0] == "skip"]


@pytest.mark.parametrize("operation", ["subscription/s/skip_all", "all_subscription/expireMessages/5"])
async def test_a_call_that_gives_the_partition_to_this_broker_has_the_same_answer(client, cluster, operation):
    """The bundle of the partition has no owner: the broker that gets the call takes the bundle."""
    noted = cluster.call

    async def taken(method, path, body=None):
        cluster.elsewhere.clear()
        await noted(method, path, body)
        raise RestError(404, "Subscription s not found for topic parts-partition-1")

    cluster.call = taken
    answer = await client("POST", f"{BASE}/{operation}")
    assert answer.status == 404, answer.raw
    assert cluster.calls == [("POST", f"{REMOTE}/{operation}")]
    if operation.startswith("subscription"):
        assert answer.json["reason"] == f"Subscription s not found for topic {TOPIC}"


async def test_a_partition_that_comes_to_this_broker_between_two_steps_is_called(client, cluster):
    names, path = client.topics.subscriptions, "all_subscription/expireMessages/5"

    async def moved(part):
        if part.partition == 2:
            cluster.elsewhere.clear()
        return await names(part)

    client.topics.subscriptions = moved
    assert (await client("POST", f"{BASE}/{path}")).status == 204
    assert cluster.calls == [("POST", f"{REMOTE}/{path}")]


async def test_a_refusal_elsewhere_is_the_answer_and_the_other_partitions_have_their_turn(client, cluster):
    path = "subscription/s/expireMessages/5"
    cluster.there["POST", f"{REMOTE}/{path}"] = RestError(409, "nothing to expire")
    assert (await client("POST", f"{BASE}/{path}")).status == 409
    assert here(client, "expired") == [5, 5]


async def test_properties_of_a_subscription_are_those_of_all_partitions(client, cluster):
    cluster.there["GET", f"{REMOTE}/subscription/s/properties"] = {"there": "x"}
    assert (await client("GET", f"{BASE}/subscription/s/properties")).json == {"k": "v", "there": "x"}


async def test_all_partitions_are_terminated_where_they_are(client, cluster):
    ended = {"ledgerId": 9, "entryId": 1, "partitionIndex": -1, "batchSize": 0, "batchIndex": -1}
    cluster.there["POST", f"{REMOTE}/terminate"] = ended
    answer = (await client("POST", f"{BASE}/terminate/partitions")).json
    assert [answer[number]["ledgerId"] for number in "012"] == [7, 9, 7]


async def test_all_subscriptions_elsewhere_need_the_right_to_each_that_may_be_there(call):  # noqa: F811
    cluster = await opened_for_roles(call)
    boss, reader = as_role("boss"), as_role("reader")
    path = "persistent/t/n/parts/all_subscription/expireMessages/5"
    assert (await call("POST", path, **reader)).status == 204
    assert cluster.calls
    cluster.calls.clear()
    assert (await call("POST", "namespaces/t/n/permissions/subscription/theirs", ["other"], **boss)).status == 204
    assert (await call("POST", path, **reader)).status == 403
    assert cluster.calls == []


async def opened_for_roles(call):  # noqa: F811
    boss = as_role("boss")
    assert (await call("POST", "namespaces/t/n/permissions/reader", ["consume"], **boss)).status == 204
    assert (await call("PUT", "persistent/t/n/parts/partitions", 2, **boss)).status == 204
    cluster = call.broker.peers = call.broker.ownership.current = Cluster()
    cluster.elsewhere.add("persistent://t/n/parts-partition-1")
    return cluster


async def test_a_partition_of_a_non_persistent_topic_is_loaded_by_its_broker(client, cluster):
    base = BASE.replace("persistent", "non-persistent")
    name = TopicName.parse(TOPIC.replace("persistent", "non-persistent"))
    await client.topics.create_partitioned(name, 3, {})
    for number in range(3):
        client.topics.plain.pop(str(name.partition_name(number)), None)
    cluster.elsewhere |= {str(name.partition_name(number)) for number in range(3)}
    calls = [("POST", f"{base}-partition-{number}/subscription/s/resetcursor/0") for number in range(3)]
    assert (await client("POST", f"{base}/subscription/s/resetcursor/0")).status == 204
    assert cluster.calls == calls
    cluster.there[calls[1]] = RestError(404, "Subscription not found")
    assert (await client("POST", f"{base}/subscription/s/resetcursor/0")).status == 404
    assert not any(client.topics.exists(name.partition_name(number)) for number in range(3))
    cluster.elsewhere.remove(str(name.partition_name(1)))
    assert (await client("POST", f"{base}-partition-1/subscription/s/resetcursor/0")).status == 404
    assert client.topics.exists(name.partition_name(1))
