"""CPU of dispatch alone: a backlog of real records to fake connections, with acknowledgements, no sockets, no disk.

    python -m bench.dispatch_bench [--entries 200000] [--bytes 1024] [--consumers 1]

Prints entries per second of one core for each subscription type.
"""

import argparse
import asyncio
import gc
import time
from array import array
from collections import deque

from magnetar.broker.consumers.consumer import EXCLUSIVE, KEY_SHARED, SHARED, TYPE_NAMES, Consumer, ConsumerSpec
from magnetar.broker.policies.subscription_settings import SubscriptionSettings
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import speed
from magnetar.protocol.runs import EntryRun
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.managed.config import ManagedLedgerConfig
from magnetar.storage.managed.factory import ManagedLedgerFactory
from tests.twins.memory_ledgers import MemoryLedgerStore
from tests.twins.memory_metadata import MemoryMetadataStore

TOPIC = TopicName.parse("persistent://public/default/bench")
RECEIVER_QUEUE = 1000


class Outbox:
    """Takes bytes and counts them."""

    knows_entry_metadata = False
    peer_version, wants_entry_metadata, closed, connection_id, address, client_version, role = (
        21,
        False,
        False,
        1,
        "",
        "",
        None,
    )

    def __init__(self):
        self.consumers, self.bytes = {}, 0

    @property
    def output(self):
        return self

    def free_descriptor(self):
        return -1

    def write(self, data):
        self.bytes += len(data)

    def is_writable(self):
        return True

    def when_writable(self, callback):
        raise AssertionError(callback)


def run_of(count, size, first, properties=()):
    """An EntryRun of `count` entries with keys."""
    parts, offsets, ids = [], array("q", [0]), array("q")
    for k in range(count):
        m = pb.MessageMetadata(producer_name="p", sequence_id=first + k, publish_time=1, partition_key=f"key-{k % 97}")
        for key, value in properties:
            m.properties.add(key=key, value=value)
        raw = m.SerializeToString()
        parts.append(len(raw).to_bytes(4, "big") + raw + bytes(size))
        offsets.append(offsets[-1] + len(parts[-1]))
        ids.append(first + k)
    return EntryRun(
        1,
        count,
        b"".join(parts),
        offsets.tobytes(),
        ids.tobytes(),
        bytes(8 * count),
        array("q", [1] * count).tobytes(),
        None,
        bytes(4 * count),
        0,
        0,
        count,
        True,
        offsets[-1],
    )


async def backlog(entries, size, clock, loop, properties=()):
    factory = ManagedLedgerFactory(MemoryLedgerStore(), MemoryMetadataStore(), clock, loop)
    ledger = await factory.open("bench", ManagedLedgerConfig())
    first = 0
    while first < entries:
        done = loop.create_future()
        run = run_of(min(500, entries - first), size, first, properties)
        ledger.append(run, lambda result, done=done: done.set_result(result))
        assert (await done).error is None
        first += 500
    return factory, ledger


class Clock:
    def now_ms(self):
        return 0

    def now_s(self):
        return time.monotonic()


def ack_command(consumer, ids):
    command = pb.CommandAck(consumer_id=consumer.consumer_id, ack_type=pb.CommandAck.Individual)
    for ledger_id, entry_id in ids:
        command.message_id.add(ledgerId=ledger_id, entryId=entry_id)
    return pb.CommandAck.FromString(command.SerializeToString())


async def measure(ledger, sub_type, consumers, entries, group, transform=None):
    """Seconds of CPU to send all; Shared types acknowledge in groups of `group` ids."""
    cursor = await ledger.open_cursor(f"{TYPE_NAMES[sub_type]}-{consumers}-{group}", "earliest")
    turns = deque()
    subscription = Subscription(
        topic_name=TOPIC,
        name="sub",
        cursor=cursor,
        settings=SubscriptionSettings(failover_delay_ms=0),
        now_ms=lambda: 0,
        call_later=lambda _delay, callback: turns.append(callback),
        transform=transform,
    )
    members = []
    for k in range(consumers):
        consumer = Consumer(Outbox(), ConsumerSpec(k, TOPIC, "sub", sub_type, f"c{k}"))
        await subscription.add_consumer(consumer)
        members.append(consumer)
    client_s = 0.0
    gc.collect()
    gc.freeze()
    start = time.process_time()
    for consumer in members:
        subscription.on_flow(consumer, RECEIVER_QUEUE)
    sent_before = dict.fromkeys(members, 0)
    while True:
        while turns:
            turns.popleft()()
        total = sum(c.out.total_messages for c in members)
        if total >= entries:
            break
        progressed = False
        for consumer in members:
            new = consumer.out.total_messages - sent_before[consumer]
            if new:
                progressed = True
                sent_before[consumer] += new
                if group and consumer.pending_acks is not None:
                    began = time.process_time()
                    held = [(p.ledger_id, p.entry_id) for p in consumer.pending_acks]
                    client_s += time.process_time() - began
                    for at in range(0, len(held), group):
                        began = time.process_time()
                        command = ack_command(consumer, held[at : at + group])
                        client_s += time.process_time() - began
                        subscription.on_ack(consumer, command)
                subscription.on_flow(consumer, new)
        if not progressed and not turns:
            await asyncio.sleep(0)
    seconds = time.process_time() - start - client_s
    await subscription.close(disconnect=False)
    await ledger.delete_cursor(cursor.name)
    return seconds


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--entries", type=int, default=200_000)
    parser.add_argument("--bytes", type=int, default=1024)
    parser.add_argument("--consumers", type=int, default=4)
    options = parser.parse_args()
    loop = asyncio.get_running_loop()
    factory, ledger = await backlog(options.entries, options.bytes, Clock(), loop)
    print(f"{options.entries} entries of {options.bytes} bytes, compiled helper: {speed.COMPILED}")
    for sub_type, consumers, group in (
        (EXCLUSIVE, 1, 0),
        (SHARED, 1, 100),
        (SHARED, options.consumers, 100),
        (SHARED, options.consumers, 1),
        (KEY_SHARED, options.consumers, 100),
    ):
        seconds = await measure(ledger, sub_type, consumers, options.entries, group)
        acks = f", acks of {group}" if group else ""
        print(f"{TYPE_NAMES[sub_type]:>11} x {consumers}{acks}: {options.entries / seconds:,.0f}/s")
    await factory.close()


if __name__ == "__main__":
    asyncio.run(main())
