"""Commands on the data directory: `magnetar verify` between two processes, backups beside the broker; their promises.

A directory that no device has damaged has no damage, whatever process ended on it and however; verify does not change a
byte. A repair may be cut off anywhere. A broker on a restored image has every receipt, every answered acknowledgement and
every subscription that clients had at the moment of the image.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from unittest import mock

from magnetar.broker import broker as broker_module
from magnetar.broker.broker import Broker
from magnetar.broker.rebuilding import rebuild_records
from magnetar.broker.settings import Settings
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.embedded.engine import EngineEnvironment
from magnetar.storage.embedded.verify.command import verify_store
from tests.simulation import checker
from tests.simulation.history import SubscriptionHistory, TopicHistory, ViolationError
from tests.simulation.parts import Part
from tests.simulation.plan import SMALL
from tests.simulation.threads import SimThreads
from tests.simulation.timers import SimLoop, Timers
from tests.twins.sim_files import SimDisk, SimulatedCrash

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.topics.topic import Topic
    from magnetar.storage.position import Position
    from tests.simulation.world import World
    from tests.twins.sim_files import _Inode

ROOT = "/data"
MOST_IMAGES = 2


@dataclass
class Image:
    """An image of the data directory: the content of the journal and the metadata at one instant, and of the ledger files
    as far as they were written then, read later.
    """

    taken_s: float
    disk: SimDisk
    topics: dict[str, TopicHistory]
    open_files: dict[str, tuple[_Inode, int]]

    def read_ledgers(self) -> None:
        for path, (inode, size) in self.open_files.items():
            self.disk.put(path, bytes(inode.data[:size]))
        self.open_files.clear()


class Offline(Part):
    """Runs the commands."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._chance = world.chance_for("offline")
        self.images: list[Image] = []

    # --- verify

    def process_ended(self) -> None:
        """Between two processes: verify, and perhaps repair, which the power may cut off."""
        for image in self.images:
            image.read_ledgers()
        disk = self.world.disk
        if not disk.exists(f"{ROOT}/journal") or not disk.exists(f"{ROOT}/ledgers") or disk.crash_at >= 0:
            return
        if self._chance.random() < 0.5:
            self.world.note("verifies")
            self._verify(disk)
        if self._chance.random() < 0.5:
            self._repair()

    def _verify(self, disk: SimDisk) -> None:
        before = {path: disk.content(path) for path in disk.paths()}
        report = verify_store(ROOT, files=disk, clock=self.world.clock)
        if {path: disk.content(path) for path in disk.paths() if path in before or disk.content(path)} != before:
            raise ViolationError("verify has changed the directory")
        if report.damaged:
            raise ViolationError(f"verify finds damage: {[f for f in report.findings if f.severity == 'damage']}")

    def _repair(self) -> None:
        disk, chance = self.world.disk, self._chance
        parts = [name for name in ("index", "torn-tail", "metadata") if chance.random() < 0.7]
        disk.crash_at = disk.operations + chance.choice([0, 1, 2, 3, 5, 8, 1 << 40])
        try:
            report = verify_store(ROOT, files=disk, clock=self.world.clock, repair=parts, rebuild=rebuild_records)
        except SimulatedCrash:
            self.world.note("repair-cut-off")
            self.world.disk = disk.after_crash(
                chance.choice(["nothing", "everything", "some"]), chance.randrange(1 << 30)
            )
            self.world.disk.capacity_bytes = disk.capacity_bytes
        else:
            self.world.note(f"repairs {len(report.repaired)}")
            disk.crash_at = -1

    # --- backups

    def act(self) -> None:
        """Take an image of the running broker's directory."""
        if len(self.images) >= MOST_IMAGES and self._chance.random() < 0.7:
            return
        self.world.note("takes-image")
        for part in self.world.parts:
            part.check(self.world.broker)  # type: ignore[arg-type]  # evictions since the last check are in the image
        disk = self.world.disk
        opened = {path: (disk._names[path], len(disk.content(path))) for path in disk.paths() if "/ledgers/" in path}
        image = Image(self.world.now_s, disk.copy(), _now(self.world.history.topics), opened)
        self.images = [*self.images[-MOST_IMAGES + 1 :], image]
        self.world.timers.after(self._chance.choice([0.0, 0.1, 2.0]), image.read_ledgers)

    def over(self) -> None:
        """The history is over: a broker starts on each image."""
        for image in self.images:
            image.read_ledgers()
            self._verify(image.disk)
            _start_on(image, self.world)


def _now(topics: dict[str, TopicHistory]) -> dict[str, TopicHistory]:
    """The history at this moment."""
    return {
        name: replace(
            known,
            receipts=dict(known.receipts),
            subscriptions={each.name: _subscription(each) for each in known.subscriptions.values()},
        )
        for name, known in topics.items()
    }


def _subscription(known: SubscriptionHistory) -> SubscriptionHistory:
    return replace(
        known,
        acked=set(known.acked),
        sure=dict(known.sure),
        sure_up_to=list(known.sure_up_to),
        expiries=list(known.expiries),
        evicted=set(known.evicted),
    )


def _start_on(image: Image, world: World) -> None:
    """Start a broker on the restored image, and check the promises of the moment."""
    timers = Timers()
    timers.now_s = world.now_s
    loop = SimLoop(timers)
    world.clock.loop = loop
    threads = SimThreads(world.chance_for("restored"), 0.0001, loop.stop)
    environment = EngineEnvironment(image.disk, world.clock, threads, loop, world.chance_for("restored").randbytes)
    settings = Settings(data_dir=ROOT, broker_service_port=None, web_service_port=None, **world.plan.settings)
    with mock.patch.object(broker_module, "engine_settings", return_value=SMALL):
        loop.run_until_complete(_check_restored(Broker(settings, environment), image, world))
    loop.close()


async def _check_restored(broker: Broker, image: Image, world: World) -> None:
    await broker.start()
    for name, known in image.topics.items():
        if known.receipts or any(each.exists for each in known.subscriptions.values()):
            topic = await broker.topics.get(TopicName.parse(name), create=False)
            _check_acked(topic, known, image.taken_s)
    for part in world.parts:
        part.restored(broker, image.topics, image.taken_s)
    checker.check_running(broker, image.topics, world.damage)
    await broker.stop()
    await broker.wait_stopped()
    await asyncio.sleep(10)


def _check_acked(topic: Topic, known: TopicHistory, taken_s: float) -> None:
    valid: Callable[[Position], bool] = topic.ledger.is_valid
    for subscription in known.subscriptions.values():
        found = topic.subscriptions.by_name.get(subscription.name)
        if found is None or not subscription.exists:
            continue
        for place in known.receipts:
            if subscription.was_surely_acked(place, taken_s) and valid(place) and not found.cursor.is_deleted(place):
                raise ViolationError(f"{known.name} {subscription.name}: {place} is not acknowledged in the image")
