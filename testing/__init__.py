"""The fault kit: faults between a program and its broker, on demand (docs/fault-kit.md).

    with magnetar.start(faults=True) as broker:
        broker.faults.lose_receipt()

`client` is the side of tests and imports no broker; everything else runs in the broker's process, and only when
faultKitPort is set.
"""

from magnetar.testing.client import FaultError, Faults, Namespace, Rule, Snapshot

__all__ = ["FaultError", "Faults", "Namespace", "Rule", "Snapshot"]
