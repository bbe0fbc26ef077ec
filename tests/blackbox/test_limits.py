"""Rates and shared limits of the settings, seen by official clients. Times are lower bounds only."""

import contextlib
import json
import time
import urllib.error
import urllib.request

import pulsar
import pytest

from tests.blackbox.clients import quiet_client
from tests.waiting import wait_for


def rest(broker, path):
    with urllib.request.urlopen(f"{broker.http_url}/admin/v2/{path}", timeout=10) as answer:
        return json.load(answer)


def published(client, topic, count, size=10, **producer):
    """Publish, and return the seconds until all receipts came; the broker delays a connection over its rate after the
    receipts.
    """
    started = time.monotonic()
    producer = client.create_producer(topic, **{"batching_enabled": False, **producer})
    for _ in range(count):
        producer.send_async(b"x" * size, lambda *_: None)
    producer.flush()
    return time.monotonic() - started


def received(consumer, count):
    """Receive and acknowledge so many messages; return the seconds that took."""
    started = time.monotonic()
    for _ in range(count):
        consumer.acknowledge(consumer.receive(30_000))
    return time.monotonic() - started


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_publish_rate_per_topic(magnetar_broker_factory, domain):
    broker = magnetar_broker_factory(maxPublishRatePerTopicInMessages=50)
    client = quiet_client(broker.url)
    sent_s = sum(published(client, f"{domain}://public/default/limited", 50) for _ in range(4))
    assert sent_s > 1.5, "50 at once, then 50 a second"
    client.close()
    broker.stop()


def test_publish_rate_of_the_broker_is_shared_by_topics(magnetar_broker_factory):
    broker = magnetar_broker_factory(brokerPublisherThrottlingMaxByteRate=10_000)
    client = quiet_client(broker.url)
    sent_s = sum(published(client, f"part-of-all-{i}", 10, size=1000) for i in range(4))
    assert sent_s > 1.5, "10 kB at once, then 10 kB a second"
    client.close()
    broker.stop()


@pytest.mark.parametrize("where", ["PerTopicInMsg", "PerSubscriptionInMsg", "InMsg"])
def test_dispatch_rates(magnetar_broker_factory, where):
    broker = magnetar_broker_factory(**{f"dispatchThrottlingRate{where}": 50})
    client = quiet_client(broker.url)
    consumer = client.subscribe("slow", "sub", consumer_type=pulsar.ConsumerType.Shared)
    published(client, "slow", 200)
    assert received(consumer, 200) > 1.5, "50 at once, then 50 a second"
    client.close()
    broker.stop()


def test_the_dispatch_rate_counts_batches_by_its_setting(magnetar_broker_factory):
    broker = magnetar_broker_factory(
        dispatchThrottlingRatePerTopicInMsg=10, dispatchThrottlingOnBatchMessageEnabled=True
    )
    client = quiet_client(broker.url)
    consumer = client.subscribe("batches", "sub")
    producer = client.create_producer("batches", batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for _ in range(5):
        for _ in range(200):
            producer.send_async(b"x", lambda *_: None)
        producer.flush()
    batches = rest(broker, "persistent/public/default/batches/internalStats")["entriesAddedCounter"]
    assert batches <= 10, "or the test shows nothing"
    assert received(consumer, 1000) < 60, "1000 messages one by one would take 99 s"
    client.close()
    broker.stop()


def test_a_dispatch_rate_relative_to_the_publish_rate(magnetar_broker_factory):
    broker = magnetar_broker_factory(
        dispatchThrottlingRatePerTopicInMsg=1,
        dispatchThrottlingRateRelativeToPublishRate=True,
        statsUpdateFrequencyInSecs=1,
    )
    client = quiet_client(broker.url)
    consumer = client.subscribe("relative", "sub")
    published(client, "relative", 1000)
    time.sleep(1)
    assert received(consumer, 200) < 100, "one a second would take 199 s"
    client.close()
    broker.stop()


def test_a_consumer_without_backlog_may_be_exempt_from_the_dispatch_rate(magnetar_broker_factory):
    broker = magnetar_broker_factory(
        dispatchThrottlingRatePerTopicInMsg=1, dispatchThrottlingOnNonBacklogConsumerEnabled=False
    )
    client = quiet_client(broker.url)
    consumer = client.subscribe("caught-up", "sub")
    published(client, "caught-up", 200)
    assert received(consumer, 200) < 100, "one a second would take 199 s"
    client.close()
    broker.stop()


def test_a_rate_changed_at_run_time_is_in_force(magnetar_broker_factory):
    broker = magnetar_broker_factory()
    client = quiet_client(broker.url)
    consumer = client.subscribe("changed", "sub")
    for key in ("dispatchThrottlingRateInMsg", "dispatchThrottlingRatePerTopicInMsg"):
        url = f"{broker.http_url}/admin/v2/brokers/configuration/{key}/"
        for rate, slow in (("50", True), ("0", False)):
            urllib.request.urlopen(urllib.request.Request(url + rate, method="POST"), timeout=10).close()
            published(client, "changed", 200)
            took_s = received(consumer, 200)
            assert not slow or took_s > 1.5
    applied = rest(broker, "persistent/public/default/changed/dispatchRate?applied=true")
    assert applied["dispatchThrottlingRateInMsg"] == 0
    client.close()
    broker.stop()


def test_the_subscribe_rate_of_the_settings_is_applied(magnetar_broker_factory):
    broker = magnetar_broker_factory(subscribeThrottlingRatePerConsumer=2, subscribeRatePeriodPerConsumerInSecond=600)
    client = quiet_client(broker.url)
    client.create_producer("often")
    rate = rest(broker, "persistent/public/default/often/subscribeRate?applied=true")
    assert rate == {"subscribeThrottlingRatePerConsumer": 2, "ratePeriodInSecond": 600}
    client.close()
    broker.stop()


def test_unacknowledged_messages_of_the_broker(magnetar_broker_factory):
    broker = magnetar_broker_factory(
        maxUnackedMessagesPerBroker=20, maxUnackedMessagesPerSubscriptionOnBrokerBlocked=0.25
    )
    client = quiet_client(broker.url)
    shared = {"consumer_type": pulsar.ConsumerType.Shared, "receiver_queue_size": 100}

    def blocked():
        stats = rest(broker, "persistent/public/default/large/stats")
        return stats["subscriptions"]["sub"]["blockedSubscriptionOnUnackedMsgs"]

    large, small = client.subscribe("large", "sub", **shared), client.subscribe("small", "sub", **shared)
    published(client, "large", 30)
    held = [large.receive(30_000) for _ in range(20)]
    assert blocked()
    published(client, "large", 30)
    while True:
        try:
            held.append(large.receive(500))
        except pulsar.Timeout:
            break
    assert len(held) <= 40, "the entries of one read more than the limit, at most"
    published(client, "small", 3)
    assert received(small, 3) < 30
    for message in held:
        large.acknowledge(message)
    assert received(large, 60 - len(held)) < 30
    wait_for(lambda: not blocked())  # the client sends its acknowledgements in groups
    client.close()
    broker.stop()


def test_a_blocked_subscription_resumes_when_one_client_acknowledges_for_both(magnetar_broker_factory):
    broker = magnetar_broker_factory(maxUnackedMessagesPerSubscription=4)
    client = quiet_client(broker.url)
    shared = {"consumer_type": pulsar.ConsumerType.Shared, "receiver_queue_size": 100}
    consumers = [client.subscribe("burst", "sub", **shared) for _ in range(2)]

    def figures():
        return rest(broker, "persistent/public/default/burst/stats")["subscriptions"]["sub"]

    def arrived(timeout_ms):
        found = []
        for consumer in consumers:
            with contextlib.suppress(pulsar.Timeout):
                while True:
                    found.append(consumer.receive(timeout_ms))
        return found

    published(client, "burst", 10)
    got = []
    while len(got) < 10:
        held = arrived(1000)
        assert held, "a subscription whose messages are acknowledged goes on"
        for message in held:
            consumers[0].acknowledge(message)
        got += held
    assert len({message.message_id().entry_id() for message in got}) == len(got) == 10
    wait_for(lambda: not figures()["blockedSubscriptionOnUnackedMsgs"] and not figures()["unackedMessages"])
    client.close()
    broker.stop()


def test_http_requests_beyond_the_rate_are_refused(magnetar_broker_factory):
    broker = magnetar_broker_factory(httpRequestsLimitEnabled=True, httpRequestsMaxPerSecond=0.01)
    rest(broker, "clusters")
    with pytest.raises(urllib.error.HTTPError) as e:
        rest(broker, "clusters")
    with e.value as answer:
        assert answer.code == 429
    broker.stop()
