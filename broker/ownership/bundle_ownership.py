"""Ownership by namespace bundle, with the nodes of Apache Pulsar: brokers of both kinds share one cluster.

An ephemeral node ``/namespace/<tenant>/<namespace>/<range>`` names the broker that serves a bundle. It gives liveness
and routing, never safety: when two brokers both believe that they serve a topic, the fence of its ledger and the
version of its ledger list decide, and the earlier broker fails at its next write.

A lookup of a bundle without an owner (5.2 of Pulsar's behaviour):

    authoritative                this broker takes the bundle
    to the leader                the leader chooses: takes the bundle, or redirects to another broker, authoritative
    to another broker            this broker redirects to the leader; when the leader is not registered, or does not
                                 answer, it decides alone

A lookup whose answer would be a broker that does not answer waits for the end of that broker's session (``peers``).

The session. While it is suspended the broker serves its topics on, for some session timeouts: when ZooKeeper is away no
other broker can take them, and when only this broker is cut off, the fence of a ledger stops writes to topics that
another broker has taken. When the session ends, or stays suspended for so long, the broker gives up every bundle and
disconnects its clients. A vanished node is made again at once; a node of another broker means that the other broker
owns the bundle.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

import structlog

from magnetar.broker.errors import MetadataError, ServiceNotReadyError
from magnetar.broker.ownership.assignments import Assignments
from magnetar.broker.ownership.bundle_map import BundleMap
from magnetar.broker.ownership.cluster_nodes import NAMESPACES, BundleOwner, decode_owner, encode_node
from magnetar.broker.ownership.earlier_bundles import bundles_with
from magnetar.broker.ownership.emptied_nodes import delete_emptied
from magnetar.broker.ownership.load_averages import LoadAverages
from magnetar.broker.ownership.owner_nodes import OwnerNodes
from magnetar.broker.ownership.ownership import AskBroker, Here, ServedAt
from magnetar.broker.policies.records import bundle_of, bundle_ranges
from magnetar.broker.tasks import awaited
from magnetar.storage.coordination import Session
from magnetar.storage.errors import BadVersionError, NoNodeError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from magnetar.broker.ownership.cluster_nodes import LoadReport
    from magnetar.broker.ownership.ownership import BrokerAddresses, LookupAnswer
    from magnetar.broker.ownership.ports import BundleTopics, OtherBrokers
    from magnetar.broker.ownership.register import BrokerRegister
    from magnetar.broker.policies.values import BundlesData, LocalPolicies
    from magnetar.broker.tasks import TaskSet
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.coordination import Coordination

__all__ = ["BundleOwnership"]

log = structlog.get_logger(__name__)

_AGAIN: Final = "Please redo the lookup"
_RETRY_S: Final = 0.2
_TAKEN_TOGETHER: Final = 16
"""The number of bundles that a restarted broker takes again at a time."""
_RELEASED_TOGETHER: Final = 4
"""The number of bundles that a stopping broker releases at a time; it serves the topics of the others meanwhile."""
_SESSIONS_WITHOUT_SERVICE: Final = 5
"""The number of session timeouts for which the broker serves topics without the metadata service."""


class _State(enum.Enum):
    SERVING = "serving"
    RELEASING = "releasing"


@dataclass(slots=True)
class _Bundle:
    """A bundle that this broker owns."""

    namespace: str
    low: int
    high: int
    state: _State
    stop_watching: Callable[[], None]


class BundleOwnership:
    """See ``Ownership``. Call ``start`` before the first query."""

    def __init__(
        self,
        metadata: Coordination,
        own: BrokerAddresses,
        register: BrokerRegister,
        topics: BundleTopics,
        tasks: TaskSet,
        random: Random,
        others: OtherBrokers,
    ) -> None:
        self.register = register
        self._metadata = metadata
        self._node = encode_node(BundleOwner.of(own))
        self._topics = topics
        self._tasks = tasks
        self._others = others
        self._nodes = OwnerNodes(metadata)
        self._bundles = BundleMap(metadata, topics.default_bundles, self._namespace_cut_anew)
        self.averages = LoadAverages()
        self.assignments = Assignments(topics, self._bundles, self.averages, random)
        self._owned: dict[str, _Bundle] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._given_up: set[str] = set()
        """Nodes that may still belong to this session, of bundles that the broker no longer serves."""
        self._session = Session.CONNECTED
        self._suspensions = 0
        self._closed = False

    async def start(self) -> None:
        """Watch the cluster and enter its register. Raises StorageError, ValueError."""
        self._metadata.on_session(self._session_changed)
        await self._metadata.watching()
        if self.register.broker_id in await self.register.names():  # an earlier session of this broker lives
            await self._take_again()
        await self.register.enter()

    def owned(self) -> list[str]:
        """Full names of the bundles this broker serves: ``tenant/namespace/0x..._0x...``."""
        return sorted(path.removeprefix(f"{NAMESPACES}/") for path in self._owned)

    def serves(self, name: TopicName) -> bool:
        bundles = self._bundles.known(name.namespace)
        if bundles is None:
            return False
        bundle = self._owned.get(_path(name.namespace, bundle_of(str(name), bundles)))
        return bundle is not None and bundle.state is _State.SERVING

    async def lookup(self, name: TopicName, *, authoritative: bool) -> LookupAnswer:
        try:
            bundles = await self._bundles.bundles(name.namespace)
            path = _path(name.namespace, bundle_of(str(name), bundles))
            return await self._lookup(path, authoritative=authoritative, persistent=name.persistent)
        except StorageError as error:
            raise ServiceNotReadyError(f"The metadata service does not answer. {_AGAIN}: {error}") from error

    def bundles(self, namespace: str) -> BundlesData | None:
        return self._bundles.known(namespace)

    async def lookup_bundle(self, bundle: str, *, authoritative: bool) -> LookupAnswer:
        namespace, _, part = bundle.rpartition("/")
        try:
            if part not in bundle_ranges(await self._bundles.bundles(namespace)):
                raise MetadataError(f"Namespace {namespace} has no bundle {part}")
            return await self._lookup(f"{NAMESPACES}/{bundle}", authoritative=authoritative, persistent=True)
        except StorageError as error:
            raise ServiceNotReadyError(f"The metadata service does not answer. {_AGAIN}: {error}") from error

    async def assign(self, bundle: str, broker: str) -> bool:
        if await self.register.leader() != self.register.broker_id:
            return False
        self.assignments.given.give(bundle, broker)
        return True

    async def split(self, bundle: str, hashes: Sequence[int]) -> bool:
        """Split the bundle in the order of Apache Pulsar: create the nodes of the new bundles, change the local
        policies, delete the old node. Each topic of the bundle has an owner at every moment.
        """
        path = f"{NAMESPACES}/{bundle}"
        async with self._lock(path):
            owned = self._owned.get(path)
            if owned is None or owned.state is not _State.SERVING:
                return False
            try:
                for child in _parts_of(bundle, hashes):
                    if not isinstance(await self._take(f"{NAMESPACES}/{child}"), Here):
                        raise MetadataError(f"Another broker has bundle {child}")
                await self._bundles.cut(owned.namespace, hashes)
            except StorageError:  # a node may exist nevertheless
                self._given_up.update(f"{NAMESPACES}/{child}" for child in _parts_of(bundle, hashes))
                self._given_up.difference_update(self._owned)
                raise
            finally:  # after success and failure: delete nodes without a bundle, if necessary once the service answers
                self._namespace_cut_anew(owned.namespace)
        log.info("bundle.split", bundle=bundle, parts=len(hashes) + 1)
        return True

    async def local_policies(self, namespace: str) -> LocalPolicies | None:
        return await self._bundles.kept(namespace)

    async def change_local_policies(self, namespace: str, members: Mapping[str, object]) -> bool:
        await self._bundles.change(namespace, members)
        return True

    async def forget(self, name: str) -> None:
        if "/" in name:
            await self._bundles.forget(name)
            self.assignments.given.keep(name, ())
            for path in [path for path, each in self._owned.items() if each.namespace == name]:
                await self.release(path.removeprefix(f"{NAMESPACES}/"))
        await delete_emptied(self._metadata, name)

    async def bundle_owner(self, bundle: str) -> LookupAnswer | None:
        path = f"{NAMESPACES}/{bundle}"
        if path in self._owned:
            return Here()
        found = await self._metadata.get(path)
        return None if found is None else ServedAt(_owner(path, found[0]))

    async def brokers(self) -> list[str] | None:
        return await self.register.names()

    async def leader(self) -> tuple[str, str] | None:
        return await self.register.leader_address()

    def leads(self) -> bool:
        return self.register.is_leader

    async def release(self, bundle: str) -> bool:
        """Release a bundle (``tenant/namespace/0x..._0x...``) in order; return False for a bundle of another broker.

        The broker closes the topics before other brokers can take the bundle.
        """
        path = f"{NAMESPACES}/{bundle}"
        async with self._lock(path):
            owned = self._owned.get(path)
            if owned is None:
                return False
            owned.state = _State.RELEASING
            await self._topics.unload(owned.namespace, owned.low, owned.high)
            if path in self._owned:  # else the session has ended meanwhile
                self._forget(path)
            await self._delete_node(path)
        log.info("bundle.released", bundle=bundle)
        return True

    async def close(self) -> None:
        """Leave the register, then hand over every bundle."""
        if self._closed:
            return
        self._closed = True
        await self.register.leave()
        together = asyncio.Semaphore(_RELEASED_TOGETHER)
        await asyncio.gather(*(self._release_in_turn(bundle, together) for bundle in self.owned()))
        self._bundles.close()
        self._nodes.close()

    async def _release_in_turn(self, bundle: str, together: asyncio.Semaphore) -> None:
        async with together:
            await self.release(bundle)

    # --- lookups -------------------------------------------------------------------------------------------------

    async def _lookup(self, path: str, *, authoritative: bool, persistent: bool) -> LookupAnswer:
        owned = self._owned.get(path)
        if owned is not None:
            if owned.state is _State.SERVING:
                return Here()
            raise ServiceNotReadyError(f"Namespace bundle {path} is being unloaded. {_AGAIN}")
        ahead = not authoritative and not self._nodes.knows(path)
        survey = awaited(self.register.survey(persistent=persistent), "ownership.survey") if ahead else None
        found = await self._nodes.get(path)
        if found is not None and found != self._node:
            owner = _owner(path, found)
            if await self._others.answers(owner):
                return ServedAt(owner)
            await self._others.until_gone(owner, path, found)
            return await self._lookup(path, authoritative=authoritative, persistent=persistent)
        if authoritative or found is not None:  # found: the node that this broker had before a restart
            return await self._take(path)
        return await self._decide(path, *await (survey or self.register.survey(persistent=persistent)))

    async def _decide(self, path: str, candidates: dict[str, LoadReport], leader: str | None) -> LookupAnswer:
        bundle = path.removeprefix(f"{NAMESPACES}/")
        own = self.register.broker_id
        if leader is not None and leader != own and leader in candidates:
            if await self._others.answers(candidates[leader].addresses):
                return AskBroker(candidates[leader].addresses, authoritative=False)
            del candidates[leader]
        self.assignments.keep(candidates.keys())
        found = len(candidates)
        candidates = self._topics.eligible(bundle.rpartition("/")[0], candidates)
        if found and not candidates:
            raise ServiceNotReadyError(f"The isolation policies leave no broker for {path}. {_AGAIN}")
        while True:
            chosen = await self.assignments.choose(bundle, candidates, otherwise=own)
            if chosen == own:
                return await self._take(path)
            if await self._others.answers(candidates[chosen].addresses):
                return AskBroker(candidates[chosen].addresses, authoritative=True)
            del candidates[chosen]

    async def _take(self, path: str) -> LookupAnswer:
        """Become the owner of the bundle, or return the present owner."""
        if self._closed or self._session is not Session.CONNECTED:
            raise ServiceNotReadyError(f"This broker takes no bundles now. {_AGAIN}")
        async with self._lock(path):
            if path in self._owned:
                return Here()
            while not await self._create_node(path):
                found = await self._metadata.get(path)
                if found is not None and found[0] != self._node:
                    return ServedAt(_owner(path, found[0]))
                if found is not None and not await self._metadata.is_mine(path):
                    with contextlib.suppress(NoNodeError, BadVersionError):
                        await self._metadata.delete(path, found[1])  # from an earlier session of this broker
                elif found is not None:
                    break
            return self._taken(path)

    def _taken(self, path: str) -> LookupAnswer:
        if self._closed or self._session is Session.LOST:
            self._given_up.add(path)
            self._tasks.spawn(self._delete_node(path), "ownership.release")
            raise ServiceNotReadyError(f"This broker takes no bundles now. {_AGAIN}")
        namespace, _, bundle = path.removeprefix(f"{NAMESPACES}/").rpartition("/")
        low, _, high = bundle.partition("_")
        end = int(high, 16)
        stop = self._metadata.watch(path, self._node_changed)
        last = end if end == 0xFFFFFFFF else end - 1
        self._owned[path] = _Bundle(namespace, int(low, 16), last, _State.SERVING, stop)
        self._given_up.discard(path)
        log.info("bundle.taken", bundle=f"{namespace}/{bundle}")
        return Here()

    async def _take_again(self) -> None:
        """Own the bundles that this broker owned before its restart, as far as their nodes exist."""
        together = asyncio.Semaphore(_TAKEN_TOGETHER)

        async def take(bundle: str) -> None:
            namespace, _, part = bundle.rpartition("/")
            async with together:
                if part in bundle_ranges(await self._bundles.bundles(namespace)):
                    await self._take(f"{NAMESPACES}/{bundle}")

        taken = map(take, await bundles_with(self._metadata, self._node))
        for failed in await asyncio.gather(*taken, return_exceptions=True):
            if failed is not None:  # lookups wait for the end of the earlier session
                log.warning("bundle.not_taken_again", reason=str(failed))

    # --- nodes ---------------------------------------------------------------------------------------------------

    async def _create_node(self, path: str) -> bool:
        try:
            await self._metadata.create_ephemeral(path, self._node)
        except BadVersionError:
            return False
        return True

    async def _delete_node(self, path: str) -> None:
        """Delete the node only if it belongs to this session: another broker may have made its own node by now."""
        try:
            found = await self._metadata.get(path)
            if found is not None and await self._metadata.is_mine(path):
                with contextlib.suppress(NoNodeError, BadVersionError):
                    await self._metadata.delete(path, found[1])
            self._given_up.discard(path)
        except StorageError as error:
            self._given_up.add(path)
            log.warning("bundle.node_not_deleted", path=path, reason=str(error))

    def _node_changed(self, path: str) -> None:
        if path in self._owned:
            self._tasks.spawn(self._check_node(path), "ownership.check")

    async def _check_node(self, path: str) -> None:
        """Handle the change of a bundle's node: create a missing node again; give up the bundle if another broker has
        the node.
        """
        while (bundle := self._owned.get(path)) is not None and bundle.state is _State.SERVING:
            try:
                if await self._metadata.is_mine(path) or await self._create_node(path):
                    return
                if await self._metadata.get(path) is not None and not await self._metadata.is_mine(path):
                    log.warning("bundle.stolen", path=path)
                    await self._give_up([path])
                    return
            except StorageError:
                await asyncio.sleep(_RETRY_S)

    def _namespace_cut_anew(self, namespace: str) -> None:
        self._tasks.spawn(self._release_old_ranges(namespace), "ownership.ranges")

    async def _release_old_ranges(self, namespace: str) -> None:
        """Release the bundles that no longer exist because the namespace was split. If this broker serves all their
        hashes in new bundles, their topics stay loaded; else the topics are closed.
        """
        ranges = await self._ranges(namespace)
        if ranges is None:
            return
        self.assignments.given.keep(namespace, [path.removeprefix(f"{NAMESPACES}/") for path in ranges])
        stale = [path for path, each in self._owned.items() if each.namespace == namespace and path not in ranges]
        for path in stale:
            async with self._lock(path):
                covered = (bundle := self._owned.get(path)) is not None and self._covers(bundle, ranges)
                if covered:
                    self._forget(path)
                    await self._delete_node(path)
            if not covered:
                await self.release(path.removeprefix(f"{NAMESPACES}/"))
        await self._delete_given_up(f"{NAMESPACES}/{namespace}/")

    async def _delete_given_up(self, prefix: str) -> None:
        """Delete nodes of bundles that this broker does not serve, until the metadata service has done it."""
        while self._session is Session.CONNECTED and not self._closed:
            left = [path for path in self._given_up if path.startswith(prefix) and path not in self._owned]
            if not left:
                return
            for path in left:
                await self._delete_node(path)
            await asyncio.sleep(0 if self._given_up.isdisjoint(left) else _RETRY_S)

    async def _ranges(self, namespace: str) -> set[str] | None:
        """Return the paths of the namespace's bundles, once the metadata service answers; None if they are
        unreadable.
        """
        while not self._closed:
            try:
                return {_path(namespace, each) for each in bundle_ranges(await self._bundles.bundles(namespace))}
            except MetadataError as error:
                log.warning("bundles.unreadable", namespace=namespace, reason=str(error))
                return None
            except StorageError:
                await asyncio.sleep(_RETRY_S)
        return None

    def _covers(self, stale: _Bundle, ranges: set[str]) -> bool:
        """Whether this broker serves every hash of the stale bundle in bundles that exist."""
        low = stale.low
        for path, each in sorted(self._owned.items(), key=lambda item: item[1].low):
            serves = path in ranges and each.namespace == stale.namespace and each.state is _State.SERVING
            if serves and each.low <= low <= each.high:
                low = each.high + 1
        return low > stale.high

    # --- session -------------------------------------------------------------------------------------------------

    def _session_changed(self, state: Session) -> None:
        before, self._session = self._session, state
        self._suspensions += 1
        if state is Session.SUSPENDED:
            self._tasks.spawn(self._wait_for_connection(self._suspensions), "ownership.suspended")
        elif state is Session.LOST:
            self._tasks.spawn(self._give_up(list(self._owned)), "ownership.lost")
        elif before is not Session.CONNECTED:
            self._tasks.spawn(self._connected_again(), "ownership.connected")

    async def _wait_for_connection(self, number: int) -> None:
        await asyncio.sleep(self._metadata.session_timeout_s * _SESSIONS_WITHOUT_SERVICE)
        if self._suspensions == number and not self._closed:
            log.warning("ownership.suspended_too_long", bundles=len(self._owned))
            await self._give_up(list(self._owned))

    async def _connected_again(self) -> None:
        for path in list(self._given_up):
            if path not in self._owned:
                await self._delete_node(path)
        for path in list(self._owned):
            await self._check_node(path)
        await self.register.enter_again()

    async def _give_up(self, paths: list[str]) -> None:
        """Stop serving these bundles; their next owner recovers the ledgers."""
        given_up = [bundle for path in paths if (bundle := self._owned.get(path)) is not None]
        for path in paths:
            if path in self._owned:
                self._owned[path].state = _State.RELEASING
                self._forget(path)
                self._given_up.add(path)
        await asyncio.gather(*(self._topics.unload(each.namespace, each.low, each.high) for each in given_up))

    def _forget(self, path: str) -> None:
        self._owned.pop(path).stop_watching()

    def _lock(self, path: str) -> asyncio.Lock:
        return self._locks.setdefault(path, asyncio.Lock())


def _path(namespace: str, bundle: str) -> str:
    return f"{NAMESPACES}/{namespace}/{bundle}"


def _parts_of(bundle: str, hashes: Sequence[int]) -> list[str]:
    """Full names of the parts of a bundle."""
    namespace, _, part = bundle.rpartition("/")
    low, _, high = part.partition("_")
    bounds = [low, *(f"0x{each:08x}" for each in sorted(set(hashes))), high]
    return [f"{namespace}/{one}_{two}" for one, two in pairwise(bounds)]


def _owner(path: str, value: bytes) -> BrokerAddresses:
    owner = decode_owner(value)
    if owner is None or not (owner.addresses.service_url or owner.addresses.service_url_tls):
        raise MetadataError(f"The owner of {path} cannot be read")
    if owner.disabled:
        raise ServiceNotReadyError(f"Namespace bundle {path} is being unloaded. {_AGAIN}")
    return owner.addresses
