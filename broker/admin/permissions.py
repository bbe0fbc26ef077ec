"""Grants of namespaces, topics and subscriptions."""

from typing import get_args

import msgspec
from starlette.responses import Response

from magnetar.broker.admin.call import Call
from magnetar.broker.admin.responses import RestError, done, json_response, not_found, precondition
from magnetar.broker.admin.routes import ADMIN, NAMESPACE, TOPIC, RouteTable
from magnetar.broker.auth.authorizer import Target
from magnetar.broker.auth.table import NAMESPACE_ADMIN, OPEN, TOPIC_ADMIN
from magnetar.broker.policy_records import Policies
from magnetar.broker.policy_values import AuthAction, AuthPolicies
from magnetar.protocol.errors import InvalidTopicNameError
from magnetar.protocol.topic_name import TopicName

routes = RouteTable()


def _changed(policies: Policies, **parts: object) -> Policies:
    return msgspec.structs.replace(policies, auth_policies=msgspec.structs.replace(policies.auth_policies, **parts))


async def _store(call: Call, namespace: str, **parts: object) -> Response:
    await call.namespaces.update_namespace(namespace, lambda old: _changed(old, **parts), grants=True)
    return done()


async def _actions(call: Call) -> list[AuthAction]:
    """The actions of the body; texts that are none are left out, as Apache Pulsar does."""
    actions = await call.body(list[str]) or []
    return [action for action in get_args(AuthAction) if action in actions]


def _auth(call: Call) -> AuthPolicies:
    return call.policies().auth_policies


# --- namespaces -------------------------------------------------------------------------------------------------


@routes.get(NAMESPACE + "/permissions", NAMESPACE_ADMIN)
async def namespace_grants(call: Call) -> Response:
    return json_response(_auth(call).namespace_auth)


@routes.get(NAMESPACE + "/permissions/subscription", NAMESPACE_ADMIN)
async def subscription_grants(call: Call) -> Response:
    return json_response(_auth(call).subscription_auth_roles)


@routes.post(NAMESPACE + "/permissions/{role}", NAMESPACE_ADMIN)
async def grant_on_namespace(call: Call) -> Response:
    """Replaces what the role had."""
    actions = await _actions(call)
    grants = _auth(call).namespace_auth | {call.param("role"): actions}
    return await _store(call, call.namespace, namespace_auth=grants)


@routes.delete(NAMESPACE + "/permissions/{role}", NAMESPACE_ADMIN)
async def revoke_on_namespace(call: Call) -> Response:
    role = call.param("role")
    grants = {name: actions for name, actions in _auth(call).namespace_auth.items() if name != role}
    return await _store(call, call.namespace, namespace_auth=grants)


@routes.post(NAMESPACE + "/permissions/subscription/{subscription}", NAMESPACE_ADMIN)
async def grant_on_subscription(call: Call) -> Response:
    """Only these roles may consume through the subscription; they still need the right to consume."""
    roles = await call.required_body(list[str])
    grants = _auth(call).subscription_auth_roles | {call.param("subscription"): sorted(set(roles))}
    return await _store(call, call.namespace, subscription_auth_roles=grants)


@routes.delete(NAMESPACE + "/permissions/{subscription}/{role}", NAMESPACE_ADMIN)
async def revoke_on_subscription(call: Call) -> Response:
    subscription, role = call.param("subscription"), call.param("role")
    grants = dict(_auth(call).subscription_auth_roles)
    left = [name for name in grants.pop(subscription, []) if name != role]
    if left:
        grants[subscription] = left
    return await _store(call, call.namespace, subscription_auth_roles=grants)


# --- topics -----------------------------------------------------------------------------------------------------


def _topic(call: Call) -> TopicName:
    """The topic of the path; grants are for what exists."""
    name = call.topic()
    if not call.topics.exists(name) and call.topics.partition_count(name) is None:
        raise not_found(f"Topic {name} not found")
    return name


class TopicGrant(msgspec.Struct):
    """One element of a list of grants to give or take."""

    topic: str
    role: str
    actions: list[str] = []


@routes.post(ADMIN + "/namespaces/grantPermissionsOnTopics", OPEN)
async def grant_on_topics(call: Call) -> Response:
    for each in await _grants(call):
        actions = [action for action in get_args(AuthAction) if action in each.actions]
        await _change_topic(call, each, actions)
    return done()


@routes.post(ADMIN + "/namespaces/revokePermissionsOnTopics", OPEN)
async def revoke_on_topics(call: Call) -> Response:
    for each in await _grants(call):
        await _change_topic(call, each, None)
    return done()


async def _grants(call: Call) -> list[TopicGrant]:
    """The body; raises 401 unless the caller administers the tenants of all topics, 412 for a bad name."""
    grants = await call.body(list[TopicGrant]) or []
    for each in grants:
        try:
            name = TopicName.parse(each.topic)
        except InvalidTopicNameError as e:
            raise precondition(str(e)) from e
        target = Target(name.tenant, name.namespace, str(name.base))
        if not call.api.authorizer.allows(call.identity, TOPIC_ADMIN, target):
            raise RestError(401, "Unauthorized to administer the topic")
    return grants


async def _change_topic(call: Call, grant: TopicGrant, actions: list[AuthAction] | None) -> None:
    """Give the role these actions on the topic, None takes what it had."""
    name = TopicName.parse(grant.topic)
    topic = str(name.base)

    def change(old: Policies) -> Policies:
        topics = dict(old.auth_policies.destination_auth)
        roles = {role: kept for role, kept in topics.pop(topic, {}).items() if role != grant.role}
        roles |= {} if actions is None else {grant.role: actions}
        return _changed(old, destination_auth=topics | ({topic: roles} if roles else {}))

    if not call.namespaces.exists(name.namespace):
        raise not_found("Namespace does not exist")
    await call.namespaces.update_namespace(name.namespace, change, grants=True)


@routes.get(TOPIC + "/permissions", TOPIC_ADMIN)
async def topic_grants(call: Call) -> Response:
    """Grants of the topic and those of its namespace, together."""
    name = _topic(call)
    auth = _auth(call)
    merged: dict[str, set[str]] = {role: set(actions) for role, actions in auth.namespace_auth.items()}
    for role, actions in auth.destination_auth.get(str(name), {}).items():
        merged.setdefault(role, set()).update(actions)
    return json_response({role: sorted(actions) for role, actions in merged.items()})


@routes.post(TOPIC + "/permissions/{role}", TOPIC_ADMIN)
async def grant_on_topic(call: Call) -> Response:
    actions = await _actions(call)
    name = str(_topic(call).base)
    topics = _auth(call).destination_auth
    grants = topics | {name: topics.get(name, {}) | {call.param("role"): actions}}
    return await _store(call, call.namespace, destination_auth=grants)


@routes.delete(TOPIC + "/permissions/{role}", TOPIC_ADMIN)
async def revoke_on_topic(call: Call) -> Response:
    name, role = str(_topic(call).base), call.param("role")
    topics = dict(_auth(call).destination_auth)
    left = {each: actions for each, actions in topics.pop(name, {}).items() if each != role}
    if left:
        topics[name] = left
    return await _store(call, call.namespace, destination_auth=topics)
