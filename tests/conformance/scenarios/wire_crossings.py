"""Commands that cross REST operations on their topic, and odd requests for features that are off."""

from harness.consumers import by_type, resume
from harness.steps import namespace, rest
from transcript import encode, scenario

IDS = {"txnid_least_bits": 1, "txnid_most_bits": 0}


@scenario
def transactions_by_every_field(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="p", txn_enabled=True)
    c.subscribe(topic, "sub", 1)
    for fields in ({}, {"tc_id": 0}, {"tc_id": 7}):
        c.ask("NEW_TXN", **fields)
    for tc in (0, 1, 15, 16, 2**32):
        c.ask("TC_CLIENT_CONNECT_REQUEST", tc_id=tc)
    for partitions in ([], [topic], ["bad://x"], [topic, topic]):
        c.ask("ADD_PARTITION_TO_TXN", partitions=partitions, **IDS)
    for subscriptions in ([], [{"topic": topic, "subscription": "sub"}], [{"topic": "bad://x", "subscription": ""}]):
        c.ask("ADD_SUBSCRIPTION_TO_TXN", subscription=subscriptions, **IDS)
    for action in ("COMMIT", "ABORT"):
        c.ask("END_TXN", txn_action=action, **IDS)
        c.ask("END_TXN")
        c.ask("END_TXN_ON_PARTITION", topic=topic, txn_action=action, **IDS)
        c.ask("END_TXN_ON_PARTITION", topic=topic)
        known = {"topic": topic, "subscription": "sub"}
        c.ask("END_TXN_ON_SUBSCRIPTION", subscription=known, txn_action=action, **IDS)
        c.ask("END_TXN_ON_SUBSCRIPTION", subscription=known | {"subscription": "none"}, txn_action=action, **IDS)
    c.publish(1, 0)
    c.recv()


@scenario
def ends_of_transactions_on_other_kinds_of_topics(s):
    c = s.connect()
    for name in (
        s.topic("a"),
        s.topic("n", domain="non-persistent"),
        s.topic("p") + "-partition-0",
        "persistent://public/none/t",
    ):
        c.ask("END_TXN_ON_PARTITION", topic=name, txn_action="COMMIT", **IDS)
        subscription = {"topic": name, "subscription": "s"}
        c.ask("END_TXN_ON_SUBSCRIPTION", subscription=subscription, txn_action="COMMIT", **IDS)
    topic = s.topic("used", domain="non-persistent")
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, "s", 1)
    c.ask("END_TXN_ON_PARTITION", topic=topic, txn_action="COMMIT", **IDS)
    c.ask("END_TXN_ON_SUBSCRIPTION", subscription={"topic": topic, "subscription": "s"}, txn_action="COMMIT", **IDS)


@scenario
def answers_sent_by_a_client(s):
    for kind, fields in (
        ("SUCCESS", {"request_id": 1}),
        ("ERROR", {"request_id": 1, "error": "UnknownError", "message": "x"}),
        ("PRODUCER_SUCCESS", {"request_id": 1, "producer_name": "x"}),
        ("SEND_RECEIPT", {"producer_id": 1, "sequence_id": 1}),
        ("SEND_ERROR", {"producer_id": 1, "sequence_id": 1, "error": "UnknownError", "message": "x"}),
        ("ACTIVE_CONSUMER_CHANGE", {"consumer_id": 1}),
        ("REACHED_END_OF_TOPIC", {"consumer_id": 1}),
        ("TOPIC_MIGRATED", {"resource_id": 1, "resource_type": "Producer"}),
        ("WATCH_TOPIC_UPDATE", {"watcher_id": 1, "topics_hash": "x"}),
        ("AUTH_CHALLENGE", {}),
        ("CONNECTED", {"server_version": "x"}),
        ("ACK_RESPONSE", {"consumer_id": 1}),
    ):
        c = s.connect()
        c.send(kind, **fields)
        c.recv(2)
        c.close()


@scenario
def producer_asked_for_while_the_topic_is_deleted(s):
    topic = s.topic()
    c = s.connect()
    for i in range(3):
        c.producer(topic, i, quietly=True, producer_name="p")
        s.call("DELETE", rest(topic, "?force=true"))
        c.recv()
        c.producer(topic, 10 + i, producer_name="p")
        c.publish(10 + i, 0)
        c.recv()
        c.ask("CLOSE_PRODUCER", producer_id=10 + i)


@scenario
def deletion_without_force_of_a_topic_in_use(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="p")
    s.call("DELETE", rest(topic))
    c.publish(1, 0)
    c.recv()
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.subscribe(topic, "sub", 1)
    s.call("DELETE", rest(topic))
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    s.call("DELETE", rest(topic))
    s.call("DELETE", rest(topic, "/subscription/sub"))
    s.call("DELETE", rest(topic))
    c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=False)


@scenario
def namespace_unloaded_under_its_clients(s):
    ns = namespace(s)
    c = s.connect()
    for i in range(2):
        s.lookup(f"persistent://{ns}/t{i}")
        c.producer(f"persistent://{ns}/t{i}", i, quietly=True, producer_name="p")
    c.subscribe(f"persistent://{ns}/t0", "sub", 5, quietly=True)
    s.call("PUT", f"/admin/v2/namespaces/{ns}/unload")
    c.recv_sorted(3)
    for i in range(2):
        s.lookup(f"persistent://{ns}/t{i}")
        c.producer(f"persistent://{ns}/t{i}", i, producer_name="p", epoch=1)


@scenario
def partitions_deleted_one_by_one(s):
    topic = s.topic()
    s.call("PUT", rest(topic, "/partitions"), 2)
    c = s.connect()
    for i in range(2):
        s.lookup(f"{topic}-partition-{i}")
        c.producer(f"{topic}-partition-{i}", i, quietly=True, producer_name="p")
    s.call("DELETE", rest(topic + "-partition-1", "?force=true"))
    c.recv(2)
    c.ask("PARTITIONED_METADATA", topic=topic)
    c.producer(topic + "-partition-1", 1, producer_name="p")
    s.call("DELETE", rest(topic, "?force=true"))
    c.recv(1)
    c.producer(topic, 7, producer_name="p")


@scenario
def base_of_a_partitioned_topic_in_every_request(s):
    topic = s.topic()
    s.call("PUT", rest(topic, "/partitions"), 2)
    c = s.connect()
    for name in (topic, "non-" + topic):
        c.ask("LOOKUP", topic=name, authoritative=False)
        c.producer(name, 1, producer_name="p")
        c.subscribe(name, "sub", 1)
        c.ask("GET_OR_CREATE_SCHEMA", topic=name, schema=dict(name="s", schema_data=b"", type="String"))
        c.ask("CLOSE_PRODUCER", quietly=True, producer_id=1)
        c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)


@scenario
def topic_made_over_rest_while_clients_ask(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="p")
    s.call("PUT", rest(topic))
    s.call("PUT", rest(topic, "/partitions"), 2)
    c.ask("PARTITIONED_METADATA", topic=topic)
    c.publish(1, 0)
    c.recv()


@scenario
def plain_topic_beside_partitions_of_its_name(s):
    topic = s.topic()
    s.lookup(topic + "-partition-0")
    c = s.connect()
    c.producer(topic, 1, producer_name="p")
    c.producer(topic + "-partition-0", 2, producer_name="p")
    s.call("PUT", rest(topic + "-partition-0"))
    c.producer(topic + "-partition-0", 3, producer_name="p")
    c.ask("PARTITIONED_METADATA", topic=topic + "-partition-0")
    c.ask("PARTITIONED_METADATA", topic=topic)


@scenario
def terminated_topic_and_every_request(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.publish(1, 0)
    c.recv()
    s.call("POST", rest(topic, "/terminate"))
    c.recv()
    c.ask("LOOKUP", topic=topic, authoritative=False)
    c.ask("PARTITIONED_METADATA", topic=topic)
    c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=dict(name="s", schema_data=b"", type="String"))
    c.ask("GET_SCHEMA", topic=topic)
    c.producer(topic, 2, producer_name="q")
    c.subscribe(topic, "sub", 1, permits=5, initialPosition="Earliest")
    c.recv(1)
    c.recv(0.5)
    s.call("POST", rest(topic, "/terminate"))
    s.call("PUT", rest(topic, "/unload"))
    c.recv(2)
    c.producer(topic, 3, producer_name="q")


@scenario
def quota_of_a_topic_met_by_every_access_mode(s):
    ns = namespace(s)
    topic = f"persistent://{ns}/t"
    s.lookup(topic)
    limit = {"limitSize": 100, "limitTime": -1, "policy": "producer_exception"}
    s.call("POST", f"/admin/v2/namespaces/{ns}/backlogQuota", limit)
    c = s.connect()
    c.subscribe(topic, "sub", 1, quietly=True)
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.publish_all(1, [b"x" * 500, b"y" * 500])
    c.recv(10)
    for i, mode in enumerate(("Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing")):
        c.producer(topic, 10 + i, producer_name="q", producer_access_mode=mode)
    c.producer(topic, 20, producer_name="r", schema=dict(name="s", schema_data=b"", type="String"))
    c.producer(topic, 21, producer_name="s", initial_subscription_name="other")


@scenario
def many_requests_for_one_new_topic(s):
    topic = s.topic()
    c = s.connect()
    wanted = [encode("PRODUCER", topic=topic, producer_id=i, request_id=i, producer_name=f"p{i}") for i in range(5)]
    wanted += [
        encode("SUBSCRIBE", topic=topic, subscription=f"s{i}", subType="Shared", consumer_id=i, request_id=i)
        for i in range(5, 10)
    ]
    c.raw(b"".join(wanted), "5 PRODUCERs, 5 SUBSCRIBEs")
    c.recv_sorted(10)


@by_type
def own_messages_of_a_non_persistent_topic(s, kind):
    topic = s.topic(domain="non-persistent")
    c = s.connect()
    resume(c, topic, kind)
    c.producer(topic, 1)
    for i in range(3):
        c.publish(1, i, b"m%d" % i)
        c.recv()  # the receipt comes before the message
        c.recv()
