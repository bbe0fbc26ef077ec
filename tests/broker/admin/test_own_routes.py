"""The ranges of many logs in one request: accepted topics and required rights."""

import pytest

from magnetar.broker.admin import own_routes
from tests.broker.admin.test_admin_security import as_role, secured
from tests.broker.admin_fakes import open_client

PATH = "namespaces/public/default/logRanges"
NAME = "persistent://public/default/t"


@pytest.fixture
async def call():
    client = await open_client()
    await client("PUT", "persistent/public/default/t")
    return client


async def test_ranges_by_topic_and_null_for_none(call):
    answer = await call("POST", PATH + "?ledgers=true", [NAME, NAME + "-none"])
    assert answer.json[NAME]["endIndex"] == 3
    assert answer.json[NAME]["ledgers"] == [[7, 3, False]]
    assert answer.json[NAME + "-none"] is None
    assert "ledgers" not in (await call("POST", PATH, [NAME])).json[NAME]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (["persistent://public/other/t"], 412),
        (["non-persistent://public/default/t"], 412),
        (["a/b"], 412),
        ([NAME] * 1001, 400),
        ({"a": 1}, 400),
        (None, 400),
    ],
)
async def test_invalid_requests_are_refused(call, body, status):
    assert (await call("POST", PATH, body)).status == status


async def test_the_right_to_consume_is_needed_topic_by_topic():
    call = await open_client(secured())
    info = {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}
    await call("PUT", "tenants/t", info, **as_role("admin"))
    await call("PUT", "namespaces/t/n", **as_role("boss"))
    for topic in ("a", "b"):
        await call("PUT", f"persistent/t/n/{topic}", **as_role("boss"))
    await call("POST", "persistent/t/n/a/permissions/reader", ["consume"], **as_role("boss"))
    a, b = "persistent://t/n/a", "persistent://t/n/b"
    assert (await call("POST", "namespaces/t/n/logRanges", [a], **as_role("reader"))).status == 200
    assert (await call("POST", "namespaces/t/n/logRanges", [a, b], **as_role("reader"))).status == 401
    assert (await call("POST", "namespaces/t/n/logRanges", [a], **as_role("other"))).status == 401


async def test_the_ledgers_of_many_topics_are_gathered_in_turns(call, monkeypatch):
    """A thousand times the name of a topic of a thousand ledgers: the request gathered a million rows in one turn."""
    monkeypatch.setattr(own_routes, "_ROWS_IN_ONE_TURN", 2)
    turns, gathered = 0, own_routes.give_way

    async def counted():
        nonlocal turns
        turns += 1
        await gathered()

    monkeypatch.setattr(own_routes, "give_way", counted)
    assert list((await call("POST", PATH + "?ledgers=true", [NAME] * 1000)).json) == [NAME]
    assert turns == 1
    others = [f"{NAME}-{number}" for number in range(10)]
    assert list((await call("POST", PATH, others)).json) == others
    assert turns == 6
