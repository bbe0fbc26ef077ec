"""Faults and actions of administrators at random times: each seed has its own selection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.admins import DirectAdmin, HttpAdmin
from tests.simulation.plan import OF_WORK

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.simulation.admins import Admin
    from tests.simulation.history import SubscriptionHistory, TopicHistory
    from tests.simulation.world import World


OF_DISK_OR_PROCESS = frozenset(
    {"crash", "crash_in_write", "restart", "slow_disk", "full_disk", "failing_sync", *OF_WORK},
)


class Faults:
    """Faults and acts of administrators at random times, until ``stop`` ends all faults."""

    excused = frozenset({"broker.storage_failed", "store.failed"})
    """Errors in the log that a fault of the disk explains."""

    def __init__(self, world: World, chance: Random) -> None:
        self.world, self.chance = world, chance
        self.stopped = False
        self._quiet_until_s = 0.0
        self.full_until_s = 0.0
        """When the disk had space again, after it was full."""
        self._kinds: dict[str, Callable[[], None]] = {
            "cut": self._cut,
            "half_open": self._half_open,
            "stuck": self._stuck,
            "crash": lambda: world.end_life("crash"),
            "crash_in_write": self._crash_in_write,
            "restart": lambda: world.end_life("restart"),
            "slow_disk": self._slow_disk,
            "full_disk": self._full_disk,
            "failing_sync": self._failing_sync,
            "full_write": self._full_write,
            "standstill": self._standstill,
            "crash_in_compaction": self._crash_in_compaction,
            "compact": self._compact,
            "expire": self._expire,
            "admin": self._admin,
            "http": self._http,
            "set_clock": lambda: world.clock.set_by(chance.choice([-7200, -60, 0, 60, 7200, 86400])),
        }

    def start(self) -> None:
        if self.world.plan.faults:
            self._again()

    def keep_quiet(self, seconds: float) -> None:
        """Cause no fault of the disk and the process for so many seconds, and end present faults of the disk."""
        self._quiet_until_s = self.world.now_s + seconds
        self._space()
        disk = self.world.disk
        disk.crash_at = disk.fail_sync_at = disk.full_at = -1
        self.world.threads.stalled_until_s = 0.0

    def stop(self) -> None:
        self.stopped = True
        self._space()
        self.world.disk.crash_at = self.world.disk.fail_sync_at = self.world.disk.full_at = -1
        self.world.threads.stalled_until_s = 0.0
        self.world.clock.set_by(0)
        for link in self.world.links:
            link.read_again()

    def healed_by_start(self) -> None:
        """A process that could not start is started again when there is space."""
        if self.world.disk.capacity_bytes is not None and self.world.broker is None:
            self._space()

    def _again(self) -> None:
        self.world.timers.after(self.chance.expovariate(1 / self.world.plan.fault_every_s), self._happen)

    def _happen(self) -> None:
        if self.stopped:
            return
        kind = self.chance.choice(self.world.plan.faults)
        if self.world.now_s < self._quiet_until_s and kind in OF_DISK_OR_PROCESS:
            self._again()
            return
        if kind not in ("crash", "restart"):
            self.world.note(kind)
        self._kinds[kind]()
        self._again()

    # --- the network -----------------------------------------------------------------------------------------------

    def _links(self) -> list[Any]:
        open_links = [link for link in self.world.links if not link.is_over]
        return self.chance.sample(open_links, min(len(open_links), self.chance.randint(1, 3)))

    def _cut(self) -> None:
        for link in self._links():
            link.cut()

    def _half_open(self) -> None:
        for link in self._links():
            link.half_open = True

    def _stuck(self) -> None:
        for link in self._links():
            link.stuck = True
            self.world.timers.after(self.chance.uniform(0.5, 10), link.read_again)

    # --- the disk --------------------------------------------------------------------------------------------------

    def _crash_in_write(self) -> None:
        disk = self.world.disk
        disk.crash_at = disk.operations + self.chance.randrange(6)

    def _failing_sync(self) -> None:
        disk = self.world.disk
        disk.fail_sync_at = disk.operations + self.chance.randrange(4)

    def _slow_disk(self) -> None:
        self.world.threads.stalled_until_s = self.world.now_s + self.chance.choice([0.2, 1.0, 3.0])

    def _full_write(self) -> None:
        """One write finds no space; the next writes do."""
        disk = self.world.disk
        disk.full_at = disk.operations + self.chance.randrange(12)

    def _standstill(self) -> None:
        """The disk does nothing for seconds, while clients lose their connections and connect again."""
        seconds = self.chance.choice([4, 8, 12])
        self.world.threads.stalled_until_s = self.world.now_s + seconds
        for _ in range(self.chance.randrange(2 * seconds)):
            self.world.timers.after(self.chance.uniform(0, seconds), self._cut)

    def _compact(self) -> None:
        broker = self.world.broker
        if broker is not None:
            known = self.chance.choice(list(self.world.history.topics.values()))
            admin = DirectAdmin(broker)
            admin.spawn(admin.look(known, "compact"))

    def _crash_in_compaction(self) -> None:
        disk = self.world.disk
        self._compact()
        disk.crash_at = disk.operations + self.chance.randrange(60)

    def crash_soon(self, most_operations: int) -> None:
        """End the process in one of the next operations of the disk, unless damage needs quiet."""
        if self.world.now_s >= self._quiet_until_s:
            self.world.disk.crash_at = self.world.disk.operations + self.chance.randrange(most_operations)

    def end(self, how: str) -> None:
        """End the process: "crash" or "restart", unless damage needs quiet."""
        if self.world.now_s >= self._quiet_until_s:
            self.world.end_life(how)

    def fill_disk(self) -> None:
        """Leave the disk without space for a while, unless damage needs quiet."""
        if self.world.now_s >= self._quiet_until_s:
            self._full_disk()

    def _full_disk(self) -> None:
        disk = self.world.disk
        used = sum(len(disk.content(path)) for path in disk.paths())
        disk.capacity_bytes = used + self.chance.choice(self.world.plan.rooms_bytes)
        self.world.timers.after(self.chance.choice([0.5, 2.0, 6.0]), self._space)

    def _space(self) -> None:
        if self.world.disk.capacity_bytes is not None:
            self.full_until_s = self.world.now_s
        self.world.disk.capacity_bytes = None

    # --- administrators --------------------------------------------------------------------------------------------

    def _admin(self) -> None:
        if self.world.broker is not None:
            self._administer(DirectAdmin(self.world.broker))

    def _http(self) -> None:
        if self.world.broker is not None:
            self._administer(HttpAdmin(self.world, self.chance))

    def _administer(self, admin: Admin) -> None:
        broker = self.world.broker
        assert broker is not None
        known = self.chance.choice(list(self.world.history.topics.values()))
        subscription = self.chance.choice([None, *known.subscriptions.values()])
        if subscription is None:
            act = admin.look(known, self.chance.choice(["unload", "trim", "internal_stats", "stats", "compact"]))
        else:
            act = self._on_subscription(admin, known, subscription)
        admin.spawn(act)

    async def _on_subscription(self, admin: Admin, known: TopicHistory, subscription: SubscriptionHistory) -> None:
        kind = self.chance.choice(["analyze", "peek", "skip", "skip_all", "reset", "delete"])
        if kind in ("analyze", "peek"):
            if subscription.exists or kind == "analyze":
                await admin.look(known, kind, subscription.name)
        elif kind == "delete":
            await self._delete(admin, known, subscription)
        else:
            await self._move(kind, admin, known, subscription)

    def _expire(self) -> None:
        broker = self.world.broker
        if broker is not None:
            known = self.chance.choice(list(self.world.history.topics.values()))
            subscription = self.chance.choice([*known.subscriptions.values()])
            admin = DirectAdmin(broker)
            admin.spawn(self._expire_messages(admin, known, subscription, self.chance.choice([1, 3, 60, 7200])))

    async def _expire_messages(
        self, admin: DirectAdmin, known: TopicHistory, subscription: SubscriptionHistory, seconds: int
    ) -> None:
        """Expire messages by age. The clock may be set before the broker reads the clock, and the process may end."""
        since_s, number = self.world.now_s, len(subscription.expiries)
        subscription.expiries.append(float("inf"))
        self.world.note(f"expires {subscription.name} older than {seconds}")
        try:
            await admin.expire(known, subscription.name, seconds)
        finally:
            most_s = self.world.clock.ahead_since(since_s)[1]
            subscription.expiries[number] = self.world.now_s + most_s - seconds

    async def _delete(self, admin: Admin, known: TopicHistory, subscription: SubscriptionHistory) -> None:
        """Request a deletion, which the broker refuses while consumers are connected. With any outcome, the
        subscription counts as new from now on.
        """
        self.world.note(f"delete {subscription.name}")
        subscription.deleted(surely=False)
        done, requested = False, subscription.requested
        try:
            done = await admin.change(known, "delete", subscription.name)
        finally:  # a late answer says nothing about a subscription that a consumer created meanwhile
            subscription.deleted(surely=done and subscription.requested == requested)

    async def _move(self, kind: str, admin: Admin, known: TopicHistory, subscription: SubscriptionHistory) -> None:
        """Move the cursor. Earlier acknowledgements have an unknown state while the command is under way, and for good
        when its outcome is unknown.
        """
        self.world.note(f"{kind} {subscription.name}")
        subscription.moves += 1
        done = False
        try:
            places = sorted(known.receipts)
            if kind != "reset" or places:
                place = self.chance.choice(places) if kind == "reset" else None
                done = await admin.change(known, kind, subscription.name, place)
        finally:
            subscription.moved = subscription.moved or not done or kind == "reset"
            topic = None if self.world.broker is None else self.world.broker.topics.loaded.get(known.name)
            found = None if topic is None else topic.subscriptions.by_name.get(subscription.name)
            if found is None:
                subscription.moved = True
            else:
                subscription.acked_up_to = max(subscription.acked_up_to, tuple(found.cursor.mark_delete))
            subscription.moves -= 1
