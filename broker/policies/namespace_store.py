"""Clusters, tenants, namespaces and topic policies: readers use memory, which changes after the write is durable.

Records of the metadata store (JSON, Pulsar's paths where it has them):
    /admin/clusters/<cluster>                                ClusterData
    /admin/policies/<tenant>                                 TenantInfo
    /admin/policies/<tenant>/<namespace>                     Policies
    /admin/resourcegroups/<group>                            ResourceGroup
    /loadbalance/resource-quota/<"default" or bundle>        ResourceQuota; the bundle's full name
    /admin/topic-policies/<tenant>/<namespace>/<domain>/<topic>   TopicPolicies; <topic> encoded; one for all partitions

A record that cannot be read at the start does not prevent the start: it is listed, a request for its value fails with
UnreadableRecordError, and no change replaces it. A record that becomes unreadable later keeps its last value.

Writes of a record follow each other and carry the version they are based on, so a second broker on the same store
cannot overwrite changes that it has not read. A failed write leaves memory as it was. The store calls its listeners for
every change after the change is stored.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote, unquote

import msgspec
import structlog

from magnetar.broker.policies.effective import (
    NO_POLICIES,
    NO_TOPIC_POLICIES,
    TopicConfig,
    effective_config,
    events_config,
)
from magnetar.broker.policies.failure_domains import FailureDomains
from magnetar.broker.policies.isolation_store import IsolationPolicies
from magnetar.broker.policies.records import Policies, TopicPolicies, even_bundles
from magnetar.broker.policies.serving_clusters import foreign_namespace, is_served_elsewhere
from magnetar.broker.policies.stored_records import MissingError, Records
from magnetar.broker.policies.stored_topic_records import StoredTopicRecords
from magnetar.broker.policies.values import ClusterData, ResourceGroup, ResourceQuota, TenantInfo
from magnetar.storage.errors import BadVersionError, NoNodeError
from magnetar.storage.interfaces import MUST_NOT_EXIST

if TYPE_CHECKING:
    from magnetar.broker.policies.topic_records import TopicRecords
    from magnetar.broker.settings import Settings
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.interfaces import MetadataStore

T = TypeVar("T", bound=msgspec.Struct)
log = structlog.get_logger(__name__)
_OF_NEW_NAME: Final = (
    "tenants and the rates of namespaces keep the former name: set clusterName back, or allow the new name for each "
    "tenant and set the rates again"
)

_CLUSTERS: Final = "/admin/clusters"
POLICIES: Final = "/admin/policies"
RESOURCE_GROUPS: Final = "/admin/resourcegroups"
QUOTAS: Final = "/loadbalance/resource-quota"
_FORMER_QUOTAS: Final = "/admin/resource-quotas"
"""The place where version 0.2 kept quotas: the bundle's full name is encoded there."""
DEFAULT_QUOTA: Final = "default"
"""The name of the quota of bundles without a quota of their own."""
_SYSTEM_TENANT: Final = "pulsar"
_NAMESPACE_GONE: Final = "Namespace is deleted"
"""The reason that Apache Pulsar gives for the same state."""
FIRST_NAMESPACES: Final = ("public/default", f"{_SYSTEM_TENANT}/system")


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """The subject of a change: a namespace or its policies, or those of one topic; a tenant has neither."""

    tenant: str
    namespace: str | None = None
    topic: str | None = None


class NamespaceStore:
    """Tenants, namespaces, clusters and policies of one broker."""

    def __init__(
        self, metadata: "MetadataStore", settings: "Settings", topic_records: "TopicRecords | None" = None
    ) -> None:
        self._metadata = metadata
        self._settings = settings
        self.clusters = Records(metadata, ClusterData, lambda name: f"{_CLUSTERS}/{quote(name, safe='')}")
        self.isolation = IsolationPolicies(metadata, _CLUSTERS)
        self.failure_domains = FailureDomains(metadata, _CLUSTERS)
        self.tenants = Records(metadata, TenantInfo, lambda name: f"{POLICIES}/{name}")
        self.namespaces = Records(metadata, Policies, lambda name: f"{POLICIES}/{name}")
        self.resource_groups = Records(
            metadata, ResourceGroup, lambda name: f"{RESOURCE_GROUPS}/{quote(name, safe='')}"
        )
        self.quotas = Records(metadata, ResourceQuota, lambda name: f"{QUOTAS}/{name}")
        self._own_topics = StoredTopicRecords(metadata)
        self.topics: TopicRecords = topic_records or self._own_topics
        self.in_use: set[str] = set()
        """Namespaces whose bundles a lookup or a call about a topic requested since the start."""
        self._leaving: set[str] = set()
        """Namespaces whose records are being removed."""
        self._listeners: list[Callable[[PolicyChange], None]] = []
        # The last merged value per namespace or topic: valid while both records are the same objects.
        self._effective: dict[str, tuple[Policies, TopicPolicies, TopicConfig]] = {}

    @classmethod
    async def open(
        cls, metadata: "MetadataStore", settings: "Settings", topic_records: "TopicRecords | None" = None
    ) -> "NamespaceStore":
        """Read all records; at the very first start create the cluster and the namespaces that clients expect.

        topic_records: the store of topic policies; None: the metadata store, as for the other records.
        """
        store = cls(metadata, settings, topic_records)
        await store._load()
        await store._create_first_ones()
        return store

    async def _load(self) -> None:
        for cluster in await self._metadata.children(_CLUSTERS):
            await self.clusters.load_at_start(unquote(cluster))
            await self.isolation.load_at_start(unquote(cluster))
            await self.failure_domains.load(unquote(cluster))
        for group in await self._metadata.children(RESOURCE_GROUPS):
            await self.resource_groups.load_at_start(unquote(group))
        await self._load_quotas()
        for tenant in await self._metadata.children(POLICIES):
            await self.tenants.load_at_start(tenant)
            for namespace in await self._metadata.children(f"{POLICIES}/{tenant}"):
                await self.namespaces.load_at_start(f"{tenant}/{namespace}")
        if self.topics is self._own_topics:
            await self._own_topics.load_all()

    async def _load_quotas(self) -> None:
        for former in await self._metadata.children(_FORMER_QUOTAS):
            await self._move_quota(f"{_FORMER_QUOTAS}/{former}", f"{QUOTAS}/{unquote(former)}")
        await self.quotas.load_at_start(DEFAULT_QUOTA)
        for tenant in await self._metadata.children(QUOTAS):
            for namespace in await self._metadata.children(f"{QUOTAS}/{tenant}"):
                for bundle in await self._metadata.children(f"{QUOTAS}/{tenant}/{namespace}"):
                    await self.quotas.load_at_start(f"{tenant}/{namespace}/{bundle}")

    async def _move_quota(self, former: str, path: str) -> None:
        """Move the record of an earlier version; a record at the new place stays. Another broker may do the same."""
        found = await self._metadata.get(former)
        if found is not None:
            with contextlib.suppress(BadVersionError):
                await self._metadata.put(path, found[0], MUST_NOT_EXIST)
            with contextlib.suppress(NoNodeError):
                await self._metadata.delete(former)

    async def _create_first_ones(self) -> None:
        cluster = self._settings.cluster_name
        if self.clusters.names():
            if cluster not in self.clusters:
                log.warning("cluster.new", cluster=cluster, known=self.clusters.names(), remedy=_OF_NEW_NAME)
                await self.clusters.create(cluster, ClusterData())
            return
        # The cluster is created last: after an interrupted start the next start repeats all of this.
        for name in FIRST_NAMESPACES:
            tenant = name.partition("/")[0]
            if tenant not in self.tenants:
                await self.tenants.create(tenant, TenantInfo(admin_roles=[], allowed_clusters=[cluster]))
            if name not in self.namespaces:
                await self.namespaces.create(name, self.new_policies())
        await self.clusters.create(cluster, ClusterData())

    def new_policies(self) -> Policies:
        """The policies of a new namespace."""
        count = self._settings.default_number_of_namespace_bundles
        return Policies(replication_clusters=[self._settings.cluster_name], bundles=even_bundles(count))

    # --- questions -----------------------------------------------------------------------------------------------

    def exists(self, namespace: str) -> bool:
        """Whether the namespace "tenant/name" exists."""
        return namespace in self.namespaces

    def is_foreign(self, namespace: str) -> bool:
        """Whether other clusters serve the namespace, in place of the broker's own cluster."""
        policies = self.namespaces.get(namespace)
        return policies is not None and is_served_elsewhere(policies, self._settings.cluster_name, self.clusters.get)

    def require_local(self, namespace: str) -> None:
        """Raise ForeignNamespaceError for a namespace that only other clusters serve, UnreadableRecordError."""
        policies = self.namespaces.get(namespace)
        if policies is not None and self.is_foreign(namespace):
            raise foreign_namespace(namespace, policies, self._settings.cluster_name, self.clusters.get)

    def policies(self, namespace: str) -> Policies | None:
        """Return the policies, None for a missing namespace. Raises UnreadableRecordError."""
        return self.namespaces.get(namespace)

    def namespaces_of(self, tenant: str) -> list[str]:
        """Full names of the tenant's namespaces, sorted; also of those whose policies cannot be read."""
        return self.namespaces.names_under(f"{tenant}/")

    def topic_policies(self, topic: "TopicName") -> TopicPolicies:
        """The topic's own policies; those of a partition are those of its topic."""
        return self.topics.get(str(topic.base)) or NO_TOPIC_POLICIES

    def effective(self, topic: "TopicName") -> TopicConfig:
        """The effective policies of the topic: its policy, else the namespace's, else the broker's setting."""
        namespace = self.namespaces.get(topic.namespace) or NO_POLICIES
        if topic.is_of_policies:
            return events_config(self._settings, namespace)
        own = self.topic_policies(topic) if self._settings.topic_level_policies_enabled else NO_TOPIC_POLICIES
        key = topic.namespace if own is NO_TOPIC_POLICIES else str(topic.base)
        made = self._effective.get(key)
        if made is None or made[0] is not namespace or made[1] is not own:
            config = effective_config(self._settings, namespace, own.merged())
            if made is not None and made[2] == config:
                config = made[2]  # for example after a grant: keep the object, so that topics see no change
            self._effective[key] = made = namespace, own, config
        return made[2]

    def effective_with(self, topic: "TopicName", own: TopicPolicies) -> TopicConfig:
        """The effective policies that the topic would have with these topic policies."""
        return effective_config(self._settings, self.namespaces.get(topic.namespace) or NO_POLICIES, own)

    def settings_changed(self) -> None:
        """Compute the effective policies again."""
        self._effective.clear()

    # --- changes -------------------------------------------------------------------------------------------------

    async def reload(self, name: str) -> None:
        """Read a tenant or a namespace ("tenant/name") that another broker changed, and call the listeners. Raises as
        ``Records.load``.
        """
        records: Records[TenantInfo] | Records[Policies] = self.namespaces if "/" in name else self.tenants
        if await records.load(name):
            if name not in records:
                self._forget(name)
            self._tell(_of_namespace(name) if "/" in name else PolicyChange(name))

    def topic_changed(self, topic: "TopicName") -> None:
        """Call the listeners: another broker changed the policies of the topic."""
        if (name := str(topic.base)) not in self.topics:
            self._effective.pop(name, None)
        self._tell(_of_topic(topic))

    async def create_tenant(self, name: str, info: TenantInfo) -> None:
        await self.tenants.create(name, info)
        self._tell(PolicyChange(name))

    async def update_tenant(self, name: str, info: TenantInfo) -> None:
        await self.tenants.update(name, lambda _: info)
        self._tell(PolicyChange(name))

    async def delete_tenant(self, name: str) -> None:
        await self.tenants.delete(name)
        self._tell(PolicyChange(name))

    async def create_namespace(self, name: str, policies: Policies) -> None:
        await self.namespaces.create(name, policies)
        self._tell(_of_namespace(name))

    async def update_namespace(self, name: str, change: Callable[[Policies], Policies]) -> Policies:
        """Store `change(policies)`; raises MissingError when there is no such namespace."""
        policies = await self.namespaces.update(name, change)
        self._tell(_of_namespace(name))
        return policies

    async def delete_namespace(self, name: str) -> None:
        """Forget the namespace and the stored records of its topics, also those whose writes are under way."""
        self._leaving.add(name)
        try:
            await self.topics.forget(name)
            await self.namespaces.delete(name)
        finally:
            self._leaving.discard(name)
        self._forget(name)
        self._tell(_of_namespace(name))

    def _forget(self, name: str) -> None:
        """Drop the values in memory of a deleted namespace."""
        self._effective.pop(name, None)
        self.in_use.discard(name)

    async def update_topic(self, topic: "TopicName", change: Callable[[TopicPolicies], TopicPolicies]) -> TopicPolicies:
        """Store `change(policies)` of the topic; a topic without policies has empty policies. Raises MissingError in a
        namespace that does not exist or is being deleted: the record would stay behind the deletion.
        """

        def kept(old: TopicPolicies) -> TopicPolicies:
            self._require_kept(topic.namespace)
            return change(old)

        policies = await self.topics.update(str(topic.base), kept, NO_TOPIC_POLICIES)
        self._tell(_of_topic(topic))
        return policies

    def _require_kept(self, namespace: str) -> None:
        policies = self.namespaces.get(namespace)
        if policies is None or policies.deleted or namespace in self._leaving:
            raise MissingError(_NAMESPACE_GONE)

    async def delete_topic(self, topic: "TopicName") -> None:
        """Forget policies and grants of a deleted topic, if any."""
        name = str(topic.base)
        if name in self.topics:
            await self.topics.delete(name)
            self._tell(_of_topic(topic))
        self._effective.pop(name, None)
        policies = self.namespaces.get(topic.namespace)
        if policies is not None and without_topic_grants(policies, name) != policies:
            await self.namespaces.update(topic.namespace, lambda old: without_topic_grants(old, name))

    # --- listeners -----------------------------------------------------------------------------------------------

    def listen(self, listener: Callable[[PolicyChange], None]) -> None:
        """`listener(change)` is called on the loop after each stored change; it must not wait."""
        self._listeners.append(listener)

    def _tell(self, change: PolicyChange) -> None:
        for listener in tuple(self._listeners):
            listener(change)


def without_topic_grants(policies: Policies, topic: str) -> Policies:
    """The same policies without grants on that topic and on its partitions."""
    auth, partition = policies.auth_policies, topic + "-partition-"
    grants = auth.destination_auth.items()
    kept = {name: roles for name, roles in grants if name != topic and not name.startswith(partition)}
    return msgspec.structs.replace(policies, auth_policies=msgspec.structs.replace(auth, destination_auth=kept))


def _of_namespace(name: str) -> PolicyChange:
    return PolicyChange(name.partition("/")[0], namespace=name)


def _of_topic(topic: "TopicName") -> PolicyChange:
    return PolicyChange(topic.tenant, namespace=topic.namespace, topic=str(topic.base))
