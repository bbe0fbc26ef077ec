"""The bundle that a path names, by its range of the hash: 0x00000000_0x40000000."""

import re
from typing import Final

from magnetar.broker.admin.call import Call
from magnetar.broker.compat import rest_refusals
from magnetar.broker.policies.records import bundle_ranges, even_bundles

_BOUNDARY: Final = re.compile("0x[0-9a-f]{1,8}")


def bundle_of_path(call: Call) -> tuple[str, str]:
    """The two boundaries of the bundle in the path; a missing namespace has a single bundle. Raises 412 when the
    namespace has no such bundle.
    """
    given = call.param("bundle")
    low, _, high = given.lower().partition("_")
    if not (_BOUNDARY.fullmatch(low) and _BOUNDARY.fullmatch(high)):
        raise rest_refusals.BUNDLE_RANGE_INVALID.error(bundle=given)
    first, last = int(low, 16), int(high, 16)
    if first > last:
        raise rest_refusals.BUNDLE_RANGE_BACKWARDS.error(low=first, high=last)
    asked = f"{call.namespace}/0x{first:08x}_0x{last:08x}"
    bundles = call.bundles() if call.namespaces.exists(call.namespace) else even_bundles(1)
    for each in bundle_ranges(bundles):
        start, _, end = each.partition("_")
        if int(start, 16) == first:
            if int(end, 16) != last:
                raise rest_refusals.BUNDLE_END_INVALID.error(bundle=asked, found=f"{call.namespace}/{each}")
            return start, end
    raise rest_refusals.BUNDLE_START_UNKNOWN.error(bundle=asked)
