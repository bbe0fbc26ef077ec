"""The change to a new log when a step fails for a while: a start finds all answered changes."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

import tests.crash.metadata_scenario as scenario
from magnetar.storage.errors import StorageFailedError, StorageFullError
from tests.crash.metadata_scenario import FOLDER, MetadataWorld, state_of
from tests.storage.engine_for_tests import run_until_crash

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.metadata.logged_metadata import LoggedMetadataStore
    from tests.twins.sim_files import SimDisk, _Inode


LOG_BYTES = 256 << 10
"""A snapshot is due, and with it the next log, while the log in use still has room for some frames."""


@pytest.fixture(autouse=True)
def _larger_logs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scenario, "LOG_BYTES", LOG_BYTES)


class Passing:
    """An operation of the disk that fails while ``error`` is set."""

    def __init__(self, disk: SimDisk, name: str, concerns: Callable[..., bool] = lambda *_: True) -> None:
        self.error: int | None = None
        self.calls = 0
        real = getattr(disk, name)

        def call(path: str, *args: object, **options: object) -> object:
            if self.error is not None and concerns(path):
                self.calls += 1
                raise OSError(self.error, "simulated")
            return real(path, *args, **options)

        setattr(disk, name, call)


async def fill(store: LoggedMetadataStore, expected: dict[str, bytes], after: Callable[[], None] = lambda: None) -> int:
    """Put nodes; returns how many were refused for want of space."""
    refused = 0
    for number in range(50):
        path, value = f"/n/{number}", b"%d" % len(expected)
        try:
            await store.put(path, value)
            expected[path] = value
        except StorageFullError:
            refused += 1
        after()
    return refused


async def found_again(world: MetadataWorld, expected: dict[str, bytes]) -> None:
    store = world.open()
    assert not store.found_damage
    assert await state_of(store) == expected
    await store.close()


@pytest.mark.parametrize("mode", ["nothing", "everything"])
def test_no_descriptor_to_sync_the_name_of_the_next_log(mode: str):
    """The next log names its preceding frame: after that only the end frame may go into the log before."""
    world, expected = MetadataWorld(), dict[str, bytes]()
    crashed: list[tuple[MetadataWorld, dict[str, bytes]]] = []

    async def main() -> None:
        store = world.open()
        syncs = Passing(world.disk, "sync_dir")
        syncs.error = errno.EMFILE
        assert await fill(store, expected, lambda: crashed.append((world.after_crash(mode), dict(expected))))
        assert syncs.calls
        syncs.error = None
        assert not await fill(store, expected)
        await store.close()

    assert run_until_crash(world.disk, main()) is None
    for after, state in [*crashed, (world.after_crash(mode), expected)]:
        assert run_until_crash(after.disk, found_again(after, state)) is None


def test_no_descriptor_to_open_the_next_log():
    world, expected = MetadataWorld(), dict[str, bytes]()
    crashed: list[tuple[MetadataWorld, dict[str, bytes]]] = []

    async def main() -> None:
        store = world.open()
        opens = Passing(world.disk, "open", lambda path: path.endswith(".log"))
        opens.error = errno.EMFILE
        assert await fill(store, expected)
        assert opens.calls
        crashed.append((world.after_crash("everything"), dict(expected)))
        opens.error = None
        assert not await fill(store, expected)
        await store.close()

    assert run_until_crash(world.disk, main()) is None
    for after, state in [*crashed, (world.after_crash("everything"), expected)]:
        assert run_until_crash(after.disk, found_again(after, state)) is None


def test_a_name_whose_sync_failed_is_not_synced_again():
    world = MetadataWorld()

    async def main() -> None:
        store = world.open()
        syncs = Passing(world.disk, "sync_dir")
        syncs.error = errno.ENOSPC
        with pytest.raises(StorageFailedError):
            await fill(store, {})
        with pytest.raises(StorageFailedError):
            await store.put("/n/0", b"never")
        assert syncs.calls == 1

    assert run_until_crash(world.disk, main()) is None


def test_a_frame_larger_than_the_next_log_was_made_for():
    """The next log exists, but there was no space to continue in it; then comes a frame that needs a larger log."""
    world, expected = MetadataWorld(), dict[str, bytes]()

    async def main() -> None:
        store = world.open()
        store._snapshot_bytes = 1 << 30  # as with many nodes: several logs between two snapshots
        real, full = world.disk.room_for, True

        def room_for(inode: _Inode, offset: int, size: int) -> int:
            following = len([path for path in world.files() if path.endswith(".log")]) > 1
            return size // 2 if full and following else real(inode, offset, size)

        world.disk.room_for = room_for  # type: ignore[method-assign]
        assert await fill(store, expected)
        full = False
        expected["/n/large"] = bytes(2 * LOG_BYTES)
        await store.put("/n/large", expected["/n/large"])
        await store.put("/n/after", b"")
        expected["/n/after"] = b""

    assert run_until_crash(world.disk, main()) is None
    for _ in range(2):
        world = world.after_crash("nothing")
        assert run_until_crash(world.disk, found_again(world, expected)) is None


def test_a_snapshot_without_space_leaves_nothing_behind():
    world, expected = MetadataWorld(), dict[str, bytes]()

    async def main() -> None:
        store = world.open()
        opened, real = [], world.disk.room_for

        def room_for(inode: _Inode, offset: int, size: int) -> int:
            new = [path for path in world.files() if path.endswith(".new")]
            opened.extend(new)
            return size // 2 if any(world.disk._names[path] is inode for path in new) else real(inode, offset, size)

        world.disk.room_for = room_for  # type: ignore[method-assign]
        await fill(store, expected)
        assert opened
        await store.close()
        assert not [path for path in world.disk.paths() if path.startswith(FOLDER) and path.endswith(".new")]

    assert run_until_crash(world.disk, main()) is None
    assert run_until_crash(world.disk, found_again(world.after_crash("everything"), expected)) is None


@pytest.mark.parametrize("mode", ["nothing", "everything"])
@pytest.mark.parametrize("size", [10, 3000])
def test_a_power_loss_while_the_end_frame_replaces_a_frame_without_space(size: int, mode: str):
    """The first copy of a refused frame is on the disk, the next log already has its name, the end frame is not yet
    written: the start drops the refused frame, because its sequence belongs to the end frame.
    """
    refused, large = {"/n/kept": b"kept", "/n/refused": bytes(size)}, {"/n/kept": b"kept", "/n/large": bytes(LOG_BYTES)}
    found = []
    for crash_at in range(60):
        world = MetadataWorld()
        crash = run_until_crash(world.disk, _refused_then_rotated(world, size, crash_at))
        after = world.after_crash(mode)
        states = list[dict[str, bytes]]()
        for _ in range(2):
            assert run_until_crash(after.disk, _state_at_start(after, states)) is None
            after = after.after_crash("nothing")
        assert states[0] == states[1]
        found.append(states[0])
        if crash is None:
            break
    assert found[-1] == large
    assert all(state in ({"/n/kept": b"kept"}, refused, large) for state in found)
    assert len(found) > 10
    if mode == "everything":
        assert found[0] == refused


async def _state_at_start(world: MetadataWorld, states: list[dict[str, bytes]]) -> None:
    store = world.open()
    assert not store.found_damage
    states.append(await state_of(store))
    await store.close()


async def _refused_then_rotated(world: MetadataWorld, size: int, crash_at: int) -> None:
    store = world.open()
    await store.put("/n/kept", b"kept")
    world.disk.full_at = world.disk.operations
    with pytest.raises(StorageFullError):
        await store.put("/n/refused", bytes(size))
    world.disk.crash_at = world.disk.operations + crash_at
    await store.put("/n/large", bytes(LOG_BYTES))
