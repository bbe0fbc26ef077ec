"""Policies of topics that do not fit the table: quotas, rates of one subscription, clusters, numbers in the query."""

from typing import Final, NoReturn

import msgspec
from starlette.responses import Response

from magnetar.broker.admin import policy_rules
from magnetar.broker.admin.call import Call, topic_of
from magnetar.broker.admin.cluster_lists import known_clusters, refuse_misfit
from magnetar.broker.admin.namespace_policies import quota_type, read_quota, with_quota
from magnetar.broker.admin.responses import done, json_response, precondition
from magnetar.broker.admin.routes import TOPIC, RouteTable
from magnetar.broker.admin.topic_calls import policy_topic
from magnetar.broker.admin.topic_policy_routes import change_own, own_policies, refuse, scope_of
from magnetar.broker.auth.authorizer import Target
from magnetar.broker.auth.table import TOPIC_POLICY, TOPIC_USE
from magnetar.broker.compat import rest_refusals
from magnetar.broker.compat.java_order import java_order
from magnetar.broker.errors import RestError
from magnetar.broker.limits import MAX_SUBSCRIPTION_RATES, check_subscription_name
from magnetar.broker.policies.effective import NO_TOPIC_POLICIES
from magnetar.broker.policies.records import TopicPolicies, shown
from magnetar.broker.policies.values import DispatchRate
from magnetar.protocol.errors import InvalidTopicNameError
from magnetar.protocol.topic_name import TopicName

routes = RouteTable()
_NAMES = {"messageTTL": "message TTL", "subscriptionExpirationTime": "subscription expiration time"}
_MANY: Final = 2
"""Clusters of a namespace that replicates."""


def _declare_query_number(path: str, field: str, applied: str) -> None:
    """Declare the routes of a number that comes as the query parameter `path`; a POST without it removes the policy."""

    async def read(call: Call) -> Response:
        name = policy_topic(call)
        policies = own_policies(call, name, all_clusters=scope_of(call))
        value = getattr(policies, field)
        if value is None and call.flag("applied"):
            value = getattr(call.namespaces.effective_with(name, policies), applied)
        return json_response(value)

    async def write(call: Call) -> Response:
        value = call.query_number(path, bits=32)  # before the topic, as in Apache Pulsar
        name = policy_topic(call)
        if value is not None and value < 0:
            raise rest_refusals.POLICY_VALUE_INVALID.error(policy=_NAMES.get(path, path))
        return await store(call, name, value)

    async def remove(call: Call) -> Response:
        return await store(call, policy_topic(call), None)

    async def store(call: Call, name: TopicName, value: int | None) -> Response:
        return await change_own(
            call, name, lambda old: msgspec.structs.replace(old, **{field: value}), all_clusters=scope_of(call)
        )

    routes.add("GET", f"{TOPIC}/{path}", TOPIC_POLICY, read)
    routes.add("POST", f"{TOPIC}/{path}", TOPIC_POLICY, write)
    routes.add("DELETE", f"{TOPIC}/{path}", TOPIC_POLICY, remove)


_declare_query_number("messageTTL", "message_ttl_in_seconds", "message_ttl_seconds")
_declare_query_number(
    "subscriptionExpirationTime", "subscription_expiration_time_minutes", "subscription_expiration_minutes"
)


@routes.get(TOPIC + "/{subscription}/dispatchRate", TOPIC_POLICY)
async def rate_of_subscription(call: Call) -> Response:
    """Show the rate set for the subscription; with ?applied=true, the rate in force."""
    name = policy_topic(call)
    policies = own_policies(call, name, all_clusters=scope_of(call))
    rate = policies.subscription_rates.get(call.param("subscription"))
    if rate is None and call.flag("applied"):
        rate = call.namespaces.effective_with(name, policies).subscription_dispatch_rate
    return json_response(rate)


@routes.post(TOPIC + "/{subscription}/dispatchRate", TOPIC_POLICY)
async def set_rate_of_subscription(call: Call) -> Response:
    """Set the rate; no effect for an absent rate or a rate of 0 messages and 0 bytes."""
    name, rate = policy_topic(call), await call.body(DispatchRate)
    if rate is None or (rate.dispatch_throttling_rate_in_msg, rate.dispatch_throttling_rate_in_byte) == (0, 0):
        return done()
    check_subscription_name(call.param("subscription"))
    return await _store_rate(call, name, rate)


@routes.delete(TOPIC + "/{subscription}/dispatchRate", TOPIC_POLICY)
async def remove_rate_of_subscription(call: Call) -> Response:
    return await _store_rate(call, policy_topic(call), None)


async def _store_rate(call: Call, name: TopicName, rate: DispatchRate | None) -> Response:
    subscription = call.param("subscription")

    def change(old: TopicPolicies) -> TopicPolicies:
        kept = {key: value for key, value in old.subscription_rates.items() if key != subscription}
        if rate is not None and len(kept) >= MAX_SUBSCRIPTION_RATES:
            raise RestError(413, f"the topic has rates of {len(kept)} subscriptions, at most {MAX_SUBSCRIPTION_RATES}")
        return msgspec.structs.replace(old, subscription_rates=kept if rate is None else kept | {subscription: rate})

    return await change_own(call, name, change, all_clusters=scope_of(call))


@routes.delete(TOPIC + "/policies", TOPIC_POLICY)
async def remove_all(call: Call) -> Response:
    """Remove every policy of the topic, of both scopes; no effect for a topic without policies."""
    name = topic_of(call.request.path_params)
    if name is None:
        raise rest_refusals.TOPIC_NAME_INVALID.error()
    if str(name.base) in call.namespaces.topics:
        await call.namespaces.update_topic(name, lambda _: NO_TOPIC_POLICIES)
    return done()


@routes.get(TOPIC + "/backlogQuotaMap", TOPIC_POLICY)
async def backlog_quotas(call: Call) -> Response:
    name = policy_topic(call)
    policies = own_policies(call, name, all_clusters=scope_of(call))
    quotas = policies.backlog_quota_map
    if not quotas and call.flag("applied"):
        quotas = call.policies().backlog_quota_map
    if not quotas and call.flag("applied"):
        config = call.namespaces.effective_with(name, policies)
        quotas = {"destination_storage": config.size_quota, "message_age": config.age_quota}
    return json_response({kind: shown(quota) for kind, quota in quotas.items()})


@routes.post(TOPIC + "/backlogQuota", TOPIC_POLICY)
async def set_backlog_quota(call: Call) -> Response:
    kind, name = quota_type(call), policy_topic(call)
    quota = await read_quota(call)
    if quota is not None:
        kept = own_policies(call, name, all_clusters=scope_of(call)).retention or call.policies().retention_policies
        refuse(policy_rules.quota_fits_retention([quota], kept, "topic"))
    return await change_own(call, name, lambda old: with_quota(old, kind, quota), all_clusters=scope_of(call))


@routes.delete(TOPIC + "/backlogQuota", TOPIC_POLICY)
async def remove_backlog_quota(call: Call) -> Response:
    kind, name = quota_type(call), policy_topic(call)
    return await change_own(call, name, lambda old: with_quota(old, kind, None), all_clusters=scope_of(call))


@routes.get(TOPIC + "/replication", TOPIC_POLICY)
async def replication(call: Call) -> Response:
    name = policy_topic(call)
    clusters = own_policies(call, name, all_clusters=scope_of(call)).replication_clusters
    if clusters is None and call.flag("applied"):
        policies = call.namespaces.policies(name.namespace)
        clusters = java_order(policies.replication_clusters) if policies is not None else None
    return json_response(clusters)


@routes.post(TOPIC + "/replication", TOPIC_POLICY)
async def set_replication(call: Call) -> Response:
    given = await call.body(list[str | None])
    name = policy_topic(call)
    if not given:
        raise rest_refusals.CLUSTER_IDS_MISSING.error()
    if scope_of(call):
        _refuse_for_all_clusters(given, call.policies().replication_clusters or [])
    if call.api.settings.cluster_name not in given:
        raise rest_refusals.LOCAL_CLUSTER_REMOVED.error()
    clusters = known_clusters(call, given)
    refuse_misfit(call, clusters)
    return await _store_replication(call, name, sorted(clusters))


def _refuse_for_all_clusters(clusters: list[str | None], of_namespace: list[str]) -> NoReturn:
    """Raise 412: a broker of several clusters alone has replication for all of them."""
    if len(of_namespace) < _MANY:
        raise rest_refusals.NAMESPACE_NOT_REPLICATED.error()
    if not set(clusters) <= set(of_namespace):
        raise rest_refusals.CLUSTERS_BEYOND_NAMESPACE.error()
    raise precondition("Can not set topic-level replication clusters for all clusters")


@routes.delete(TOPIC + "/replication", TOPIC_POLICY)
async def remove_replication(call: Call) -> Response:
    return await _store_replication(call, policy_topic(call), None)


async def _store_replication(call: Call, name: TopicName, clusters: list[str] | None) -> Response:
    return await change_own(
        call, name, lambda old: msgspec.structs.replace(old, replication_clusters=clusters), all_clusters=scope_of(call)
    )


@routes.put(TOPIC + "/shadowTopics", TOPIC_POLICY)
async def set_shadow_topics(call: Call) -> Response:
    """Refuse the topics, a fault of them in Apache Pulsar's words: shadow topics are not supported."""
    if not policy_topic(call).persistent:
        raise rest_refusals.SHADOW_SOURCE_NOT_PERSISTENT.error()
    shadows = await call.body(list[str])
    if not shadows:
        raise rest_refusals.SHADOW_TOPICS_MISSING.error()
    for text in shadows:
        _check_shadow(call, text)
    raise precondition("There is no cluster to have shadow topics in")


def _check_shadow(call: Call, text: str) -> None:
    """Raise a refusal unless the text is the name of a persistent topic that exists and that the caller may use."""
    try:
        name = TopicName.parse(text)
    except InvalidTopicNameError:
        raise rest_refusals.SHADOW_TOPIC_INVALID.error(topic=text) from None
    if not name.persistent:
        raise rest_refusals.SHADOW_TOPIC_NOT_PERSISTENT.error()
    exists = call.topics.exists(name) or call.topics.partition_count(name) is not None
    if not exists or not call.may(TOPIC_USE, Target.of_topic(name)):
        raise rest_refusals.SHADOW_TOPIC_UNKNOWN.error(topic=text)


@routes.delete(TOPIC + "/shadowTopics", TOPIC_POLICY)
async def remove_shadow_topics(call: Call) -> Response:
    policy_topic(call)
    return done()


@routes.get(TOPIC + "/shadowTopics", TOPIC_POLICY)
async def shadow_topics(call: Call) -> Response:
    policy_topic(call)
    return json_response(None)
