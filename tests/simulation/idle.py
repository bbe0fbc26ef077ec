"""Topics that the broker deletes because they are inactive, and their promises.

No topic is deleted that has a producer, that was in use within the time of its policy, or that has a message which a
subscription owes; by the mode without subscriptions none that has a subscription. While a deletion is under way no client
is admitted. A topic that is made anew has no message, subscription or sequence id from before the deletion.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.simulation import checker
from tests.simulation.admins import DirectAdmin, HttpAdmin
from tests.simulation.clients import EXCLUSIVE, FAILOVER, SHARED, Client, SimConsumer, SimProducer
from tests.simulation.history import SubscriptionHistory, TopicHistory, ViolationError
from tests.simulation.parts import Part, Register

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.broker import Broker
    from magnetar.broker.topics.served_topic import ServedTopic
    from magnetar.protocol.topic_name import TopicName
    from tests.simulation.world import World

Command = pb.BaseCommand
SPACE = "public/idle"
_SPACE_PATH = f"/admin/v2/namespaces/{SPACE}"
WITHOUT_SUBSCRIPTIONS, CAUGHT_UP = "delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"
OFF = (WITHOUT_SUBSCRIPTIONS, 1, False)
DONE, EXISTS = (200, 204), 409
_SETTLES_S = 60.0
_ROUNDING_S = 0.001


@dataclass(eq=False)
class IdleTopic:
    """One topic: when clients used it, and its deletions."""

    known: TopicHistory
    clients: list[Client] = field(default_factory=list)
    used_s: float = -1.0
    """When the broker last wrote a receipt, or the answer to a PRODUCER."""
    begun_s: float | None = None
    """When the deletion under way began."""
    spans: list[tuple[float, float]] = field(default_factory=list)
    """The begin and the end of each deletion."""
    requested: dict[str, int] = field(default_factory=dict)
    """Subscription -> SUBSCRIBE commands until the last deletion, whose outcome is certain, and behind which the broker
    met none of them.
    """
    unanswered: dict[str, int] = field(default_factory=dict)
    """Subscription -> SUBSCRIBE commands since the start of the process without an answer."""

    def used(self, client: Client) -> None:
        """The broker answered a SEND or a PRODUCER of the client."""
        self.used_s = max(self.used_s, client.written_s)
        self.admitted(client)

    def admitted(self, client: Client) -> None:
        """The broker answered a command that it refuses while a deletion is under way."""
        ends_s = float("inf") if self.begun_s is None else self.begun_s
        for begun_s, ended_s in (*self.spans, *([] if self.begun_s is None else [(ends_s, float("inf"))])):
            if begun_s < client.written_s < ended_s:
                raise ViolationError(f"{client.name}: the topic admits a client at {client.written_s}, in its deletion")

    def begins(self, now_s: float) -> None:
        self.begun_s = now_s
        self.requested = {
            name: each.requested for name, each in self.known.subscriptions.items() if not self.unanswered.get(name)
        }
        self._forgets(surely=False)
        self.known.until_s = float("inf")

    def ends(self, now_s: float, *, surely: bool) -> None:
        """The deletion has ended; ``surely``: the topic is gone."""
        if self.begun_s is None:
            return
        self.spans.append((self.begun_s, now_s))
        self.begun_s, self.known.until_s = None, now_s
        before = set(self.known.former)
        same = all(each.requested == self.requested.get(n) for n, each in self.known.subscriptions.items())
        self._forgets(surely=surely and same)
        if surely:
            self.known.gone |= before
        if not surely or not same:
            self.requested.clear()

    def _forgets(self, *, surely: bool) -> None:
        self.known.may_go()
        for subscription in self.known.subscriptions.values():
            subscription.deleted(surely=surely)


class Visitor(Client):
    """A client that leaves now and then, and comes back after a while."""

    of: IdleTopic
    stays = False

    def arrives(self) -> None:
        """The client is connected to its topic."""
        if not self.stays:
            self.later(self.chance.expovariate(0.7), self._leaves)

    def _leaves(self) -> None:
        if not self.stays:
            self.note("leaves")
            self.drop()

    def _over(self) -> None:
        super()._over()
        if not self.stays and not self.stopped:
            self._life += 1  # a later reconnection replaces the planned reconnection
            self.later(self.chance.choice([0.2, 3.0, 6.0, 10.0]), self.connect)

    @property
    def is_surely_connected(self) -> bool:
        """Whether all that the broker wrote has come, so that the client has its place in the topic."""
        link = self.link
        return (
            self.ready
            and link is not None
            and not (link.stuck or link.is_closing() or link._is_dead() or link._out or link._in)
        )


class VisitingProducer(Visitor, SimProducer):
    """Publishes while it is there."""

    def __init__(self, world: World, name: str, of: IdleTopic) -> None:
        super().__init__(world, name, of.known)
        self.of = of

    def finish(self) -> None:
        super().finish()
        self.stays = True  # for its last receipts
        if self.link is None:
            self.later(0, self.connect)

    def on(self, command: pb.BaseCommand, payload: bytes) -> None:
        if command.type == Command.PRODUCER_SUCCESS:
            self.of.used(self)
            self.arrives()
        super().on(command, payload)

    def _on_receipt(self, receipt: pb.CommandSendReceipt) -> None:
        self.of.used(self)
        super()._on_receipt(receipt)


class VisitingConsumer(Visitor, SimConsumer):
    """Takes messages while it is there, and perhaps ends its subscription when it leaves."""

    def __init__(self, world: World, name: str, of: IdleTopic, subscription: SubscriptionHistory, kind: int) -> None:
        super().__init__(world, name, of.known, subscription, kind)
        self.of = of
        self.acknowledges = self.chance.choice([0.9, 1.0, 1.0, 1.0])

    def connected(self) -> None:
        name = self.subscription.name
        self.of.unanswered[name] = self.of.unanswered.get(name, 0) + 1
        super().connected()

    def _subscribed(self, begins: bool, epoch: int) -> None:
        self.of.unanswered[self.subscription.name] -= 1
        self.of.admitted(self)
        super()._subscribed(begins, epoch)
        self.arrives()

    def _leaves(self) -> None:
        if self.stays or self.chance.random() < 0.5:
            super()._leaves()
            return
        self.note("unsubscribes")
        self.ready = False
        requested = self.subscription.requested
        self.subscription.deleted(surely=False)
        self._ask(
            Command.UNSUBSCRIBE, "unsubscribe", pb.CommandUnsubscribe(consumer_id=1), lambda: self._left(requested)
        )
        self.later(2, self.drop)  # also where the broker refuses

    def _left(self, requested: int) -> None:
        self.note("unsubscribed")
        self.subscription.deleted(surely=self.subscription.requested == requested)
        self.drop()


class Idle(Part):
    """Clients that come and go, and changes of the policy of their namespace."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._chance = world.chance_for("idle")
        self._topics: dict[str, IdleTopic] = {}
        self._policy = Register(SPACE, None)
        self._problem: ViolationError | None = None
        self._settles_until_s = 0.0
        self._settled = False

    def populate(self) -> None:
        plan, world, chance = self.world.plan, self.world, self._chance
        self._keeps = chance.random() < 0.2
        self._first = self._any_policy()
        for number in range(chance.choice([1, 2, 3])):
            name = f"persistent://{SPACE}/idle{number}"
            known = world.history.topics[name] = TopicHistory(name, self._keeps and plan.keeps_all, plan.deduplicates)
            of = self._topics[name] = IdleTopic(known)
            own = [VisitingProducer(world, f"visitor{number}-{n}", of) for n in range(chance.choice([1, 1, 1, 2]))]
            world.producers += own
            of.clients += own
            known.subscriptions["a"] = SubscriptionHistory("a")  # perhaps without a consumer
            for which in chance.choice(["", "a", "a", "ab"]):
                subscription = known.subscriptions.setdefault(which, SubscriptionHistory(which))
                kind = chance.choice([EXCLUSIVE, SHARED, FAILOVER])
                consumer = VisitingConsumer(world, f"guest{number}-{which}", of, subscription, kind)
                world.consumers.append(consumer)
                of.clients.append(consumer)

    # --- the broker's deletions

    def process_begins(self, broker: Broker) -> None:
        delete, deleted = broker.lifecycle.delete_inactive, broker.topics.catalog.deleted

        async def observed(name: TopicName, condition: Callable[[ServedTopic], bool] | None = None) -> None:
            of = self._topics.get(str(name))
            if of is None:
                self._problem = ViolationError(f"{name} is deleted as inactive, without a policy")
                return
            assert condition is not None

            def begins(topic: ServedTopic) -> bool:
                if not condition(topic):
                    return False
                self._check_begin(of)
                of.begins(self.world.now_s)
                self.world.note(f"deletes-idle {name}")
                return True

            try:
                await delete(name, begins)
            finally:
                of.ends(self.world.now_s, surely=False)  # no effect behind a deletion that was made

        def made(name: TopicName) -> None:
            deleted(name)
            of = self._topics.get(str(name))
            if of is not None and of.begun_s is not None:
                self.world.note(f"deleted-idle {name}")
                of.ends(self.world.now_s, surely=True)

        broker.lifecycle.delete_inactive = observed  # type: ignore[method-assign]
        broker.topics.catalog.deleted = made  # type: ignore[method-assign]
        self._create()

    def process_ended(self) -> None:
        self._policy.process_ended()
        for of in self._topics.values():
            of.ends(self.world.now_s, surely=False)
            of.unanswered.clear()

    def _check_begin(self, of: IdleTopic) -> None:
        """Check the model of a topic whose deletion begins."""
        known, now_s = of.known, self.world.now_s
        policies = [each for each in self._policy.possible if each is not None and each[2]]
        only_without = {mode for mode, _, _ in policies} == {WITHOUT_SUBSCRIPTIONS}
        wrong = []
        if not policies:
            wrong.append("without a policy")
        elif now_s - of.used_s < min(seconds for _, seconds, _ in policies) - _ROUNDING_S:
            wrong.append(f"in use {now_s - of.used_s:.3f} s before")
        for client in of.clients:
            if client.is_surely_connected and (only_without or isinstance(client, SimProducer)):  # type: ignore[attr-defined]
                wrong.append(f"with its client {client.name}")
        for subscription in known.subscriptions.values():
            if subscription.exists and only_without:
                wrong.append(f"with the subscription {subscription.name}")
            lies_on = self.world.damage.lies_on
            for place in checker.owed(known, subscription, self.world.damage):
                if not lies_on(known, known.receipts[place]):
                    wrong.append(f"while {subscription.name} owes {place}")
        if known.keeps_all and known.receipts:
            wrong.append("with messages that retention keeps")
        if wrong and self._problem is None:
            self._problem = ViolationError(f"{known.name} is deleted as inactive, {', '.join(wrong)}")

    # --- administrators

    def act(self) -> None:
        name = self._chance.choice(list(self._topics))
        known = self._topics[name].known
        kind = self._chance.choice(["policy", "unload", "subscription", "subscription"])
        if self._settles_until_s:
            return
        if None in self._policy.possible:
            self._create()
        elif kind == "policy":
            self._spawn(self._rule(self._any_policy()))
        elif kind == "unload":
            admin = DirectAdmin(self.world.broker)  # type: ignore[arg-type]
            admin.spawn(admin.look(known, "unload"))
        else:
            admin = DirectAdmin(self.world.broker)  # type: ignore[arg-type]
            chosen = self._chance.choice(list(known.subscriptions.values()))
            admin.spawn(self.world.faults._delete(admin, known, chosen))

    def _any_policy(self) -> tuple[str, int, bool]:
        mode = self._chance.choice([WITHOUT_SUBSCRIPTIONS, CAUGHT_UP, CAUGHT_UP])
        return mode, self._chance.choice([1, 1, 1, 3]), self._chance.random() < 0.9

    def _spawn(self, act: Any) -> None:
        if self.world.web is None or self.world.web.closed:
            act.close()
        else:
            self.world.web.spawn(act)

    def _create(self) -> None:
        if None in self._policy.possible:
            policies: dict[str, Any] = {"inactive_topic_policies": _stored(self._first)}
            if not self._keeps:
                policies["retention_policies"] = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
            body = json.dumps(policies).encode()
            goal = (*DONE, EXISTS)  # for an earlier request without an answer
            self._spawn(self._policy.change(self._first, self._asks("PUT", _SPACE_PATH, body, goal=goal)))

    async def _rule(self, policy: tuple[str, int, bool]) -> None:
        path = f"{_SPACE_PATH}/inactiveTopicPolicies"
        await self._policy.change(policy, self._asks("POST", path, json.dumps(_stored(policy)).encode()))

    async def _asks(self, method: str, path: str, body: bytes, *, goal: tuple[int, ...] = DONE) -> bool | None:
        status, _ = await HttpAdmin(self.world, self._chance).request(method, path, body)
        return None if not status else status in goal

    # --- checks

    def check(self, broker: Broker) -> None:
        if self._problem is not None:
            raise self._problem
        self._policy.check(self._found(broker))
        for name, of in self._topics.items():
            topic = broker.topics.loaded.get(name)
            if topic is not None and topic.is_open:
                self._check_anew(of, topic)

    @staticmethod
    def _found(broker: Broker) -> tuple[str, int, bool] | None:
        policies = broker.stored.namespaces.policies(SPACE)
        found = None if policies is None else policies.inactive_topic_policies
        if found is None:
            return None
        return found.inactive_topic_delete_mode, found.max_inactive_duration_seconds, found.delete_while_inactive

    def _check_anew(self, of: IdleTopic, topic: Any) -> None:
        """Check that nothing is in the topic from before a deletion."""
        for place in of.known.gone:
            if topic.ledger.is_valid(place):
                raise ViolationError(f"{of.known.name}: {place} is there behind a deletion")
        for name, requested in of.requested.items():
            subscription = of.known.subscriptions[name]
            if of.begun_s is None and subscription.requested == requested and name in topic.subscriptions.by_name:
                raise ViolationError(f"{of.known.name}: the subscription {name} is there behind a deletion")

    def over(self) -> None:
        if self._problem is not None:
            raise self._problem

    # --- the end

    def calm(self) -> None:
        """End deletions that would go on beside connected consumers, and make the namespace usable."""
        self._last = self._chance.choice([OFF, (WITHOUT_SUBSCRIPTIONS, 2, True)])
        self._settles_until_s = self.world.now_s + _SETTLES_S
        self._settle()

    def _settle(self) -> None:
        """Go on for a while: a request whose connection was lost may still be carried out."""
        broker = self.world.broker
        found = None if broker is None else self._found(broker)
        self._settled = found == self._last
        if broker is not None and not self._settled:
            if None in self._policy.possible:
                self._create()
            if found is not None:
                self._spawn(self._rule(self._last))
        if self.world.now_s < self._settles_until_s:
            self.world.timers.after(2, self._settle)

    def take(self) -> None:
        """The last consumers begin: their SUBSCRIBE commands are not counted."""
        for of in self._topics.values():
            of.requested.clear()
            of.unanswered = dict.fromkeys(of.known.subscriptions, 1)

    def is_quiet(self) -> bool:
        return self._settled


def _stored(policy: tuple[str, int, bool]) -> dict[str, Any]:
    mode, seconds, deletes = policy
    return {
        "inactiveTopicDeleteMode": mode,
        "maxInactiveDurationSeconds": seconds,
        "deleteWhileInactive": deletes,
    }
