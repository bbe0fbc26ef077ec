"""A metadata service for ledgers in the test's process, with the faults of a real one: slow, unreachable, answers lost
after the write was made, reads that are behind. It stores the real bytes.
"""

from __future__ import annotations

from magnetar.bookkeeper.errors import (
    MetadataUnavailableError,
    NodeExistsError,
    NodeVersionError,
    NoSuchLedgerError,
)
from magnetar.bookkeeper.metadata.bookie_info import bookie_address
from magnetar.bookkeeper.metadata.ledger_metadata import Versioned
from magnetar.bookkeeper.metadata.metadata_format import decode_metadata, encode_metadata

__all__ = ["SimLedgerMetadata", "SimMetadataService", "SimRegistry"]

TIMEOUT_S = 3.0


class SimMetadataService:
    """The only copy of all ledger metadata."""

    def __init__(self, network) -> None:
        self.network = network
        self.loop = network.loop
        self.up = True
        self.lost_answers = 0.0
        """The probability that an answer is lost."""
        self.nodes: dict[int, list[tuple[bytes, int]]] = {}
        """All versions of each ledger, the newest last."""
        self.next_id = 0
        self.lists: dict[str, tuple[object, int]] = {}
        """Other values under compare-and-set, for the histories' owners."""
        self.closed_seen: dict[int, bytes] = {}
        self.watches: dict[int, list] = {}
        self.reports_changes = True
        """Whether watches fire: the client must be correct without them."""
        self.violations: list[str] = []

    def newest(self, ledger_id):
        versions = self.nodes.get(ledger_id)
        if not versions:
            raise NoSuchLedgerError(ledger_id)
        return versions[-1]

    def store(self, ledger_id, data, version):
        metadata = decode_metadata(ledger_id, data)
        if ledger_id in self.closed_seen and self.closed_seen[ledger_id] != data:
            self.violations.append(f"the closed ledger {ledger_id} changed")
        if metadata.is_closed:
            self.closed_seen[ledger_id] = data
        self.nodes.setdefault(ledger_id, []).append((data, version))
        self.changed(ledger_id)

    def changed(self, ledger_id):
        if self.reports_changes:
            for report in self.watches.pop(ledger_id, ()):
                report()


class SimLedgerMetadata:
    """A party's session: a LedgerMetadataStore. Its operations arrive in the order in which they were made."""

    def __init__(self, service: SimMetadataService, party) -> None:
        self._service, self._party = service, party
        self._due = 0.0

    async def new_ledger_id(self):
        def draw():
            self._service.next_id += 1
            return self._service.next_id - 1

        return await self._ask(draw)

    async def create(self, ledger_id, metadata):
        data = encode_metadata(metadata)

        def create():
            if ledger_id in self._service.nodes:
                raise NodeExistsError(str(ledger_id))
            self._service.store(ledger_id, data, 0)
            return 0

        return await self._ask(create)

    async def read(self, ledger_id, *, latest=False):
        def read():
            data, version = self._service.newest(ledger_id)
            versions = self._service.nodes[ledger_id]
            if not latest and len(versions) > 1 and self._service.network.chance.random() < 0.2:
                data, version = versions[-2]
            return Versioned(decode_metadata(ledger_id, data), version)

        return await self._ask(read)

    async def write(self, ledger_id, metadata, version):
        data = encode_metadata(metadata)

        def write():
            if self._service.newest(ledger_id)[1] != version:
                raise NodeVersionError(str(ledger_id))
            self._service.store(ledger_id, data, version + 1)
            return version + 1

        return await self._ask(write)

    async def delete(self, ledger_id):
        def delete():
            self._service.newest(ledger_id)
            del self._service.nodes[ledger_id]
            self._service.changed(ledger_id)

        await self._ask(delete)

    async def watch(self, ledger_id, changed):
        if not self._service.reports_changes:
            return self._service.newest(ledger_id)[1]

        def report():
            self._due_back = self._service.network.due(getattr(self, "_due_back", 0.0))
            self._service.loop.call_at(self._due_back, self._party.run, changed)

        def watch():
            self._service.watches.setdefault(ledger_id, []).append(report)
            versions = self._service.nodes.get(ledger_id)
            return versions[-1][1] if versions else None

        return await self._ask(watch)

    async def ledger_ids(self):
        for ledger_id in await self._ask(lambda: sorted(self._service.nodes)):
            yield ledger_id

    async def get_list(self, name):
        return await self._ask(lambda: self._service.lists.get(name, ((), -1)))

    async def put_list(self, name, value, version):
        def put():
            if self._service.lists.get(name, ((), -1))[1] != version:
                raise NodeVersionError(name)
            self._service.lists[name] = (value, version + 1)
            return version + 1

        return await self._ask(put)

    async def _ask(self, operation):
        loop, service = self._service.loop, self._service
        answer = loop.create_future()

        def arrive():
            if not service.up:
                loop.call_later(TIMEOUT_S, resolve, None, MetadataUnavailableError("/"))
                return
            result = error = None
            try:
                result = operation()
            except Exception as problem:
                error = problem
            if service.network.chance.random() < service.lost_answers:
                loop.call_later(TIMEOUT_S, resolve, None, MetadataUnavailableError("/"))
                return
            self._due_back = service.network.due(getattr(self, "_due_back", 0.0))
            loop.call_at(self._due_back, resolve, result, error)

        def resolve(result, error):
            self._party.run(lambda: settle(result, error))

        def settle(result, error):
            if answer.done():
                return
            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)

        def send():
            self._due = service.network.due(self._due)
            loop.call_at(self._due, arrive)

        self._party.run(send)
        return await answer


class SimRegistry:
    """A party's view of which bookies there are; changes arrive a while later."""

    def __init__(self, network, racks=None) -> None:
        self._network = network
        self._racks = racks or {}
        self.groups = {}
        self._listeners = []
        self._known = set(network.bookies)
        self._read_only: set[str] = set()

    @property
    def writable(self):
        return {name: bookie_address(name) for name in sorted(self._known - self._read_only)}

    @property
    def read_only(self):
        return {name: bookie_address(name) for name in sorted(self._known & self._read_only)}

    def address(self, bookie_id):
        return bookie_address(bookie_id)

    def rack(self, bookie_id):
        return self._racks.get(bookie_id, "/default-rack")

    def on_change(self, callback):
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback) if callback in self._listeners else None

    def refresh(self) -> None:
        """Read the present set of bookies at once."""
        self._known = {name for name, bookie in self._network.bookies.items() if bookie.up}
        self._read_only = {name for name, bookie in self._network.bookies.items() if bookie.read_only}
        for listener in list(self._listeners):
            listener()
