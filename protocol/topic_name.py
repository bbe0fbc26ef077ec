r"""Topic and namespace names: parsed once, compared and printed as Pulsar does.

    persistent://tenant/namespace/local-name           the full form
    tenant/namespace/local-name                        = persistent://...
    local-name                                         = persistent://public/default/local-name

A local name may hold anything but a slash; tenant and namespace only ``[-=:.\w]``. ``-partition-<n>`` at the end of
a local name makes it partition n of the topic before it. The four-part names of Pulsar 1 are refused
(Apache Pulsar 4.2). A name may have MAX_NAME_CHARS characters.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote_plus, unquote_plus

from magnetar.protocol.checksum import crc32c
from magnetar.protocol.errors import InvalidTopicNameError
from magnetar.protocol.url_encoder import url_encoded

if TYPE_CHECKING:
    from collections.abc import Iterable

PERSISTENT = "persistent"
NON_PERSISTENT = "non-persistent"
PUBLIC_DEFAULT = "public/default"
MAX_NAME_CHARS = 1024
"""Longest topic or namespace name. Apache Pulsar sets no limit; stores, metrics and clients have limits."""
_DOMAINS = frozenset({PERSISTENT, NON_PERSISTENT})
_ENTITY = re.compile(r"[-=:.\w]+\Z", re.ASCII)
_PARTITION = re.compile(r"(.*)-partition-(0|[1-9]\d{0,9})\Z", re.DOTALL)
_LAST_PARTITION = 2**31 - 1
_PARTS_OF_PULSAR_1 = 4
"""``tenant/cluster/namespace/local-name``, and all names with more slashes."""
_PARTITION_CHARS = len("-partition-") + 10
POLICY_EVENTS = "__change_events"
_SYSTEM_TOPICS = frozenset(
    {
        POLICY_EVENTS,
        "__transaction_buffer_snapshot",
        "__transaction_buffer_snapshot_segments",
        "__transaction_buffer_snapshot_indexes",
        "__transaction_pending_ack",
    }
)
_TRANSACTION_TOPICS = (
    "persistent://pulsar/system/transaction_coordinator_assign",
    "persistent://pulsar/system/__transaction_log_",
)


class NamespaceName(NamedTuple):
    """``tenant/namespace``."""

    tenant: str
    local_name: str

    def __str__(self) -> str:
        return f"{self.tenant}/{self.local_name}"

    @classmethod
    def parse(cls, text: str) -> NamespaceName:
        """Raises InvalidTopicNameError."""
        check_length(text)
        parts = text.rstrip("/").split("/")
        if len(parts) != 2:
            raise InvalidTopicNameError(f"Invalid namespace format: {text}")
        for part in parts:
            check_entity(part)
        return cls(*parts)


def check_length(text: str) -> None:
    """Refuse a name that is too long, before it is parsed. The partition suffix does not count."""
    if len(text) > MAX_NAME_CHARS + (_PARTITION_CHARS if "-partition-" in text[-_PARTITION_CHARS:] else 0):
        raise InvalidTopicNameError(f"Invalid name: {len(text)} characters, at most {MAX_NAME_CHARS} are allowed")


def check_entity(text: str) -> None:
    """Raise InvalidTopicNameError unless the text can name a tenant, cluster or namespace."""
    if not _ENTITY.match(text):
        raise InvalidTopicNameError(f"Invalid named entity: {text}")


class TopicName:
    """A parsed topic name; equal names are equal, and print as the full name."""

    __slots__ = ("_full", "domain", "local_name", "namespace", "partition", "tenant")

    def __init__(self, domain: str, tenant: str, namespace: str, local_name: str) -> None:
        self.domain = domain
        self.tenant = tenant
        self.namespace = f"{tenant}/{namespace}"
        """``tenant/namespace``."""
        self.local_name = local_name
        self._full = f"{domain}://{tenant}/{namespace}/{local_name}"
        found = _PARTITION.match(local_name)
        index = int(found.group(2)) if found else -1
        self.partition = index if index <= _LAST_PARTITION else -1
        """Index of the partition, -1 for a topic that is no partition."""

    @staticmethod
    def parse(text: str) -> TopicName:
        """Raises InvalidTopicNameError."""
        found = _parsed.get(text)
        if found is None:
            check_length(text)
            found = _parse(text)
            _remember(text, found)
        return found

    @property
    def persistent(self) -> bool:
        return self.domain == PERSISTENT

    @property
    def is_partition(self) -> bool:
        return self.partition >= 0

    @property
    def base(self) -> TopicName:
        """The partitioned topic to which this partition belongs; the topic itself when it is no partition."""
        if self.partition < 0:
            return self
        return self._with_local(self.local_name[: self.local_name.rindex("-partition-")])

    def in_domain(self, domain: str) -> TopicName:
        """Return the name with this domain, ``persistent`` or ``non-persistent``."""
        return TopicName(domain, self.tenant, self.namespace.partition("/")[2], self.local_name)

    def partition_name(self, index: int) -> TopicName:
        """Return the name of partition `index` of this topic, without a search for the index in the name."""
        found = TopicName.__new__(TopicName)
        found.domain, found.tenant, found.namespace = self.domain, self.tenant, self.namespace
        found.local_name = f"{self.local_name}-partition-{index}"
        found._full = f"{self._full}-partition-{index}"  # noqa: SLF001 - another name of this class
        found.partition = index if 0 <= index <= _LAST_PARTITION else -1
        return found

    def _with_local(self, local_name: str) -> TopicName:
        return TopicName(self.domain, self.tenant, self.namespace.partition("/")[2], local_name)

    @property
    def is_system(self) -> bool:
        """Whether the topic is internal to the broker, which leaves it out of lists for clients."""
        return self.base.local_name in _SYSTEM_TOPICS or self.base.is_of_transactions

    @property
    def is_of_policies(self) -> bool:
        """Whether the topic holds the policies of its namespace's topics."""
        return self.base.local_name == POLICY_EVENTS

    @property
    def is_of_transactions(self) -> bool:
        """Whether the transaction coordinator uses a topic of this name; no client may create it."""
        return self._full.startswith(_TRANSACTION_TOPICS) or self._full.endswith("__transaction_pending_ack")

    @property
    def schema_name(self) -> str:
        """``tenant/namespace/encoded local name`` of the base topic: the name of its schema."""
        return f"{self.namespace}/{url_encoded(self.base.local_name)}"

    @property
    def persistence_name(self) -> str:
        """``tenant/namespace/domain/encoded local name``: the name of the managed ledger."""
        return f"{self.namespace}/{self.domain}/{quote_plus(self.local_name)}"

    @classmethod
    def from_persistence_name(cls, text: str) -> TopicName | None:
        """Return the topic of a managed ledger's name; None for a name that belongs to no topic."""
        parts = text.split("/")
        if len(parts) != 4 or parts[2] not in _DOMAINS:
            return None
        return cls(parts[2], parts[0], parts[1], unquote_plus(parts[3]))

    def __str__(self) -> str:
        return self._full

    def __repr__(self) -> str:
        return f"TopicName({self._full!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicName) and other._full == self._full

    def __hash__(self) -> int:
        return hash(self._full)


_KNOWN_BYTES = 12 * 1024 * 1024
_NAME_BYTES = 300
"""About the bytes of a parsed name in the cache, its three texts aside."""
_parsed: dict[str, TopicName] = {}
_parsed_bytes = 0
"""Cache of parsed names, and about its bytes. These bound the cache, because peers choose the names; names of usual
length fit for some twenty thousand topics.
"""


def _remember(text: str, name: TopicName) -> None:
    global _parsed_bytes  # noqa: PLW0603 - one cache of the process
    size = _NAME_BYTES + 3 * sys.getsizeof(text)
    if _parsed_bytes + size > _KNOWN_BYTES:
        _parsed.clear()
        _parsed_bytes = 0
    _parsed[text] = name
    _parsed_bytes += size


def _parse(text: str) -> TopicName:
    domain, separator, rest = text.partition("://")
    if not separator:
        parts = _split(text)
        if len(parts) == 1:
            parts = [*PUBLIC_DEFAULT.split("/"), text]
        elif len(parts) != 3:
            raise InvalidTopicNameError(
                f"Invalid short topic name '{text}', it should be in the format of "
                "<tenant>/<namespace>/<topic> or <topic>"
            )
        domain = PERSISTENT
    else:
        parts = _split(rest, _PARTS_OF_PULSAR_1)
        if len(parts) == _PARTS_OF_PULSAR_1:
            raise InvalidTopicNameError(
                "V1 topic names (with cluster component) are no longer supported. Please use the V2 format: "
                f"'<domain>://tenant/namespace/topic'. Got: {text}"
            )
        if len(parts) != 3:
            raise InvalidTopicNameError(f"Invalid topic name {text}")
        if domain.lower() not in _DOMAINS:
            raise InvalidTopicNameError(f"Invalid topic domain: '{domain}'")
        domain = domain.lower()
    tenant, namespace, local_name = parts
    if not local_name.strip():
        raise InvalidTopicNameError(f"Invalid topic name: {text}. Topic local name must not be blank.")
    check_entity(tenant)
    check_entity(namespace)
    return TopicName(domain, tenant, namespace, local_name)


def _split(text: str, most: int = 0) -> list[str]:
    """Return the parts between slashes, at most `most` (0: any number); only the last of fewer parts may be empty.

    Raises InvalidTopicNameError, as Apache Pulsar does, for an empty part.
    """
    parts = text.split("/", most - 1 if most else -1)
    if not all(parts[:-1]) or (len(parts) == most and not parts[-1]):
        raise InvalidTopicNameError(f"Invalid topic name {text}")
    return parts


def topics_hash(names: Iterable[str]) -> str:
    """Return the hash with which clients check whether their list of topic names is up to date.

    CRC-32C of the sorted names joined by commas, its bytes little-endian in hex; 00000000 for no names.
    """
    joined = ",".join(sorted(names))
    return crc32c(joined.encode()).to_bytes(4, "little").hex() if joined else "00000000"
