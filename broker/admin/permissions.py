"""Grants of namespaces, topics and subscriptions."""

from collections.abc import Callable, Sequence
from typing import get_args

import msgspec
from starlette.responses import Response

from magnetar.broker.admin.call import Call
from magnetar.broker.admin.responses import done, json_response, precondition
from magnetar.broker.admin.routes import ADMIN, NAMESPACE, TOPIC, RouteTable
from magnetar.broker.admin.topic_calls import loadable
from magnetar.broker.auth.authorizer import Target
from magnetar.broker.auth.table import NAMESPACE_ADMIN, OPEN, TOPIC_ADMIN
from magnetar.broker.compat import rest_refusals
from magnetar.broker.compat.java_order import java_order
from magnetar.broker.errors import RestError
from magnetar.broker.limits import MAX_GRANTS_BYTES
from magnetar.broker.policies.records import Policies
from magnetar.broker.policies.values import AuthAction, AuthPolicies, Granted
from magnetar.protocol.errors import InvalidTopicNameError
from magnetar.protocol.topic_name import TopicName

routes = RouteTable()
_MOST_GRANTS = 1000


Change = Callable[[AuthPolicies], AuthPolicies]


async def _change(call: Call, namespace: str, change: Change) -> Response:
    """Store `change(grants)`, where `grants` are the present grants of the namespace. Raises 413 for a change that adds
    to MAX_GRANTS_BYTES of grants.
    """

    def changed(old: Policies) -> Policies:
        grants = change(old.auth_policies)
        size = len(msgspec.json.encode(grants))
        if size > MAX_GRANTS_BYTES and size > len(msgspec.json.encode(old.auth_policies)):
            raise RestError(413, f"the grants of a namespace have {size} bytes, at most {MAX_GRANTS_BYTES}")
        return msgspec.structs.replace(old, auth_policies=grants)

    await call.namespaces.update_namespace(namespace, changed)
    return done()


async def _actions(call: Call) -> list[Granted]:
    """The actions of the body, each once; preceded by a null if a text is not an action, as in Apache Pulsar."""
    return _known(await call.required_body(list[AuthAction | None]))


def _known(asked: Sequence[str | None]) -> list[Granted]:
    known = get_args(AuthAction)
    none: list[Granted] = [None] if any(action not in known for action in asked) else []
    return none + [action for action in known if action in asked]


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
    """Grant the actions of the body to the role; they replace its former grants."""
    if await call.is_null():
        raise rest_refusals.ACTIONS_NULL.error()
    actions = await _actions(call)
    if not call.namespaces.exists(call.namespace):
        raise rest_refusals.NAMESPACE_OF_TOPIC_UNKNOWN.error()
    granted = {call.param("role"): actions}
    return await _change(
        call, call.namespace, lambda old: msgspec.structs.replace(old, namespace_auth=old.namespace_auth | granted)
    )


@routes.delete(NAMESPACE + "/permissions/{role}", NAMESPACE_ADMIN)
async def revoke_on_namespace(call: Call) -> Response:
    call.policies()
    role = call.param("role")

    def change(old: AuthPolicies) -> AuthPolicies:
        kept = {name: actions for name, actions in old.namespace_auth.items() if name != role}
        return msgspec.structs.replace(old, namespace_auth=kept)

    return await _change(call, call.namespace, change)


@routes.post(NAMESPACE + "/permissions/subscription/{subscription}", NAMESPACE_ADMIN)
async def grant_on_subscription(call: Call) -> Response:
    """Let only these roles consume through the subscription; they still need the right to consume."""
    roles = await call.required_body(list[str], rest_refusals.ROLES_NULL.text)
    if not call.namespaces.exists(call.namespace):
        raise rest_refusals.NAMESPACE_OF_GRANT_UNKNOWN.error(namespace=call.namespace)  # as Apache Pulsar has it
    call.policies()
    granted = {call.param("subscription"): java_order(roles)}
    return await _change(
        call,
        call.namespace,
        lambda old: msgspec.structs.replace(old, subscription_auth_roles=old.subscription_auth_roles | granted),
    )


@routes.delete(NAMESPACE + "/permissions/{subscription}/{role}", NAMESPACE_ADMIN)
async def revoke_on_subscription(call: Call) -> Response:
    subscription, role = call.param("subscription"), call.param("role")
    if subscription not in _auth(call).subscription_auth_roles:
        raise RestError(500, f"no role has a grant on {subscription}")  # as Apache Pulsar has it

    def change(old: AuthPolicies) -> AuthPolicies:
        grants = dict(old.subscription_auth_roles)
        left = [name for name in grants.pop(subscription, []) if name != role]
        return msgspec.structs.replace(old, subscription_auth_roles=grants | ({subscription: left} if left else {}))

    return await _change(call, call.namespace, change)


# --- topics -----------------------------------------------------------------------------------------------------


def _topic(call: Call) -> TopicName:
    """The topic of the path; it must exist unless a setting allows grants before that, as must its tenant."""
    name = call.topic_name()
    if call.param("tenant") not in call.namespaces.tenants:
        raise rest_refusals.TENANT_MISSING.error()
    if call.api.settings.allow_acl_changes_on_non_existent_topics:
        return name
    if not loadable(call, name) and call.topics.partition_count(name) is None:
        raise rest_refusals.TOPIC_UNKNOWN.error(topic=name)
    return name


class TopicGrant(msgspec.Struct):
    """One element of a list of grants to give or take."""

    topic: str = ""
    role: str = ""
    actions: list[str] = []


@routes.post(ADMIN + "/namespaces/grantPermissionsOnTopics", OPEN)
async def grant_on_topics(call: Call) -> Response:
    for name, each in await _grants(call):
        await _change_topic(call, name, each.role, _known(each.actions))
    return done()


@routes.post(ADMIN + "/namespaces/revokePermissionsOnTopics", OPEN)
async def revoke_on_topics(call: Call) -> Response:
    for name, each in await _grants(call):
        await _change_topic(call, name, each.role, None)
    return done()


async def _grants(call: Call) -> list[tuple[TopicName, TopicGrant]]:
    """The grants of the body. Raises 401 unless the caller administers the tenants of all topics, 412 for an invalid
    name, 400 for topics of different namespaces, 404 for a missing topic. Raises 401 before it reads the body when the
    caller administers no tenant.
    """
    if not call.api.authorizer.administers_something(call.identity):
        raise rest_refusals.TENANT_ADMINISTRATION_DENIED.error()
    grants = await call.body(list[TopicGrant])
    if grants is None or not all(each.topic for each in grants):
        raise RestError(500, "topics are required")
    if len(grants) > _MOST_GRANTS:
        raise RestError(413, f"{len(grants)} grants, at most {_MOST_GRANTS} are taken at a time")
    named = [(_parsed(each.topic), each) for each in grants]
    for name, _ in named:
        if not call.api.authorizer.allows(call.identity, TOPIC_ADMIN, Target.of_topic(name)):
            raise rest_refusals.TENANT_ADMINISTRATION_DENIED.error()
    if len({name.namespace for name, _ in named}) != 1:
        raise rest_refusals.NAMESPACES_DIFFER.error()
    for name, _ in named:
        if not call.topics.exists(name) and call.topics.partition_count(name) is None:
            raise rest_refusals.TOPIC_UNKNOWN.error(topic=name)
    return named


def _parsed(topic: str) -> TopicName:
    try:
        return TopicName.parse(topic)
    except InvalidTopicNameError as e:
        raise precondition(str(e)) from e


async def _change_topic(call: Call, name: TopicName, role: str, actions: list[Granted] | None) -> None:
    """Give the role these actions on the topic; None revokes all its actions."""
    topic = str(name)

    def change(old: AuthPolicies) -> AuthPolicies:
        topics = dict(old.destination_auth)
        roles = {each: kept for each, kept in topics.pop(topic, {}).items() if each != role}
        roles |= {} if actions is None else {role: actions}
        return msgspec.structs.replace(old, destination_auth=topics | ({topic: roles} if roles else {}))

    if not call.namespaces.exists(name.namespace):
        raise rest_refusals.NAMESPACE_MISSING.error()
    await _change(call, name.namespace, change)


@routes.get(TOPIC + "/permissions", TOPIC_ADMIN)
async def topic_grants(call: Call) -> Response:
    """Grants of the topic and those of its namespace, together."""
    name = _topic(call)
    auth = _auth(call)
    merged: dict[str, set[Granted]] = {role: set(actions) for role, actions in auth.namespace_auth.items()}
    for role, actions in auth.destination_auth.get(str(name), {}).items():
        merged.setdefault(role, set()).update(actions)
    order = (None, *get_args(AuthAction))
    return json_response({role: [each for each in order if each in actions] for role, actions in merged.items()})


@routes.post(TOPIC + "/permissions/{role}", TOPIC_ADMIN)
async def grant_on_topic(call: Call) -> Response:
    name = _topic(call)
    if not await call.is_null():
        await _change_topic(call, name, call.param("role"), await _actions(call))
    return done()


@routes.delete(TOPIC + "/permissions/{role}", TOPIC_ADMIN)
async def revoke_on_topic(call: Call) -> Response:
    name = _topic(call)
    call.namespaces.require_local(name.namespace)
    await _change_topic(call, name, call.param("role"), None)
    return done()
