"""Produce over REST: entries, results per message, requests that store no message."""

import json

import pytest

from magnetar.protocol.metadata import split_entry
from tests.broker.admin_fakes import open_client

NAME = "persistent://public/default/t"
T = "/topics/persistent/public/default/t"


@pytest.fixture
async def call():
    client = await open_client()
    await client("PUT", "persistent/public/default/t")
    return client


def results(answer):
    return [(each["messageId"], each["errorCode"]) for each in answer.json["messagePublishResults"]]


async def test_each_message_is_an_entry(call):
    answer = await call("POST", T, {"messages": [{"payload": "a", "key": "k"}, {"payload": "b", "sequenceId": -1}]})
    assert results(answer) == [("7:0:-1", 0), ("7:1:-1", 0)]
    (_, first), (_, second) = call.broker.operations.publishing.entries
    metadata, payload = split_entry(first)
    assert (metadata.partition_key, bytes(payload), metadata.schema_version) == ("k", b"a", bytes(8))
    assert split_entry(second)[0].sequence_id == 2**64 - 1


async def test_a_payload_that_is_no_value_is_the_error_of_its_message(call):
    """Apache Pulsar stores an empty message and reports success."""
    body = {
        "valueSchema": json.dumps({"type": "INT32", "schema": ""}),
        "messages": [{"payload": p} for p in ("1", "x", "2")],
    }
    assert results(await call("POST", T, body)) == [("7:0:-1", 0), ("-1", 2), ("7:1:-1", 0)]
    assert [bytes(split_entry(e)[1])[-1] for _, e in call.broker.operations.publishing.entries] == [1, 2]


async def test_a_message_that_was_not_stored_has_its_error(call):
    call.broker.operations.publishing.refused.add(NAME)
    answer = await call("POST", T, {"messages": [{"payload": "a"}]})
    assert results(answer) == [("-1", 2)]
    assert answer.json["messagePublishResults"][0]["errorMsg"] == "the end"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"messages": [{"payload": "a"}, {"payload": None}]}, 500),
        ({"messages": [{"payload": "a"}, {"payload": "b", "eventTime": str(2**63)}]}, 500),
        ({"messages": [{"payload": "a", "deliverAt": 2**63}]}, 400),
        ({"messages": [{"payload": "a"}], "schemaVersion": 3}, 500),
        ({"messages": [{"payload": "a"}], "valueSchema": json.dumps({"type": "JSON", "schema": "?"})}, 500),
        ({"messages": [{"payload": "a"}], "valueSchema": json.dumps({"type": "STRING"})}, 500),
        ({"messages": [{"payload": "a"}], "keySchema": json.dumps({"type": "STRING", "schema": None})}, 500),
        ({"messages": [{"payload": "a"}], "valueSchema": json.dumps({"type": "KEY_VALUE"})}, 500),
        ({"messages": [{"payload": "a"}], "valueSchema": json.dumps({"type": "NOTHING"})}, 500),
        (None, 500),
    ],
)
async def test_nothing_is_stored_of_a_request_that_is_refused(call, body, status):
    assert (await call("POST", T, body)).status == status
    assert call.broker.operations.publishing.entries == []


async def test_a_deliver_time_beyond_64_bits_wraps(call):
    late = {"payload": "a", "eventTime": str(2**63 - 1), "deliverAfterMs": 1}
    assert results(await call("POST", T, {"messages": [late]})) == [("7:0:-1", 0)]
    assert split_entry(call.broker.operations.publishing.entries[0][1])[0].deliver_at_time == -(2**63)
