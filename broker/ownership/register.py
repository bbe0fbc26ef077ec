"""The brokers of the cluster: the node of this broker, the nodes of the others, and the leader among them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from magnetar.broker.ownership.broker_choice import is_candidate
from magnetar.broker.ownership.cluster_nodes import (
    BROKERS,
    LEADER,
    LOAD_MANAGERS,
    Leader,
    decode_leader,
    decode_report,
    encode_node,
    encode_report,
)
from magnetar.broker.ownership.report_changes import ReportRules, is_due
from magnetar.broker.ownership.shared_read import SharedRead
from magnetar.storage.errors import BadVersionError, StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from magnetar.broker.ownership.cluster_nodes import LoadReport
    from magnetar.broker.tasks import TaskSet
    from magnetar.storage.coordination import Coordination

__all__ = ["BrokerRegister"]

log = structlog.get_logger(__name__)

_RETRY_S: Final = 0.2
_FRESH_S: Final = 0.2
"""The time for which lookups use the last read of the other brokers' nodes: thousands of lookups follow the end of a
broker.
"""


class BrokerRegister:
    """The register of brokers. A broker enters it last when it starts, and leaves it first when it stops."""

    def __init__(
        self,
        metadata: Coordination,
        broker_id: str,
        report: Callable[[], Awaitable[LoadReport]],
        tasks: TaskSet,
        fresh_s: float = _FRESH_S,
        report_rules: Callable[[], ReportRules] = ReportRules,
    ) -> None:
        self.broker_id = broker_id
        self.is_leader = False
        self._metadata = metadata
        self._report = report
        self._tasks = tasks
        self._path = f"{BROKERS}/{broker_id}"
        self._report_rules = report_rules
        self._written: LoadReport | None = None
        self._entered = False
        self._stops: list[Callable[[], None]] = []
        self._writing = asyncio.Lock()
        self._reports = SharedRead(self._read_reports, fresh_s)
        self._leader_node = SharedRead(lambda: metadata.get(LEADER), fresh_s)

    async def enter(self) -> None:
        """Register this broker: other brokers send lookups from now on. Raises StorageError, and ValueError beside a
        broker whose load manager does not know the owners that this broker writes.
        """
        for name, report in (await self._read_reports()).items():
            if name != self.broker_id and not report.has_owners_in_nodes:
                raise ValueError(
                    f"broker {name} has the load manager {report.load_manager_class_name}: this broker shares topics "
                    f"by the nodes of the {LOAD_MANAGERS[0]}, and all brokers of a cluster must have the same"
                )
        self._stops = [
            self._metadata.watch(self._path, self._own_node_changed),
            self._metadata.watch(LEADER, self._leader_changed),
        ]
        await self._metadata.watching()
        self._entered = True
        await self._write()
        await self._elect()
        self._tasks.spawn(self._repeat(), "ownership.report")

    async def leave(self) -> None:
        """Remove this broker from the register: other brokers send it no lookups any more. Raises StorageError."""
        was_in, self._entered = self._entered, False
        for stop in self._stops:
            stop()
        if not was_in:
            return
        await self._remove()
        await self._resign()

    async def enter_again(self) -> None:
        """Register again, once the metadata service answers: the end of a session deletes this broker's nodes. Raises
        ValueError.
        """
        self.is_leader = False
        await self._until_done(self._write)
        await self._until_done(self._elect)

    async def candidates(self, *, persistent: bool) -> dict[str, LoadReport]:
        """Brokers that lookups may be sent to, by id; a node that cannot be read is left out."""
        reports = await self._reports.get()
        return {name: each for name, each in reports.items() if is_candidate(name, each, persistent=persistent)}

    async def survey(self, *, persistent: bool) -> tuple[dict[str, LoadReport], str | None]:
        """Return ``candidates`` and ``leader``, read at the same time."""
        candidates, leader = await asyncio.gather(self.candidates(persistent=persistent), self.leader())
        return candidates, leader

    async def _read_reports(self) -> dict[str, LoadReport]:
        names = await self._metadata.children(BROKERS)
        found = await asyncio.gather(*(self._metadata.get(f"{BROKERS}/{name}") for name in names))
        reports = {}
        for name, node in zip(names, found, strict=True):
            report = None if node is None else decode_report(node[0])
            if report is not None:
                reports[name] = report
        return reports

    async def names(self) -> list[str]:
        """Ids of all brokers that are registered."""
        return await self._metadata.children(BROKERS)

    async def leader(self) -> str | None:
        """Id of the broker that decides; None while there is none."""
        found = await self.leader_address()
        return None if found is None else found[0]

    async def leader_address(self) -> tuple[str, str] | None:
        """The id and the web address of the leader."""
        found = await self._leader_node.get()
        leader = None if found is None else decode_leader(found[0])
        if leader is None:
            return None
        return leader.broker_id or leader.service_url.partition("://")[2], leader.service_url

    async def _write(self, report: LoadReport | None = None) -> None:
        async with self._writing:
            report = report or await self._report()
            if self._entered:
                report = _with_changes(report, self._written)
                await self._metadata.put_ephemeral(self._path, encode_report(report))
                self._written = report
            if not self._entered:  # the broker has left, perhaps during the write
                await self._remove()

    async def _remove(self) -> None:
        with contextlib.suppress(StorageError):
            await self._metadata.delete(self._path)

    async def _repeat(self) -> None:
        """Write the report again when its content has changed enough."""
        while self._entered:
            await asyncio.sleep(self._report_rules().look_s)
            try:
                report = await self._report()
                if self._written is None or is_due(self._written, report, self._report_rules()):
                    await self._write(report)
            except (StorageError, ValueError, OSError) as error:  # OSError: no descriptor to measure the process
                log.warning("ownership.report_failed", reason=str(error))

    async def _elect(self) -> None:
        """Become the leader if there is none."""
        own = (await self._report()).addresses
        value = encode_node(Leader(self.broker_id, own.web_url or own.web_url_tls or ""))
        try:
            await self._metadata.create_ephemeral(LEADER, value)
            self.is_leader = True
            log.info("ownership.leader", broker=self.broker_id)
        except BadVersionError:
            self.is_leader = await self._metadata.is_mine(LEADER)

        if not self._entered:  # the broker has left during the election
            await self._resign()

    async def _resign(self) -> None:
        if self.is_leader:
            self.is_leader = False
            with contextlib.suppress(StorageError):
                if await self._metadata.is_mine(LEADER):
                    await self._metadata.delete(LEADER)

    def _own_node_changed(self, _path: str) -> None:
        self._tasks.spawn(self._until_done(self._put_back), "ownership.register")

    def _leader_changed(self, _path: str) -> None:
        self._tasks.spawn(self._until_done(self._elect), "ownership.elect")

    async def _put_back(self) -> None:
        """Write the node again when it was deleted."""
        if await self._metadata.get(self._path) is None:
            await self._write()

    async def _until_done(self, work) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - a coroutine function
        while self._entered:
            try:
                await work()
            except (StorageError, OSError):  # OSError: no descriptor to measure the process for the report
                await asyncio.sleep(_RETRY_S)
            else:
                return


def _with_changes(report: LoadReport, written: LoadReport | None) -> LoadReport:
    """Return the report with the bundles that came and went since the report before."""
    before = set(written.bundles) if written is not None else set()
    gains, losses = set(report.bundles) - before, before - set(report.bundles)
    return msgspec.structs.replace(report, last_bundle_gains=sorted(gains), last_bundle_losses=sorted(losses))
