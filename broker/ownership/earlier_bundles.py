"""The bundles that this broker owned before its restart, while the nodes of its earlier session still exist.

Other brokers find these nodes and send clients to this broker, which is alive at the same address. A broker that
refused the clients would make them double their pauses until the earlier session ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from magnetar.broker.ownership.cluster_nodes import NAMESPACES
from magnetar.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from magnetar.storage.coordination import Coordination

__all__ = ["bundles_with"]

_TOGETHER: Final = 64
"""The number of nodes that are read at the same time."""


async def bundles_with(metadata: Coordination, value: bytes) -> list[str]:
    """Full names of the bundles ``tenant/namespace/0x..._0x...`` whose nodes have this value, sorted. Nodes that cannot
    be read are left out.
    """
    slots = asyncio.Semaphore(_TOGETHER)

    async def children(path: str) -> list[str]:
        with contextlib.suppress(StorageError):
            async with slots:
                return [f"{path}/{name}" for name in await metadata.children(path)]
        return []

    async def below(paths: Iterable[str]) -> list[str]:
        found = await asyncio.gather(*map(children, paths))
        return [path for each in found for path in each]

    async def has_value(path: str) -> bool:
        with contextlib.suppress(StorageError):
            async with slots:
                node = await metadata.get(path)
            return node is not None and node[0] == value
        return False

    paths = sorted(await below(await below(await children(NAMESPACES))))
    ours = await asyncio.gather(*map(has_value, paths))
    return [path.removeprefix(f"{NAMESPACES}/") for path, is_ours in zip(paths, ours, strict=True) if is_ours]
