"""A namespace that is deleted by force and created again, and the policies of its topic; their promises.

A stored policy is that of the last answered request. A deletion takes the policies of the topic along: they never return
with a topic or a namespace of the same name. No message from before an answered deletion is read again, and a namespace
that does not exist has no topic.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from magnetar.protocol.topic_name import TopicName
from tests.simulation.admins import HttpAdmin
from tests.simulation.clients import FAILOVER, SHARED, SimConsumer, SimProducer
from tests.simulation.deletions import Deletions
from tests.simulation.history import SubscriptionHistory, TopicHistory, ViolationError
from tests.simulation.parts import Register

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker
    from tests.simulation.world import World

SPACE = "public/space"
RULED = f"persistent://{SPACE}/ruled"
_TOPIC_PATH = f"/admin/v2/persistent/{SPACE}/ruled"
_SPACE_PATH = f"/admin/v2/namespaces/{SPACE}"
ABSENT = None
DONE = (200, 204)
NOT_FOUND = 404
_SETTLES_S = 60.0
_CARRIED_OUT_S = 20.0
"""After so long, or with the end of the process, no request is carried out whose answer did not come."""


class Spaces(Deletions):
    """Administrators of a namespace, over HTTP, and clients of its topic."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._chance = world.chance_for("spaces")
        self._of_space = Register(SPACE, ABSENT)
        self._of_topic = Register(RULED, ABSENT)
        self._settles_until_s = 0.0
        self._ready = False

    def populate(self) -> None:
        plan, world = self.world.plan, self.world
        self._topic = topic = TopicHistory(RULED, plan.keeps_all, plan.deduplicates)
        world.history.topics[RULED] = topic
        world.producers += [SimProducer(world, f"ruled{n}", topic) for n in range(self._chance.choice([1, 2]))]
        for name in ("a", "b"):
            own = topic.subscriptions.setdefault(name, SubscriptionHistory(name))
            kind = self._chance.choice([SHARED, FAILOVER])
            world.consumers.append(SimConsumer(world, f"ruled-{name}", topic, own, kind))

    # --- administrators

    def act(self) -> None:
        """Begin some requests, one after another or beside each other."""
        for _ in range(self._chance.randint(1, 5)):
            self.world.timers.after(self._chance.choice([0.0, 0.5]) * self._chance.random(), self._request)

    def _request(self) -> None:
        acts = [self._create, self._rule_space, self._rule_topic, self._rule_topic, self._delete_topic]
        if not self._settles_until_s:
            self._spawn(self._chance.choice([*acts, self._delete_space])())

    def _spawn(self, act: Any) -> None:
        if self.world.web is None or self.world.web.closed:
            act.close()
        else:
            self.world.web.spawn(act)

    async def _asks(self, method: str, path: str, body: bytes = b"", *, goal: tuple[int, ...] = DONE) -> bool | None:
        status, _ = await HttpAdmin(self.world, self._chance).request(method, path, body)
        return None if not status else status in goal

    async def _create(self) -> bool:
        return await self._of_space.change(0, self._asks("PUT", _SPACE_PATH))

    async def _rule_space(self) -> None:
        most = self._chance.randrange(1000, 2000)
        work = self._asks("POST", f"{_SPACE_PATH}/maxConsumersPerTopic", b"%d" % most)
        await self._of_space.change(most, work)

    async def _rule_topic(self) -> None:
        if self._chance.random() < 0.2:
            await self._of_topic.change(ABSENT, self._asks("DELETE", f"{_TOPIC_PATH}/maxConsumers"))
            return
        most = self._chance.randrange(1000, 2000)
        await self._of_topic.change(most, self._asks("POST", f"{_TOPIC_PATH}/maxConsumers", b"%d" % most))

    async def _delete_topic(self) -> None:
        await self._of_topic.change(ABSENT, self._ending("DELETE", f"{_TOPIC_PATH}?force=true"))

    async def _delete_space(self) -> None:
        work = self._of_topic.change(ABSENT, self._ending("DELETE", f"{_SPACE_PATH}?force=true"))
        await self._of_space.change(ABSENT, work)

    async def _ending(self, method: str, path: str) -> bool | None:
        """Await a deletion; that of a missing topic or namespace counts as made."""
        asked = self._asks(method, path, goal=(*DONE, NOT_FOUND))
        answer: list[bool | None] = []

        async def deleted() -> bool:
            answer.append(await asked)
            if answer[0] is None:  # the broker may carry it out as soon as its disk answers
                await asyncio.sleep(_CARRIED_OUT_S)
            return bool(answer[0])

        await self.deleting(deleted())
        return answer[0]

    def process_ended(self) -> None:
        self._of_space.process_ended()
        self._of_topic.process_ended()

    # --- checks

    def check(self, broker: Broker) -> None:
        namespaces = broker.stored.namespaces
        policies = namespaces.policies(SPACE)
        self._of_space.check(ABSENT if policies is None else policies.max_consumers_per_topic or 0)
        if policies is None or not policies.deleted:  # else the answer 404 leaves the policies to the next deletion
            self._of_topic.check(namespaces.topic_policies(TopicName.parse(RULED)).max_consumers)
        if policies is None and self._of_space.is_settled and (left := broker.stored.catalog.names(SPACE)):
            raise ViolationError(f"{SPACE} does not exist and has the topics {left}")

    # --- the end

    def calm(self) -> None:
        """Make the namespace usable, so that all producers get their receipts."""
        self._settles_until_s = self.world.now_s + _SETTLES_S
        self._settle()

    def _settle(self) -> None:
        """Go on for a while: a request whose connection was lost may still be carried out."""
        broker = self.world.broker
        policies = None if broker is None else broker.stored.namespaces.policies(SPACE)
        self._ready = policies is not None and not policies.deleted
        if broker is not None and not self._ready:
            self._spawn(self._create() if policies is None else self._delete_space())
        if self.world.now_s < self._settles_until_s:
            self.world.timers.after(2, self._settle)

    def is_quiet(self) -> bool:
        return self._ready
