"""Settings changed over REST while the broker runs: stored in the metadata store, in force at once and at every start.

    /admin/configuration      JSON object: key -> text, as the client sent it

The brokers of a cluster share the node: each broker follows the changes of the others, including brokers of Apache
Pulsar.

A text that is no valid value of its key is stored and shown but has no effect, as in Apache Pulsar 4.2.4. The removal
of a key restores the value with which the broker was started.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from magnetar.broker.errors import UNREADABLE
from magnetar.broker.setting_areas.dynamic import DYNAMIC
from magnetar.broker.settings import SETTINGS
from magnetar.broker.settings_loader import parse_value
from magnetar.storage.errors import BadVersionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.setting_areas.setting import Value
    from magnetar.broker.settings import Settings
    from magnetar.storage.interfaces import MetadataStore

log = structlog.get_logger(__name__)
CONFIGURATION: Final = "/admin/configuration"


class DynamicSettings:
    """The changed settings of one broker. `listen` sets the listener, which is called after each change that took
    effect.
    """

    names: Final = tuple(sorted(DYNAMIC))

    def __init__(self, metadata: MetadataStore, settings: Settings) -> None:
        self.values: dict[str, str] = {}
        self._on_change: Callable[[], None] | None = None
        self._is_loaded = self._missed = False
        self._metadata = metadata
        self._settings = settings
        self._at_start: dict[str, Value] = {
            key: getattr(settings, row.attribute) for key, row in SETTINGS.items() if key in DYNAMIC
        }
        self._version = -1
        self._lock = asyncio.Lock()

    def listen(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` after each change from now on; also at once if a change came between the first `load` and
        this call, because other parts may have copied the old value before.
        """
        self._on_change = on_change
        if self._missed:
            on_change()

    async def load(self) -> None:
        """Put the stored changes in force, those of other brokers too. Raises StorageError."""
        async with self._lock:
            changed = await self._read()
        if changed and self._is_loaded:
            self._changed()
        self._is_loaded = True

    async def _read(self) -> bool:
        """Apply the stored values; return whether any change took effect. If the record is unreadable, nothing
        changes.
        """
        found = await self._metadata.get(CONFIGURATION)
        before = self.values
        self._version = -1 if found is None else found[1]
        try:
            self.values = {} if found is None else msgspec.json.decode(found[0], type=dict[str, str])
        except UNREADABLE as error:
            log.warning("setting.values_not_readable", path=CONFIGURATION, reason=str(error))
            return False
        applied = [self._reset(key) for key in before if key not in self.values]
        applied += [self._apply(key, text) for key, text in self.values.items() if before.get(key) != text]
        return any(applied)

    async def change(self, key: str, text: str) -> None:
        """Change a setting, durable and in force on return. Precondition: the key is in `names`."""
        await self._store(key, text)
        if self._apply(key, text):
            self._changed()

    async def remove(self, key: str) -> None:
        """Restore the setting's value at the start, durable on return; without effect for a key that was not
        changed.
        """
        if key not in self.values:
            return
        await self._store(key, None)
        if self._reset(key):
            self._changed()

    def _changed(self) -> None:
        if self._on_change is None:
            self._missed = True
        else:
            self._on_change()

    def _reset(self, key: str) -> bool:
        """Whether it took effect."""
        log.info("setting.reset", key=key)
        if key not in self._at_start:
            return False
        self._settings.change(SETTINGS[key].attribute, self._at_start[key])
        return True

    async def _store(self, key: str, text: str | None) -> None:
        async with self._lock:
            while True:
                kept = {name: value for name, value in self.values.items() if name != key}
                if text is not None:
                    kept[key] = text
                try:
                    self._version = await self._metadata.put(CONFIGURATION, msgspec.json.encode(kept), self._version)
                except BadVersionError:  # another broker changed the record first
                    if await self._read():
                        self._changed()
                    continue
                self.values = kept
                return

    def _apply(self, key: str, text: str) -> bool:
        """Whether it took effect."""
        row = SETTINGS.get(key)
        if row is None:
            log.info("setting.kept", key=key, reason="it has no effect here")
            return False
        try:
            self._settings.change(row.attribute, parse_value(row, text.strip()))
        except ValueError as e:
            log.warning("setting.not_changed", key=key, reason=str(e))
            return False
        log.info("setting.changed", key=key, value="(hidden)" if row.secret else text)
        most = self._settings.max_num_partitions_per_partitioned_topic
        if "num_partitions" in row.attribute and 0 < most < self._settings.default_num_partitions:
            self._settings.change("default_num_partitions", most)  # so that automatic creation of topics still works
        return True
