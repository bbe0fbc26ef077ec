"""The leader's averages of load, kept in the metadata service for the next leader.

Every broker writes an empty average of its own when it starts; the leader adds a sample when a load report has changed,
writes all averages at times, and deletes those of bundles and brokers that are gone. Apache Pulsar's leader does the
same with the same nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import structlog

from magnetar.broker.ownership.load_averages import (
    BROKER_AVERAGES,
    BUNDLE_DATA,
    BrokerLoad,
    decode_bundle_load,
    encode_broker_load,
    encode_bundle_load,
)
from magnetar.storage.errors import NoNodeError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from magnetar.broker.ownership.cluster_nodes import LoadReport
    from magnetar.broker.ownership.load_averages import BundleLoad, LoadAverages
    from magnetar.broker.ownership.register import BrokerRegister
    from magnetar.broker.settings import Settings
    from magnetar.storage.interfaces import MetadataStore

__all__ = ["Averaging"]

log = structlog.get_logger(__name__)

_MINUTE_S: Final = 60.0
_AT_ONCE: Final = 64
"""Nodes read or written together."""


class Averaging:
    """``run`` until it is cancelled; ``sample`` and ``write`` are one pass each."""

    def __init__(
        self,
        settings: Settings,
        metadata: MetadataStore,
        register: BrokerRegister,
        averages: LoadAverages,
        now_s: Callable[[], float],
    ) -> None:
        self._settings, self._metadata, self._register = settings, metadata, register
        self._averages, self._now_s = averages, now_s
        self._seen: dict[str, int] = {}
        self._written_s: float | None = None

    async def run(self) -> None:
        """The settings may change while the broker runs."""
        with contextlib.suppress(StorageError):
            await self._metadata.put(self._path(self._register.broker_id), encode_broker_load(BrokerLoad()))
        while True:
            await asyncio.sleep(self._settings.load_balancer_report_update_min_interval_millis / 1000)
            try:
                await self.sample()
                if self._is_due():
                    await self.write()
            except (StorageError, ValueError) as error:
                log.warning("balancing.failed", work="averages", reason=str(error))

    async def sample(self) -> None:
        """Look at the reports; the averages of a broker that does not lead are empty. Raises StorageError."""
        if not self._register.is_leader:
            self._averages.forget()
            self._seen, self._written_s = {}, None
            return
        reports = await self._register.candidates(persistent=True)
        now = {name: each.last_update for name, each in reports.items()}
        if now == self._seen:
            return
        if self._written_s is None:
            self._written_s = self._now_s()
        stored = await self._stored(self._averages.unseen(reports))
        gone = self._averages.sample(reports, stored)
        if self._seen.keys() != now.keys():
            await self._delete_dead_brokers()
        self._seen = now
        await self._delete([f"{BUNDLE_DATA}/{bundle}" for bundle in gone])

    async def write(self) -> None:
        """Raises StorageError, ValueError."""
        self._written_s = self._now_s()
        reports: Mapping[str, LoadReport] = await self._register.candidates(persistent=True)
        most = self._settings.load_balancer_max_number_of_bundles_in_bundle_load_report * len(reports)
        bundles = self._averages.heaviest(most)
        values = {f"{BUNDLE_DATA}/{each}": encode_bundle_load(self._averages.bundles[each]) for each in bundles}
        values |= {
            self._path(name): encode_broker_load(self._averages.broker_load(each)) for name, each in reports.items()
        }
        paths = list(values)
        for start in range(0, len(paths), _AT_ONCE):
            part = paths[start : start + _AT_ONCE]
            await asyncio.gather(*(self._metadata.put(path, values[path]) for path in part))

    def _is_due(self) -> bool:
        interval_s = self._settings.load_balancer_resource_quota_update_interval_minutes * _MINUTE_S
        return self._written_s is not None and self._now_s() - self._written_s >= interval_s

    async def _stored(self, bundles: list[str]) -> dict[str, BundleLoad]:
        """The averages that an earlier leader left."""
        found: dict[str, BundleLoad] = {}
        for start in range(0, len(bundles), _AT_ONCE):
            part = bundles[start : start + _AT_ONCE]
            nodes = await asyncio.gather(*(self._metadata.get(f"{BUNDLE_DATA}/{each}") for each in part))
            for bundle, node in zip(part, nodes, strict=True):
                load = None if node is None else decode_bundle_load(node[0])
                if load is not None:
                    found[bundle] = load
        return found

    async def _delete_dead_brokers(self) -> None:
        averages = await self._metadata.children(BROKER_AVERAGES)
        registered = set(await self._register.names())  # a broker registers before it writes its average
        await self._delete([self._path(each) for each in averages if each not in registered])

    async def _delete(self, paths: list[str]) -> None:
        for path in paths:
            with contextlib.suppress(NoNodeError):
                await self._metadata.delete(path)

    def _path(self, broker_id: str) -> str:
        return f"{BROKER_AVERAGES}/{broker_id}"
