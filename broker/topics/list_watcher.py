"""A watcher of a namespace's topics: reports to one client the matching topics that are created or deleted (PIP-145).

Watchers of the same pattern share a `WatchedNames`: the matching names, kept sorted while topics come and go, and their
hash. The watcher holds an update back while the client does not read or its role may not list the namespace; later the
watcher sends the net change of that time.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
from typing import TYPE_CHECKING, Final, Protocol

from magnetar.broker.topics.names_digest import NamesDigest
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import replies

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator, Sequence

    from magnetar.broker.topics.patterns import Room, TopicPattern

MAX_UPDATE_NAMES: Final = 1000
"""Most names in an update; further updates carry the other names."""


class WatchingClient(Protocol):
    """The part of a connection that a watcher needs."""

    def write(self, data: bytes) -> None: ...
    def is_writable(self) -> bool: ...
    def when_writable(self, callback: Callable[[], None]) -> None: ...
    def may_namespace(self, command_type: int, namespace: str) -> bool: ...


class WatchedNames:
    """The names of a namespace that match a pattern, sorted; empty until `load`."""

    def __init__(self, pattern: TopicPattern) -> None:
        self.pattern = pattern
        self.names: list[str] = []
        self.loaded = False
        self.watchers: dict[TopicListWatcher, None] = {}
        self._missed: list[tuple[str, bool]] = []
        self._digest = NamesDigest()

    @property
    def digest(self) -> str:
        """The hash of the names, by which a client compares its own list."""
        return self._digest.of(self.names)

    async def refresh_digest(self) -> None:
        """Hash the names that have changed in slices, so that `digest` takes little time."""
        await self._digest.refresh(self.names)

    async def load(
        self, sorted_names: Callable[[], Sequence[str]], room: Room | None = None, matching: asyncio.Lock | None = None
    ) -> None:
        """Take the names of the namespace that match, then apply the changes that arrived while matching. Without a
        watcher by then, take none.
        """
        async with matching or contextlib.nullcontext():
            if self.watchers:
                self.names = await self.pattern.filter_in_slices(sorted_names(), room)
                self._digest.reset(len(self.names))
                await self.refresh_digest()
        self.loaded = True
        missed, self._missed = self._missed, []
        self.apply(missed)

    def apply(self, changes: Sequence[tuple[str, bool]]) -> tuple[list[str], list[str]]:
        """Apply changes (name, whether the topic exists now); return the matching names that are new and those gone."""
        if not self.loaded:
            self._missed += changes
            return [], []
        before: dict[str, bool] = {}
        for name, exists in changes:
            if self.pattern.matches(name):
                before.setdefault(name, self._set(name, exists=exists))
        now = {name: self._has(name) for name in before}
        new = [name for name, had in before.items() if now[name] and not had]
        gone = [name for name, had in before.items() if had and not now[name]]
        return new, gone

    def _has(self, name: str) -> bool:
        at = bisect.bisect_left(self.names, name)
        return at < len(self.names) and self.names[at] == name

    def _set(self, name: str, *, exists: bool) -> bool:
        """Add or remove a name; return whether the list had the name before."""
        at = bisect.bisect_left(self.names, name)
        had = at < len(self.names) and self.names[at] == name
        if exists and not had:
            self.names.insert(at, name)
            self._digest.inserted(at)
        elif had and not exists:
            del self.names[at]
            self._digest.deleted(at)
        return had


class TopicListWatcher:
    """A watcher of one client, from WATCH_TOPIC_LIST to WATCH_TOPIC_LIST_CLOSE or the end of the connection."""

    def __init__(
        self,
        client: WatchingClient,
        watcher_id: int,
        namespace: str,
        watched: WatchedNames,
        look_again: Callable[[], None],
    ) -> None:
        """look_again: schedules a call of `tell` in a separate turn."""
        self.watched = watched
        self.kept_bytes = watched.pattern.kept_bytes
        self.started = False
        """Whether the client has its first list; the watcher sends no updates before."""
        self._client = client
        self._watcher_id = watcher_id
        self.namespace = namespace
        self._look_again = look_again
        self._held: dict[str, bool] = {}
        self._waits_for_room = self._waits_for_list = False
        self._on_stop: Callable[[TopicListWatcher], None] | None = None

    def on_stop(self, callback: Callable[[TopicListWatcher], None]) -> None:
        self._on_stop = callback

    def stop(self) -> None:
        """End the watcher, which sends no further update; idempotent."""
        callback, self._on_stop = self._on_stop, None
        self._held = {}
        if callback is not None:
            callback(self)

    @contextlib.contextmanager
    def listing(self) -> Iterator[None]:
        """Hold updates back until a list is written: the client applies them to the list."""
        self._waits_for_list = True
        try:
            yield
        finally:
            self._waits_for_list = False
            if self._held and self._on_stop is not None:
                self._look_again()

    def tell(self, new: Sequence[str], gone: Sequence[str]) -> None:
        """Send an update now, or hold it back; with no names, try to send the held-back update."""
        if not self.started or self._on_stop is None:
            return
        for name, exists in (*((n, True) for n in new), *((n, False) for n in gone)):
            if self._held.get(name, exists) is exists:
                self._held[name] = exists
            else:
                del self._held[name]  # the two changes cancel out: the client's list is right
        if not self._held or not self._may_send():
            return
        held = list(itertools.islice(self._held.items(), MAX_UPDATE_NAMES))
        for name, _ in held:
            del self._held[name]
        new, gone = [n for n, exists in held if exists], [n for n, exists in held if not exists]
        self._client.write(replies.watch_topic_update(self._watcher_id, new, gone, self.watched.digest))
        if self._held:
            self._look_again()

    def _may_send(self) -> bool:
        if self._waits_for_list:
            return False
        if not self._client.may_namespace(pb.BaseCommand.WATCH_TOPIC_LIST, self.namespace):
            return False
        if self._client.is_writable():
            return True
        if not self._waits_for_room:
            self._waits_for_room = True
            self._client.when_writable(self._room)
        return False

    def _room(self) -> None:
        self._waits_for_room = False
        self._look_again()
