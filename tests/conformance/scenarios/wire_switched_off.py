"""Commands of features that are switched off or belong to other deployments: transactions, scalable topics; each gets a typed answer."""

from harness.steps import published
from transcript import scenario


@scenario
def transactions_are_off(s):
    c = s.connect()
    c.ask("TC_CLIENT_CONNECT_REQUEST", tc_id=0)
    c.ask("NEW_TXN", tc_id=0, txn_ttl_millis=1000)
    ids = dict(txnid_least_bits=1, txnid_most_bits=0)
    c.ask("ADD_PARTITION_TO_TXN", partitions=["persistent://public/default/t"], **ids)
    subscription = dict(topic="persistent://public/default/t", subscription="s")
    c.ask("ADD_SUBSCRIPTION_TO_TXN", subscription=[subscription], **ids)
    c.ask("END_TXN", txn_action="COMMIT", **ids)
    c.ask("END_TXN_ON_PARTITION", topic="persistent://public/default/t", txn_action="COMMIT", **ids)
    c.ask("END_TXN_ON_SUBSCRIPTION", subscription=subscription, txn_action="ABORT", **ids)
    c.none()


@scenario
def transactions_are_off_for_new_style_requests(s):
    c = s.connect()
    c.ask("TC_CLIENT_CONNECT_REQUEST", tc_id=3, scalable=True)
    c.ask("NEW_TXN", tc_id=0, txn_ttl_millis=1000, scalable=True)


@scenario
def ack_with_a_transaction(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True, permits=10, subType="Shared")
    ids = published(s, topic, 2)
    c.recv_quietly(), c.recv_quietly()
    txn = dict(txnid_least_bits=1, txnid_most_bits=0)
    c.ask("ACK", consumer_id=1, ack_type="Individual", message_id=[ids[0] | dict(batch_size=1)], **txn)
    c.ask("ACK", consumer_id=1, ack_type="Cumulative", message_id=[ids[1]], **txn)
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    c.recv(2)
    c.recv(2)


@scenario
def ack_with_a_transaction_on_exclusive(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True, permits=10)
    ids = published(s, topic, 2)
    c.recv_quietly(), c.recv_quietly()
    txn = dict(txnid_least_bits=1, txnid_most_bits=0)
    c.ask("ACK", consumer_id=1, ack_type="Cumulative", message_id=[ids[1]], **txn)
    c.none()


def answered(s, name, **fields):
    c = s.connect(name.lower())
    c.send(name, **fields)
    c.recv(2)
    c.none(0.3)


@scenario
def scalable_topic_lookup(s):
    topic = s.topic()
    published(s, topic, 1)
    answered(s, "SCALABLE_TOPIC_LOOKUP", session_id=1, topic=topic)


@scenario
def scalable_topic_close(s):
    answered(s, "SCALABLE_TOPIC_CLOSE", session_id=1)


@scenario
def scalable_topic_subscribe(s):
    topic = s.topic()
    more = dict(subscription="s", consumer_name="c", consumer_id=1, consumer_type=0)
    answered(s, "SCALABLE_TOPIC_SUBSCRIBE", request_id=1, topic=topic, **more)


@scenario
def scalable_topics_watched(s):
    answered(s, "WATCH_SCALABLE_TOPICS", watch_id=1, namespace="public/default")
    answered(s, "WATCH_SCALABLE_TOPICS_CLOSE", watch_id=1)


@scenario
def coordinator_assignments_watched(s):
    answered(s, "WATCH_TC_ASSIGNMENTS", watch_id=1)
    answered(s, "WATCH_TC_ASSIGNMENTS_CLOSE", watch_id=1)


@scenario
def scalable_answers_of_a_broker_close(s):
    answered(s, "SCALABLE_TOPIC_UPDATE", session_id=1)
    answered(s, "WATCH_SCALABLE_TOPICS_UPDATE", watch_id=1)
    answered(s, "WATCH_TC_ASSIGNMENTS_UPDATE", watch_id=1)
    answered(s, "SCALABLE_TOPIC_SUBSCRIBE_RESPONSE", request_id=1)


@scenario
def commands_after_a_transaction_refusal_go_on(s):
    topic = s.topic()
    c = s.connect()
    c.ask("NEW_TXN")
    c.ask("LOOKUP", topic=topic)
    c.producer(topic, 1, producer_name="p", txn_enabled=True)
    c.publish(1, 0)
    c.recv()


@scenario
def ends_of_transactions_on_topics_that_exist(s):
    """Requests for unknown topics and subscriptions succeed; existing topics and subscriptions refuse."""
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True)
    ids = dict(txnid_least_bits=1, txnid_most_bits=0)
    c.ask("END_TXN_ON_PARTITION", topic=topic, txn_action="COMMIT", **ids)
    for name in "sub", "unknown":
        subscription = dict(topic=topic, subscription=name)
        c.ask("END_TXN_ON_SUBSCRIPTION", subscription=subscription, txn_action="ABORT", **ids)
    c.none()


@scenario
def end_of_a_transaction_on_a_bad_topic_closes(s):
    c = s.connect()
    c.send("END_TXN_ON_PARTITION", request_id=1, topic="foo://x", txn_action="COMMIT")
    c.recv(2)
