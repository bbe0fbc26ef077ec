"""Requests that are refused, one after another on a connection: answer, code and words of each command."""

from transcript import scenario

BYTES_OF_NO_SCHEMA = b"xx"


def transaction(**more):
    return {"txnid_least_bits": 1, "txnid_most_bits": 1} | more


@scenario
def requests_for_ids_that_were_never_given(s):
    c, topic = s.connect(), s.topic()
    message = {"ledgerId": 1, "entryId": 1}
    for command, fields in (
        ("CLOSE_PRODUCER", {"producer_id": 77}),
        ("CLOSE_CONSUMER", {"consumer_id": 77}),
        ("UNSUBSCRIBE", {"consumer_id": 77}),
        ("SEEK", {"consumer_id": 77, "message_id": message}),
        ("SEEK", {"consumer_id": 77}),
        ("GET_LAST_MESSAGE_ID", {"consumer_id": 77}),
        ("WATCH_TOPIC_LIST_CLOSE", {"watcher_id": 77}),
        ("GET_SCHEMA", {"topic": topic, "schema_version": b"\0" * 8}),
        ("GET_SCHEMA", {"topic": topic, "schema_version": b""}),
        ("NEW_TXN", {}),
        ("TC_CLIENT_CONNECT_REQUEST", {"tc_id": 7}),
        ("ADD_PARTITION_TO_TXN", transaction(partitions=[topic])),
        ("ADD_SUBSCRIPTION_TO_TXN", transaction()),
        ("END_TXN", transaction()),
        ("CONSUMER_STATS", {"consumer_id": 77}),
    ):
        c.ask(command, **fields)


@scenario
def subscriptions_that_no_consumer_may_have(s):
    c, topic = s.connect(), s.topic()
    for name, fields in (
        ("", {}),
        (" ", {}),
        ("pulsar.dedup", {}),
        ("pulsar.repl.x", {}),
        ("s", {"read_compacted": True}),
        ("s", {"metadata": [{"key": "k", "value": "v" * 1100}]}),
        ("s", {"topic": "persistent://public/default/x__transaction_pending_ack"}),
    ):
        c.ask("SUBSCRIBE", **({"topic": topic, "subscription": name, "consumer_id": 1, "subType": "Shared"} | fields))


@scenario
def producers_beside_a_producer_of_the_topic(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, producer_name="a")
    for number, fields in enumerate(
        (
            {"producer_name": "a"},
            {"producer_name": "b", "producer_access_mode": "Exclusive"},
            {"schema": {"name": "s", "type": "Int32", "schema_data": BYTES_OF_NO_SCHEMA}},
            {"schema": {"name": "s", "type": "String", "schema_data": BYTES_OF_NO_SCHEMA}},
            {"schema": {"name": "s", "type": "AutoConsume", "schema_data": b""}},
            {"topic": "persistent://public/default/x__transaction_pending_ack"},
        ),
        2,
    ):
        c.producer(fields.pop("topic", topic), number, **fields)
