"""The rights of a role; every command and route has a rule."""

import pytest

from magnetar.broker.admin import not_here
from magnetar.broker.admin.app import all_routes
from magnetar.broker.auth import table
from magnetar.broker.auth.authorizer import Authorizer, Identity, Target
from magnetar.broker.auth.table import (
    COMMANDS,
    NAMESPACE_ADMIN,
    NAMESPACE_USE,
    OPEN,
    SUPER,
    TENANT_ADMIN,
    TOPIC_ADMIN,
    TOPIC_CONSUME,
    TOPIC_PRODUCE,
    TOPIC_USE,
    Need,
    check_complete,
)
from magnetar.broker.policies.namespace_store import NamespaceStore
from magnetar.broker.policies.records import Policies
from magnetar.broker.policies.values import AuthPolicies, TenantInfo
from magnetar.broker.settings import Settings
from magnetar.protocol import pulsar_api_pb2 as pb
from tests.twins.memory_metadata import MemoryMetadataStore

TOPIC = "persistent://t/n/a"
TARGET = Target("t", "t/n", TOPIC)
ALL = (SUPER, TENANT_ADMIN, NAMESPACE_ADMIN, NAMESPACE_USE, TOPIC_ADMIN, TOPIC_USE, TOPIC_PRODUCE, TOPIC_CONSUME)


async def authorizer(auth=None, mode="None", **more):
    settings = Settings(
        **{"authorization_enabled": True, "authentication_enabled": True, "super_user_roles": ("root",), **more}
    )
    store = await NamespaceStore.open(MemoryMetadataStore(), settings)
    await store.create_tenant("t", TenantInfo(admin_roles=["boss"], allowed_clusters=["standalone"]))
    await store.create_namespace("t/n", Policies(auth_policies=auth or AuthPolicies(), subscription_auth_mode=mode))
    return Authorizer(settings, store)


def allowed(rules, role, target=TARGET):
    return {need for need in ALL if rules.allows(Identity(role), need, target)}


async def test_super_users_tenant_admins_and_others():
    rules = await authorizer()
    assert allowed(rules, "root") == set(ALL)
    assert allowed(rules, "boss") == set(ALL) - {SUPER}
    assert allowed(rules, "nobody") == set()
    assert rules.allows(Identity("nobody"), OPEN, TARGET)
    assert rules.allows(Identity(None), OPEN, TARGET)
    assert not rules.allows(Identity(None), TOPIC_USE, TARGET)


async def test_unknown_tenants_and_namespaces_are_denied_to_all_but_super_users():
    rules = await authorizer()
    for target in (Target("x", "x/n", "persistent://x/n/a"), Target("t", "t/x", "persistent://t/x/a")):
        assert allowed(rules, "nobody", target) == set()
        assert allowed(rules, "root", target) == set(ALL)


@pytest.mark.parametrize(
    ("actions", "needs"),
    [
        (["produce"], {TOPIC_PRODUCE, TOPIC_USE, NAMESPACE_USE}),
        (["consume"], {TOPIC_CONSUME, TOPIC_USE, NAMESPACE_USE}),
        (["functions"], set()),
        ([], set()),
    ],
)
async def test_grants_on_the_namespace(actions, needs):
    rules = await authorizer(AuthPolicies(namespace_auth={"user": actions}))
    assert allowed(rules, "user") == needs
    assert allowed(rules, "other") == set()


async def test_grants_on_a_topic_are_for_that_topic():
    rules = await authorizer(AuthPolicies(destination_auth={TOPIC: {"user": ["produce"]}}))
    assert allowed(rules, "user") == {TOPIC_PRODUCE, TOPIC_USE}
    assert allowed(rules, "user", Target("t", "t/n", TOPIC + "2")) == set()
    assert allowed(rules, "user", Target("t", "t/n", TOPIC + "-partition-1", base=TOPIC)) == {TOPIC_PRODUCE, TOPIC_USE}
    assert allowed(rules, "user", Target("t", "t/n", "non-persistent://t/n/a")) == set()


async def test_subscription_roles_and_prefix_limit_consuming():
    grants = {"a": ["consume"], "b": ["consume"]}
    named = await authorizer(AuthPolicies(namespace_auth=grants, subscription_auth_roles={"s": ["a", "c"]}))
    on = Target("t", "t/n", TOPIC, "s")
    assert named.allows(Identity("a"), TOPIC_CONSUME, on)
    assert not named.allows(Identity("b"), TOPIC_CONSUME, on)
    assert named.allows(Identity("b"), TOPIC_CONSUME, Target("t", "t/n", TOPIC, "other"))
    assert not named.allows(Identity("c"), TOPIC_CONSUME, on), "still needs the right to consume"
    assert named.allows(Identity("boss"), TOPIC_CONSUME, on)
    prefix = await authorizer(AuthPolicies(namespace_auth=grants), mode="Prefix")
    assert prefix.allows(Identity("a"), TOPIC_CONSUME, Target("t", "t/n", TOPIC, "a-1"))
    assert not prefix.allows(Identity("a"), TOPIC_CONSUME, Target("t", "t/n", TOPIC, "x"))
    assert prefix.allows(Identity("root"), TOPIC_CONSUME, Target("t", "t/n", TOPIC, "x"))


async def test_a_refusal_for_the_prefix_alone_is_known():
    auth = AuthPolicies(namespace_auth={"a": ["consume"]}, subscription_auth_roles={"s": ["b"]})
    prefix, plain = await authorizer(auth, mode="Prefix"), await authorizer(auth)
    other, listed = Target("t", "t/n", TOPIC, "x"), Target("t", "t/n", TOPIC, "s")
    assert prefix.without_prefix(Identity("a"), TOPIC_CONSUME, other) == "a"
    assert prefix.without_prefix(Identity("nobody"), TOPIC_CONSUME, other) == "nobody", "names come before grants"
    assert prefix.without_prefix(Identity("b"), TOPIC_CONSUME, listed) == "b"
    assert prefix.without_prefix(Identity("a"), TOPIC_CONSUME, listed) is None, "the list of roles comes first"
    assert prefix.without_prefix(Identity("nobody"), TOPIC_CONSUME, Target("t", "t/n", TOPIC, "nobody-1")) is None
    assert prefix.without_prefix(Identity("a"), TOPIC_PRODUCE, other) is None
    assert plain.without_prefix(Identity("a"), TOPIC_CONSUME, other) is None
    assert plain.without_prefix(Identity("a"), TOPIC_CONSUME, Target("x", "x/n", TOPIC, "x")) is None


async def test_wildcards_in_grants():
    auth = AuthPolicies(namespace_auth={"app-*": ["produce"], "*-reader": ["consume"]})
    plain = await authorizer(auth)
    assert allowed(plain, "app-1") == set()
    wild = await authorizer(auth, authorization_allow_wildcards_matching=True)
    assert TOPIC_PRODUCE in allowed(wild, "app-1")
    assert TOPIC_CONSUME in allowed(wild, "my-reader")
    assert allowed(wild, "apple") == set()


@pytest.mark.parametrize("grant", ["**", "*a*"])
async def test_a_grant_with_two_stars_is_a_beginning_or_an_end(grant):
    wild = await authorizer(
        AuthPolicies(namespace_auth={grant: ["produce"]}), authorization_allow_wildcards_matching=True
    )
    assert TOPIC_PRODUCE in allowed(wild, "a*")  # ends with the rest of the grant
    assert TOPIC_PRODUCE in allowed(wild, grant)
    assert allowed(wild, "bab") == set()


async def test_proxy_and_client_must_both_be_allowed():
    auth = AuthPolicies(namespace_auth={"proxy": ["produce"], "client": ["produce", "consume"]})
    rules = await authorizer(auth, proxy_roles=("proxy",))
    both = Identity("proxy", "client")
    assert rules.allows(both, TOPIC_PRODUCE, TARGET)
    assert not rules.allows(both, TOPIC_CONSUME, TARGET)
    assert not rules.allows(Identity("proxy", "nobody"), TOPIC_PRODUCE, TARGET)


async def test_proxy_roles_may_speak_for_other_roles():
    rules = await authorizer(proxy_roles=("proxy", "proxy2"))
    assert rules.valid_identity(Identity("proxy", "client"))
    assert not rules.valid_identity(Identity("proxy"))
    assert not rules.valid_identity(Identity("proxy", "proxy2"))
    assert rules.valid_identity(Identity("client"))
    assert not rules.valid_identity(Identity("client", "client"))
    assert rules.valid_identity(Identity("client", "client"), itself=True)
    assert not rules.valid_identity(Identity("client", "other"))


async def test_everything_is_allowed_when_authorization_is_off():
    rules = await authorizer(authorization_enabled=False)
    assert rules.allows(Identity(None), SUPER, TARGET)
    assert rules.is_super_user(None)


# --- the table is complete ----------------------------------------------------------------------------------------

BROKER_SENDS = {
    "CONNECTED", "SUCCESS", "ERROR", "SEND_RECEIPT", "SEND_ERROR", "MESSAGE", "PRODUCER_SUCCESS", "AUTH_CHALLENGE",
    "LOOKUP_RESPONSE", "PARTITIONED_METADATA_RESPONSE", "CONSUMER_STATS_RESPONSE", "REACHED_END_OF_TOPIC",
    "GET_LAST_MESSAGE_ID_RESPONSE", "ACTIVE_CONSUMER_CHANGE", "GET_TOPICS_OF_NAMESPACE_RESPONSE", "GET_SCHEMA_RESPONSE",
    "GET_OR_CREATE_SCHEMA_RESPONSE", "ACK_RESPONSE", "TC_CLIENT_CONNECT_RESPONSE", "NEW_TXN_RESPONSE",
    "ADD_PARTITION_TO_TXN_RESPONSE", "ADD_SUBSCRIPTION_TO_TXN_RESPONSE", "END_TXN_RESPONSE",
    "END_TXN_ON_PARTITION_RESPONSE", "END_TXN_ON_SUBSCRIPTION_RESPONSE", "WATCH_TOPIC_LIST_SUCCESS",
    "WATCH_TOPIC_UPDATE", "TOPIC_MIGRATED",
}  # fmt: skip


def test_every_command_a_client_may_send_has_a_row():
    names = {pb.BaseCommand.Type.Name(number) for number in COMMANDS}
    later = {name for name in pb.BaseCommand.Type.keys() if "SCALABLE" in name or "SEGMENT" in name or "DAG" in name}  # noqa: SIM118 - an enum wrapper
    missing = set(pb.BaseCommand.Type.keys()) - BROKER_SENDS - names
    assert {name for name in missing if pb.BaseCommand.Type.Value(name) < 70} == set(), later


def test_a_command_without_a_row_stops_the_start():
    check_complete(set(COMMANDS))
    with pytest.raises(RuntimeError, match="CONNECTED"):
        check_complete({pb.BaseCommand.CONNECTED})


def test_every_route_has_a_row_and_is_declared_once():
    routes = all_routes()
    assert all(isinstance(row.need, Need) for row in routes)
    assert len({(row.method, row.path) for row in routes}) == len(routes)
    public = {row.path for row in routes if row.need.is_open and row not in not_here.routes.rows}
    assert public == {
        "/admin/v2/namespaces/grantPermissionsOnTopics",  # the two routes with topics in their bodies
        "/admin/v2/namespaces/revokePermissionsOnTopics",
        "/admin/v2/namespaces/{tenant}/{namespace}/logRanges",  # has topics in its body, too
        "/admin/v2/clusters",
        "/admin/v2/brokers/ready",
        "/admin/v2/brokers/version",
        "/metrics",
        "/ws/v2/{kind}/{rest:path}",  # the three answer a plain HTTP request with the way to open a session
        "/ws/v3/consumer",
        "/ws/v3/consumer/{rest:path}",
        "/metrics/",
        "/status",
        "/status.html",
    }


def test_refusals_have_the_statuses_of_their_kind():
    assert table.Resource.NAMESPACE.denied_status == 403
    assert {r.denied_status for r in table.Resource if r is not table.Resource.NAMESPACE} == {401}


async def test_checks_of_a_subscription_look_at_no_role_of_its_list():
    """A list of 30,000 roles was searched for each SUBSCRIBE, and for each consumer behind each grant."""

    class Listed(list):
        def __contains__(self, _role):
            raise AssertionError("the list is searched")

    auth = AuthPolicies(namespace_auth={"a": ["consume"]}, subscription_auth_roles={"s": Listed(["b", "a"])})
    rules = await authorizer()
    policies = Policies(auth_policies=auth)
    rules._namespaces.namespaces._values["t/n"] = policies
    target = Target("t", "t/n", TOPIC, "s")
    assert rules.allows(Identity("a"), TOPIC_CONSUME, target)
    assert not rules.allows(Identity("c"), TOPIC_CONSUME, target)
