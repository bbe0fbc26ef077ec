"""Figures of /metrics that come from real activity of the broker."""

import threading

from tests.blackbox.clients import quiet_client
from tests.blackbox.raw import RawPeer, lookup
from tests.waiting import wait_for

TOPIC = "persistent://public/default/figures"


def test_the_figures_of_publishing_reading_and_looking_up_move(new_broker):
    broker = new_broker(statsUpdateFrequencyInSecs=1, exposeTopicLevelMetricsInPrometheus="true")
    client = quiet_client(broker.url)
    consumer = client.subscribe(TOPIC, "s")
    producer = client.create_producer(TOPIC, batching_enabled=False)
    stop = threading.Event()

    def traffic():
        while not stop.wait(0.005):
            producer.send(b"x" * 300)
            consumer.acknowledge(consumer.receive(20_000))

    thread = threading.Thread(target=traffic)
    thread.start()
    names = (
        "pulsar_storage_write_latency_count",
        "pulsar_storage_write_latency_sum",
        "pulsar_entry_size_le_512",
        "pulsar_storage_write_rate",
        "pulsar_ml_MarkDeleteRate",
        "pulsar_ml_cache_hits_rate",
        "pulsar_ml_cache_hits_throughput",
    )
    seen = dict.fromkeys(names, 0.0)

    def all_seen():
        for name in names:
            seen[name] = max(seen[name], broker.metrics(name) or 0)
        return all(seen.values())

    try:
        wait_for(all_seen, subject="a value of each figure", every=0.3)
    finally:
        stop.set()
        thread.join()
    assert broker.metrics("pulsar_broker_publish_latency_count") > 10
    assert broker.metrics("pulsar_broker_publish_latency_sum") > 0
    assert broker.metrics("pulsar_broker_lookup_answers_total") >= 2
    assert broker.metrics("pulsar_broker_lookup_failures_total") == 0
    peer = RawPeer(broker.url)
    peer.write(lookup(1, "persistent://public/no-such-namespace/t"))
    assert peer.receive().lookupTopicResponse.HasField("error")
    peer.close()
    assert broker.metrics("pulsar_broker_lookup_failures_total") == 1
    client.close()
