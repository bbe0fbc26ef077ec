"""Where BookKeeper keeps the metadata of a ledger below the ledgers' root. Pure.

============  =====================================================  ================================
layout        path                                                   manager class in ``LAYOUT``
============  =====================================================  ================================
flat          ``L`` ten digits                                       FlatLedgerManagerFactory
hierarchical  ten digits as 2/4/``L``4; from 2^31-1 on like long      HierarchicalLedgerManagerFactory
long          nineteen digits as 3/4/4/4/``L``4                      LongHierarchicalLedgerManagerFactory
============  =====================================================  ================================
"""

from __future__ import annotations

import enum
import re

from magnetar.bookkeeper.errors import MetadataRequestError

__all__ = ["LAYOUT_VERSION", "Layout", "ledger_id_of", "ledger_path", "parse_layout"]

LAYOUT_VERSION = 2
_SHORT_IDS = (1 << 31) - 1
_LEAF = re.compile(r"L(\d{4}|\d{10})\Z")
_PARENTS = re.compile(r"\d{2,4}\Z")


class Layout(enum.Enum):
    FLAT = "org.apache.bookkeeper.meta.FlatLedgerManagerFactory"
    HIERARCHICAL = "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory"
    LONG_HIERARCHICAL = "org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory"


def parse_layout(path: str, data: bytes) -> Layout:
    """Parse the node ``LAYOUT``: its version, then the class and version of the manager. Raises
    MetadataRequestError.
    """
    version, _, manager = data.decode(errors="replace").strip().partition("\n")
    name = manager.partition(":")[0]
    if version.strip() != str(LAYOUT_VERSION):
        raise MetadataRequestError(path, f"layout version {version[:20]!r}, known is {LAYOUT_VERSION}")
    try:
        return Layout(name)
    except ValueError:
        raise MetadataRequestError(path, f"ledger manager {name[:100]!r} is not known") from None


def ledger_path(layout: Layout, ledger_id: int) -> str:
    """Path below the root, without a leading slash."""
    assert ledger_id >= 0
    if layout is Layout.FLAT:
        return f"L{ledger_id:010d}"
    if layout is Layout.HIERARCHICAL and ledger_id < _SHORT_IDS:
        digits = f"{ledger_id:010d}"
        return f"{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
    digits = f"{ledger_id:019d}"
    return f"{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"


def ledger_id_of(path: str) -> int | None:
    """Return the ledger of a path below the root; None for the path of any other node."""
    *parents, leaf = path.split("/")
    if not _LEAF.match(leaf) or not all(_PARENTS.match(part) for part in parents):
        return None
    shape = tuple(len(part) for part in parents)
    if shape not in ((), (2, 4), (3, 4, 4, 4)) or len(leaf) != (11 if not parents else 5):
        return None
    return int("".join(parents) + leaf[1:])
