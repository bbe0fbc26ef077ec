"""The order of topics in lists over REST."""

from collections.abc import Sequence
from operator import itemgetter

from magnetar.broker.admin.call import Call
from magnetar.broker.compat.java_order import slot_of, table_slots
from magnetar.broker.policies.records import bundle_finder, bundle_ranges
from magnetar.broker.slices import sliced, sorted_in_slices


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
