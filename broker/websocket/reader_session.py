"""A reader over a WebSocket: a non-durable subscription that begins where the client chose.

The session acknowledges an entry when it has written the entry's last message; each acknowledgement of the client makes
room for another message.
"""

from __future__ import annotations

import secrets
from collections import deque
from typing import TYPE_CHECKING

from magnetar.broker.compat.java_texts import in_utf_8
from magnetar.broker.websocket.consumer_part import EARLIEST, LATEST
from magnetar.broker.websocket.consumer_session import ConsumerSession
from magnetar.broker.websocket.errors import ParameterError
from magnetar.broker.websocket.parameters import ConsumerParameters, ReaderParameters
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests

if TYPE_CHECKING:
    from magnetar.broker.websocket import session_json
    from magnetar.broker.websocket.consumer_part import Part
    from magnetar.broker.websocket.incoming import Incoming
    from magnetar.broker.websocket.session import Place


class ReaderSession(ConsumerSession):
    """See the module."""

    def __init__(self, place: Place, parameters: ReaderParameters) -> None:
        chosen = ConsumerParameters(
            subscription_type=pb.CommandSubscribe.Exclusive,
            durable=False,
            initial_position=pb.CommandSubscribe.Latest,
            window=parameters.window,
            name=parameters.name,
            priority=0,
            nack_delay_ms=0,
            ack_timeout_ms=0,
            max_redeliver_count=0,
            dead_letter_topic=None,
            crypto_failure=parameters.crypto_failure,
            pull=False,
        )
        super().__init__(place, chosen)
        role = place.link.connection.role
        name = f"reader-{secrets.token_hex(5)}"
        self.subscription = in_utf_8(f"{role}-{name}") if role else name  # policies may limit a role to this prefix
        if isinstance(parameters.start, str):
            self._start = EARLIEST if parameters.start == "earliest" else LATEST
        else:
            self._start = parameters.start
        self._written: deque[int] = deque()  # partitions of unanswered messages
        self._read: dict[int, pb.MessageIdData] = {}  # last written message by partition

    async def open(self) -> None:
        await super().open()
        if len(self.parts) > 1 and self._start not in (EARLIEST, LATEST):
            raise ParameterError("a message id cannot be the start of a partitioned topic")

    def subscription_of(self, part: Part) -> pb.CommandSubscribe:
        return pb.CommandSubscribe(
            topic=part.topic,
            subscription=self.subscription,
            subType=pb.CommandSubscribe.Exclusive,
            consumer_id=part.index,
            consumer_name=self.name,
            durable=False,
            start_message_id=self._place_of(part),
        )

    def _place_of(self, part: Part) -> pb.MessageIdData:
        return self._read.get(part.index, EARLIEST if part.is_added else self._start)

    def wanted(self, part: Part, found: list[Incoming]) -> list[Incoming]:
        """Leave out the messages up to the reader's place in the entry in which the reader begins."""
        place = self._place_of(part)
        if found and found[0].entry == (place.ledgerId, place.entryId):
            behind = [message for message in found if message.batch_size and message.batch_index > place.batch_index]
            found = behind
        return super().wanted(part, found)

    def given(self, message: Incoming) -> None:
        part = self.parts[message.part]
        self._written.append(part.index)
        self._read[part.index] = message.message_id(part.partition)
        if not message.batch_size or message.batch_index == message.batch_size - 1:
            self.outstanding.acknowledge((part.index, *message.entry), -1, is_batch=False)
            self.link.send(requests.ack(part.index, message.entry, cumulative=True))

    def on_acknowledgement(self, command: session_json.ConsumerCommand) -> None:  # noqa: ARG002 - with any content
        self.done_with_one(self.parts[self._written.popleft() if self._written else 0])
