"""Bugs planted into the broker, each of which the simulation must find: ``python -m tests.simulation.planted NAME``.

Names are those of the functions below. Printed is what broke, behind the seed that shows it.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any
from unittest import mock

from magnetar.broker.consumers.pending_acks import PendingAcks
from magnetar.broker.network.publish_gate import PublishBudget
from magnetar.broker.topics import subscriptions
from magnetar.broker.topics.topic import Topic
from magnetar.storage.managed import ledger_recovery, ledger_switch, trimmer
from magnetar.storage.managed.cursors.ack_state import AckState
from magnetar.storage.managed.cursors.cursor import ManagedCursor
from magnetar.storage.managed.cursors.store import CursorStore
from tests.simulation.play import play
from tests.twins.sim_files import _SimFile

SEEDS = range(60)


class Patch:
    """Replaces attributes for the rest of the process."""

    @staticmethod
    def setattr(owner: Any, name: str, value: Any) -> None:
        mock.patch.object(owner, name, value).start()


def lost_syncs(patch: Any) -> None:
    write = _SimFile.write
    patch.setattr(_SimFile, "write", lambda self, buffers, offset, durable=False: write(self, buffers, offset))


def acks_of_one_more(patch: Any) -> None:
    ack = AckState.ack
    patch.setattr(AckState, "ack", lambda self, position: ack(self, position) | ack(self, position.next()))


def acks_answered_before_they_are_saved(patch: Any) -> None:
    async def at_once(self: Any) -> None:
        return None

    patch.setattr(ManagedCursor, "flush", at_once)


def trimming_without_a_look_at_cursors(patch: Any) -> None:
    pure = trimmer.ledgers_to_drop
    patch.setattr(trimmer, "ledgers_to_drop", lambda slots, _marks, *rest, **more: pure(slots, [], *rest, **more))


def index_of_the_last_entry_alone(patch: Any) -> None:
    async def last_alone(ledgers: Any, slots: Any, floor: int) -> int:
        return floor

    for module in (ledger_recovery, ledger_switch):
        patch.setattr(module, "index_after", last_alone)


def a_durable_subscription_without_a_durable_cursor(patch: Any) -> None:
    async def create(self: Any, request: Any) -> Any:
        return await self._create_non_durable(request, None)

    patch.setattr(subscriptions.TopicSubscriptions, "_create_durable", create)


def a_backlog_of_one_more(patch: Any) -> None:
    exact = AckState.backlog_entries.fget
    patch.setattr(AckState, "backlog_entries", property(lambda self: exact(self) + 1))


def held_for_ever(patch: Any) -> None:
    patch.setattr(PendingAcks, "remove", PendingAcks.get)


def an_account_that_only_grows(patch: Any) -> None:
    patch.setattr(PublishBudget, "give_back", lambda self, size: None)


def a_task_that_nobody_ends(patch: Any) -> None:
    close = Topic.close

    async def leaking(self: Any, **how: Any) -> None:
        asyncio.get_running_loop().create_task(asyncio.Event().wait(), name="leak")
        await close(self, **how)

    patch.setattr(Topic, "close", leaking)


def a_cursor_that_forgets_its_newest_state(patch: Any) -> None:
    async def stale(self: Any, acks: Any, properties: Any) -> None:
        acks.take_changes(properties)

    patch.setattr(CursorStore, "write", stale)


def main() -> int:
    globals()[sys.argv[1]](Patch)
    for seed in SEEDS:
        _, failure, _ = play(seed)
        if failure:
            print(f"seed {seed}: {failure.splitlines()[-1]}")
            return 1
    print("no seed found it")
    return 0


if __name__ == "__main__":
    sys.unraisablehook = lambda _: None
    sys.exit(main())
