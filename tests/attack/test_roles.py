"""Roles with few rights must not reach the loop, the memory and the data of others."""

import itertools
import json
import struct
import threading
import time

import crc32c
import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.attack.conftest import MIB, connect, http, token
from tests.blackbox.raw import command, entry, frame

NAMESPACE = "public/default"
TOPIC = f"persistent://{NAMESPACE}/t"


def admin(secured, method, path, body=None, role="admin"):
    raw = b"" if body is None else json.dumps(body).encode()
    return http(secured.broker, method, f"/admin/v2/{path}", raw, role)


@pytest.fixture
def reader(secured):
    """A role that may consume in the namespace, and its connection."""
    assert admin(secured, "POST", f"namespaces/{NAMESPACE}/permissions/reader", ["consume"])[0] == 204
    assert admin(secured, "PUT", f"persistent/{NAMESPACE}/t")[0] == 204
    peer = connect(secured.broker.url, "reader")
    yield peer
    peer.socket.close()


@pytest.fixture
def writer(secured):
    """A role that may produce and consume in the namespace, and its connection."""
    assert admin(secured, "POST", f"namespaces/{NAMESPACE}/permissions/writer", ["produce", "consume"])[0] == 204
    peer = connect(secured.broker.url, "writer")
    yield peer
    peer.socket.close()


def create_topics(secured, count, prefix="n"):
    for number in range(count):
        assert admin(secured, "PUT", f"persistent/{NAMESPACE}/{prefix}{number}")[0] == 204


PATTERNS = ["(.*a)*" * 7 + "b", "(x+x+)+y", "(a|aa)+" * 6 + "b", "((a{30}){30}){1}", r"(?:\pL|\pN|\pS){9}", "(.*){99}"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_that_backtracks_for_ever_is_matched_or_refused(secured, reader, pattern):
    """A pattern of 46 characters held the broker for good, SIGTERM included."""
    for number in range(3):
        assert admin(secured, "PUT", f"persistent/{NAMESPACE}/{'a' * 200}{number}")[0] == 204
    kind = "GET_TOPICS_OF_NAMESPACE"
    with secured.watch() as watch:
        for _ in range(20):
            found = reader.ask(
                kind, "getTopicsOfNamespace", namespace=NAMESPACE, topics_pattern=f"{NAMESPACE}/{pattern}"[:50]
            )
            assert found.type in (pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, pb.BaseCommand.ERROR)
            reader.ask("WATCH_TOPIC_LIST", "watchTopicList", namespace=NAMESPACE, topics_pattern=pattern, watcher_id=1)
    secured.unharmed(watch)


def nested_twice(levels, leaf):
    schema = {"type": "record", "name": "R0", "fields": [{"name": "x", "type": leaf}]}
    for level in range(1, levels):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{level - 1}"}]
        schema = {"type": "record", "name": f"R{level}", "fields": fields}
    return schema


def wide_union(names):
    return {"type": "record", "name": "U", "fields": [{"name": "u", "type": [f"N{i}" for i in range(names)]}]}


SCHEMAS = {
    "nested twice": [nested_twice(40, "int"), nested_twice(40, "long")],
    "a union of 60,000 names": [wide_union(60_000), wide_union(59_999)],
    "a union of 10,000 records": [
        [{"type": "record", "name": f"{p}{i}", "fields": [{"name": p, "type": "int"}]} for i in range(10_000)]
        for p in "AB"
    ],
    "brackets": [[[[]]]],
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_that_unfold_are_compared_once_or_refused(secured, writer, name):
    """Two records of 4 KB, nested 40 deep with each child twice, held the broker for good."""
    with secured.watch() as watch:
        for number, schema in enumerate(SCHEMAS[name]):
            text = json.dumps(schema).encode()
            found = writer.ask(
                "PRODUCER",
                "producer",
                topic=TOPIC,
                producer_id=number,
                schema=pb.Schema(name="s", type=pb.Schema.Avro, schema_data=text),
            )
            assert found.type == pb.BaseCommand.PRODUCER_SUCCESS or found.error.error == pb.IncompatibleSchema
    secured.unharmed(watch, most_seconds=1.0, most_mib=96)


BODIES = {
    "270,000 empty messages": b'{"messages": [' + b",".join([b'{"payload":""}'] * 270_000) + b"]}",
    "fifteen megabytes of numbers": b'{"messages": [' + b"0," * (15 * MIB // 2 - 20) + b"0]}",
    "10,000 empty messages": b'{"messages": [' + b",".join([b'{"payload":""}'] * 10_000) + b"]}",
    "a message of 150,000 properties": json.dumps(
        {"messages": [{"payload": "", "properties": {f"k{i}": "" for i in range(150_000)}}]}
    ).encode(),
    "three payloads of three megabytes": json.dumps({"messages": [{"payload": "x" * 3 * MIB}] * 3}).encode(),
}


@pytest.mark.parametrize("name", BODIES)
def test_publishes_over_http_cost_in_proportion_to_stored_bytes(secured, writer, name):
    """270,000 empty messages stalled all clients for 23 s and took 570 MiB."""
    assert admin(secured, "PUT", f"persistent/{NAMESPACE}/t")[0] == 204
    with secured.watch() as watch:
        status, _ = http(secured.broker, "POST", f"/topics/persistent/{NAMESPACE}/t", BODIES[name], "writer")
        assert status in ((200,) if "payloads" in name or "10,000" in name else (413, 429))
    secured.unharmed(watch, most_seconds=1.0, most_mib=192)


def test_names_properties_and_metadata_of_half_a_megabyte_are_refused(secured, writer):
    """One topic with a consumer's name of 4 MB made /metrics 452 MB long."""
    long = "x" * 500_000
    pairs = [pb.KeyValue(key="k", value=long)]
    ranges = [pb.IntRange(start=3 * i, end=3 * i + 1) for i in range(20_000, 0, -1)]
    sticky = pb.KeySharedMeta(keySharedMode=pb.STICKY, hashRanges=ranges)
    with secured.watch() as watch:
        producing = [{"producer_name": long}, {"metadata": pairs}, {"initial_subscription_name": long}]
        for number, more in enumerate(producing):
            found = writer.ask("PRODUCER", "producer", topic=TOPIC, producer_id=number, **more)
            assert found.type == pb.BaseCommand.ERROR, more.keys()
        consuming = [
            {"subscription": long},
            {"consumer_name": long},
            {"metadata": pairs},
            {"subscription_properties": pairs},
            {
                "subType": pb.CommandSubscribe.Key_Shared,
                "keySharedMeta": sticky,
            },
        ]
        for number, more in enumerate(consuming):
            options = {"subscription": "s", "subType": pb.CommandSubscribe.Shared} | more
            found = writer.ask("SUBSCRIBE", "subscribe", topic=TOPIC, consumer_id=number, **options)
            assert found.type == pb.BaseCommand.ERROR, more.keys()
        assert len(http(secured.broker, "GET", "/metrics", role="admin")[1]) < MIB
    secured.unharmed(watch)


def test_acknowledgements_of_many_words_and_many_ids(secured, writer):
    """An ack set of 60,000 words took 10 s."""
    writer.producer(TOPIC, 1)
    for number in range(3):
        send = command("SEND", "send", producer_id=1, sequence_id=number, num_messages=2)
        writer.write(frame(send, entry(number, b"x", num_messages_in_batch=2)))
    receipts = [writer.receive().send_receipt.message_id for _ in range(3)]
    writer.subscribe(TOPIC, "s", 1, permits=10)
    last = receipts[-1]
    with secured.watch() as watch:
        for words in ([-1] * 60_000, [1] * 300_000, [-1] * 4096):
            ident = pb.MessageIdData(ledgerId=last.ledgerId, entryId=last.entryId, ack_set=words)
            found = ask_ack(writer, [ident])
            assert found.HasField("error") == (len(words) > 4096)
        ids = [pb.MessageIdData(ledgerId=last.ledgerId, entryId=i) for i in range(100_000)]
        assert not ask_ack(writer, ids).HasField("error")
        writer.write(
            frame(
                command(
                    "REDELIVER_UNACKNOWLEDGED_MESSAGES",
                    "redeliverUnacknowledgedMessages",
                    consumer_id=1,
                    message_ids=ids,
                )
            )
        )
        writer.ask("GET_LAST_MESSAGE_ID", "getLastMessageId", consumer_id=1)
    secured.unharmed(watch)


def ask_ack(peer, ids):
    ack = {"consumer_id": 1, "ack_type": pb.CommandAck.Individual, "message_id": ids, "request_id": 77}
    peer.write(frame(command("ACK", "ack", **ack)))
    while (found := peer.receive()).type != pb.BaseCommand.ACK_RESPONSE:
        pass
    return found.ackResponse


def test_watchers_of_many_patterns_do_not_slow_the_creation_of_topics(secured, reader):
    """10,000 watchers on one connection stalled all clients for 2 s when ten topics came."""
    create_topics(secured, 50)
    watch_list = "WATCH_TOPIC_LIST"
    answers = [
        reader.ask(watch_list, "watchTopicList", namespace=NAMESPACE, topics_pattern=f".*/n.*|{i}", watcher_id=i)
        for i in range(1001)
    ]
    assert [a.type for a in answers[:1000]] == [pb.BaseCommand.WATCH_TOPIC_LIST_SUCCESS] * 1000
    assert answers[-1].error.error == pb.TooManyRequests
    with secured.watch() as watch:
        create_topics(secured, 10, "new")
        updates = 0
        while updates < 10_000:
            found = reader.receive()
            updates += len(found.watchTopicUpdate.new_topics)
    secured.unharmed(watch)


def test_a_revoked_watcher_hears_nothing_more(secured, reader):
    reader.ask("WATCH_TOPIC_LIST", "watchTopicList", namespace=NAMESPACE, topics_pattern=".*", watcher_id=1)
    create_topics(secured, 1, "before")
    assert [n.rpartition("/")[2] for n in reader.receive().watchTopicUpdate.new_topics] == ["before0"]
    assert admin(secured, "DELETE", f"namespaces/{NAMESPACE}/permissions/reader")[0] == 204
    create_topics(secured, 2, "secret")
    time.sleep(0.5)
    reader.write(frame(command("PING", "ping")))
    assert reader.receive().type == pb.BaseCommand.PONG
    assert admin(secured, "POST", f"namespaces/{NAMESPACE}/permissions/reader", ["consume"])[0] == 204
    assert len(reader.receive().watchTopicUpdate.new_topics) == 2


def test_a_repeated_watch_under_another_namespace_lists_no_topics_of_the_revoked_namespace(secured, reader):
    """The broker checked the right to the named namespace, and answered the topics of the watcher's namespace."""
    other, watch = "public/other", "WATCH_TOPIC_LIST"
    assert admin(secured, "PUT", f"namespaces/{other}", {})[0] == 204
    assert admin(secured, "POST", f"namespaces/{other}/permissions/reader", ["consume"])[0] == 204
    reader.ask(watch, "watchTopicList", namespace=NAMESPACE, topics_pattern=".*", watcher_id=1)
    assert admin(secured, "DELETE", f"namespaces/{NAMESPACE}/permissions/reader")[0] == 204
    create_topics(secured, 1, "secret")
    found = reader.ask(watch, "watchTopicList", namespace=other, topics_pattern=".*", watcher_id=1)
    assert (found.type, found.error.error) == (pb.BaseCommand.ERROR, pb.AuthorizationError)
    found = reader.ask(watch, "watchTopicList", namespace=other, topics_pattern=".*", watcher_id=2)
    assert list(found.watchTopicListSuccess.topic) == []


def test_two_hundred_thousand_properties_are_refused_and_many_are_one_transaction(secured, writer):
    assert admin(secured, "PUT", f"persistent/{NAMESPACE}/t")[0] == 204
    with secured.watch() as watch:
        for count, expected in ((200_000, (413, 0)), (5_000, (204,))):
            body = {f"k{i}": "v" for i in range(count)}
            assert admin(secured, "PUT", f"persistent/{NAMESPACE}/t/properties", body)[0] in expected
    secured.unharmed(watch)


def test_peeking_and_skipping_far_behind_cost_no_walk(secured, writer):
    writer.producer(TOPIC, 1)
    frames = b"".join(
        frame(command("SEND", "send", producer_id=1, sequence_id=i, num_messages=1), entry(i, b"x"))
        for i in range(20_000)
    )
    writer.write(frames)
    for _ in range(20_000):
        assert writer.receive().type == pb.BaseCommand.SEND_RECEIPT
    path = f"persistent/{NAMESPACE}/t/subscription/s"
    assert admin(secured, "PUT", path, "earliest")[0] == 204
    with secured.watch() as watch:
        for _ in range(20):
            assert admin(secured, "GET", f"{path}/position/20000", role="writer")[0] == 200
        assert admin(secured, "POST", f"{path}/skip/19999", role="writer")[0] == 204
        assert admin(secured, "GET", f"{path}/position/1", role="writer")[0] == 200
    secured.unharmed(watch)


def test_a_message_with_metadata_of_megabytes_is_not_parsed_for_headers(secured, writer):
    """Each of eight requests in a round took 0.1 s of processor time."""
    writer.producer(TOPIC, 1)
    writer.subscribe(TOPIC, "s", 1)
    metadata = pb.MessageMetadata(producer_name="raw", sequence_id=0, publish_time=1).SerializeToString()
    metadata += b"\x22\x04\x0a\x00\x12\x00" * 800_000  # empty properties
    body = struct.pack(">I", len(metadata)) + metadata
    body = b"\x0e\x01" + struct.pack(">I", crc32c.crc32c(body)) + body
    writer.write(frame(command("SEND", "send", producer_id=1, sequence_id=0, num_messages=1), body))
    assert writer.receive().type == pb.BaseCommand.SEND_RECEIPT
    path = f"/admin/v2/persistent/{NAMESPACE}/t/subscription/s/position/1"
    answers = []

    def peek():
        answers.append(http(secured.broker, "GET", path, role="writer"))

    peers = [threading.Thread(target=peek) for _ in range(24)]
    with secured.watch() as watch:
        for peer in peers:
            peer.start()
        for peer in peers:
            peer.join()
    assert {status for status, _ in answers} == {500}
    assert all(b"the metadata has 4800" in text for _, text in answers)
    secured.unharmed(watch)


def test_a_subscription_of_another_role_is_not_emptied_by_calls_about_all(secured, writer):
    writer.producer(TOPIC, 1)
    writer.write(frame(command("SEND", "send", producer_id=1, sequence_id=0, num_messages=1), entry(0, b"x")))
    assert writer.receive().type == pb.BaseCommand.SEND_RECEIPT
    path = f"persistent/{NAMESPACE}/t"
    assert admin(secured, "PUT", f"{path}/subscription/theirs", "earliest")[0] == 204
    assert admin(secured, "POST", f"namespaces/{NAMESPACE}/permissions/subscription/theirs", ["other"])[0] == 204
    bundles = json.loads(admin(secured, "GET", f"namespaces/{NAMESPACE}/bundles")[1])["boundaries"]
    for bulk in (
        f"{path}/all_subscription/expireMessages/0",
        f"namespaces/{NAMESPACE}/clearBacklog",
        *(f"namespaces/{NAMESPACE}/{a}_{b}/clearBacklog" for a, b in itertools.pairwise(bundles)),
    ):
        admin(secured, "POST", bulk, role="writer")
    stats = json.loads(admin(secured, "GET", f"{path}/stats")[1])
    assert stats["subscriptions"]["theirs"]["msgBacklog"] == 1


def test_a_reader_adds_no_schema(secured, reader):
    schema = pb.Schema(name="s", type=pb.Schema.String, schema_data=b"")
    found = reader.ask("GET_OR_CREATE_SCHEMA", "getOrCreateSchema", topic=TOPIC, schema=schema)
    assert found.getOrCreateSchemaResponse.error_code == pb.AuthorizationError
    assert admin(secured, "GET", f"schemas/{NAMESPACE}/t/schema")[0] == 404


def test_forty_thousand_partitions(secured):
    """Each partition was loaded and cost 20 KiB: a stop took more than a minute."""
    with secured.watch() as watch:
        for number in range(4):
            assert admin(secured, "PUT", f"persistent/{NAMESPACE}/many{number}/partitions", 10_000)[0] == 204
    secured.unharmed(watch, most_mib=96)


def test_tokens_with_a_megabyte_of_padding_are_refused(secured, writer):
    """The broker looked at each byte of the padding: eight connections stalled all clients for 5 s."""
    signed, _, signature = token("writer").encode().rpartition(b".")
    padded = signed + b"." + b"!" * (MIB - 2000) + signature
    answer = frame(command("AUTH_RESPONSE", "authResponse", response=proof(padded), protocol_version=21))
    peers = [connect(secured.broker.url, "writer") for _ in range(8)]
    with secured.watch() as watch:
        for peer in peers:
            peer.write(answer)
        for peer in peers:
            assert peer.is_closed()
    secured.unharmed(watch)
    writer.write(frame(command("AUTH_RESPONSE", "authResponse", response=proof(token("writer").encode()))))
    assert writer.ask("LOOKUP", "lookupTopic", topic=TOPIC, authoritative=False).lookupTopicResponse.brokerServiceUrl


def proof(credentials):
    return pb.AuthData(auth_method_name="token", auth_data=credentials)
