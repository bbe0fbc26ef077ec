"""A consumer of several topics, or of all topics that match a pattern, over one WebSocket (/ws/v3/consumer).

Each topic without partitions and each partition is a part of the session, with a consumer of its own. A message id in
this protocol names no topic: the ledger of the message does, because no two topics share a ledger. Messages of
non-persistent topics, which all have the same ledger, give their permits back when the session writes them.

With a pattern, ``MatchingTopics`` reports the topics that match. The session consumes a created topic at once, gives up
the part of a deleted topic, whose index a later part may have, and creates no topics. A topic that cannot be opened is
tried again later. After an unsubscription the session consumes no further topics.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import structlog

from magnetar.broker.websocket.consumer_part import Part
from magnetar.broker.websocket.consumer_session import ConsumerSession
from magnetar.broker.websocket.errors import SessionRefusedError
from magnetar.broker.websocket.matching_topics import MatchingTopics
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from magnetar.broker.websocket.incoming import Incoming
    from magnetar.broker.websocket.parameters import ConsumerParameters
    from magnetar.broker.websocket.session import Place
    from magnetar.protocol import pulsar_api_pb2 as pb

log = structlog.get_logger(__name__)
MOST_PARTS: Final = 2000
"""Limit of the topics and partitions of a session. A session does not open with more; a created topic beyond the limit
is not consumed.
"""
_TRY_AGAIN_S: Final = 60.0
"""The pause before another attempt to open a matching topic: the interval of the lists of Apache Pulsar's clients."""
_MOST_LEDGERS: Final = 50_000
"""Limit of the ledgers whose parts a session remembers; beyond it the session forgets the ledger of which it wrote no
message for the longest time.
"""


class TopicsSession(ConsumerSession):
    """See the module."""

    def __init__(self, place: Place, parameters: ConsumerParameters) -> None:
        super().__init__(place, parameters)
        self._pattern = place.path.pattern.rpartition("://")[2]
        self._ledgers: OrderedDict[int, Part] = OrderedDict()
        self._by_topic: dict[str, Part] = {}
        self._free: list[int] = []
        self._early: list[tuple[Sequence[str], Sequence[str]]] = []
        """Changes that came before the session started: created and deleted topics."""

    @property
    def has_one_part(self) -> bool:
        return False

    @property
    def growing_topics(self) -> Sequence[TopicName]:
        """The named topics; a pattern matches added partitions by their own names."""
        return () if self._pattern else [topic for topic in self.path.topics if topic.partition < 0]

    def part_topics(self) -> Collection[str]:
        return self._by_topic

    # --- topics --------------------------------------------------------------------------------------------------

    async def part_names(self) -> list[str]:
        if self.parameters.no_queue:
            raise SessionRefusedError(500, "Receiver queue size needs to be greater than 0 for Topics Consumer")
        if self._pattern:
            await self.link.room_for_pattern()
            matching = MatchingTopics(self.link, self.tasks, self.topic.namespace, self._pattern, self._on_change)
            self.link.compiled(matching.cost)
            names = await matching.first()
        else:
            names = []
            for topic in self.path.topics:
                names += await self.topic_names(topic)
                self._check_count(len(names))
        self._check_count(len(names))
        return names

    def _check_count(self, parts: int) -> None:
        if parts > MOST_PARTS:
            raise SessionRefusedError(429, f"{parts} topics and partitions, at most {MOST_PARTS} are possible")

    def subscription_of(self, part: Part) -> pb.CommandSubscribe:
        command = super().subscription_of(part)
        if self._pattern and part.partition < 0:  # a partition without its topic is refused
            command.force_topic_creation = False
        return command

    def added(self, part: Part) -> None:
        self._by_topic[part.topic] = part
        if self._pattern and self.dead_letters is not None and not self.parameters.dead_letter_topic:
            first = TopicName.parse(self.parts[0].topic).base
            self.dead_letters.topic = f"{first}-{self.subscription}-DLQ"

    def start(self) -> None:
        super().start()
        early, self._early = self._early, []
        for created, deleted in early:
            self._on_change(created, deleted)

    def _on_change(self, created: Sequence[str], deleted: Sequence[str]) -> None:
        if not self.started:
            self._early.append((created, deleted))
            return
        for name in deleted:
            part = self._by_topic.pop(name, None)
            if part is not None:  # the broker has closed its consumer
                part.is_open, part.gone = False, True
                part.closings += 1
                self.forget(part, owed=False)
                self._free.append(part.index)
        for name in created:
            if name not in self._by_topic and not self.unsubscribed:
                self.join(name)

    def join(self, topic: str) -> None:
        if len(self._by_topic) >= MOST_PARTS:
            log.warning("websocket.too_many_topics", topic=topic, subscription=self.subscription, most=MOST_PARTS)
            return
        index = self._free.pop() if self._free else len(self.parts)
        self._join(Part(index, topic, is_added=not self._pattern))

    def part_given_up(self, part: Part, reason: str) -> None:
        if self._pattern:  # the other topics go on
            log.warning("websocket.topic_given_up", topic=part.topic, subscription=self.subscription, reason=reason)
            self.tasks.spawn(self._try_again(part), "websocket.try_again")
        else:
            super().part_given_up(part, reason)

    async def _try_again(self, part: Part) -> None:
        await asyncio.sleep(_TRY_AGAIN_S)
        self.reopen_part(part, at_once=True)  # no effect on a part of a topic that is deleted meanwhile

    # --- messages ------------------------------------------------------------------------------------------------

    def given(self, message: Incoming) -> None:
        ledger, part = message.entry[0], self.parts[message.part]
        self._ledgers[ledger] = part
        self._ledgers.move_to_end(ledger)
        if len(self._ledgers) > _MOST_LEDGERS:
            self._ledgers.popitem(last=False)
        if part.is_stored:
            super().given(message)
        elif not self.parameters.pull:  # in pull mode every written message gives its permit back
            self._owe(part, 1)

    def done_with_one(self, part: Part | None) -> None:
        super().done_with_one(part if part is not None and part.is_stored else None)

    def part_of(self, message_id: pb.MessageIdData) -> Part | None:
        part = self._ledgers.get(message_id.ledgerId)
        return None if part is None or part.gone else part
