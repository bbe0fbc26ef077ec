"""A topic that is deleted and created again, and topics that keep their messages for a time; their promises.

No message from before an answered deletion is read again; a topic behind a deletion keeps its own promises. A topic with
retention keeps a message, acknowledged or not, until its age.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.errors import BrokerError
from magnetar.broker.topics.lifecycle import ConflictError
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.errors import StorageError
from tests.simulation.clients import EXCLUSIVE, FAILOVER, SHARED, SimConsumer, SimProducer
from tests.simulation.history import SubscriptionHistory, TopicHistory
from tests.simulation.parts import Part

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from tests.simulation.world import World

PASSING = "persistent://public/default/passing"


class Deletions(Part):
    """Clients of a topic that administrators delete."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._chance = world.chance_for("deletions")
        self._under_way = 0

    def populate(self) -> None:
        plan, world = self.world.plan, self.world
        self._topic = topic = TopicHistory(PASSING, plan.keeps_all, plan.deduplicates)
        world.history.topics[PASSING] = topic
        world.producers += [SimProducer(world, f"passing{n}", topic) for n in range(self._chance.choice([1, 2]))]
        for name in ("a", "b"):
            own = topic.subscriptions.setdefault(name, SubscriptionHistory(name))
            kind = self._chance.choice([EXCLUSIVE, SHARED, FAILOVER])
            world.consumers.append(SimConsumer(world, f"passing-{name}", topic, own, kind))
        minutes = plan.settings["default_retention_time_in_minutes"]
        for known in world.history.topics.values():
            known.keeps_s = max(0, minutes) * 60.0

    def act(self) -> None:
        self.world.broker.tasks.spawn(self._delete(), "world.admin")  # type: ignore[union-attr]

    async def _delete(self) -> None:
        await self.deleting(self._lifecycle_delete())

    async def _lifecycle_delete(self) -> bool:
        try:
            await self.world.broker.lifecycle.delete(TopicName.parse(PASSING))  # type: ignore[union-attr]
        except (BrokerError, ConflictError, StorageError) as error:
            self.world.note(f"not-deleted {type(error).__name__}")
            return False
        return True

    async def deleting(self, work: Awaitable[bool]) -> bool:
        """Await the deletion of the topic, which returns whether it was certainly made. The outcome is unknown where the
        process ends meanwhile, and where a fault of the disk fails the deletion.
        """
        topic, done = self._topic, False
        self.world.note(f"deletes {topic.name}")
        self._under_way += 1
        self._ends(surely=False)
        requested = {name: each.requested for name, each in topic.subscriptions.items()}
        before = set(topic.former)
        try:
            done = await work
        finally:
            self._under_way -= 1
            self._ends(surely=done and all(each.requested == requested[n] for n, each in topic.subscriptions.items()))
            if done:
                self.world.note(f"deleted {topic.name}")
                topic.gone |= before
        return done

    def _ends(self, *, surely: bool) -> None:
        topic = self._topic
        topic.may_go()
        topic.until_s = float("inf") if self._under_way else self.world.now_s
        for subscription in topic.subscriptions.values():
            subscription.deleted(surely=surely)
