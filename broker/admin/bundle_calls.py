"""Operations on the bundles of a namespace at their owners. Calls to other brokers have the rights of this broker.
Precondition: the rights of the caller have been checked.
"""

from typing import TYPE_CHECKING

from magnetar.broker.admin.routes import ADMIN
from magnetar.broker.ownership.ownership import Here
from magnetar.broker.policies.records import bundle_ranges

if TYPE_CHECKING:
    from magnetar.broker.admin.call import Call

__all__ = ["on_every_bundle", "unload_anywhere"]


async def unload_anywhere(call: "Call", namespace: str, bundle: str, *, settled: bool = False) -> None:
    """Unload the bundle at its owner, if it has one. `settled`: return when the owner's loads of topics of the
    namespace that were under way have ended, too. Brokers of Apache Pulsar ignore the parameter.
    """
    owner = await call.api.ownership.bundle_owner(f"{namespace}/{bundle}")
    if isinstance(owner, Here):
        await call.api.ownership.release(f"{namespace}/{bundle}")
        if settled:
            await call.topics.settled(namespace)
    elif owner is not None:
        query = "?settled=true" if settled else ""
        await call.peers.call("PUT", f"{ADMIN}/namespaces/{namespace}/{bundle}/unload{query}")


async def on_every_bundle(call: "Call", method: str, what: str) -> bool:
    """Make the call for each bundle of the namespace, to its broker. Return False, without calls, outside a cluster."""
    if call.api.peers is None:
        return False
    for bundle in bundle_ranges(call.bundles()):
        await call.peers.call(method, f"{ADMIN}/namespaces/{call.namespace}/{bundle}/{what}")
    return True
