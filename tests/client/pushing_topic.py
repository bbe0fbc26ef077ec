"""A topic behind a scripted broker, for consumers and readers."""

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import encode_batch, encode_entry
from magnetar.protocol.message_id import signed
from tests.importing.scripted_broker import KIND, ScriptedBroker, answer


def batch(size, *, compacted_out=(), encrypted=False):
    """An entry with a batch, and its number of messages as the broker counts them."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=7, publish_time=1000, num_messages_in_batch=size)
    if encrypted:
        metadata.encryption_keys.add(key="k", value=b"v")
    singles = [
        (pb.SingleMessageMetadata(payload_size=0, compacted_out=n in compacted_out), b"%d" % n) for n in range(size)
    ]
    return encode_entry(metadata, encode_batch(singles)), size


def words(*acknowledged, size):
    """The ack set of a batch of at most 64 messages: a bit for each message that is left."""
    return [signed(sum(1 << n for n in range(size) if n not in acknowledged))]


class PushingTopic:
    """Pushes entries while the consumer has permits, keeps acknowledgements.

    entries: entry, its number of messages, acknowledged messages of it.
    """

    def __init__(self, *entries):
        self.entries, self.next, self.permits = list(entries), 0, 0
        self.acknowledged, self.subscribed = [], 0

    def on_subscribe(self, _broker, command):
        self.subscribed += 1
        return success(command.subscribe.request_id)

    def on_flow(self, _broker, command):
        self.permits += command.flow.messagePermits
        pushed = b""
        while self.permits > 0 and self.next < len(self.entries):
            entry, messages, *acknowledged = self.entries[self.next]
            self.permits -= messages - len(acknowledged)
            ack_set = words(*acknowledged, size=messages) if acknowledged else []
            place = pb.MessageIdData(ledgerId=1, entryId=self.next)
            message = pb.CommandMessage(consumer_id=1, message_id=place, ack_set=ack_set)
            pushed += answer(KIND.MESSAGE, entry, message=message)
            self.next += 1
        return pushed

    def on_ack(self, _broker, command):
        self.acknowledged += [place.entryId for place in command.ack.message_id]
        response = pb.CommandAckResponse(consumer_id=1, request_id=command.ack.request_id)
        return answer(KIND.ACK_RESPONSE, ackResponse=response)

    def broker(self, **script):
        own = {"SUBSCRIBE": self.on_subscribe, "FLOW": self.on_flow, "ACK": self.on_ack}
        closing = {"CLOSE_CONSUMER": lambda _, command: success(command.close_consumer.request_id)}
        return ScriptedBroker(**(own | closing | script))


def success(request_id):
    return answer(KIND.SUCCESS, success=pb.CommandSuccess(request_id=request_id))
