"""The figures of a topic in `broker-stats/topics` are those of Apache Pulsar 4.2.4, in its order."""

import json

import pytest

from magnetar.broker.admin.bundle_stats import topic_in_bundle
from magnetar.broker.consumers.consumer_stats import ConsumerStats, SubscriptionStats
from magnetar.broker.policies import records
from magnetar.broker.policies.records import bundle_ranges
from magnetar.broker.topics.topic_stats import ProducerStats, TopicStats
from magnetar.protocol.topic_name import TopicName
from tests.broker.admin_fakes import open_client

SINCE_MS = 1795868588310
RATES = (
    '"msgRateExpired":0.0,"msgRateOut":0.701,"messageAckRate":0.28,"msgThroughputOut":32.267,"msgRateRedeliver":0.0,'
)
SPAN = '"numberOfEntriesSinceFirstNotAckedMessage":7,"totalNonContiguousDeletedMessagesRange":2,'
FILTERED = (
    '"filterProcessedMsgCount":0,"filterAcceptedMsgCount":0,"filterRejectedMsgCount":0,"filterRescheduledMsgCount":0'
)
CLIENT = '"clientVersion":"Pulsar-CPP-v4.2.0","metadata":{"a":"b"}'
CONSUMER = (
    '{"address":"/127.0.0.1:60138","consumerName":"c1","availablePermits":990,"connectedSince":"2026-11-28T12:23:08.310Z",'
    '"msgRateOut":0.701,"msgThroughputOut":32.267,"msgRateRedeliver":0.0,"avgMessagesPerEntry":1,"messageAckRate":0.28,'
)
HELD = '"unackedMessages":6,"blockedConsumerOnUnackedMsgs":false,'
EXPECTED = {
    "Shared": (
        f'{{"consumers":[{CONSUMER}{HELD}{CLIENT}}}],"msgBacklog":6,{RATES}{SPAN}"type":"Shared",{FILTERED},'
        '"blockedSubscriptionOnUnackedMsgs":false,"unackedMessages":6}'
    ),
    "Exclusive": f'{{"consumers":[{CONSUMER}{CLIENT}}}],"msgBacklog":6,{RATES}{SPAN}"type":"Exclusive",{FILTERED}}}',
    "": f'{{"consumers":[],"msgBacklog":6,{RATES}{SPAN}"type":"None"}}',
}


def consumer(type_name):
    return ConsumerStats(
        consumer_name="c1", consumer_id=1, msg_rate_out=0.70149, msg_throughput_out=32.2671, bytes_out_counter=460,
        msg_out_counter=10, msg_rate_redeliver=0.0, message_ack_rate=0.28, chunked_message_rate=0.0,
        available_permits=990, unacked_messages=6, avg_messages_per_entry=1, blocked_on_unacked=False,
        address="/127.0.0.1:60138", connected_since_ms=SINCE_MS, client_version="Pulsar-CPP-v4.2.0", last_acked_ms=0,
        last_consumed_ms=0, first_messages_sent_ms=0, last_consumed_flow_ms=0, first_consumed_flow_ms=0,
        type_name=type_name, metadata={"a": "b"},
    )  # fmt: skip


def topic(type_name, name="persistent://t/n/x"):
    consumers = (consumer(type_name),) if type_name else ()
    subscription = SubscriptionStats(
        msg_rate_out=0.70149, msg_throughput_out=32.2671, message_ack_rate=0.28, msg_backlog=6, unacked_messages=6,
        msg_out_counter=10, bytes_out_counter=460, type_name=type_name, consumers=consumers,
    )  # fmt: skip
    publisher = ProducerStats(0, "prod", 0, "/127.0.0.1:60138", "Pulsar-CPP-v4.2.0", SINCE_MS, {}, 0.7, 21.7, 31.0, 0.0)
    return TopicStats(
        name=TopicName.parse(name), msg_rate_in=0.7, msg_throughput_in=21.7, average_msg_size=31.0, msg_in_counter=10,
        bytes_in_counter=310, gone_msg_out_counter=30, gone_bytes_out_counter=1380, storage_bytes=460,
        backlog_bytes=460, publishers=(publisher,), subscriptions={"s": subscription},
        non_contiguous_deleted_ranges={"s": 2}, entries_since_mark_delete={"s": 6},
    )  # fmt: skip


@pytest.mark.parametrize("type_name", EXPECTED)
async def test_a_subscription_has_the_fields_of_its_type(type_name):
    shown = await topic_in_bundle(topic(type_name))
    assert json.dumps(shown["subscriptions"]["s"], separators=(",", ":")) == EXPECTED[type_name]


async def test_a_topic_has_its_own_names_of_counters():
    shown = await topic_in_bundle(topic("Shared"))
    assert list(shown)[:4] == ["publishers", "replication", "subscriptions", "producerCount"]
    assert {key: shown[key] for key in list(shown)[3:]} == {
        "producerCount": 1, "averageMsgSize": 31.0, "msgRateIn": 0.7, "msgRateOut": 0.701, "msgInCount": 10,
        "bytesInCount": 310, "msgOutCount": 40, "bytesOutCount": 1840, "msgThroughputIn": 21.7,
        "msgThroughputOut": 32.267, "storageSize": 460, "backlogSize": 460, "pendingAddEntriesCount": 0,
        "filteredEntriesCount": 0,
    }  # fmt: skip
    assert shown["publishers"] == [
        {
            "msgRateIn": 0.7, "msgThroughputIn": 21.7, "averageMsgSize": 31.0, "address": "/127.0.0.1:60138",
            "producerId": 0, "producerName": "prod", "connectedSince": "2026-11-28T12:23:08.310Z",
            "clientVersion": "Pulsar-CPP-v4.2.0", "metadata": {},
        }
    ]  # fmt: skip


async def test_a_non_persistent_topic_has_no_figures_of_storage():
    shown = await topic_in_bundle(topic("Shared", "non-persistent://t/n/x"))
    assert not {"storageSize", "backlogSize", "pendingAddEntriesCount"} & set(shown)
    subscription = shown["subscriptions"]["s"]
    assert list(subscription)[-1] == "msgDropRate"
    assert "numberOfEntriesSinceFirstNotAckedMessage" not in subscription


async def test_the_ranges_of_a_namespace_are_made_once(monkeypatch):
    """The ranges of 16,384 bundles took 5 ms for each topic."""
    call, made = await open_client(), []
    monkeypatch.setattr(records, "bundle_ranges", lambda bundles: made.append(1) or bundle_ranges(bundles))
    for number in range(3):
        assert (await call("PUT", f"persistent/public/default/t{number}")).status == 204
    made.clear()
    found = (await call("GET", "broker-stats/topics")).json["public/default"]
    assert sum(len(each["persistent"]) for each in found.values()) == 3
    assert len(made) == 1
