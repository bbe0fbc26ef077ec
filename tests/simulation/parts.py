"""Parts of a history that only some seeds have, each with its own clients and its own promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.history import ViolationError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from magnetar.broker.broker import Broker
    from tests.simulation.clients import Client
    from tests.simulation.history import TopicHistory
    from tests.simulation.world import World


class Part:
    """The times at which a history calls its parts, in this order."""

    is_cut_off = True
    """Whether the process may end in the middle of an act."""

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

    def process_begins(self, broker: Broker) -> None:
        """A broker has started, and no client has connected yet."""

    def stopped(self) -> None:
        """The broker has stopped in order."""

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

    def restored(self, broker: Broker, topics: dict[str, TopicHistory], taken_s: float) -> None:
        """A broker has started on an image of the directory; ``topics``: the history at the time of the image."""

    def over(self) -> None:
        """The history is over, and no process runs."""


class Register:
    """The values that a stored value may have, by the answers to the requests that changed it."""

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.possible = {value}
        self._under_way: list[Any] = []
        self._begun = 0

    async def change(self, value: Any, work: Awaitable[bool | None]) -> bool:
        """Await a request that sets the value. ``work`` returns whether the request was certainly carried out; None:
        it may still be carried out.
        """
        alone, done = not self._under_way, None
        self.possible.add(value)
        self._under_way.append(value)
        self._begun += 1
        mine = self._begun
        try:
            done = await work
        finally:
            if done is not None:
                self._under_way.remove(value)
        if done and alone and self._begun == mine:  # else another request may have been carried out later
            self.possible = {value}
        return bool(done)

    def process_ended(self) -> None:
        """No request is carried out any more."""
        self._under_way.clear()

    @property
    def is_settled(self) -> bool:
        return not self._under_way

    def check(self, found: Any) -> None:
        if found not in self.possible:
            raise ViolationError(f"{self.name}: the value is {found}, not one of {sorted(self.possible, key=str)}")
