"""The bundles of each namespace: the node ``/admin/local-policies/<tenant>/<namespace>`` of the cluster.

This node has precedence over the bundles in the namespace's policies. If the node does not exist, the first lookup
creates it from those bundles. The node also names the anti-affinity group of the namespace and its preferred bookies.
"""

import contextlib
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from magnetar.broker.compat import wire_refusals
from magnetar.broker.errors import UNREADABLE, MetadataError
from magnetar.broker.policies.records import bundle_ranges
from magnetar.broker.policies.values import BundlesData, LocalPolicies
from magnetar.storage.errors import BadVersionError, NoNodeError
from magnetar.storage.interfaces import MUST_NOT_EXIST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from magnetar.storage.coordination import Coordination

__all__ = ["LOCAL_POLICIES", "BundleMap"]

log = structlog.get_logger(__name__)

LOCAL_POLICIES: Final = "/admin/local-policies"


_MOST_ATTEMPTS: Final = 7
"""The attempts of a change while other brokers change the node at the same time."""


class BundleMap:
    """The bundles of the namespaces. Each namespace is read at the first request and followed by a watch from then
    on.
    """

    def __init__(
        self,
        metadata: "Coordination",
        defaults: "Callable[[str], BundlesData | None]",
        on_change: "Callable[[str], None]",
    ) -> None:
        self._metadata = metadata
        self._defaults = defaults
        self._on_change = on_change
        self._known: dict[str, LocalPolicies] = {}
        self._stale: dict[str, object] = {}
        """Namespace -> a token of its last change, if its node has changed since it was read. The bundles as read stay
        in force for topics until the node is read again.
        """
        self._stop = metadata.watch(LOCAL_POLICIES, self._changed)

    def known(self, namespace: str) -> BundlesData | None:
        """Return the bundles of the last read; None if the namespace was not read yet."""
        known = self._known.get(namespace)
        return None if known is None else known.bundles

    async def bundles(self, namespace: str) -> BundlesData:
        """Return the bundles. Raises MetadataError when the namespace does not exist or its node cannot be read."""
        return (await self.policies(namespace)).bundles

    async def policies(self, namespace: str) -> LocalPolicies:
        """Return the whole node. Raises MetadataError as ``bundles``."""
        known, change = self._known.get(namespace), self._stale.get(namespace)
        if known is not None and change is None:
            return known
        try:
            policies = await self._read(namespace)
        except MetadataError:  # the namespace was deleted, or its node is unreadable
            self._known.pop(namespace, None)
            self._stale.pop(namespace, None)
            raise
        if self._stale.get(namespace) is change:  # else the node changed again, or another call has read it
            self._known[namespace] = policies
            self._stale.pop(namespace, None)
        return policies

    async def kept(self, namespace: str) -> LocalPolicies | None:
        """Return the whole node; None if it does not exist. Raises as ``policies``."""
        if namespace in self._known or await self._metadata.get(f"{LOCAL_POLICIES}/{namespace}") is not None:
            return await self.policies(namespace)
        return None

    async def _read(self, namespace: str) -> LocalPolicies:
        path = f"{LOCAL_POLICIES}/{namespace}"
        found = await self._metadata.get(path)
        while found is None:
            default = self._defaults(namespace)
            if default is None or not default.boundaries:
                raise wire_refusals.NAMESPACE_MISSING.error(namespace=namespace)
            try:
                await self._metadata.put(path, msgspec.json.encode(LocalPolicies(bundles=default)), MUST_NOT_EXIST)
            except BadVersionError:
                log.info("bundles.made_by_another_broker", namespace=namespace)
            found = await self._metadata.get(path)
        try:
            policies = msgspec.json.decode(found[0], type=LocalPolicies)
            [int(each, 16) for each in policies.bundles.boundaries or []]  # a text may be no number
        except (*UNREADABLE, ValueError) as error:
            raise MetadataError(f"The bundles of namespace {namespace} cannot be read") from error
        if not bundle_ranges(policies.bundles):
            raise MetadataError(f"Namespace {namespace} has no bundles")
        return policies

    async def cut(self, namespace: str, hashes: "Sequence[int]") -> BundlesData:
        """Add boundaries by compare-and-set; the rest of the node stays. On return ``known`` has the new bundles.

        Raises MetadataError, StorageError (it is then unknown whether the boundaries were added).
        """

        def with_boundaries(node: "dict[str, object]") -> "dict[str, object]":
            before = msgspec.convert(node.get("bundles"), BundlesData)
            boundaries = sorted({*(before.boundaries or []), *(f"0x{each:08x}" for each in hashes)})
            return {"bundles": BundlesData(boundaries=boundaries, num_bundles=len(boundaries) - 1)}

        return (await self._change(namespace, with_boundaries)).bundles

    async def change(self, namespace: str, members: "Mapping[str, object]") -> None:
        """Set members of the node, remove members that are None. Raises as ``cut``."""
        await self._change(namespace, lambda _node: dict(members))

    async def _change(
        self, namespace: str, change: "Callable[[dict[str, object]], dict[str, object]]"
    ) -> LocalPolicies:
        path = f"{LOCAL_POLICIES}/{namespace}"
        for _ in range(_MOST_ATTEMPTS):
            self._stale[namespace] = object()
            await self.policies(namespace)  # creates the node if it does not exist, and checks it
            found = await self._metadata.get(path)
            if found is None:
                continue
            try:
                node = msgspec.json.decode(found[0], type=dict[str, object])
                after = {name: each for name, each in (node | change(node)).items() if each is not None}
                value = msgspec.json.encode(after)
                policies = msgspec.json.decode(value, type=LocalPolicies)
            except UNREADABLE as error:
                raise MetadataError(f"The bundles of namespace {namespace} cannot be read") from error
            try:
                await self._metadata.put(path, value, found[1])
            except BadVersionError:
                continue
            self._known[namespace] = policies
            return policies
        raise MetadataError(f"The bundles of namespace {namespace} are being changed by others")

    async def forget(self, namespace: str) -> None:
        """Delete the node of a namespace that does not exist any more. Raises StorageError."""
        with contextlib.suppress(NoNodeError):
            await self._metadata.delete(f"{LOCAL_POLICIES}/{namespace}")
        self._known.pop(namespace, None)
        self._stale.pop(namespace, None)

    def close(self) -> None:
        self._stop()

    def _changed(self, path: str) -> None:
        namespace = path.removeprefix(LOCAL_POLICIES).removeprefix("/")
        if namespace in self._known:
            self._stale[namespace] = object()
            self._on_change(namespace)
