"""Subscriptions after a partitioned topic grew: on which partitions, from which message, with which properties."""

from harness.steps import published, rest
from transcript import scenario


def partitioned(s, partitions, messages=0):
    topic = s.topic()
    s.http("PUT", rest(topic, "/partitions"), partitions, quietly=True)
    for k in range(partitions if messages else 0):
        published(s, f"{topic}-partition-{k}", messages)
    s.lookup(topic)
    return topic


def subscriptions(s, topic, partitions):
    """Backlog, durability, properties and replication of each partition's subscriptions."""
    for k in range(partitions):
        found = s.http("GET", rest(f"{topic}-partition-{k}", "/stats"), quietly=True)[1]["subscriptions"]
        facts = ("msgBacklog", "isDurable", "subscriptionProperties", "isReplicated")
        s.note(k, {name: [found[name][fact] for fact in facts] for name in sorted(found)})


@scenario
def growth_with_subscriptions_of_single_partitions(s):
    topic = partitioned(s, 3, messages=4)
    c = s.connect()
    first, second, third = (f"{topic}-partition-{k}" for k in range(3))
    properties = [{"key": "a", "value": "1"}]
    c.subscribe(first, "of0", 1, subscription_properties=properties, initialPosition="Earliest")
    c.subscribe(first, "replicated0", 6, replicate_subscription_state=True)
    c.subscribe(second, "of1", 2, initialPosition="Earliest")
    c.subscribe(first, "latest0", 3)
    c.subscribe(second, "latest0", 7)
    c.subscribe(first, "reader0", 4, durable=False, start_message_id={"ledgerId": 2**64 - 1, "entryId": 2**64 - 1})
    c.subscribe(third, "of2", 5)
    subscriptions(s, topic, 3)
    for partitions in (4, 5):
        s.http("POST", rest(topic, "/partitions"), partitions)
        subscriptions(s, topic, partitions)


@scenario
def growth_of_an_unloaded_topic_with_subscriptions(s):
    topic = partitioned(s, 2)
    c = s.connect()
    c.subscribe(topic + "-partition-0", "s", 1)
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    s.http("PUT", rest(topic, "/unload"))
    s.http("POST", rest(topic, "/partitions"), 3)
    subscriptions(s, topic, 3)


@scenario
def subscription_created_by_rest_after_growth(s):
    topic = partitioned(s, 2)
    c = s.connect()
    c.subscribe(topic + "-partition-0", "s0", 1)
    c.subscribe(topic + "-partition-1", "s1", 2)
    s.http("POST", rest(topic, "/partitions"), 3)
    for name in ("s0", "s1", "s1", "new"):
        s.http("PUT", rest(topic, "/subscription/" + name), "earliest")
    subscriptions(s, topic, 3)


@scenario
def growth_keeps_positions(s):
    topic = partitioned(s, 2, messages=3)
    s.http("PUT", rest(topic, "/subscription/s"), "earliest")
    s.http("POST", rest(topic + "-partition-0", "/subscription/s/skip/1"))
    s.http("POST", rest(topic + "-partition-1", "/subscription/s/skip/2"))
    s.http("POST", rest(topic, "/partitions"), 3)
    subscriptions(s, topic, 3)
