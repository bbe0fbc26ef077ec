"""Messages over REST beside deduplication, limits, schemas, partitions and consumers of each type."""

import time

from harness.joining import join as served
from harness.steps import namespace, rest
from transcript import scenario


def produce(s, topic, body):
    """Messages over REST; logs the results without their ids."""

    def results(answer):
        found = answer["messagePublishResults"]
        return [{k: v for k, v in each.items() if k != "messageId"} for each in found]

    s.call("POST", "/topics/" + topic.replace("://", "/"), body, keep=results)


def seen(s, c, seconds=0.4):
    """Notes the metadata and payload of the messages that come until silence."""
    frames = [f for f in iter(lambda: c.recv_quietly(seconds), None) if f]
    for f in frames:
        what = s.frame_text(f)[1]
        s.note("frame", [what["metadata"], what["payload"]] if f.type == "MESSAGE" else f.type)


@scenario
def rest_messages_on_a_deduplicated_topic(s):
    topic = s.topic()
    s.http("POST", rest(topic, "/deduplicationEnabled"), True, quietly=True)
    c = served(s, topic, "Exclusive")
    for n in (0, 0, 1):
        produce(s, topic, {"producerName": "p", "messages": [{"payload": f"a{n}", "sequenceId": n}]})
    produce(s, topic, {"producerName": "p", "messages": [{"payload": "b"}, {"payload": "c"}]})
    seen(s, c)


@scenario
def rest_messages_with_times_and_keys(s):
    topic = s.topic()
    c = served(s, topic, "Shared")
    produce(
        s,
        topic,
        {
            "producerName": "p",
            "messages": [
                {"payload": "k", "key": "k", "eventTime": 5, "properties": {"a": "b"}},
                {"payload": "l", "deliverAfterMs": 700},
                {"payload": "m", "deliverAt": 1},
                {"payload": "n", "replicationClusters": ["standalone"]},
                {"payload": "o", "disableReplication": True},
            ],
        },
    )
    for f in [f for f in iter(lambda: c.recv_quietly(1.5), None) if f]:
        d = s.frame_text(f)[1]["metadata"]
        s.note("message", [f.payload.decode(), {k: v for k, v in d.items() if k != "deliver_at_time"}])


@scenario
def rest_messages_to_partitions_by_key(s):
    ns = namespace(s)
    topic = s.topic("p", ns)
    s.http("PUT", rest(topic, "/partitions"), 3, quietly=True)
    for k in ("a", "b", "c", "d"):
        _, b = s.http(
            "POST",
            "/topics/" + topic.replace("://", "/"),
            {"producerName": "p", "messages": [{"payload": "x", "key": k}]},
            quietly=True,
        )
        s.note(
            k, [b if not isinstance(b, dict) else b["messagePublishResults"][0].get("messageId", "").rpartition(":")[2]]
        )
    for n in range(3):
        s.note("count", s.http("GET", rest(f"{topic}-partition-{n}", "/stats"), quietly=True)[1].get("storageSize"))


@scenario
def rest_messages_and_a_limit_of_size(s):
    topic = s.topic()
    s.http("POST", rest(topic, "/maxMessageSize"), 20, quietly=True)
    produce(s, topic, {"producerName": "p", "messages": [{"payload": "x"}, {"payload": "y" * 30}, {"payload": "z"}]})


@scenario
def rest_messages_and_limits_of_clients_and_quota(s):
    topic = s.topic(namespace=namespace(s))
    s.http("POST", rest(topic, "/maxProducers"), 1, quietly=True)
    c = s.connect()
    c.producer(topic, 1, producer_name="p")
    produce(s, topic, {"producerName": "p", "messages": [{"payload": "x"}]})
    produce(s, topic, {"producerName": "q", "messages": [{"payload": "x"}]})
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 1, producer_name="p", producer_access_mode="Exclusive")
    produce(s, topic, {"producerName": "q", "messages": [{"payload": "x"}]})


@scenario
def rest_messages_on_a_topic_with_a_schema(s):
    topic = s.topic(namespace=namespace(s))
    text = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
    s.call(
        "POST",
        "/admin/v2/schemas/" + topic.replace("persistent://", "") + "/schema",
        {"type": "JSON", "schema": text, "properties": {}},
    )
    produce(s, topic, {"producerName": "p", "messages": [{"payload": "x"}]})
    produce(s, topic, {"producerName": "p", "schemaVersion": 0, "messages": [{"payload": '{"a": 1}'}]})
    produce(s, topic, {"producerName": "p", "schemaVersion": 7, "messages": [{"payload": '{"a": 1}'}]})
    produce(
        s,
        topic,
        {
            "producerName": "p",
            "valueSchema": '{"type":"JSON","schema":"","properties":{},"name":""}',
            "messages": [{"payload": '{"a": 1}'}],
        },
    )


@scenario
def rest_messages_and_dispatch_to_each_type(s):
    topic = s.topic()
    cs = {k: s.connect(k) for k in ("Exclusive", "Failover", "Shared", "Key_Shared")}
    for k, c in cs.items():
        c.subscribe(topic, k, 1, 5, quietly=True, subType=k)
    time.sleep(1.3)
    produce(s, topic, {"producerName": "p", "messages": [{"payload": "x", "key": "k"}, {"payload": "y", "key": "k2"}]})
    for k, c in cs.items():
        s.note(k, [f.type for f in iter(lambda c=c: c.recv_quietly(0.4), None)])
