"""Decides on the rights of a role (Pulsar PulsarAuthorizationProvider). Pure: decides from a role, a need and the
present policies.

Super users may do everything. A tenant's administrators may do everything in it, except change the tenant's
existence. Others need a grant: on the namespace, or on the topic (a partition has its own and its topic's). Consuming
may be limited further to roles named for the subscription, or to subscriptions whose name begins with the role.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from magnetar.broker.auth.table import Action, Need, Resource

if TYPE_CHECKING:
    from magnetar.broker.policies.namespace_store import NamespaceStore
    from magnetar.broker.policies.records import Policies
    from magnetar.broker.policies.values import AuthPolicies
    from magnetar.broker.settings import Settings
    from magnetar.protocol.topic_name import TopicName


OF_WEB_SOCKETS: Final = "__websocket_dummy_original_principle"
"""The principal that Apache Pulsar's WebSocket proxy names for each of its clients; it checks their rights itself."""
_USES = frozenset({Action.PRODUCE.value, Action.CONSUME.value})


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a client: its role (None: authentication is off), and for a proxy the role it represents."""

    role: str | None
    original: str | None = None

    @property
    def roles(self) -> tuple[str | None, ...]:
        """The roles that both need a right. The principal of Apache Pulsar's WebSocket proxy is no role."""
        return (self.role,) if self.original in (None, OF_WEB_SOCKETS) else (self.role, self.original)


@dataclass(frozen=True, slots=True)
class Target:
    """The resource of a request; a field is "" where it does not apply.

    topic: the full name; subscription: when consuming; base: of a partition the name of its topic.
    """

    tenant: str = ""
    namespace: str = ""
    topic: str = ""
    subscription: str = ""
    base: str = ""

    @classmethod
    def of_topic(cls, name: "TopicName", subscription: str = "") -> Self:
        return cls(name.tenant, name.namespace, str(name), subscription, str(name.base))


class Authorizer:
    """The rules of authorization of one broker."""

    def __init__(self, settings: "Settings", namespaces: "NamespaceStore") -> None:
        self.enabled = settings.authorization_enabled
        self._settings = settings
        self._proxies = frozenset(settings.proxy_roles)
        self._wildcards = settings.authorization_allow_wildcards_matching
        self._namespaces = namespaces

    def allows(self, identity: Identity, need: Need, target: Target) -> bool:
        """Whether the identity has the right. A proxy and the role that it represents must both have the right."""
        if not self.enabled or need.is_open:
            return True
        roles = identity.roles
        return all(role is not None and self._role_allows(role, need, target) for role in roles)

    def without_prefix(self, identity: Identity, need: Need, target: Target) -> str | None:
        """The first role without the right, if it lacks the right because the name of the subscription does not begin
        with the role: Apache Pulsar looks at names before grants, and over REST such a refusal is an error of the
        server.
        """
        roles = identity.roles
        refused = next((role for role in roles if role is None or not self._role_allows(role, need, target)), None)
        policies = self._namespaces.policies(target.namespace)
        by_name = need.action is Action.CONSUME and need.resource is Resource.TOPIC and target.subscription
        if refused is None or policies is None or not by_name:
            return None
        listed = policies.auth_policies.subscription_roles.get(target.subscription)
        if (listed and refused not in listed) or _has_prefix(refused, target.subscription, policies):
            return None
        return refused

    def is_super_user(self, role: str | None) -> bool:
        return not self.enabled or role in self._settings.super_user_roles

    def is_proxy(self, role: str | None) -> bool:
        return role in self._proxies

    def administers_something(self, identity: Identity) -> bool:
        """Whether the identity administers any tenant: checked before the body, which names the tenant, is read."""
        if not self.enabled:
            return True
        roles = identity.roles
        return all(role is not None and (self.is_super_user(role) or self._has_tenant(role)) for role in roles)

    def _has_tenant(self, role: str) -> bool:
        tenants = (self._namespaces.tenants.get(name) for name in self._namespaces.tenants.readable())
        return any(tenant is not None and role in (tenant.admin_roles or ()) for tenant in tenants)

    def valid_identity(self, identity: Identity, *, itself: bool = False) -> bool:
        """Apply the rule of proxies: a proxy must name a client that is no proxy; any other client must name no role
        (with `itself` also its own role), or be a WebSocket proxy.
        """
        if not self.enabled or identity.role is None:
            return True
        if identity.role in self._proxies:
            return bool(identity.original) and identity.original not in self._proxies
        return identity.original in (None, "", OF_WEB_SOCKETS) or (itself and identity.original == identity.role)

    def _role_allows(self, role: str, need: Need, target: Target) -> bool:
        if role in self._settings.super_user_roles:
            return True
        if need.resource is Resource.CLUSTER:
            return False
        tenant = self._namespaces.tenants.get(target.tenant)
        if tenant is None:
            return False
        if role in (tenant.admin_roles or ()):
            return True
        if need.action is Action.ADMINISTER or need.resource is Resource.TENANT:
            return False
        policies = self._namespaces.policies(target.namespace)
        return policies is not None and self._granted(role, need, target, policies)

    def _granted(self, role: str, need: Need, target: Target, policies: "Policies") -> bool:
        auth = policies.auth_policies
        granted = self._actions(role, auth, "")
        if need.resource is not Resource.NAMESPACE:
            for topic in {target.topic, target.base} - {""}:
                granted |= self._actions(role, auth, topic)
        if need.action is Action.USE:
            return not granted.isdisjoint(_USES)
        return need.action.value in granted and (
            need.action is not Action.CONSUME or _may_use_subscription(role, target.subscription, policies)
        )

    def _actions(self, role: str, auth: "AuthPolicies", topic: str) -> set[str | None]:
        """The actions granted to the role on the topic, or on the namespace for ""; with wildcards also grants to
        `prefix*` and `*suffix`.
        """
        grants = auth.destination_auth.get(topic, {}) if topic else auth.namespace_auth
        actions: set[str | None] = set(grants.get(role, ()))
        if self._wildcards:
            actions |= auth.patterns(topic).actions(role)
        return actions


def _may_use_subscription(role: str, subscription: str, policies: "Policies") -> bool:
    if not subscription:
        return True
    roles = policies.auth_policies.subscription_roles.get(subscription)
    if roles and role not in roles:
        return False
    return _has_prefix(role, subscription, policies)


def _has_prefix(role: str, subscription: str, policies: "Policies") -> bool:
    return policies.subscription_auth_mode != "Prefix" or subscription.startswith(role)
