"""The broker's metadata of a topic beside its log: what its messages need, and what leads to it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["leading_nodes", "schema_nodes"]


def schema_nodes(name: str) -> Sequence[str]:
    """Paths of the schemas of a managed ledger's topic; nothing when it is no topic's."""
    topic = TopicName.from_persistence_name(name)
    return [f"/schemas/{topic.namespace}/{quote(topic.base.local_name, safe='')}"] if topic is not None else []


def leading_nodes(name: str) -> Sequence[str]:
    """Paths of tenant, namespace, the partitioned topic and the policies of a managed ledger's topic."""
    topic = TopicName.from_persistence_name(name)
    if topic is None:
        return []
    place = f"{topic.namespace}/{topic.domain}/{quote(topic.base.local_name, safe='')}"
    return [
        f"/admin/policies/{topic.tenant}",
        f"/admin/policies/{topic.namespace}",
        f"/admin/partitioned-topics/{place}",
        f"/admin/topic-policies/{place}",
    ]
