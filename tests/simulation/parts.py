"""Parts of a history that only some seeds have, each with its own clients and its own promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker
    from tests.simulation.clients import Client
    from tests.simulation.world import World


class Part:
    """The times at which a history calls its parts, in this order."""

    def __init__(self, world: World) -> None:
        self.world = world

    def populate(self) -> None:
        """Add topics and clients to the world."""

    def act(self) -> None:
        """Begin an act of an administrator, at a random time."""

    def check(self, broker: Broker) -> None:
        """Check invariants that hold between any two callbacks; called every half second."""

    def refused(self, client: Client, code: int) -> None:
        """The broker refused a client's request."""

    def process_ended(self) -> None:
        """The broker's process has ended, and the next process has not begun."""

    def calm(self) -> None:
        """All faults have ended, and no new messages come."""

    def take(self) -> None:
        """Start the clients that read the remaining messages."""

    def is_quiet(self) -> bool:
        """Whether these clients have everything."""
        return True

    def compare(self) -> None:
        """Check the messages of the last clients."""

    def over(self) -> None:
        """The history is over, and no process runs."""
