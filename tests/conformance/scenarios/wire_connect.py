"""Handshake, versions, feature flags, keep-alive, and frames that an old peer does not get."""

import time

from harness.steps import batch, published, published_batches, rest
from transcript import encode, scenario

PROTOCOL = 21


@scenario
def connected_tells_version_size_and_features(s):
    c = s.connect(handshake=False)
    c.send("CONNECT", client_version="bare")
    c.recv()
    c.none()


@scenario
def connect_with_every_protocol_version(s):
    for version in (0, 1, 3, 4, 5, 6, 9, 11, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 1000):
        s.connect(handshake=True, quietly=False, protocol_version=version)


@scenario
def connect_of_negative_version(s):
    s.connect(quietly=False, protocol_version=-1)


@scenario
def connect_without_client_version_closes(s):
    c = s.connect(handshake=False)
    c.send("CONNECT", protocol_version=PROTOCOL)
    c.recv()


@scenario
def connect_with_authentication_that_nobody_asked_for(s):
    """Authentication is off: the broker ignores all proofs."""
    s.connect(quietly=False, auth_method_name="token", auth_data=b"no token")
    s.connect(quietly=False, auth_method_name="none")
    s.connect(quietly=False, auth_method_name="unheard-of", auth_data=b"")


@scenario
def connect_through_a_proxy(s):
    """proxy_to_broker_url and original principals of a proxy are accepted when authentication is off."""
    s.connect(quietly=False, proxy_to_broker_url="127.0.0.1:6650")
    s.connect(quietly=False, original_principal="someone", original_auth_data="x", original_auth_method="token")
    s.connect(quietly=False, proxy_version="proxy 1")


@scenario
def connect_with_all_features_unset(s):
    s.connect(quietly=False, feature_flags={})
    s.connect(quietly=False, feature_flags=dict(supports_auth_refresh=False, supports_broker_entry_metadata=False))


@scenario
def auth_response_when_authentication_is_off(s):
    c = s.connect()
    response = dict(auth_method_name="token", auth_data=b"x")
    c.send("AUTH_RESPONSE", client_version="x", protocol_version=PROTOCOL, response=response)
    c.recv()
    c.none()
    d = s.connect(handshake=False)
    d.send("AUTH_RESPONSE", client_version="x", protocol_version=PROTOCOL, response=response)
    d.recv()
    d.none()


@scenario
def pong_and_ping_in_any_order(s):
    s.keep_pong = True
    c = s.connect()
    c.send("PONG")
    c.none()
    for _ in range(3):
        c.send("PING")
    for _ in range(3):
        c.recv()


@scenario
def commands_that_only_a_broker_sends_close(s):
    sent = dict(
        CONNECTED=dict(server_version="x"),
        SUCCESS=dict(request_id=1),
        ERROR=dict(request_id=1, error="UnknownError", message="m"),
        SEND_RECEIPT=dict(producer_id=1, sequence_id=1),
        SEND_ERROR=dict(producer_id=1, sequence_id=1, error="UnknownError", message="m"),
        PRODUCER_SUCCESS=dict(request_id=1, producer_name="p"),
        LOOKUP_RESPONSE=dict(request_id=1),
        PARTITIONED_METADATA_RESPONSE=dict(request_id=1),
        CONSUMER_STATS_RESPONSE=dict(request_id=1),
        REACHED_END_OF_TOPIC=dict(consumer_id=1),
        ACTIVE_CONSUMER_CHANGE=dict(consumer_id=1),
        ACK_RESPONSE=dict(consumer_id=1),
        AUTH_CHALLENGE={},
    )
    for name, fields in sent.items():
        c = s.connect(name.lower())
        c.send(name, **fields)
        c.recv(2)


@scenario
def commands_that_only_a_broker_sends_close_too(s):
    sent = dict(
        GET_LAST_MESSAGE_ID_RESPONSE=dict(request_id=1, last_message_id=dict(ledgerId=1, entryId=1)),
        GET_TOPICS_OF_NAMESPACE_RESPONSE=dict(request_id=1),
        GET_SCHEMA_RESPONSE=dict(request_id=1),
        GET_OR_CREATE_SCHEMA_RESPONSE=dict(request_id=1),
        WATCH_TOPIC_LIST_SUCCESS=dict(request_id=1, watcher_id=1, topics_hash="00000000"),
        WATCH_TOPIC_UPDATE=dict(watcher_id=1, topics_hash="00000000"),
        TOPIC_MIGRATED=dict(resource_id=1, resource_type="Producer"),
        NEW_TXN_RESPONSE=dict(request_id=1),
        END_TXN_RESPONSE=dict(request_id=1),
        TC_CLIENT_CONNECT_RESPONSE=dict(request_id=1),
    )
    for name, fields in sent.items():
        c = s.connect(name.lower())
        c.send(name, **fields)
        c.recv(2)


@scenario
def requests_before_connect_close(s):
    topic = s.topic()
    sent = dict(
        SEEK=dict(consumer_id=1, request_id=1, message_publish_time=1),
        FLOW=dict(consumer_id=1, messagePermits=1),
        GET_SCHEMA=dict(request_id=1, topic=topic),
        GET_TOPICS_OF_NAMESPACE=dict(request_id=1, namespace="public/default"),
        CLOSE_PRODUCER=dict(producer_id=1, request_id=1),
        CLOSE_CONSUMER=dict(consumer_id=1, request_id=1),
        UNSUBSCRIBE=dict(consumer_id=1, request_id=1),
        CONSUMER_STATS=dict(consumer_id=1, request_id=1),
        GET_LAST_MESSAGE_ID=dict(consumer_id=1, request_id=1),
        NEW_TXN=dict(request_id=1),
        TC_CLIENT_CONNECT_REQUEST=dict(request_id=1, tc_id=0),
        WATCH_TOPIC_LIST=dict(request_id=1, watcher_id=1, namespace="public/default", topics_pattern=".*"),
        ACK=dict(consumer_id=1, ack_type="Individual", message_id=[dict(ledgerId=1, entryId=1)]),
        REDELIVER_UNACKNOWLEDGED_MESSAGES=dict(consumer_id=1),
    )
    for name, fields in sent.items():
        c = s.connect(name.lower(), handshake=False)
        c.raw(encode(name, **fields), name, tolerant=True)
        c.recv(2)


@scenario
def old_peer_gets_messages_without_checksum(s):
    """Below protocol version 11 the checksum is stripped."""
    topic = s.topic()
    for version in (10, 11):
        c = s.connect(f"v{version}", protocol_version=version)
        c.subscribe(topic, f"sub{version}", initialPosition="Earliest", permits=10)
    published(s, topic, 1)
    for c in s.connections[-3:]:
        if c.name.startswith("v"):
            c.recv()


@scenario
def entry_metadata_only_for_those_who_asked_at_version_18(s):
    """Both the feature flag and the protocol version are needed."""
    topic = s.topic()
    published(s, topic, 1)
    cases = dict(v17=(17, True), v18=(18, True), noflag=(21, False), v21=(21, True))
    for name, (version, flag) in cases.items():
        c = s.connect(name, protocol_version=version, feature_flags=dict(supports_broker_entry_metadata=flag))
        c.subscribe(topic, name, initialPosition="Earliest", permits=10)
        c.recv()


@scenario
def batch_for_a_peer_that_knows_no_batches(s):
    """Below protocol version 4 a consumer is closed when a batch comes."""
    topic = s.topic()
    c = s.connect(protocol_version=3)
    c.subscribe(topic, permits=10)
    published(s, topic, 1)
    c.recv()
    published_batches(s, topic, [b"a", b"b"])
    c.recv(3)
    c.none()


@scenario
def close_reaches_an_old_peer_as_end_of_connection(s):
    """Below version 5 there is no CLOSE_PRODUCER or CLOSE_CONSUMER of the broker."""
    topic = s.topic()
    for version in (4, 5):
        c = s.connect(f"v{version}", protocol_version=version)
        c.producer(topic, 1, producer_name=f"p{version}")
    s.http("DELETE", rest(topic, "?force=true"), quietly=True)
    for c in s.connections:
        if c.name.startswith("v"):
            c.recv(3)


@scenario
def old_consumer_and_the_change_of_the_active_one(s):
    """ACTIVE_CONSUMER_CHANGE is for version 12 and above."""
    topic = s.topic()
    c = s.connect(protocol_version=11)
    c.subscribe(topic, subType="Failover", consumer_name="a")
    c.none(2)
    d = s.connect(protocol_version=12)
    d.subscribe(s.topic("u"), subType="Failover", consumer_name="a")
    d.recv()


@scenario
def old_consumer_and_the_end_of_a_topic(s):
    """REACHED_END_OF_TOPIC is for version 9 and above."""
    topic = s.topic()
    published(s, topic, 1)
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    for version in (8, 9):
        c = s.connect(f"v{version}", protocol_version=version)
        c.subscribe(topic, f"sub{version}", permits=10)
        c.none(1)


@scenario
def old_client_asks_for_new_things(s):
    """The broker accepts a command with any version of the peer."""
    topic = s.topic()
    c = s.connect(protocol_version=1)
    c.ask("GET_TOPICS_OF_NAMESPACE", namespace="public/" + s.tag)
    c.subscribe(topic, permits=10)
    c.ask("GET_LAST_MESSAGE_ID", quietly=True, consumer_id=1)
    c.ask("GET_SCHEMA", topic=topic)
    c.producer(topic, 1, producer_name="p")
    c.publish(1, 0, crc=False)
    c.recv_sorted(2)


@scenario
def answers_come_while_a_consumer_is_idle(s):
    """A connection with consumers and producers is used like any other."""
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True, permits=1)
    c.producer(topic, 1, quietly=True)
    time.sleep(0.2)
    c.ask("LOOKUP", topic=topic)
    c.ask("PARTITIONED_METADATA", topic=topic)
    c.none()


@scenario
def end_of_a_connection_frees_names_and_subscriptions(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.producer(topic, 1, producer_name="x")
    a.subscribe(topic, "sub", 1)
    a.close()
    time.sleep(0.3)
    b.producer(topic, 1, producer_name="x")
    b.subscribe(topic, "sub", 1)


@scenario
def silent_peer_loses_its_name_to_a_newcomer(s):
    """The broker asks the old connection with PING; silence for five seconds closes it."""
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.producer(topic, 1, producer_name="x")
    a.answer_ping = False
    b.send("PRODUCER", topic=topic, producer_id=1, producer_name="x", request_id=1)
    b.recv(12)
    a.recv(2)


@scenario
def silent_peer_loses_its_exclusive_subscription(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.subscribe(topic, "sub", 1)
    a.answer_ping = False
    b.send("SUBSCRIBE", topic=topic, subscription="sub", subType="Exclusive", consumer_id=1, request_id=1)
    b.recv(12)
    a.recv(2)


@scenario
def batch_published_while_an_old_consumer_is_connected(s):
    topic = s.topic()
    c, p = s.connect(protocol_version=3), s.connect("producer")
    c.subscribe(topic, subType="Shared")
    p.producer(topic, 1, producer_name="p")
    p.publish(1, 0, batch(b"a", b"b"), command=dict(num_messages=2), num_messages_in_batch=2)
    p.recv()
    c.recv(2)


@scenario
def connect_in_odd_forms(s):
    for fields in (
        dict(client_version=""), dict(client_version="\u00e4" * 300), dict(protocol_version=2**31 - 1), dict(protocol_version=-(2**31)),
        dict(auth_method_name=""), dict(auth_method_name="none"), dict(auth_method_name="token", auth_data=b"x"), dict(auth_method_name="sasl"),
        dict(auth_method="AuthMethodNone"), dict(auth_method="AuthMethodAthens"), dict(original_principal="x"), dict(original_principal=""),
        dict(original_auth_data="x", original_auth_method="token"), dict(proxy_to_broker_url="localhost:6650"), dict(proxy_to_broker_url="no url"),
        dict(feature_flags={}), dict(feature_flags=dict(supports_topic_watchers=False)), dict(proxy_version="1"),
    ):  # fmt: skip
        c = s.connect(quietly=False, **fields)
        c.ask("LOOKUP", topic="persistent://public/default/x", authoritative=False)
        c.close()


@scenario
def messages_for_peers_of_each_version(s):
    topic = s.topic()
    published(s, topic, 1)
    for version in (0, 3, 6, 10, 11, 17, 18, 21):
        for flag in (False, True):
            c = s.connect(protocol_version=version, feature_flags=dict(supports_broker_entry_metadata=flag))
            c.subscribe(topic, f"s{version}{flag}", 1, 1, quietly=True, initialPosition="Earliest")
            c.recv()
            c.close()
