import errno
import fcntl
import os

import pytest

from magnetar.storage import disk_sync

FULL = 51
SYNCS = [disk_sync.sync_data, disk_sync.sync_all]


@pytest.fixture
def calls(monkeypatch):
    """The syncs, in their order."""
    found = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _descriptor, name=name: found.append(name))
    return found


@pytest.fixture
def refusals(monkeypatch, calls):
    """The system is macOS; append the error number of the next F_FULLFSYNC."""
    errors = []

    def control(_descriptor, command):
        calls.append(command)
        if errors:
            raise OSError(errors.pop(), "refused")

    monkeypatch.setattr(disk_sync, "_FULL", FULL)
    monkeypatch.setattr(disk_sync, "_HAS_DATA_SYNC", False)
    monkeypatch.setattr(fcntl, "fcntl", control)
    return errors


@pytest.mark.parametrize(("sync", "call"), [(SYNCS[0], "fdatasync"), (SYNCS[1], "fsync")])
def test_linux_has_its_own_calls(calls, sync, call):
    sync(3)
    assert calls == [call]


@pytest.mark.parametrize("sync", SYNCS)
def test_syncs_of_macos_reach_the_device(calls, refusals, sync):
    sync(3)
    assert calls == [FULL]
    refusals.append(errno.ENOTSUP)
    sync(3)
    assert calls == [FULL, FULL, "fsync"], "a file system of a network has no such sync"
    refusals.append(errno.EIO)
    with pytest.raises(OSError, match="refused"):
        sync(3)
    assert calls[3:] == [FULL], "a failed sync is not repeated"
