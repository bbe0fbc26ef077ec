"""Lists of topics over REST: the topics of all brokers, in Apache Pulsar's order."""

import asyncio
from collections.abc import Sequence
from operator import itemgetter
from typing import Final

from magnetar.broker.admin.api import Domain
from magnetar.broker.admin.call import Call
from magnetar.broker.admin.routes import ADMIN
from magnetar.broker.compat.java_order import slot_of, table_slots
from magnetar.broker.ownership.ownership import ServedAt
from magnetar.broker.policies.records import bundle_finder, bundle_ranges
from magnetar.broker.slices import sliced, sorted_in_slices

_AT_ONCE: Final = 8
"""Bundles whose brokers this broker calls at the same time."""


async def names_everywhere(call: Call, domain: Domain, bundle: str = "") -> list[str]:
    """The topics of the call's namespace, of the bundle at least where one is given. Only its broker knows a
    non-persistent topic: this broker calls the owners of the bundles that it does not serve. Raises RestError, with 429
    when too many requests about many bundles wait.
    """
    names = call.topics.names(call.namespace, domain)
    if domain == "persistent" or call.api.peers is None:
        return names
    found = dict.fromkeys(names)
    bundles = [each for each in bundle_ranges(call.bundles()) if bundle in ("", each)]
    async with call.walks.place(call.request, len(bundles)):
        for start in range(0, len(bundles), _AT_ONCE):
            for more in await asyncio.gather(*(_at_owner(call, each) for each in bundles[start : start + _AT_ONCE])):
                found |= dict.fromkeys(more)
    return list(found)


async def _at_owner(call: Call, bundle: str) -> list[str]:
    """The non-persistent topics of a bundle that another broker serves; none for other bundles."""
    if not isinstance(await call.api.ownership.bundle_owner(f"{call.namespace}/{bundle}"), ServedAt):
        return []
    return await call.peers.call("GET", f"{ADMIN}/non-persistent/{call.namespace}/{bundle}") or []


async def listed_order(call: Call, names: Sequence[str]) -> list[str]:
    """Topics of the call's namespace as Apache Pulsar lists them: persistent topics sorted by their names; behind these
    non-persistent topics bundle by bundle, inside a bundle in the order of a ConcurrentHashMap to which the topics were
    added in the given order.
    """
    found: list[str] = []
    non_persistent: dict[str, list[str]] = {}
    bundles = call.bundles()
    bundle_of = bundle_finder(bundles)
    async for part in sliced(names):
        for name in part:
            if name.startswith("non-persistent:"):
                non_persistent.setdefault(bundle_of(name), []).append(name)
            else:
                found.append(name)
    found = await sorted_in_slices(found)
    for bundle in bundle_ranges(bundles):
        found += await _by_slot(non_persistent.get(bundle, ()))
    return found


async def _by_slot(names: Sequence[str]) -> list[str]:
    """`java_order` of a ConcurrentHashMap, with turns of the loop between slices."""
    slots = table_slots(len(names) + 1)
    keyed: list[tuple[int, str]] = []
    async for part in sliced(names):
        keyed += sorted(((slot_of(name, slots), name) for name in part), key=itemgetter(0))
    keyed.sort(key=itemgetter(0))
    return [name for _, name in keyed]
