"""A whole simulated cluster for tests of the client: bookies, metadata, as many clients as wanted."""

from __future__ import annotations

import functools
import inspect
import random

from magnetar.bookkeeper.background import Background
from magnetar.bookkeeper.client import BookKeeper
from magnetar.bookkeeper.options import ClientOptions
from tests.model.virtual_loop import VirtualLoop
from tests.twins.sim_bookies import Party, SimNetwork
from tests.twins.sim_ledger_metadata import SimLedgerMetadata, SimMetadataService, SimRegistry

__all__ = ["SimClient", "SimCluster", "simulated"]


class SimClient:
    """One client process."""

    def __init__(self, cluster: SimCluster, name: str, options: ClientOptions) -> None:
        self.party = Party(name)
        self.store = SimLedgerMetadata(cluster.service, self.party)
        self.registry = SimRegistry(cluster.network, cluster.racks)
        self.background = Background(name)
        self.client = BookKeeper(
            self.store,
            self.registry,
            options,
            self.background,
            connect=cluster.network.connector(self.party),
            chance=random.Random(cluster.chance.random()),
        )


class SimCluster:
    def __init__(self, bookies: int = 3, seed: int = 0, racks=None) -> None:
        self.chance = random.Random(seed)
        self.network = SimNetwork(self.chance)
        self.racks = racks or {}
        self.bookies = [self.network.add_bookie(f"bookie-{number}:3181") for number in range(bookies)]
        self.service = SimMetadataService(self.network)
        self.clients: list[SimClient] = []

    def join(self, name: str = "", **options) -> SimClient:
        made = SimClient(self, name or f"client-{len(self.clients)}", ClientOptions(**options))
        self.clients.append(made)
        return made

    def refresh(self) -> None:
        for client in self.clients:
            client.registry.refresh()

    async def close(self) -> None:
        for client in self.clients:
            client.party.resume()
            await client.client.close()


def simulated(test):
    """Run an async test on a loop whose time passes only while no callback is ready."""

    def run(*arguments, **named):
        loop = VirtualLoop()
        try:
            loop.run_until_complete(test(*arguments, **named))
        finally:
            loop.close()
        problems = [str(problem.get("exception") or problem.get("message")) for problem in loop.problems]
        assert problems == []

    functools.update_wrapper(run, test)
    run.__signature__ = inspect.signature(test)
    del run.__wrapped__  # with `__wrapped__` pytest would find the coroutine function
    return run
