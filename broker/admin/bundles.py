"""Bundles of namespaces, by their range of the hash: 0x00000000_0x40000000. One broker owns them all."""

from typing import Final

import msgspec
from starlette.responses import Response

from magnetar.broker.admin.call import Call
from magnetar.broker.admin.namespaces import clear_subscriptions, unload_topics, unsubscribe_everywhere
from magnetar.broker.admin.responses import conflict, done, precondition
from magnetar.broker.admin.routes import NAMESPACE, RouteTable
from magnetar.broker.auth.table import NAMESPACE_ADMIN, NAMESPACE_CONSUME, SUPER
from magnetar.broker.policy_records import Policies, bundle_of, bundle_ranges

routes = RouteTable()
_EQUAL_PARTS: Final = "range_equally_divide"
_ALGORITHMS: Final = (
    _EQUAL_PARTS,
    "topic_count_equally_divide",
    "specified_positions_divide",
    "flow_or_qps_equally_divide",
)


@routes.put(NAMESPACE + "/{bundle}/unload", SUPER)
async def unload_bundle(call: Call) -> Response:
    """One broker owns every bundle: unloading one unloads the namespace."""
    _check_bundle(call)
    await unload_topics(call, call.namespace)
    return done()


@routes.put(NAMESPACE + "/{bundle}/split", SUPER)
async def split_bundle(call: Call) -> Response:
    """Cut the bundle in two equal parts. The algorithms that look at its topics find nothing to gain in one broker."""
    low, high = _check_bundle(call)
    algorithm = call.query("splitAlgorithmName") or _EQUAL_PARTS
    if algorithm not in _ALGORITHMS:
        raise precondition(f"Unsupported namespace bundle split algorithm, supported: {', '.join(_ALGORITHMS)}")
    if algorithm != _EQUAL_PARTS:
        return done()
    middle = f"0x{(int(low, 16) + int(high, 16) + 1) // 2:08x}"

    def cut(old: Policies) -> Policies:
        cuts = sorted({*(old.bundles.boundaries or []), middle})
        bundles = msgspec.structs.replace(old.bundles, boundaries=cuts, num_bundles=len(cuts) - 1)
        return msgspec.structs.replace(old, bundles=bundles)

    await call.namespaces.update_namespace(call.namespace, cut)
    return done()


@routes.delete(NAMESPACE + "/{bundle}", NAMESPACE_ADMIN)
async def delete_bundle(call: Call) -> Response:
    """An empty bundle goes on being there. Whatever a path names that is no bundle is refused as one."""
    _check_bundle(call)
    bundle = call.param("bundle")
    names = [*call.topics.names(call.namespace, "persistent"), *call.topics.names(call.namespace, "non-persistent")]
    if any(bundle_of(name, call.policies().bundles) == bundle for name in names):
        raise conflict("Cannot delete non empty bundle")
    return done()


@routes.post(NAMESPACE + "/{bundle}/clearBacklog", NAMESPACE_CONSUME)
async def clear_bundle_backlog(call: Call) -> Response:
    _check_bundle(call)
    await clear_subscriptions(call, None)
    return done()


@routes.post(NAMESPACE + "/{bundle}/clearBacklog/{subscription}", NAMESPACE_CONSUME)
async def clear_bundle_backlog_of_subscription(call: Call) -> Response:
    _check_bundle(call)
    await clear_subscriptions(call, call.param("subscription"))
    return done()


def _check_bundle(call: Call) -> tuple[str, str]:
    """The two boundaries of the bundle in the path; raises 412 when the namespace has none like it."""
    policies = call.policies()
    bundle = call.param("bundle")
    if bundle not in bundle_ranges(policies.bundles):
        raise precondition(f"Invalid bundle range: {bundle}")
    low, _, high = bundle.partition("_")
    return low, high


@routes.post(NAMESPACE + "/{bundle}/unsubscribe/{subscription}", NAMESPACE_CONSUME)
async def unsubscribe_bundle(call: Call) -> Response:
    _check_bundle(call)
    return await unsubscribe_everywhere(call)
