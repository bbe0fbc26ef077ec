"""One topic or partition of a consumer session."""

from __future__ import annotations

from typing import Final

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.topic_name import TopicName

_MAX: Final = (1 << 64) - 1
EARLIEST: Final = pb.MessageIdData(ledgerId=_MAX, entryId=_MAX)
LATEST: Final = pb.MessageIdData(ledgerId=(1 << 63) - 1, entryId=(1 << 63) - 1)


class Part:
    """The consumer on one partition. `owed`: permits that the session sends to the broker with the next FLOW.
    `is_added`: the partition was added while the session lasts, so that all of its messages are new, until its consumer
    `has_begun`.
    """

    def __init__(self, index: int, topic: str, *, is_added: bool = False) -> None:
        self.is_added = is_added
        self.index = index
        self.topic = topic
        name = TopicName.parse(topic)
        self.partition, self.is_stored = name.partition, name.persistent
        self.is_open = self.has_begun = False
        self.ended = False
        self.gone = False  # the topic is deleted, and another part may have this index
        self.unsubscribed = False  # the session deleted the subscription
        self.closings = 0  # how often the broker closed the consumer
        self.owed = 0
