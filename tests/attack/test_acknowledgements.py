"""Acknowledgements of parts of huge batches must not make other clients wait."""

import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.honest import HonestClient
from tests.blackbox.raw import RawPeer, command, entry, frame

MESSAGES = 262_144
SETS = 100
COMMANDS = 12
MOST_BUSY_S = 0.15


@pytest.mark.parametrize("sub_type", [pb.CommandSubscribe.Exclusive, pb.CommandSubscribe.Shared])
def test_parts_of_a_huge_batch_a_hundred_times_in_a_command(new_broker, topic, sub_type):
    """Commands of 820 KB, each of a hundred ack sets of 4,096 words: a PING waited for seconds of processor time."""
    broker = new_broker(acknowledgmentAtBatchIndexLevelEnabled="true", pings=False)
    peer = RawPeer(broker.url)
    peer.producer(topic)
    batch = entry(0, b"\0\0\0\2\x18\0" * MESSAGES, num_messages_in_batch=MESSAGES)
    peer.write(frame(command("SEND", "send", producer_id=1, sequence_id=0, num_messages=MESSAGES), batch))
    found = peer.receive().send_receipt.message_id
    peer.subscribe(topic, permits=MESSAGES, subType=sub_type)
    assert peer.receive().type == pb.BaseCommand.MESSAGE
    ident = pb.MessageIdData(ledgerId=found.ledgerId, entryId=found.entryId, ack_set=[127] * 4096)
    ack = {"consumer_id": 1, "ack_type": pb.CommandAck.Individual, "message_id": [ident] * SETS}
    with HonestClient(broker) as honest:
        for number in range(COMMANDS):
            peer.write(frame(command("ACK", "ack", request_id=100 + number, **ack)))
        answers = [peer.receive().ackResponse.request_id for _ in range(COMMANDS)]
    assert answers == [100 + number for number in range(COMMANDS)], "in order, and after the sets"
    peer.close()
    assert honest.busiest_s < MOST_BUSY_S, f"a PING waited for {honest.busiest_s:.2f} s of the broker's work"
    assert broker.stop() == 0
