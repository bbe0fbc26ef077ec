import pytest

from magnetar.pipeline.sink.message import Message, Row
from magnetar.pipeline.sink.options import Routing
from magnetar.pipeline.sink.routing import Router, RoutingError, partition_name


def row(key=None, partition=-1):
    return Row("t", partition, Message(b"", key))


def test_a_key_has_one_partition():
    router = Router(Routing.KEY, 0, 10)
    assert {router.partition(row(b"hello", 3), 7, 7) for _ in range(20)} == {99162322 % 7}


def test_rows_without_a_key_take_turns_by_runs():
    router = Router(Routing.KEY, 1, 3)
    assert [router.partition(row(), 3, 3) for _ in range(9)] == [1, 1, 1, 2, 2, 2, 0, 0, 0]


def test_the_column_chooses_when_asked_for():
    router = Router(Routing.PARTITION, 0, 1)
    assert router.partition(row(b"hello", 2), 4, 4) == 2
    assert router.partition(row(b"hello"), 7, 7) == 99162322 % 7
    with pytest.raises(RoutingError, match="wants partition 4"):
        router.partition(row(None, 4), 4, 4)


def test_the_column_may_name_a_partition_that_the_topic_has_got():
    router = Router(Routing.PARTITION, 0, 1)
    assert router.partition(row(b"hello", 4), 4, 5) == 4
    assert router.partition(row(b"hello"), 7, 9) == 99162322 % 7


def test_topics_without_partitions():
    assert Router(Routing.KEY, 5, 1).partition(row(b"k", 9), 0, 0) == -1
    assert (partition_name("t", -1), partition_name("t", 3)) == ("t", "t-partition-3")
