"""The existing topics: persistent topics by namespace, and the partition counts of partitioned topics.

Backed by the metadata store, mirrored in memory so that lookups are plain reads; listeners (topic list watchers) are
called for every creation and deletion. A persistent topic exists when its managed ledger does; a partitioned topic is a
record of its own under ``/admin/partitioned-topics/<tenant>/<namespace>/<domain>/<encoded name>`` (Pulsar's path),
value ``{"partitions": n, ...}``. Apache Pulsar ignores the members of a growth, and drops them with its next change.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_plus

import msgspec
import structlog

from magnetar.broker.compat import wire_refusals
from magnetar.broker.errors import UNREADABLE, UnreadableRecordError
from magnetar.protocol.topic_name import PERSISTENT, TopicName
from magnetar.storage.errors import BadVersionError, NoNodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from magnetar.storage.interfaces import MetadataStore
    from magnetar.storage.managed.factory import ManagedLedgerFactory

log = structlog.get_logger(__name__)
ROOT = "/admin/partitioned-topics"
_TOGETHER = 64
"""Records read at the same time."""


class PartitionedTopic(msgspec.Struct, omit_defaults=True, frozen=True, rename="camel"):
    """Metadata of a partitioned topic."""

    partitions: int
    properties: dict[str, str] | None = None
    growing_to: int = 0
    """The partitions that a growth creates before clients may see them; the growth may have died with its broker."""
    topics_before: tuple[int, ...] = ()
    """Indexes among the partitions of that growth that were topics of their own before."""
    deleted: bool = False
    """Another broker deletes the topic, or has failed to: clients create no partition of it, as in Apache Pulsar."""
    deleter: str = ""
    """The broker that has set ``deleted``, with its start; empty for a broker of Apache Pulsar."""

    @property
    def created(self) -> set[int]:
        """The indexes of all partitions that may exist: those of the topic, and those that a growth has created."""
        return {*range(self.partitions), *set(range(self.partitions, self.growing_to)).difference(self.topics_before)}

    def growing(self, partitions: int, topic_exists: Callable[[int], bool]) -> PartitionedTopic:
        """The record at the begin of a growth to so many partitions."""
        added = range(max(self.partitions, self.growing_to), partitions)
        before = (*self.topics_before, *filter(topic_exists, added))
        return msgspec.structs.replace(self, growing_to=max(self.growing_to, partitions), topics_before=before)

    def grown(self, partitions: int) -> PartitionedTopic:
        """The record at the end of a growth to so many partitions; a greater growth may be under way."""
        count = max(self.partitions, partitions)
        goes_on = self.growing_to > count
        before = tuple(index for index in self.topics_before if index >= count) if goes_on else ()
        growing_to = self.growing_to if goes_on else 0
        return msgspec.structs.replace(self, partitions=count, growing_to=growing_to, topics_before=before)

    def marked(self, deleter: str) -> PartitionedTopic:
        """The record while this deleter deletes the topic."""
        return msgspec.structs.replace(self, deleted=True, deleter=deleter)

    def unmarked(self, deleter: str) -> PartitionedTopic:
        """The record after a deletion by this deleter has failed; the same record if it has no mark of this deleter."""
        if not self.deleted or self.deleter != deleter:
            return self
        return msgspec.structs.replace(self, deleted=False, deleter="")


@dataclass(slots=True, eq=False)
class _Read:
    """A read of a record. is_stale: the answer under way may be older than the last change of this broker."""

    is_stale: bool = True


class TopicCatalog:
    """All topics of the metadata store: read once by `load`, then updated with each change that the broker reports."""

    def __init__(self, metadata: MetadataStore, ledgers: ManagedLedgerFactory) -> None:
        self._metadata = metadata
        self._ledgers = ledgers
        self._topics: dict[str, dict[str, TopicName]] = {}
        self._new_topics: dict[str, set[str]] = {}
        """By namespace the persistent topics whose creation is under way."""
        self._reserved: dict[str, dict[str, int]] = {}
        """By namespace the partitioned topics whose creation is under way, with the number of their partitions that are
        to be created.
        """
        self._listed: dict[str, list[str]] = {}
        self._partitioned: dict[str, PartitionedTopic] = {}
        self._unreadable: dict[str, str] = {}
        """Partitioned topic -> path of its record, if the record could not be read and has no earlier value."""
        self._reads: dict[str, list[_Read]] = {}
        """Partitioned topic -> the reads of its record that are under way."""
        self._creating: dict[str, asyncio.Future[None]] = {}
        """Partitioned topics whose record is not durable yet: other requests may not take the name."""
        self._ending: Counter[str] = Counter()
        """Partitioned topics -> their deletions that are under way at this broker."""
        self._listeners: list[Callable[[str, list[str], list[str]], None]] = []

    async def load(self, namespaces: Iterable[str]) -> None:
        """Read everything; called once before the broker listens."""
        for namespace in namespaces:
            for ledger_name in await self._ledgers.names(f"{namespace}/{PERSISTENT}"):
                name = TopicName.from_persistence_name(ledger_name)
                if name is not None:
                    self._topics.setdefault(name.namespace, {})[str(name)] = name
            names = self._topics.get(namespace, {}).values()
            self._listed[namespace] = sorted(str(name) for name in names if not name.is_system)
        for tenant in await self._metadata.children(ROOT):
            for namespace in await self._metadata.children(f"{ROOT}/{tenant}"):
                for domain in await self._metadata.children(f"{ROOT}/{tenant}/{namespace}"):
                    await self._load_partitioned(
                        f"{ROOT}/{tenant}/{namespace}/{domain}", f"{domain}://{tenant}/{namespace}"
                    )

    async def _load_partitioned(self, path: str, prefix: str) -> int:
        """Return the number of records."""
        names = await self._metadata.children(path)
        for start in range(0, len(names), _TOGETHER):
            reads = (self._read_at_start(path, prefix, encoded) for encoded in names[start : start + _TOGETHER])
            await asyncio.gather(*reads)
        return len(names)

    async def _read_at_start(self, path: str, prefix: str, encoded: str) -> None:
        """Read the record of a partitioned topic; a record that cannot be read makes requests for that topic fail."""
        try:
            await self._read_partitioned(path, prefix, encoded)
        except UnreadableRecordError as error:
            log.warning("record.not_readable", path=f"{path}/{encoded}", reason=str(error.__cause__))

    async def _read_partitioned(self, path: str, prefix: str, encoded: str) -> None:
        """Raises StorageError, and UnreadableRecordError while the last readable record stays in force."""
        path, name = f"{path}/{encoded}", f"{prefix}/{unquote_plus(encoded)}"
        found = await self._latest(path, name)
        if found is None:
            self._partitioned.pop(name, None)
        else:
            try:
                self._partitioned[name] = _partitioned_topic(found[0], path)
            except UnreadableRecordError:
                if name not in self._partitioned:
                    self._unreadable[name] = path
                raise
        self._unreadable.pop(name, None)

    async def _latest(self, path: str, name: str) -> tuple[bytes, int] | None:
        """Read the record, again as often as this broker changes the record meanwhile: an earlier value must not undo
        the change in memory.
        """
        read = _Read()
        self._reads.setdefault(name, []).append(read)
        try:
            while read.is_stale:
                read.is_stale = False
                found = await self._metadata.get(path)
            return found
        finally:
            self._reads[name].remove(read)
            if not self._reads[name]:
                del self._reads[name]

    def _changed(self, name: str, topic: PartitionedTopic | None) -> None:
        """Set the record that this broker has written or is about to write, or remove the record that it deletes."""
        if topic is None:
            self._partitioned.pop(name, None)
        else:
            self._partitioned[name] = topic
        for read in self._reads.get(name, ()):
            read.is_stale = True

    async def read_again(self, namespace: str) -> bool:
        """Add the topics of the namespace that the store has by now, plain and partitioned, without a wait for the
        reports of watches. Return whether the store has any. Raises StorageError.
        """
        stored = await self._ledgers.names(f"{namespace}/{PERSISTENT}")
        names = [name for name in map(TopicName.from_persistence_name, stored) if name is not None]
        for name in names:
            self.created(name)
        count = len(names)
        for domain in await self._metadata.children(f"{ROOT}/{namespace}"):
            count += await self._load_partitioned(f"{ROOT}/{namespace}/{domain}", f"{domain}://{namespace}")
        return count > 0

    async def reload_partitioned(self, name: TopicName) -> None:
        """Read the record of a partitioned topic again. Raises as ``reload_record``."""
        await self.reload_record(*partitioned_path(name).removeprefix(f"{ROOT}/").split("/"))

    async def reload_record(self, tenant: str, namespace: str, domain: str, encoded: str) -> None:
        """Read the record of a partitioned topic again after another broker changed it. Raises as
        ``_read_partitioned``.
        """
        path, prefix = f"{ROOT}/{tenant}/{namespace}/{domain}", f"{domain}://{tenant}/{namespace}"
        await self._read_partitioned(path, prefix, encoded)

    # --- questions -----------------------------------------------------------------------------------------------

    def exists(self, name: TopicName) -> bool:
        """Whether the persistent topic (a partition or a plain topic) has been created."""
        return str(name) in self._topics.get(name.namespace, ())

    async def unused_since_ms(self, name: TopicName) -> int | None:
        """When the persistent topic was recorded, if it has not been in use since; else None. Raises StorageError."""
        return await self._ledgers.unused_since_ms(name.persistence_name)

    def partitioned(self, name: TopicName) -> PartitionedTopic | None:
        """Metadata of the partitioned topic with that base name; None without such a topic. Before the topic is
        `settled` its record may still be lost. Raises UnreadableRecordError.
        """
        if (path := self._unreadable.get(str(name))) is not None:
            raise wire_refusals.RECORD_UNREADABLE.error(path=path)
        return self._partitioned.get(str(name))

    def is_ending(self, name: TopicName) -> bool:
        """Whether a broker is deleting the partitioned topic with that base name."""
        known = self._partitioned.get(str(name))
        return str(name) in self._ending or (known is not None and known.deleted)

    def marked(self) -> dict[TopicName, str]:
        """The partitioned topics that a broker deletes, or has failed to delete, and the deleters in their records."""
        return {TopicName.parse(name): each.deleter for name, each in self._partitioned.items() if each.deleted}

    def is_ending_here(self, name: TopicName) -> bool:
        """Whether this broker is deleting the partitioned topic with that base name."""
        return str(name) in self._ending

    def names(self, namespace: str) -> list[str]:
        """Full names of the namespace's persistent topics, each partition listed."""
        return list(self._topics.get(namespace, ()))

    def listed_names(self, namespace: str) -> list[str]:
        """Sorted full names of the persistent topics that clients may list: all but the broker's own."""
        return list(self._listed.get(namespace, ()))

    def topics(self, namespace: str) -> list[TopicName]:
        return list(self._topics.get(namespace, {}).values())

    def partitioned_names(self, namespace: str, domain: str) -> list[str]:
        """Full base names of the namespace's partitioned topics; also of those whose records cannot be read."""
        prefix, known = f"{domain}://{namespace}/", chain(self._partitioned, self._unreadable)
        return [name for name in known if name.startswith(prefix) and name not in self._creating]

    async def settled(self, name: TopicName) -> None:
        """Wait while a request creates the partitioned topic with that base name: no client may see a count that a
        crash or a failure takes back.
        """
        while (creating := self._creating.get(str(name))) is not None:
            await asyncio.wait([creating])

    async def settled_in(self, namespace: str) -> None:
        """Wait for the creations of partitioned topics of the namespace that are under way now."""
        creating = [end for name, end in self._creating.items() if name.partition("://")[2].startswith(f"{namespace}/")]
        if creating:
            await asyncio.wait(creating)

    def count(self, namespace: str) -> int:
        """Number of the namespace's persistent topics, each partition counted, without the broker's own."""
        return len(self._listed.get(namespace, ()))

    def count_with_new(self, namespace: str, but: TopicName | None = None) -> int:
        """The same number, with the topics whose creation is under way except `but`, or the partitions of `but`."""
        new, reserved = self._new_topics.get(namespace, ()), self._reserved.get(namespace, {})
        counted = int(but is not None and str(but) in new)
        if reserved and but is not None and not counted:
            of_base = reserved.get(str(but.base), 0)
            counted = min(of_base, not self.exists(but)) if but.is_partition else of_base
        return self.count(namespace) + len(new) + sum(reserved.values()) - counted

    # --- changes -------------------------------------------------------------------------------------------------

    def creating(self, name: TopicName) -> None:
        """Count a persistent topic for limits until it is created, or `not_creating` ends the attempt."""
        if not name.is_system:
            self._new_topics.setdefault(name.namespace, set()).add(str(name))

    def not_creating(self, name: TopicName) -> None:
        of_namespace = self._new_topics.get(name.namespace, set())
        of_namespace.discard(str(name))
        if not of_namespace:
            self._new_topics.pop(name.namespace, None)

    @contextlib.contextmanager
    def reserved(self, name: TopicName, partitions: int) -> Iterator[None]:
        """Count the partitions of a persistent topic for limits until they are created, or the block ends."""
        if name.is_system or not name.persistent or str(name) in self._reserved.get(name.namespace, {}):
            yield  # in the last case another request creates the topic
            return
        of_namespace = self._reserved.setdefault(name.namespace, {})
        of_namespace[str(name)] = partitions
        try:
            yield
        finally:
            del of_namespace[str(name)]
            if not of_namespace:
                self._reserved.pop(name.namespace, None)

    def created(self, name: TopicName) -> None:
        """Add a persistent topic whose ledger has been created."""
        self.not_creating(name)
        topics = self._topics.setdefault(name.namespace, {})
        if str(name) not in topics:
            topics[str(name)] = name
            reserved = self._reserved.get(name.namespace)
            if reserved and name.is_partition and reserved.get(str(name.base)):
                reserved[str(name.base)] -= 1
            if not name.is_system:
                bisect.insort(self._listed.setdefault(name.namespace, []), str(name))
                self._tell(name.namespace, [str(name)], [])

    def deleted(self, name: TopicName) -> None:
        """Remove a persistent topic whose ledger has been deleted."""
        known = self._topics.get(name.namespace, {}).pop(str(name), None)
        if known is not None and not name.is_system:
            listed = self._listed[name.namespace]
            del listed[bisect.bisect_left(listed, str(name))]
            self._tell(name.namespace, [], [str(name)])

    async def create_partitioned(self, name: TopicName, topic: PartitionedTopic) -> bool:
        """Record a partitioned topic, durable on return; False when it exists already."""
        if str(name) in self._partitioned:
            return False
        self._changed(str(name), topic)
        self._creating[str(name)] = ended = asyncio.get_running_loop().create_future()
        try:
            await self._metadata.put(partitioned_path(name), msgspec.json.encode(topic), -1)
        except BadVersionError:  # another broker, or a request that was cancelled, has recorded the topic
            path, _, encoded = partitioned_path(name).rpartition("/")
            await self._read_partitioned(path, f"{name.domain}://{name.namespace}", encoded)
            return False
        except BaseException:
            if self._partitioned.get(str(name)) is topic:
                self._changed(str(name), None)
            raise
        finally:
            if self._creating.get(str(name)) is ended:
                del self._creating[str(name)]
            ended.set_result(None)
        self._changed(str(name), topic)
        return True

    async def update_partitioned(self, name: TopicName, change: Callable[[PartitionedTopic], PartitionedTopic]) -> None:
        """Replace the stored record by ``change(record)``, durable on return; when another request or another broker
        changes the record meanwhile, apply the change to the new record. A change that returns the same record stores
        nothing. Raises TopicNotFoundError.
        """
        path, known = partitioned_path(name), self._partitioned.get(str(name))
        while (found := await self._metadata.get(path)) is not None:
            stored = _partitioned_topic(found[0], path)
            topic = change(stored)
            try:
                if topic is not stored:
                    await self._metadata.put(path, msgspec.json.encode(topic), found[1])
            except BadVersionError:
                continue
            if str(name) in self._partitioned:  # else a request is about to delete the record
                self._changed(str(name), topic)
            return
        if self._partitioned.get(str(name)) is known:  # another broker has deleted the record
            self._partitioned.pop(str(name), None)
        raise wire_refusals.TOPIC_NOT_PARTITIONED.error(topic=name)

    @contextlib.contextmanager
    def ending(self, name: TopicName) -> Iterator[None]:
        """Mark the partitioned topic in the block: it `is_ending`."""
        self._ending[str(name)] += 1
        try:
            yield
        finally:
            self._ending[str(name)] -= 1
            if not self._ending[str(name)]:
                del self._ending[str(name)]

    async def delete_partitioned(
        self, name: TopicName, partitions: Collection[int] | None = None, *, marked: bool = False
    ) -> bool:
        """Delete the record, durable on return; no error when it does not exist. Return False, and keep the record, if
        other than these ``partitions`` may exist by now: a later record names them, or the record has lost the mark of
        the deletion (``marked``) and clients may have created them. After a StorageError the topic exists as before.
        """
        found = self._partitioned.get(str(name))
        if found is None:
            return True
        self._changed(str(name), None)
        path = partitioned_path(name)
        try:
            while (stored := await self._metadata.get(path)) is not None:
                found = _partitioned_topic(stored[0], path)
                if (partitions is not None and found.created.difference(partitions)) or (marked and not found.deleted):
                    self._partitioned.setdefault(str(name), found)
                    return False
                try:
                    await self._metadata.delete(path, stored[1])
                except BadVersionError:
                    continue
                except NoNodeError:
                    pass  # another broker deleted it first
                break
        except BaseException:
            self._partitioned.setdefault(str(name), found)
            raise
        self._changed(str(name), None)
        return True

    # --- listeners -----------------------------------------------------------------------------------------------

    def listen(self, listener: Callable[[str, list[str], list[str]], None]) -> Callable[[], None]:
        """Call `listener(namespace, new, deleted)` at each change of `listed_names`; returns a function to end it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def _tell(self, namespace: str, new: Iterable[str], deleted: Iterable[str]) -> None:
        for listener in list(self._listeners):
            listener(namespace, list(new), list(deleted))


def _partitioned_topic(record: bytes, path: str) -> PartitionedTopic:
    """Raises UnreadableRecordError."""
    try:
        return msgspec.json.decode(record, type=PartitionedTopic)
    except UNREADABLE as error:
        raise wire_refusals.RECORD_UNREADABLE.error(path=path) from error


def partitioned_path(name: TopicName) -> str:
    """Return the path of a partitioned topic's record."""
    return f"{ROOT}/{name.tenant}/{name.namespace.partition('/')[2]}/{name.domain}/{quote(name.local_name, safe='')}"
