"""`magnetar`, for tests of network cuts: reaches bookies through the proxy (``network``) at their ports.

A bookie binds the address that it registers, so the proxy cannot listen at that address.
"""

import sys

from magnetar.__main__ import main
from magnetar.bookkeeper.metadata import zookeeper_registry
from magnetar.bookkeeper.metadata.bookie_info import BookieAddress, bookie_address
from tests.cluster.network import FRONT


def through_the_proxy(bookie_id, registered=b""):
    found = bookie_address(bookie_id, registered)
    return None if found is None else BookieAddress(FRONT, found.port)


zookeeper_registry.bookie_address = through_the_proxy
sys.exit(main())
