"""Official clients that run in threads and record their actions in a `History`."""

import contextlib
import os
import threading

import pulsar

from tests.blackbox.history import History


def quiet_client(url, **options):
    """A client that does not write its reconnections into the test's output."""
    return pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull), **options)


def id_of(message_id):
    return message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()


def read_all(url, topic, timeout_ms=60_000):
    """Every message of a topic, in order: (key, data, id)."""
    client = quiet_client(url)
    try:
        reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=5000)
        out = []
        while reader.has_message_available():
            message = reader.read_next(timeout_ms)
            out.append((message.partition_key(), message.data(), id_of(message.message_id())))
        return out
    finally:
        client.close()


class Source(threading.Thread):
    """Sends `key:number` round robin over its keys until it is stopped or has sent `limit` messages per key."""

    def __init__(self, client, topic, history: History, keys=("k",), limit=None, pause=0.0, **options):
        super().__init__(daemon=True)
        self.history, self.keys, self.limit, self.pause = history, list(keys), limit, pause
        self.failed = []
        self.stopping = threading.Event()
        defaults = {"block_if_queue_full": True, "max_pending_messages": 200, "send_timeout_millis": 60_000}
        self.producer = client.create_producer(topic, **(defaults | options))

    def run(self):
        number = 0
        while not self.stopping.is_set() and (self.limit is None or number < self.limit):
            for key in self.keys:
                self.history.sent(key, number)
                text = f"{key}:{number}".encode()
                self.producer.send_async(text, self._receipt(key, number), partition_key=key)
            number += 1
            if self.pause:
                self.stopping.wait(self.pause)

    def _receipt(self, key, number):
        def done(result, _id):
            if result == pulsar.Result.Ok:
                self.history.receipted(key, number)
            else:
                self.failed.append((key, number, str(result)))

        return done

    def stop(self):
        """Send no more messages; return when every sent message has its answer."""
        self.stopping.set()
        self.join(60)
        assert not self.is_alive(), "the producer is stuck"
        self.producer.flush()


class Sink(threading.Thread):
    """Receives, records, acknowledges. `crash()` ends its connection with messages unacknowledged, `leave()` closes it."""

    def __init__(self, url, topic, history: History, name, kind, subscription="sub", work=None, **options):
        super().__init__(daemon=True, name=name)
        self.session, self.history = name, history
        self.client = quiet_client(url)
        self.consumer = self.client.subscribe(
            topic,
            subscription,
            consumer_type=kind,
            consumer_name=name,
            **({"initial_position": pulsar.InitialPosition.Earliest, "receiver_queue_size": 50} | options),
        )
        self.received = 0
        self.work = work or (lambda _message: True)
        self.stopping = threading.Event()

    def run(self):
        while not self.stopping.is_set():
            try:
                message = self.consumer.receive(100)
            except pulsar.Timeout:
                continue
            except pulsar.PulsarException:
                if self.stopping.wait(0.05):
                    return
                continue
            key, _, number = message.data().decode().partition(":")
            self.history.delivered(self.session, key, int(number), id_of(message.message_id()))
            self.received += 1
            if self.work(message):
                with contextlib.suppress(pulsar.PulsarException):  # after a lost connection the message comes again
                    self.consumer.acknowledge(message)
                    self.history.acknowledged(self.session, key, int(number))

    def _halt(self):
        self.stopping.set()
        self.join(30)
        assert not self.is_alive(), "the consumer is stuck"

    def leave(self):
        """Close the consumer; its unacknowledged messages go to others."""
        self._halt()
        self.history.ended(self.session)
        with contextlib.suppress(pulsar.PulsarException):
            self.consumer.close()
        self.client.close()

    def crash(self):
        """Drop the connection without a command to the broker."""
        self._halt()
        self.history.ended(self.session)
        self.client.shutdown()
