"""Limits of producers and topics that a namespace sets, and the encryption it demands."""

from harness.steps import namespace, rest
from transcript import scenario

MODES = ("Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing")


@scenario
def producers_over_a_limit_come_in_again(s):
    ns = namespace(s, maxProducersPerTopic=2)
    topic = f"persistent://{ns}/t"
    s.lookup(topic)
    c = s.connect()
    for i in range(4):
        c.producer(topic, i, producer_name=f"p{i}")
    c.ask("CLOSE_PRODUCER", producer_id=0)
    c.producer(topic, 2, producer_name="p2")
    c.producer(topic, 3, producer_name="p2")


@scenario
def limit_of_producers_by_mode_and_domain(s):
    ns = namespace(s, maxProducersPerTopic=1)
    for domain in ("persistent", "non-persistent"):
        topic = f"{domain}://{ns}/t"
        s.lookup(topic)
        c = s.connect()
        c.producer(topic, 1, producer_name="a")
        for j, mode in enumerate(MODES):
            c.producer(topic, 10 + j, producer_name="b", producer_access_mode=mode)


@scenario
def limit_of_topics_and_producers_on_new_ones(s):
    ns = namespace(s, maxTopicsPerNamespace=2)
    c = s.connect()
    for i in range(4):
        s.lookup(f"persistent://{ns}/t{i}")
        c.producer(f"persistent://{ns}/t{i}", i, producer_name="p")
    s.lookup(f"non-persistent://{ns}/n")
    c.producer(f"non-persistent://{ns}/n", 9, producer_name="p")
    c.ask("PARTITIONED_METADATA", topic=f"persistent://{ns}/t7", metadata_auto_creation_enabled=True)
    s.call("DELETE", rest(f"persistent://{ns}/t0", "?force=true"))
    c.recv()
    c.producer(f"persistent://{ns}/t2", 12, producer_name="p")


@scenario
def encryption_by_namespace_and_kind_of_producer(s):
    ns = namespace(s, encryptionRequired=True)
    for domain in ("persistent", "non-persistent"):
        topic = f"{domain}://{ns}/t"
        s.lookup(topic)
        c = s.connect()
        for mode in MODES:
            c.producer(topic, 1, producer_name="plain", producer_access_mode=mode)
            c.producer(topic, 2, producer_name="enc", producer_access_mode=mode, encrypted=True)
            c.ask("CLOSE_PRODUCER", producer_id=2)
        c.producer(topic, 3, producer_name="enc", encrypted=True)
        c.publish(3, 0)
        c.recv()
        c.publish(3, 1, encryption_keys=[{"key": "k", "value": b"v"}])
        c.recv()
        c.publish(3, 2, encryption_keys=[{"key": "", "value": b""}], encryption_algo="none")
        c.recv()
