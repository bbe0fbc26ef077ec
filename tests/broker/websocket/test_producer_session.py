"""Partitions of messages; the recorded scenarios have Apache Pulsar's choice for some keys."""

import random

from magnetar.broker.websocket.producer_session import Router


def test_one_partition_or_one_after_the_other():
    single = Router(5, "SinglePartition", "JavaStringHash", random.Random(1))
    assert len({single.partition(None) for _ in range(20)}) == 1
    every = Router(3, "RoundRobinPartition", "JavaStringHash", random.Random(1))
    first = [every.partition(None) for _ in range(6)]
    assert sorted(first[:3]) == [0, 1, 2]
    assert first[:3] == first[3:]


def test_keys_stay_together():
    for hashing in ("JavaStringHash", "Murmur3_32Hash"):
        router = Router(7, "RoundRobinPartition", hashing)
        assert len({router.partition("key") for _ in range(10)}) == 1
