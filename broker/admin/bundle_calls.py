"""Operations on the bundles of a namespace at their owners. Calls to other brokers have the rights of this broker.
Precondition: the rights of the caller have been checked.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from magnetar.broker.admin.routes import ADMIN
from magnetar.broker.ownership.ownership import Here
from magnetar.broker.policies.records import bundle_ranges

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from magnetar.broker.admin.call import Call
    from magnetar.broker.policies.values import BundlesData

__all__ = ["each_bundle", "on_every_bundle", "unload_anywhere"]

_AT_ONCE: Final = 8
"""Bundles of a request that this broker works on at the same time."""


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
    path = f"{ADMIN}/namespaces/{call.namespace}"
    await each_bundle(call.bundles(), lambda bundle: call.peers.call(method, f"{path}/{bundle}/{what}"))
    return True


async def each_bundle(of: "BundlesData", do: "Callable[[str], Awaitable[object]]") -> None:
    """Do it for each bundle of a namespace, for some bundles at a time. A failure for one leaves the effect
    on the others, as in Apache Pulsar: raises the first failure behind the last bundle.
    """
    failures: list[BaseException] = []
    bundles = bundle_ranges(of)
    for start in range(0, len(bundles), _AT_ONCE):
        part = bundles[start : start + _AT_ONCE]
        results = await asyncio.gather(*map(do, part), return_exceptions=True)
        failures += [each for each in results if isinstance(each, BaseException)]
    if failures:
        raise failures[0]
