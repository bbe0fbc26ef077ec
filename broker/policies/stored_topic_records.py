"""The policies of topics in the metadata store: one record for each topic, read at the start."""

import contextlib
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from magnetar.broker.policies.records import TopicPolicies
from magnetar.broker.policies.stored_records import MissingError, Records

if TYPE_CHECKING:
    from magnetar.storage.interfaces import MetadataStore

_TOPIC_POLICIES: Final = "/admin/topic-policies"
_DOMAINS: Final = "persistent", "non-persistent"


class StoredTopicRecords(Records[TopicPolicies]):
    """See ``TopicRecords``."""

    def __init__(self, metadata: "MetadataStore") -> None:
        super().__init__(metadata, TopicPolicies, topic_policies_path)

    async def load_all(self) -> None:
        for tenant in await self._metadata.children(_TOPIC_POLICIES):
            for namespace in await self._metadata.children(f"{_TOPIC_POLICIES}/{tenant}"):
                await self._load_namespace(tenant, namespace)

    async def _load_namespace(self, tenant: str, namespace: str) -> None:
        path = f"{_TOPIC_POLICIES}/{tenant}/{namespace}"
        for domain in await self._metadata.children(path):
            for encoded in await self._metadata.children(f"{path}/{domain}"):
                await self.load_at_start(f"{domain}://{tenant}/{namespace}/{unquote(encoded)}")

    def ready(self, namespace: str) -> Awaitable[None] | None:  # noqa: ARG002 - all of them are
        return None

    async def forget(self, namespace: str) -> None:
        known = [name for domain in _DOMAINS for name in self.names_under(f"{domain}://{namespace}/")]
        in_work = [name for name in self.in_work() if name.partition("://")[2].startswith(f"{namespace}/")]
        for topic in dict.fromkeys((*known, *in_work)):
            with contextlib.suppress(MissingError):  # deleted meanwhile, with its topic
                await self.delete(topic)


def topic_policies_path(name: str) -> str:
    """Return the path of the record of a topic, by its full base name."""
    domain, _, rest = name.partition("://")
    tenant, namespace, local = rest.split("/", 2)
    return f"{_TOPIC_POLICIES}/{tenant}/{namespace}/{domain}/{quote(local, safe='')}"
