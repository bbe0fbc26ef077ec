"""The fan-out of a non-persistent topic: turns of bounded cost, the order of runs, the end."""

from array import array

from magnetar.broker.dispatchers.turns import ROUND_BYTES, DispatchTurns
from magnetar.broker.topics.fan_out import FanOut
from magnetar.broker.topics.non_persistent_topic import NonPersistentTopic
from magnetar.broker.topics.producer import Producer, ProducerRequest
from magnetar.protocol.runs import EntryRun
from magnetar.protocol.topic_name import TopicName
from tests.broker.dispatch_fakes import Scheduler, entry, slab_of
from tests.broker.topic_for_tests import TopicBench
from tests.twins.fake_connection import FakeConnection

TOPIC = TopicName.parse("non-persistent://public/default/t")


class Taking:
    """A subscription for which each slab has this cost."""

    def __init__(self, name, cost=ROUND_BYTES):
        self.name, self.cost = name, cost
        self.consumers, self.got = (), []

    def publish(self, slab):
        if self.cost is None:
            raise ZeroDivisionError
        self.got.append(slab.first_entry_id)
        return self.cost


class FanOutBench:
    def __init__(self, *costs):
        self.clock = Scheduler()
        turns = DispatchTurns(self.clock.call_later)
        self.by_name = {f"s{k}": Taking(f"s{k}", cost) for k, cost in enumerate(costs)}
        self.fan_out = FanOut(TOPIC, self.by_name, lambda: turns)
        self.begun = []

    def publish(self, number):
        def run():
            self.begun.append(number)
            self.fan_out.send(slab_of(1, number, [entry()]))

        self.fan_out.begin(run)

    @property
    def got(self):
        return [each.got for each in self.by_name.values()]

    def round(self):
        """Run the calls that are due now, without the calls that they schedule."""
        due, self.clock._queue = self.clock._queue, []
        for _, _, callback, _ in due:
            callback()


def test_a_run_reaches_all_subscriptions_at_once_where_they_cost_little():
    bench = FanOutBench(100, 100, 100)
    bench.publish(1)
    bench.publish(2)
    assert bench.got == [[1, 2]] * 3
    assert not bench.clock._queue


def test_a_run_goes_to_subscriptions_in_the_order_of_apache_pulsar():
    bench, order = FanOutBench(), []
    for joined, expected in (
        ("zz", ["zz"]),
        ("b", ["zz", "b"]),
        ("sub", ["zz", "sub", "b"]),
        ("a", ["zz", "sub", "a", "b"]),
    ):
        taking = bench.by_name[joined] = Taking(joined, 0)
        taking.publish = lambda _slab, name=joined: order.append(name) or 0
        bench.publish(1)
        assert order == expected
        order.clear()
    del bench.by_name["sub"]
    bench.publish(2)
    assert order == ["zz", "a", "b"]


def test_a_run_to_many_subscriptions_takes_turns_and_later_runs_wait():
    bench = FanOutBench(ROUND_BYTES, ROUND_BYTES, ROUND_BYTES)
    bench.publish(1)
    bench.publish(2)
    assert (bench.got, bench.begun) == ([[1], [], []], [1])
    bench.round()
    assert (bench.got, bench.begun) == ([[1], [1], []], [1])
    bench.round()
    assert (bench.got, bench.begun) == ([[1], [1], [1]], [1])
    bench.round()
    assert (bench.got, bench.begun) == ([[1, 2], [1], [1]], [1, 2])
    bench.clock.run()
    assert bench.got == [[1, 2]] * 3


def test_slabs_that_come_without_a_run_keep_their_order():
    """A converter sends the entries of a run in several pieces."""
    bench = FanOutBench(ROUND_BYTES, ROUND_BYTES)
    for number in (1, 2, 3):
        bench.fan_out.send(slab_of(1, number, [entry()]))
    bench.publish(4)
    assert bench.got == [[1], []]
    bench.clock.run()
    assert bench.got == [[1, 2, 3, 4]] * 2


def test_a_subscription_that_fails_keeps_no_entry_from_the_others():
    bench = FanOutBench(10, None, 10)
    bench.publish(1)
    bench.publish(2)
    assert bench.got == [[1, 2], [], [1, 2]]


def test_a_waiting_run_that_fails_keeps_the_runs_behind_it_from_nothing():
    bench = FanOutBench(ROUND_BYTES, ROUND_BYTES)
    bench.publish(1)
    bench.fan_out.begin(lambda: 1 // 0)
    bench.publish(2)
    bench.clock.run()
    bench.publish(3)
    bench.clock.run()
    assert (bench.got, bench.begun) == ([[1, 2, 3]] * 2, [1, 2, 3])


def test_the_end_drops_slabs_and_answers_waiting_runs():
    bench = FanOutBench(ROUND_BYTES, ROUND_BYTES)
    bench.publish(1)
    bench.publish(2)
    bench.publish(3)
    bench.fan_out.end()
    bench.clock.run()
    assert (bench.got, bench.begun) == ([[1], []], [1, 2, 3])


async def test_the_producers_of_a_topic_wait_for_receipts_while_entries_are_under_way():
    bench = TopicBench()
    topic = NonPersistentTopic(TOPIC, bench.context)
    topic.subscriptions.by_name.update({name: Taking(name) for name in ("a", "b", "c")})
    producer, connection = producer_of(topic)
    for number in range(3):
        producer.publish(run_of(number))
    assert connection.names() == ["SEND_RECEIPT"]
    assert connection.gate.pending_entries == 2
    for _ in range(2):
        bench.pass_time(0)
    assert connection.names() == ["SEND_RECEIPT"]
    for _ in range(20):
        bench.pass_time(0)
    assert connection.names() == ["SEND_RECEIPT"] * 3
    assert connection.gate.pending_entries == 0
    producer.publish(run_of(4))
    producer.publish(run_of(5))
    assert connection.names() == ["SEND_RECEIPT"] * 4
    topic.subscriptions.by_name.clear()
    await topic.close()
    assert connection.names() == ["SEND_RECEIPT"] * 5
    await producer.wait_drained()


def producer_of(topic):
    connection = FakeConnection()
    connection.gate = CountingGate()
    connection.loop = None
    request = ProducerRequest(
        1, "p", user_provided_name=True, epoch=0, access_mode=0, topic_epoch=None, encrypted=False
    )
    return Producer(connection, topic, request, 0), connection


class CountingGate:
    pending_entries = 0

    def started(self, entries, _size):
        self.pending_entries += entries

    def finished(self, entries, _size):
        self.pending_entries -= entries


def run_of(sequence_id):
    body = entry()
    ids = array("q", [sequence_id]).tobytes()
    offsets = array("q", [0, len(body)]).tobytes()
    one = array("q", [1]).tobytes()
    return EntryRun(1, 1, body, offsets, ids, bytes(8), one, None, bytes(4), 0, 0, 1, True, len(body))
