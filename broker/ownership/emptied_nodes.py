"""Nodes above the records of a namespace or tenant. ZooKeeper keeps them when their last child is gone."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from magnetar.storage.errors import NoNodeError, NotEmptyError

if TYPE_CHECKING:
    from magnetar.storage.coordination import Coordination

__all__ = ["delete_emptied"]

_ROOTS_WITH_DOMAINS: Final = ("/managed-ledgers", "/admin/partitioned-topics")
_ROOTS: Final = (*_ROOTS_WITH_DOMAINS, "/schemas", "/namespace", "/loadbalance/bundle-data")
_ROOTS_OF_TENANTS: Final = (*_ROOTS, "/admin/local-policies")
"""A namespace has a record of its own below the last root, which may be that of a new namespace of the same name."""
_DOMAINS: Final = ("persistent", "non-persistent")


async def delete_emptied(metadata: Coordination, name: str) -> None:
    """Delete the nodes of a deleted namespace or tenant that have no children any more. Raises StorageError."""
    roots = _ROOTS if "/" in name else _ROOTS_OF_TENANTS
    paths = [f"{root}/{name}/{domain}" for root in _ROOTS_WITH_DOMAINS for domain in _DOMAINS]
    for path in [*paths, *(f"{root}/{name}" for root in roots)]:
        with contextlib.suppress(NoNodeError, NotEmptyError):
            await metadata.delete(path)
