"""Values that share a stored record, changed beside each other over HTTP; their promises.

Each value is that of the last answered request that changed it: a request never takes back the change of another value
of the record, whatever the process, and a change that was answered survives a crash.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from magnetar.protocol.topic_name import TopicName
from tests.simulation.admins import HttpAdmin
from tests.simulation.clients import SHARED, SimConsumer, SimProducer
from tests.simulation.history import SubscriptionHistory, TopicHistory
from tests.simulation.parts import Part, Register

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.broker import Broker
    from tests.simulation.world import World

SPACE = "public/default"
FIELDED = f"persistent://{SPACE}/fielded"
_SPACE_PATH = f"/admin/v2/namespaces/{SPACE}"
_TOPIC_PATH = f"/admin/v2/persistent/{SPACE}/fielded"
DONE = (200, 204)
KEYS = ("one", "two", "three")
ABSENT = None
_MOST_TOGETHER = 6


class Request(NamedTuple):
    """One request to change a value."""

    method: str
    path: str
    body: bytes = b""


class Field(NamedTuple):
    """One value of a record."""

    register: Register
    put: Callable[[int], Request]
    remove: Request
    read: Callable[[Broker], Any]
    """The value in the broker's memory, as a text; None where there is no value."""


def _of_space(member: str, name: str) -> Field:
    path = f"{_SPACE_PATH}/{name}"

    def read(broker: Broker) -> str | None:
        policies = broker.stored.namespaces.policies(SPACE)
        value = None if policies is None else getattr(policies, member)
        return None if value is None else str(value)

    return Field(
        Register(f"{SPACE} {name}", ABSENT),
        lambda value: Request("POST", path, b"%d" % value),
        Request("DELETE", path),
        read,
    )


def _property_of_space(key: str) -> Field:
    path = f"{_SPACE_PATH}/property/{key}"

    def read(broker: Broker) -> str | None:
        policies = broker.stored.namespaces.policies(SPACE)
        return None if policies is None else policies.properties.get(key)

    return Field(
        Register(f"{SPACE} property {key}", ABSENT),
        lambda value: Request("PUT", f"{path}/{value}"),
        Request("DELETE", path),
        read,
    )


def _of_topic(member: str, name: str) -> Field:
    path = f"{_TOPIC_PATH}/{name}"

    def read(broker: Broker) -> str | None:
        value = getattr(broker.stored.namespaces.topic_policies(TopicName.parse(FIELDED)), member)
        return None if value is None else str(value)

    return Field(
        Register(f"{FIELDED} {name}", ABSENT),
        lambda value: Request("POST", path, b"%d" % value),
        Request("DELETE", path),
        read,
    )


def _property_of_topic(key: str) -> Field:
    path = f"{_TOPIC_PATH}/properties"

    def read(broker: Broker) -> str | None:
        return broker.topics.loaded[FIELDED].properties.of_users().get(key)  # type: ignore[union-attr]

    return Field(
        Register(f"{FIELDED} property {key}", ABSENT),
        lambda value: Request("PUT", path, json.dumps({key: str(value)}).encode()),
        Request("DELETE", f"{path}?key={key}"),
        read,
    )


class Fields(Part):
    """The policies and properties of a namespace and of its topic."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._chance = world.chance_for("fields")
        self._of_space = [
            _of_space("max_producers_per_topic", "maxProducersPerTopic"),
            _of_space("max_consumers_per_topic", "maxConsumersPerTopic"),
            *map(_property_of_space, KEYS),
        ]
        self._of_policies = [
            _of_topic("max_producers", "maxProducers"),
            _of_topic("max_consumers", "maxConsumers"),
            _of_topic("max_subscriptions", "maxSubscriptionsPerTopic"),
        ]
        self._of_log = list(map(_property_of_topic, KEYS))
        self._calm = False

    def populate(self) -> None:
        plan, world = self.world.plan, self.world
        topic = world.history.topics[FIELDED] = TopicHistory(FIELDED, plan.keeps_all, plan.deduplicates)
        own = topic.subscriptions.setdefault("a", SubscriptionHistory("a"))
        world.producers.append(SimProducer(world, "fielder", topic))
        world.consumers.append(SimConsumer(world, "fielded-a", topic, own, SHARED))

    # --- administrators

    def act(self) -> None:
        """Change some values of one record beside each other."""
        record = self._chance.choice([self._of_space, self._of_policies, self._of_log])
        for _ in range(self._chance.randint(2, _MOST_TOGETHER)):
            field, delay_s = self._chance.choice(record), self._chance.choice([0.0, 0.0, 0.3]) * self._chance.random()
            self.world.timers.after(delay_s, lambda field=field: self._change(field))

    def _change(self, field: Field) -> None:
        web = self.world.web
        if self._calm or web is None or web.closed:
            return
        if self._chance.random() < 0.2:
            value, request = ABSENT, field.remove
        else:
            number = self._chance.randrange(1000, 1 << 20)
            value, request = str(number), field.put(number)
        web.spawn(self._changed(field, value, request))

    async def _changed(self, field: Field, value: str | None, request: Request) -> None:
        await field.register.change(value, self._asks(request))

    async def _asks(self, request: Request) -> bool | None:
        status, _ = await HttpAdmin(self.world, self._chance).request(*request)
        return None if not status else status in DONE

    def process_ended(self) -> None:
        for field in (*self._of_space, *self._of_policies, *self._of_log):
            field.register.process_ended()

    def calm(self) -> None:
        self._calm = True

    # --- checks

    def check(self, broker: Broker) -> None:
        topic = broker.topics.loaded.get(FIELDED)
        is_loaded = topic is not None and topic.is_open
        for field in (*self._of_space, *self._of_policies, *(self._of_log if is_loaded else ())):
            field.register.check(field.read(broker))
