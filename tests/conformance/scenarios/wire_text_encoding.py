"""Texts of commands that are not UTF-8: each unreadable byte becomes U+FFFD and the connection stays open."""

from harness.steps import rest
from transcript import encode, scenario

BAD = b"\xff\xfeb"


def broken(type_name, **fields):
    """A frame in which every "###" is three bytes that are no UTF-8."""
    return encode(type_name, **fields).replace(b"###", BAD)


def asked(s, note, type_name, **fields):
    c = s.connect()
    c.raw(broken(type_name, request_id=7, **fields), note)
    c.recv(3)
    c.ask("LOOKUP", topic="persistent://public/default/t")


@scenario
def texts_that_are_no_utf8_in_questions(s):
    for topic in (
        f"persistent://public/default/{s.tag}-###",
        "persistent://public/###/t",
        "persistent://###/default/t",
        "###",
    ):
        asked(s, "LOOKUP", "LOOKUP", topic=topic, authoritative=False)
        asked(s, "PARTITIONED_METADATA", "PARTITIONED_METADATA", topic=topic)
        asked(s, "GET_SCHEMA", "GET_SCHEMA", topic=topic)
    asked(
        s,
        "listener",
        "LOOKUP",
        topic=f"persistent://public/default/{s.tag}",
        authoritative=False,
        advertised_listener_name="###",
    )
    asked(
        s,
        "principal",
        "LOOKUP",
        topic=f"persistent://public/default/{s.tag}",
        authoritative=False,
        original_principal="###",
    )


@scenario
def texts_that_are_no_utf8_in_lists(s):
    asked(s, "list", "GET_TOPICS_OF_NAMESPACE", namespace="public/###", mode="PERSISTENT")
    asked(s, "pattern", "GET_TOPICS_OF_NAMESPACE", namespace="public/default", mode="PERSISTENT", topics_pattern="###")
    asked(s, "hash", "GET_TOPICS_OF_NAMESPACE", namespace=f"public/{s.tag}", mode="PERSISTENT", topics_hash="###")
    asked(s, "watcher", "WATCH_TOPIC_LIST", namespace="public/default", watcher_id=1, topics_pattern="###")


@scenario
def texts_that_are_no_utf8_in_names_of_clients(s):
    topic = s.topic()
    asked(s, "producer", "PRODUCER", topic=topic, producer_id=1, producer_name="###")
    asked(s, "its metadata", "PRODUCER", topic=topic, producer_id=1, metadata=[{"key": "k###", "value": "###"}])
    asked(s, "its first subscription", "PRODUCER", topic=topic, producer_id=1, initial_subscription_name="###")
    base = dict(topic=topic, consumer_id=1, subType="Shared")
    asked(s, "subscription", "SUBSCRIBE", subscription="s###", **base)
    asked(s, "consumer", "SUBSCRIBE", subscription="sub", consumer_name="###", **base)
    asked(s, "its metadata", "SUBSCRIBE", subscription="sub", metadata=[{"key": "k###", "value": "###"}], **base)
    asked(
        s,
        "its properties",
        "SUBSCRIBE",
        subscription="props",
        subscription_properties=[{"key": "k###", "value": "###"}],
        **base,
    )
    s.http("GET", rest(topic, "/subscriptions"), keep=True)
    asked(s, "topic", "PRODUCER", topic=topic + "###", producer_id=1, producer_name="p")
    asked(s, "topic", "SUBSCRIBE", topic=topic + "###", consumer_id=1, subscription="sub", subType="Shared")


@scenario
def text_that_is_no_utf8_names_one_topic(s):
    topic = s.topic()
    s.lookup(topic + "\ufffd\ufffdb")
    c = s.connect()
    c.raw(broken("PRODUCER", request_id=7, topic=topic + "###", producer_id=1, producer_name="p"), "producer")
    c.recv()
    c.raw(broken("PRODUCER", request_id=8, topic=topic + "###", producer_id=2, producer_name="p"), "again")
    c.recv()
    c.producer(topic + "\ufffd\ufffdb", 3, producer_name="p")


@scenario
def texts_that_are_no_utf8_in_a_schema(s):
    topic = s.topic()
    asked(
        s, "name", "PRODUCER", topic=topic, producer_id=1, schema={"name": "###", "type": "String", "schema_data": b""}
    )
    asked(
        s,
        "properties",
        "PRODUCER",
        topic=topic,
        producer_id=1,
        schema={"name": "s", "type": "String", "schema_data": b"", "properties": [{"key": "###", "value": "###"}]},
    )
    c = s.connect()
    c.ask("GET_SCHEMA", topic=topic)


@scenario
def texts_that_are_no_utf8_in_connect(s):
    for name in (
        "client_version",
        "auth_method_name",
        "proxy_to_broker_url",
        "original_principal",
        "original_auth_method",
        "proxy_version",
    ):
        c = s.connect(handshake=False)
        base = {"client_version": "v", "protocol_version": 21}
        c.raw(broken("CONNECT", **(base | {name: "###"})), name)
        c.recv()
        c.ask("LOOKUP", topic=s.topic())


@scenario
def texts_that_are_no_utf8_in_other_commands(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic)
    c.raw(broken("TC_CLIENT_CONNECT_REQUEST", request_id=7, tc_id=1), "nothing")
    c.recv()
    c.raw(broken("ADD_PARTITION_TO_TXN", request_id=7, partitions=["###"]), "partition")
    c.recv()
    c.raw(broken("END_TXN_ON_PARTITION", request_id=7, topic="###"), "end")
    c.recv()
    d = s.connect()
    d.raw(broken("AUTH_RESPONSE", client_version="###", response={"auth_method_name": "###"}), "auth")
    d.recv()
    d.recv()
