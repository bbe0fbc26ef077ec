"""The leader's averages of load, kept in the metadata service for the next leader.

Every broker writes an empty average of its own when it starts. The leader adds a sample when a load report has changed,
writes all averages periodically, and deletes the averages of bundles and brokers that no longer exist. Apache Pulsar's
leader does the same with the same nodes. A new leader also deletes the averages of bundles that ended while there was
no leader.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from magnetar.broker.errors import UNREADABLE
from magnetar.broker.ownership.bundle_map import LOCAL_POLICIES
from magnetar.broker.ownership.load_averages import (
    BROKER_AVERAGES,
    BUNDLE_DATA,
    BrokerLoad,
    decode_bundle_load,
    encode_broker_load,
    encode_bundle_load,
)
from magnetar.broker.policies.records import bundle_ranges
from magnetar.broker.policies.values import LocalPolicies
from magnetar.storage.errors import NoNodeError, NotEmptyError, StorageError

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
"""The number of nodes that are read or written at the same time."""


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
        self._gone: set[str] = set()
        """Bundles whose nodes this leader still has to delete; after an error of the store they remain in the set."""
        self._brokers_changed = False
        """Whether brokers joined or left since the last comparison of the brokers' nodes with the register."""
        self._swept = False
        """Whether this leader has searched for bundles that ended before it became the leader."""

    async def run(self) -> None:
        """Sample and write until cancelled, at the intervals of the settings, which may change while the broker
        runs.
        """
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
        """Add a sample of the reports to the averages, delete the averages of bundles and brokers that no longer exist.
        A broker that is not the leader clears its averages. Raises StorageError.
        """
        if not self._register.is_leader:
            self._averages.forget()
            self._seen, self._written_s = {}, None
            self._gone, self._brokers_changed, self._swept = set(), False, False
            return
        await self._add_samples()
        if not self._swept:
            self._gone |= await self._ended()
            self._swept = True
        if self._brokers_changed:
            await self._delete_dead_brokers()
            self._brokers_changed = False
        await self._delete_gone()

    async def _add_samples(self) -> None:
        reports = await self._register.candidates(persistent=True)
        now = {name: each.last_update for name, each in reports.items()}
        if now == self._seen:
            return
        if self._written_s is None:
            self._written_s = self._now_s()
        stored = await self._stored(self._averages.unseen(reports))
        self._gone.update(self._averages.sample(reports, stored))
        self._gone.difference_update(self._averages.bundles)
        self._brokers_changed = self._brokers_changed or self._seen.keys() != now.keys()
        self._seen = now

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
        """Return the stored averages of an earlier leader."""
        found: dict[str, BundleLoad] = {}
        for start in range(0, len(bundles), _AT_ONCE):
            part = bundles[start : start + _AT_ONCE]
            nodes = await asyncio.gather(*(self._metadata.get(f"{BUNDLE_DATA}/{each}") for each in part))
            for bundle, node in zip(part, nodes, strict=True):
                load = None if node is None else decode_bundle_load(node[0])
                if load is not None:
                    found[bundle] = load
        return found

    async def _ended(self) -> set[str]:
        """Return the bundles that have a stored average and no longer exist in their namespace."""
        ended: set[str] = set()
        for tenant in await self._metadata.children(BUNDLE_DATA):
            for local in await self._metadata.children(f"{BUNDLE_DATA}/{tenant}"):
                namespace = f"{tenant}/{local}"
                ranges = await self._ranges(namespace)
                if ranges is not None:
                    averages = await self._metadata.children(f"{BUNDLE_DATA}/{namespace}")
                    ended.update(f"{namespace}/{each}" for each in averages if each not in ranges)
        return ended - self._averages.bundles.keys()

    async def _ranges(self, namespace: str) -> set[str] | None:
        """Return the bundles of the namespace; empty if the namespace has no node, None if its node cannot be read."""
        node = await self._metadata.get(f"{LOCAL_POLICIES}/{namespace}")
        if node is None:
            return set()
        try:
            return set(bundle_ranges(msgspec.json.decode(node[0], type=LocalPolicies).bundles)) or None
        except UNREADABLE:
            return None

    async def _delete_dead_brokers(self) -> None:
        averages = await self._metadata.children(BROKER_AVERAGES)
        registered = set(await self._register.names())  # a broker registers before it writes its average
        dead = [self._path(each) for each in averages if each not in registered]
        await asyncio.gather(*map(self._delete, dead))

    async def _delete_gone(self) -> None:
        bundles = sorted(self._gone)
        for start in range(0, len(bundles), _AT_ONCE):
            await asyncio.gather(*map(self._delete_bundle, bundles[start : start + _AT_ONCE]))

    async def _delete_bundle(self, bundle: str) -> None:
        await self._delete(f"{BUNDLE_DATA}/{bundle}")
        self._gone.discard(bundle)

    async def _delete(self, path: str) -> None:
        with contextlib.suppress(NoNodeError, NotEmptyError):
            await self._metadata.delete(path)

    def _path(self, broker_id: str) -> str:
        return f"{BROKER_AVERAGES}/{broker_id}"
