"""The policies a topic has of its own: those of this cluster and those for all clusters (?isGlobal=true)."""

from collections.abc import Callable

from starlette.responses import Response

from magnetar.broker.admin.call import Call
from magnetar.broker.admin.policy_table import PolicyRow
from magnetar.broker.admin.responses import done
from magnetar.broker.compat.rest_errors import RestError
from magnetar.broker.policies.records import TopicPolicies
from magnetar.protocol.topic_name import TopicName


def scope_of(call: Call, row: PolicyRow | None = None) -> bool:
    """Whether the policies for all clusters are meant (?isGlobal=true), not those of this one."""
    return (row is None or row.isolated) and call.flag("isGlobal")


def own_policies(call: Call, name: TopicName, *, all_clusters: bool) -> TopicPolicies:
    return call.namespaces.topic_policies(name).of_scope(all_clusters=all_clusters)


async def change_own(
    call: Call, name: TopicName, change: Callable[[TopicPolicies], TopicPolicies], *, all_clusters: bool
) -> Response:
    await call.namespaces.update_topic(
        name,
        lambda old: old.with_scope(change(old.of_scope(all_clusters=all_clusters)), all_clusters=all_clusters),
    )
    return done()


def refuse(problem: RestError | None) -> None:
    if problem is not None:
        raise problem
