"""Producers and consumers through the official client, with a record of sent, acknowledged and received messages.

Each lane is one topic: a producer without batches, an exclusive subscription that follows it, and a shared subscription
``half`` that has acknowledged every second message of the first part. ``Load.check`` compares:

- lost: a message whose receipt came is at the position of its receipt, read from the beginning;
- moved: no message stands at another message's receipt;
- reordered: first occurrences come in the order in which they were sent (a message without a receipt may be stored
  twice);
- received: the following subscription has got every message with a receipt, in that order;
- half: exactly the messages that were not acknowledged come again.
"""

from __future__ import annotations

import contextlib
import threading
import time

import pulsar

from tests.waiting import wait_for

__all__ = ["Lane", "Load"]

WINDOW = 16
SETTLE_S = 1.5
"""Acknowledgements are durable a second after they came."""


def position(message_id):
    return message_id.ledger_id(), message_id.entry_id()


class Lane:
    """The producer and the two subscriptions of one topic, with their records."""

    def __init__(self, client, topic, pause_s):
        self.client, self.topic = client, topic
        self.receipts: dict[int, tuple[int, int]] = {}
        self.followed: list[int] = []
        self.sent = 0
        self.silences: list[tuple[float, float]] = []
        """(begin, length) in seconds of each gap of more than 50 ms between receipts."""
        self.failures: list[str] = []
        self.half_left: set[tuple[int, int]] = set()
        self._pause_s = pause_s
        self._room = threading.Semaphore(WINDOW)
        self._sending = self._following = True
        self._last_receipt_s = time.monotonic()
        self.follower = client.subscribe(topic, "follow", initial_position=pulsar.InitialPosition.Earliest)
        self._half(client).close()
        self.producer = client.create_producer(
            topic, batching_enabled=False, send_timeout_millis=0, block_if_queue_full=True
        )
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._send, self._follow)]

    def __str__(self):
        return f"{self.topic}: {len(self.receipts)} receipts of {self.sent}, failures {self.failures}"

    def start(self):
        self._last_receipt_s = time.monotonic()
        for thread in self._threads:
            thread.start()

    def longest_silence(self, since_s, now_s):
        gaps = [length for began, length in self.silences if began + length > since_s]
        return max([*gaps, now_s - self._last_receipt_s if self._sending else 0.0, 0.0])

    def acknowledge_half(self):
        """Acknowledge every second stored message individually."""
        consumer = self._half(self.client)
        upto = len(self.receipts)
        for _ in range(upto):
            message = consumer.receive(30_000)
            if int(message.data()) % 2:
                self.half_left.add(position(message.message_id()))
            else:
                consumer.acknowledge(message)
        self.half_upto = max(self.receipts[number] for number in range(upto))
        time.sleep(SETTLE_S)
        consumer.close()

    def end_sending(self):
        """Send no more messages, and wait for all receipts."""
        self._sending = False
        self._threads[0].join(120)
        for _ in range(WINDOW):
            assert self._room.acquire(timeout=120), f"{self.topic}: {self.sent - len(self.receipts)} without receipt"

    def end_following(self):
        wait_for(lambda: len(set(self.followed)) >= self.sent, 60, f"the last message of {self.topic}")
        self._following = False
        self._threads[1].join(30)
        self.follower.close()

    def stored(self):
        """(position, number) of every message in the topic, in order."""
        reader = self.client.create_reader(self.topic, pulsar.MessageId.earliest, receiver_queue_size=5000)
        found = []
        while reader.has_message_available():
            message = reader.read_next(30_000)
            found.append((position(message.message_id()), int(message.data())))
        reader.close()
        return found

    def half_again(self):
        """The messages that the half-acknowledged subscription delivers of its first part; slow messages count too."""
        consumer = self._half(self.client)
        found = set()
        with contextlib.suppress(pulsar.Timeout):
            while True:
                message = consumer.receive(60_000 if len(found) < len(self.half_left) else 2000)
                if position(message.message_id()) <= self.half_upto:
                    found.add(position(message.message_id()))
                elif len(found) >= len(self.half_left):
                    break
        consumer.close()
        return found

    def _half(self, client):
        return client.subscribe(
            self.topic,
            "half",
            consumer_type=pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
        )

    def _send(self):
        while self._sending:
            self._room.acquire()
            number = self.sent
            self.sent += 1
            self.producer.send_async(str(number).encode(), lambda result, id_, n=number: self._sent(n, result, id_))
            time.sleep(self._pause_s)

    def _sent(self, number, result, message_id):
        now_s = time.monotonic()
        if result == pulsar.Result.Ok:
            self.receipts[number] = position(message_id)
            if now_s - self._last_receipt_s > 0.05:
                self.silences.append((self._last_receipt_s, now_s - self._last_receipt_s))
            self._last_receipt_s = now_s
        else:
            self.failures.append(str(result))
        self._room.release()

    def _follow(self):
        while self._following:
            try:
                message = self.follower.receive(500)
            except pulsar.Timeout:
                continue
            self.followed.append(int(message.data()))
            with contextlib.suppress(pulsar.PulsarException):  # no connection now: the message comes again
                self.follower.acknowledge(message)


class Load:
    """``with Load(client, topics) as load``: producers and consumers run until ``end``."""

    def __init__(self, client, topics, pause_s=0.003):
        self.lanes = [Lane(client, topic, pause_s) for topic in topics]
        self._since_s = time.monotonic()

    def start(self):
        for lane in self.lanes:
            lane.start()
        self.more(30)
        for lane in self.lanes:
            lane.acknowledge_half()
        self.mark()

    def mark(self):
        """Begin to count silences."""
        self._since_s = time.monotonic()

    def longest_silence(self):
        now_s = time.monotonic()
        return max(lane.longest_silence(self._since_s, now_s) for lane in self.lanes)

    def more(self, count=100, limit_s=90):
        """Wait until each lane has so many receipts more."""
        wanted = {lane: len(lane.receipts) + count for lane in self.lanes}
        try:
            wait_for(
                lambda: all(len(lane.receipts) >= upto for lane, upto in wanted.items()),
                limit_s,
                "more receipts on each lane",
            )
        except AssertionError as e:
            raise AssertionError("; ".join(map(str, self.lanes))) from e

    def receipts(self):
        return sum(len(lane.receipts) for lane in self.lanes)

    def check(self):
        """End the load and compare all records; return the number of messages with a receipt."""
        for lane in self.lanes:
            lane.end_sending()
        for lane in self.lanes:
            lane.end_following()
        for lane in self.lanes:
            check(lane)
        return self.receipts()


def check(lane):
    assert lane.failures == [], lane.failures[:3]
    stored = lane.stored()
    at = dict(stored)
    assert len(at) == len(stored), f"{lane.topic}: a position came twice"
    wrong = {n: (where, at.get(where)) for n, where in lane.receipts.items() if at.get(where) != n}
    assert wrong == {}, f"{lane.topic}: lost or moved {dict(list(wrong.items())[:5])} ({len(wrong)})"
    assert [where for where, _ in stored] == sorted(at), f"{lane.topic}: not in the order of positions"
    firsts = list(dict.fromkeys(number for _, number in stored))
    assert firsts == list(range(lane.sent)), f"{lane.topic}: reordered"
    followed = list(dict.fromkeys(lane.followed))
    assert followed == list(range(lane.sent)), f"{lane.topic}: followed {len(followed)} of {lane.sent}"
    if lane.half_left:
        again = lane.half_again()
        assert again == lane.half_left, (
            f"{lane.topic}: {len(again - lane.half_left)} acknowledged messages came again, "
            f"{len(lane.half_left - again)} others did not"
        )
