"""A broker whose system refuses memory (RLIMIT_AS): it serves on, or ends and loses nothing."""

import contextlib
import pathlib
import re
import resource
import threading

from magnetar.broker.shutdown import EXIT_NO_MEMORY
from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.raw import RawPeer, send
from tests.waiting import wait_for

ENTRY = bytes(4_000_000)
ROOM = 60 << 20


def publish(broker, topic, receipts):
    """Send more than the broker has memory for, on several connections one after the other."""
    for _ in range(4):
        with contextlib.suppress(OSError, AssertionError, AttributeError):
            peer = RawPeer(broker.url)
            peer.producer(topic)
            peer.write(b"".join(send(1, number, ENTRY) for number in range(6)))
            while (found := peer.receive()) is not None:
                if found.type == pb.BaseCommand.SEND_RECEIPT:
                    receipts.append(found.send_receipt.message_id)
                    if found.send_receipt.sequence_id == 5:
                        return


def serves(broker):
    with contextlib.suppress(OSError, AttributeError):  # the broker closes the connection instead of an answer
        RawPeer(broker.url).producer("persistent://public/default/further")
        return True
    return False


def test_publishes_beyond_the_memory_of_the_process(new_broker):
    broker = new_broker(pings=False)
    status = pathlib.Path(f"/proc/{broker.process.pid}/status").read_text()
    used = int(re.search(r"VmSize:\s+(\d+) kB", status)[1]) << 10
    resource.prlimit(broker.process.pid, resource.RLIMIT_AS, (used + ROOM, used + ROOM))
    topics = {f"persistent://public/default/large-{number}": [] for number in range(30)}
    publishers = [threading.Thread(target=publish, args=(broker, *each)) for each in topics.items()]
    for each in publishers:
        each.start()
    for each in publishers:
        each.join(60)
    wait_for(lambda: broker.process.poll() is not None or serves(broker), subject="an end or an answer")
    if broker.process.poll() is None:
        broker.kill()
    else:
        assert broker.wait_exit() in {EXIT_NO_MEMORY, 74}
    broker.start()
    peer = RawPeer(broker.url)
    for number, (topic, receipts) in enumerate(topics.items()):
        if receipts:
            peer.subscribe(topic, consumer_id=number, permits=10)
            found = [peer.receive().message.message_id for _ in receipts]
            assert {(i.ledgerId, i.entryId) for i in receipts} <= {(i.ledgerId, i.entryId) for i in found}
    peer.close()
    assert broker.stop() == 0
